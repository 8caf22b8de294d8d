//! `landbox discard`.

use super::Invocation;
use super::land::{Opened, open};
use crate::error::{Failure, Kind, Result};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct DiscardArgs {
    /// Session: exact id, exact name, or a unique prefix
    #[arg(value_name = "ID")]
    id: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub(super) fn discard(call: &Invocation, args: DiscardArgs) -> Result<u8> {
    let Opened { state, session } = open(call, Some(&args.id))?;
    let id = &session.snapshot.id;
    if session.is_running()? {
        return Err(Failure::new(Kind::Refused, format!("session {id} is still running"))
            .hint("end it first"));
    }
    if !args.yes && session.state.landing.discarded_at.is_none() {
        let project = &session.snapshot.policy.project;
        let question = match session.state.changes {
            Some(changes) if changes.files > 0 => {
                let files = changes.files;
                format!("Throw away session {id} of {project} with {files} changed files for good?")
            }
            Some(_) | None => format!("Throw away session {id} of {project} for good?"),
        };
        match call.ui.confirm(&question) {
            Some(true) => {}
            Some(false) => {
                call.ui.status("Nothing was thrown away.");
                return Ok(0);
            }
            None => {
                return Err(Failure::new(Kind::Usage, "there is no terminal to ask on")
                    .hint(format!("landbox discard {id} --yes")));
            }
        }
    }
    crate::land::discard::discard(&state, id)?;
    call.ui.status(format!("Discarded session {id}."));
    Ok(0)
}
