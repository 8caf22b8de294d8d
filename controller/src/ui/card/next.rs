//! What to type after a card: the same selection again, whole. A line without the checkpoint, the paths or the options that
//! were given would land something else than what is shown.

use super::{Page, View, YELLOW};
use crate::land::card::{Card, CardChange};
use crate::land::checkpoint::Checkpoint;
use crate::land::kind::ChangeState;
use crate::ui::text::{is_hidden, visible};
use std::fmt::Write;

/// What a command was asked for besides the session, as words of a command line with a space before each.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Options that choose changes.
    pub options: String,
    /// What is done about conflicts.
    pub choices: String,
    /// Paths, with the `--` before them.
    pub paths: String,
    /// The checkpoint that is shown.
    pub checkpoint: Option<Past>,
}

/// A checkpoint that is shown in the place of the session as it is.
#[derive(Clone, Debug)]
pub struct Past {
    /// Its number.
    pub number: u32,
    /// What is known of it.
    pub known: Option<Checkpoint>,
    /// Whether something has landed since it was taken.
    pub overtaken: bool,
}

/// One word as a shell reads it. What can't be shown is spelt as bytes, which bash and zsh read.
pub(crate) fn word(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes)
        && visible(bytes).replace("\\\\", "\\") == text
        && !text.contains(is_hidden)
    {
        return shell_words::quote(text).into_owned();
    }
    let mut out = "$'".to_owned();
    for byte in bytes {
        match byte {
            b'\'' | b'\\' => {
                out.push('\\');
                out.push(char::from(*byte));
            }
            b' '..=b'~' => out.push(char::from(*byte)),
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push('\'');
    out
}

/// Says that a checkpoint is shown, and that it may go backwards.
pub(super) fn past(page: &mut Page, asked: &Asked) {
    let Some(past) = &asked.checkpoint else { return };
    let mut text = format!("checkpoint {}", past.number);
    if let Some(known) = &past.known {
        let what = match (&known.message, known.turn) {
            (Some(message), _) => format!(" ({})", visible(message.as_bytes())),
            (None, Some(turn)) => format!(" (before turn {turn})"),
            (None, None) => String::new(),
        };
        let _ = write!(text, "{what} of {}", known.at);
    }
    page.field("as of", &format!("{text}, not what the session holds now"));
    if past.overtaken {
        let text = "older than the last landing: this may take back what has landed since";
        page.field("back", &page.paint(YELLOW, text));
    }
}

/// The options that choose, the checkpoint among them.
fn options(asked: Option<&Asked>) -> String {
    let Some(asked) = asked else { return String::new() };
    let past = asked.checkpoint.as_ref();
    let number = past.map_or_else(String::new, |past| format!(" --checkpoint {}", past.number));
    number + &asked.options
}

/// The command that shows all of the text.
pub(super) fn whole(card: &Card, view: &View<'_>) -> String {
    let (id, options) = (&card.session, options(view.asked));
    let paths = view.asked.map_or("", |asked| &asked.paths);
    match view.asked.is_some_and(|asked| asked.checkpoint.is_some()) {
        true => format!("landbox land {id}{options} --patch -{paths}"),
        false => format!("landbox diff {id}{options}{paths}"),
    }
}

pub(super) fn next(page: &mut Page, card: &Card, view: &View<'_>) {
    let id = &card.session;
    page.line("");
    if card.applied {
        page.line(&format!("  landbox show {id}"));
        return;
    }
    let none = Asked::default();
    let asked = view.asked.unwrap_or(&none);
    let Asked { choices, paths, .. } = asked;
    let options = options(view.asked);
    let lands = |c: &&CardChange| c.selected && c.landable;
    let risky = card.changes.iter().filter(lands).any(|c| !c.risks.is_empty());
    let open = card.changes.iter().any(|c| c.selected && c.state == ChangeState::Conflict);
    let flags = match (open && choices.is_empty(), risky) {
        (false, false) => "",
        (false, true) => ", with --accept-risk KIND for each",
        (true, false) => ", with --resolve-all CHOICE",
        (true, true) => ", with --resolve-all CHOICE, and --accept-risk KIND for each",
    };
    let mut lines = vec![(whole(card, view), "read all of it".to_owned())];
    if card.changes.iter().any(|c| lands(&c)) {
        let digest = card.digest;
        lines.push((
            format!("landbox land {id}{options}{choices} --apply --expect {digest}{paths}"),
            format!("apply all of it{flags}"),
        ));
        lines.push((
            format!("landbox land {id}{options}{choices} --patch FILE{paths}"),
            "write it as a patch".to_owned(),
        ));
    }
    lines.push(match &asked.checkpoint {
        Some(past) => (
            format!("landbox discard {id} --checkpoint {}", past.number),
            "throw this checkpoint away; the session stays".to_owned(),
        ),
        None if !asked.options.is_empty() => {
            (format!("landbox discard {id}"), "throw all of the session away".to_owned())
        }
        None => (format!("landbox discard {id}{paths}"), "throw it away".to_owned()),
    });
    for (command, what) in lines {
        page.line(&format!("  {command:<38} {what}"));
    }
}
