//! `landbox checkpoint` and `landbox rewind`.

use super::Invocation;
use super::land::{Opened, open};
use crate::error::{Failure, Kind, Result};
use crate::land::checkpoint::{self, Rewound};
use crate::land::live::go_in;
use crate::ui::text::visible_name;
use clap::Args;
use landbox_shared::id::SessionId;

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
    /// Number of the checkpoint, 0 for the beginning; the newest when left out
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
    let number = checkpoint::look_up(&session, args.checkpoint)?;
    let running = session.is_running()?;
    if running {
        go_in(&session)?;
    }
    let to = place(number);
    let question = match running {
        true => format!("Bring session {id}, which is running, back to {to}? Its home stays."),
        false => format!("Bring session {id} back to {to}?"),
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
    let Rewound { back, before, left, moved } = checkpoint::rewind(&state, id, Some(number))?;
    call.ui.status(match before {
        Some(before) => {
            format!("Session {id} is back at {to}; what it was is checkpoint {}.", before.number)
        }
        None => format!("Session {id} is as it was at {to}; nothing was changed."),
    });
    for (path, why) in &left {
        call.ui.warning(format!("{} stays as it is: {why}", visible_name(path.as_bytes())));
    }
    if call.ui.json {
        call.ui.document(&back)?;
    }
    if left.is_empty() || moved { Ok(0) } else { Err(nothing_done(id)) }
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
