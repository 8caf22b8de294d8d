//! How the owner says what is done about conflicts: by flags, or asked on the terminal.

use super::Invocation;
use crate::error::{Failure, Kind, Result};
use crate::land::resolve::{Choice, Choices, Chosen, Resolution};
use crate::land::review::Review;
use crate::land::select::Wanted;
use crate::session::store::Session;
use crate::ui::card::word;
use crate::ui::text::{visible, visible_name};
use clap::Args;
use landbox_shared::path::AbsPath;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

#[derive(Debug, Args)]
pub(super) struct ConflictArgs {
    /// What is done where your edit and the session's clash at PATH: mine, theirs, markers or skip. A folder stands for
    /// all that lies below it; may be given more than once
    #[arg(long, value_name = "PATH=CHOICE")]
    resolve: Vec<OsString>,
    /// The same for every clash without a --resolve of its own
    #[arg(long, value_name = "CHOICE")]
    resolve_all: Option<String>,
}

impl ConflictArgs {
    /// The same as words of a command line.
    pub(super) fn asked(&self) -> String {
        let mut out = String::new();
        for typed in &self.resolve {
            out.push_str(" --resolve ");
            out.push_str(&word(typed.as_bytes()));
        }
        if let Some(all) = &self.resolve_all {
            out.push_str(" --resolve-all ");
            out.push_str(&word(all.as_bytes()));
        }
        out
    }

    /// Puts the choices that were typed to the changes of `review`, which then shows what they come to.
    pub(super) fn put(&self, review: &mut Review, session: &Session) -> Result<Choices> {
        let all = self.resolve_all.as_deref().map(Choice::parse).transpose()?;
        let mut choices = Choices { all, ..Choices::default() };
        let here = std::env::current_dir().and_then(|dir| dir.canonicalize()).ok();
        let here = here.and_then(|dir| AbsPath::from_path(&dir).ok());
        for typed in &self.resolve {
            let (path, choice) = parse(typed.clone())?;
            let path = review.path_of(session, &Wanted::new(path, here.clone()))?;
            choices.set(path, choice);
        }
        if choices == Choices::default() {
            return Ok(choices);
        }
        review.resolve(session, &choices)?;
        if let Some(path) = review.resolution().unused(&choices).first() {
            let path = visible_name(path.as_bytes());
            return Err(Failure::new(Kind::Usage, format!("nothing clashes at {path}")).hint(
                format!(
                    "landbox land {} shows what does; -- PATH.. and --exclude choose what lands",
                    session.snapshot.id
                ),
            ));
        }
        Ok(choices)
    }
}

fn parse(typed: OsString) -> Result<(Vec<u8>, Choice)> {
    let bytes = typed.into_vec();
    let Some(at) = bytes.iter().rposition(|b| *b == b'=') else {
        let shown = visible_name(&bytes);
        return Err(Failure::new(Kind::Usage, format!("--resolve {shown} names no choice"))
            .hint("write --resolve PATH=mine, =theirs, =markers or =skip"));
    };
    let word = String::from_utf8_lossy(&bytes[at + 1..]).into_owned();
    Ok((bytes[..at].to_vec(), Choice::parse(&word)?))
}

/// Asks about every conflict that is undecided. False where the owner wants none of it.
pub(super) fn ask(call: &Invocation, review: &Review, choices: &mut Choices) -> bool {
    for (item, clash) in review.resolution().open() {
        let path = visible_name(item.change.path.as_bytes());
        call.ui.status(format!("{path}: {}.", visible(clash.to_string().as_bytes())));
        let possible = Resolution::choices_of(item);
        let names: Vec<&str> = possible.iter().map(|choice| choice.word()).collect();
        let choice = loop {
            let question = format!("What is to become of it? [{}, quit]", names.join(", "));
            let Some(answer) = call.ui.ask(&question) else { return false };
            let answer = answer.trim().to_ascii_lowercase();
            if answer.is_empty() || "quit".starts_with(&answer) {
                return false;
            }
            // No two begin with the same letter but these: "m" alone could mean either.
            let mut fits = possible.iter().filter(|choice| choice.word().starts_with(&answer));
            if let (Some(one), None) = (fits.next(), fits.next()) {
                break *one;
            }
            call.ui.status(format!("One of these, please: {}, quit.", names.join(", ")));
        };
        let real = item.expect_old.as_ref().filter(|_| item.expect.node().is_none());
        let seen = Some(real.unwrap_or(&item.expect).clone());
        choices.paths.insert(item.change.path.clone(), Chosen { choice, seen });
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_equals_sign_ends_the_path() {
        let (path, choice) = parse("a=b=theirs".into()).unwrap();
        assert_eq!((path.as_slice(), choice), (&b"a=b"[..], Choice::Theirs));
        for bad in ["a", "a=", "a=yours", "theirs"] {
            assert_eq!(parse(bad.into()).unwrap_err().kind, Kind::Usage, "{bad}");
        }
    }
}
