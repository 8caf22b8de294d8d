//! `landbox checkpoint` and `landbox rewind`.

use super::Invocation;
use super::land::{Opened, open};
use crate::error::{Failure, Kind, Result};
use crate::land::checkpoint::{self, Checkpoint, Rewound};
use crate::land::live::go_in;
use crate::ui::text::{visible, visible_name};
use clap::Args;
use landbox_shared::id::SessionId;
use serde::Serialize;

#[derive(Debug, Args)]
pub(super) struct CheckpointArgs {
    /// Session; the newest of this directory when left out
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// What to remember it by
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct RewindArgs {
    /// Session: exact id, exact name, or a unique prefix
    #[arg(value_name = "ID")]
    id: String,
    /// Number of the checkpoint, 0 for the beginning; when left out, the newest with other files than now
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: Option<u32>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub(super) fn checkpoint(call: &Invocation, args: CheckpointArgs) -> Result<u8> {
    let Opened { state, session } = open(call, args.id.as_deref())?;
    let id = &session.snapshot.id;
    let (taken, gone) = checkpoint::take(&state, id, args.message)?;
    call.ui.status(format!("Took checkpoint {} of session {id}.", taken.number));
    if let Some(gone) = gone {
        call.ui.status(format!("Checkpoint {gone}, the oldest, made room for it."));
    }
    if call.ui.json {
        call.ui.document(&taken)?;
    }
    Ok(0)
}

pub(super) fn rewind(call: &Invocation, args: RewindArgs) -> Result<u8> {
    let Opened { state, session } = open(call, Some(&args.id))?;
    let id = &session.snapshot.id;
    let meant = checkpoint::look_up(&state, id, args.checkpoint)?;
    let number = meant.number;
    let running = session.is_running()?;
    if running {
        go_in(&session)?;
    }
    let (to, described) = (place(number), described(&meant));
    let question = match running {
        true => {
            format!("Bring session {id}, which is running, back to {described}? Its home stays.")
        }
        false => format!("Bring session {id} back to {described}?"),
    };
    match if args.yes { Some(true) } else { call.ui.confirm(&question) } {
        Some(true) => {}
        Some(false) => {
            call.ui.status("Nothing was changed.");
            return Ok(0);
        }
        None => {
            return Err(Failure::new(Kind::Usage, call.ui.unasked())
                .hint(format!("landbox rewind {id} {number} --yes")));
        }
    }
    let Rewound { back, before, left, moved, home_stays } = checkpoint::rewind(&state, id, number)?;
    match before {
        Some(before) => {
            let was = before.number;
            // Who named none is told which it was.
            let to = if args.checkpoint.is_some() { to } else { described };
            call.ui
                .status(format!("Session {id} is back at {to}; what it was is checkpoint {was}."));
        }
        None => {
            call.ui.status(format!("Session {id} is as it was at {to}; nothing was changed."));
            let others = format!("landbox show {id} lists its checkpoints");
            call.ui.status(match args.checkpoint {
                Some(1..) => format!("{others}, landbox rewind {id} goes further back."),
                Some(0) | None => format!("{others}."),
            });
        }
    }
    if home_stays {
        call.ui.status("Its home stays as it is, since it runs.");
    }
    for (path, why) in &left {
        call.ui.warning(format!("{} stays as it is: {why}", visible_name(path.as_bytes())));
    }
    if call.ui.json {
        call.ui.document(&Back { back, home_stays })?;
    }
    if left.is_empty() || moved { Ok(0) } else { Err(nothing_done(id)) }
}

/// The checkpoint that a session is back at.
#[derive(Serialize)]
struct Back {
    #[serde(flatten)]
    back: Checkpoint,
    /// Whether the home differs still.
    home_stays: bool,
}

fn nothing_done(id: &SessionId) -> Failure {
    Failure::new(Kind::Refused, format!("nothing of session {id} was brought back"))
        .hint("end the session first, or try again when it has come to rest")
}

/// A checkpoint by its number, in a sentence.
fn place(number: u32) -> String {
    match number {
        0 => "its beginning".to_owned(),
        number => format!("checkpoint {number}"),
    }
}

/// The same with what it is and when it was.
pub(super) fn described(checkpoint: &Checkpoint) -> String {
    let (to, at) = (place(checkpoint.number), &checkpoint.at);
    match label(checkpoint).as_str() {
        "" => format!("{to} ({at})"),
        label => format!("{to} ({label}, {at})"),
    }
}

/// What the owner said of a checkpoint, or why it was taken; nothing where neither is known.
pub(super) fn label(checkpoint: &Checkpoint) -> String {
    match (&checkpoint.message, checkpoint.turn) {
        (Some(message), _) => visible(message.as_bytes()),
        (None, Some(turn)) => format!("before turn {turn}"),
        (None, None) => String::new(),
    }
}
