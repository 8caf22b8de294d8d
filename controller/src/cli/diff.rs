//! `landbox diff`.

use super::Invocation;
use super::land::{Opened, open};
use crate::error::Result;
use crate::land::review::Review;
use crate::land::select::Selection;
use crate::ui::card::{View, render};
use clap::Args;
use landbox_shared::path::RelPath;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// Session; the newest of this directory when left out
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Print the list of changes without their text
    #[arg(long)]
    stat: bool,
    /// Show this layer instead of the project
    #[arg(long, value_name = "NAME")]
    layer: Option<String>,
    /// Include what the project's own ignore rules cover
    #[arg(long)]
    with_ignored: bool,
    /// Only these paths, relative to the project
    #[arg(value_name = "PATH", last = true)]
    paths: Vec<std::ffi::OsString>,
}

pub(super) fn diff(call: &Invocation, args: DiffArgs) -> Result<u8> {
    let Opened { state, session } = open(call, args.id.as_deref())?;
    let paths = args.paths.into_iter().map(chosen).collect::<Result<Vec<_>>>()?;
    let selection = Selection { with_ignored: args.with_ignored, paths, all: false };
    let review = Review::of(&session, args.layer.as_deref(), selection)?;
    let card = review.card(&session)?;
    if call.ui.json {
        call.ui.document(&card)?;
    } else {
        let view = View { with_ignored: args.with_ignored, ..View::default() };
        let view = View { color: call.ui.color_stdout(), ..view };
        call.ui.result(render(&card, &view))?;
        if !args.stat && review.selected().next().is_some() {
            call.ui.result("\n")?;
            call.ui.patch(false, |out| review.write_patch(out))?;
        }
        if review.is_live() {
            call.ui.status("The session is running: this is a picture of a moment.");
        }
    }
    if let Some(note) = review.note() {
        call.ui.warning(note);
    }
    drop(review);
    // Shown first, then made durable: waiting for the disk is nothing the reader has to see.
    crate::land::sync::session(&state, &session.snapshot.id)?;
    Ok(0)
}

/// A path as typed: `./` and a slash at the end mean nothing.
fn chosen(path: std::ffi::OsString) -> Result<RelPath> {
    let shown = crate::ui::text::visible(path.as_os_str().as_bytes());
    let parts: Vec<u8> = path.into_vec();
    let kept: Vec<&[u8]> =
        parts.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".").collect();
    let relative = parts.first() != Some(&b'/');
    RelPath::new(kept.join(&b'/')).ok().filter(|_| relative).ok_or_else(|| {
        crate::error::Failure::new(
            crate::error::Kind::Usage,
            format!("{shown} is no path inside the project"),
        )
        .hint("give paths relative to the project")
    })
}
