//! `landbox diff`.

use super::Invocation;
use super::land::{Opened, open};
use crate::error::{Failure, Kind, Result};
use crate::land::review::Review;
use crate::ui::card::{View, render, word};
use clap::Args;

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
    /// Taken only to say what shows a checkpoint
    #[arg(long, hide = true, value_name = "N")]
    checkpoint: Option<String>,
    #[command(flatten)]
    select: super::select::SelectArgs,
}

pub(super) fn diff(call: &Invocation, args: DiffArgs) -> Result<u8> {
    let Opened { state, session } = open(call, args.id.as_deref())?;
    if let Some(number) = &args.checkpoint {
        let command = format!(
            "landbox land {} --checkpoint {}",
            session.snapshot.id,
            word(number.as_bytes())
        );
        let text = "diff shows a session as it is, not as it was at a checkpoint";
        return Err(Failure::new(Kind::Usage, text)
            .hint(format!("{command} shows that, and lands it; with --patch - all of its text")));
    }
    if !session.snapshot.isolated {
        let text = format!(
            "session {} ran without the sandbox: what it wrote is on the real disk already",
            session.snapshot.id
        );
        return Err(Failure::new(Kind::Refused, text).hint("git diff may show it"));
    }
    let selection = args.select.selection()?;
    let review = Review::of(&session, args.layer.as_deref(), selection)?;
    let card = review.card(&session)?;
    if call.ui.json {
        call.ui.document(&card)?;
    } else {
        let color = call.ui.color_stdout();
        let view = View { color, storage: review.is_live(), ..View::default() };
        call.ui.result(render(&card, &view))?;
        if !args.stat && review.selected().next().is_some() {
            call.ui.result("\n")?;
            call.ui.patch(false, |out| review.write_patch(out))?;
        }
        if let Some(line) = super::policy::refused_line(&session) {
            call.ui.status(line);
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
