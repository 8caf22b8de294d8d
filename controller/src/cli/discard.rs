//! `landbox discard`.

use super::checkpoint::described;
use super::land::{Opened, open};
use super::{Invocation, select};
use crate::error::{Failure, Kind, Result};
use crate::host;
use crate::land::live::go_in;
use crate::land::{self, apply, checkpoint};
use crate::session::document::{Document, Findings};
use crate::session::store::{Session, StateDir, show};
use crate::ui::text::{counted, visible_name};
use clap::Args;
use landbox_shared::id::SessionId;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

#[derive(Debug, Args)]
pub(super) struct DiscardArgs {
    /// Session: exact id, exact name, or a unique prefix
    #[arg(value_name = "ID")]
    id: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Only checkpoint N, for good, or N,N..; may be given more than once. The session and its other checkpoints stay
    #[arg(long, value_name = "N", value_delimiter = ',', conflicts_with = "paths")]
    checkpoint: Vec<u32>,
    /// Only these files and folders, as seen from here or from the project; the session goes on
    #[arg(value_name = "PATH", last = true)]
    paths: Vec<OsString>,
}

pub(super) fn discard(call: &Invocation, args: DiscardArgs) -> Result<u8> {
    let state = StateDir::open(&StateDir::locate(&host::home()?))?;
    if args.checkpoint.is_empty()
        && let Some((id, dir)) = state.broken(&args.id)
    {
        return discard_broken(call, &state, &id, &dir, args.yes);
    }
    let Opened { state, session } = open(call, Some(&args.id))?;
    let id = &session.snapshot.id;
    if !args.checkpoint.is_empty() {
        return drop_checkpoints(call, &state, &session, &args);
    }
    let running = session.is_running()?;
    if running || !args.paths.is_empty() {
        return take_back(call, &state, &session, args, running);
    }
    if !args.yes && session.state.landing.discarded_at.is_none() {
        let project = &session.snapshot.policy.project;
        let question = match session.state.changes {
            Some(changes) if changes.files > 0 => {
                let files = counted(changes.files, "changed file", "changed files");
                format!("Throw away session {id} of {project} with {files} for good?")
            }
            Some(_) | None => format!("Throw away session {id} of {project} for good?"),
        };
        if !sure(call, &look_of(id), &question)? {
            return Ok(0);
        }
    }
    crate::land::discard::discard(&state, id)?;
    call.ui.status(format!("Discarded session {id}."));
    if call.ui.json {
        let session = state.load(id)?;
        let egress = super::policy::traffic(call, &session);
        let findings = Findings { egress, ..super::show::kept(&state, &session) };
        call.ui.document(&Document::new(&session, &findings))?;
    }
    Ok(0)
}

/// Removes checkpoints; what the session holds stays as it is.
fn drop_checkpoints(
    call: &Invocation,
    state: &StateDir,
    session: &Session,
    args: &DiscardArgs,
) -> Result<u8> {
    let id = &session.snapshot.id;
    checkpoint::look_up_all(session, &args.checkpoint)?;
    let numbers: BTreeSet<u32> = args.checkpoint.iter().copied().collect();
    let all = checkpoint::list(session);
    let described = all.iter().filter(|one| numbers.contains(&one.number)).map(described);
    let asked = described.collect::<Vec<_>>().join(" and ");
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    let what = match &numbers[..] {
        [one] => format!("checkpoint {one}"),
        all => format!("checkpoints {}", all.join(", ")),
    };
    let look = format!("landbox land {id} --checkpoint N shows what it holds");
    let question = format!("Throw {asked} of session {id} away for good?");
    if !args.yes && !sure(call, &look, &question)? {
        return Ok(0);
    }
    checkpoint::remove(session, &args.checkpoint)?;
    call.ui.status(format!("Removed {what} of session {id}."));
    if call.ui.json {
        let running = session.is_running()?;
        let egress = super::policy::traffic(call, session);
        let findings = Findings { running, egress, ..super::show::kept(state, session) };
        call.ui.document(&Document::new(session, &findings))?;
    }
    Ok(0)
}

/// Puts the real contents back in the place of what a session wrote that goes on.
fn take_back(
    call: &Invocation,
    state: &StateDir,
    session: &Session,
    args: DiscardArgs,
    running: bool,
) -> Result<u8> {
    let id = &session.snapshot.id;
    if running {
        go_in(session)?;
    }
    let project = &session.snapshot.policy.project;
    let all = args.paths.is_empty();
    let what = if all { "all changes" } else { "the changes at these paths" };
    let goes_on = if running { ", which is running," } else { "" };
    let question = format!("Throw {what} of session {id}{goes_on} to {project} away for good?");
    if !args.yes && !sure(call, &look_of(id), &question)? {
        return Ok(0);
    }
    let selection = select::of_paths(args.paths);
    let restored = land::discard::take_back(state, id, &selection)?;
    let count = restored.done.len();
    let paths = counted(count as u64, "path", "paths");
    call.ui.status(format!("Put {paths} of {project} back as they really are."));
    for (path, why) in &restored.left {
        call.ui.warning(format!("{} stays as it is: {why}", visible_name(path.as_bytes())));
    }
    if call.ui.json {
        let egress = super::policy::traffic(call, session);
        let findings = Findings { running, egress, ..super::show::kept(state, session) };
        call.ui.document(&Document::new(&state.load(id)?, &findings))?;
    }
    if restored.left.is_empty() || count > 0 { Ok(0) } else { Err(nothing_done(id, running)) }
}

fn nothing_done(id: &SessionId, running: bool) -> Failure {
    let failure = Failure::new(Kind::Refused, format!("nothing of session {id} was thrown away"));
    match running {
        true => failure.hint("end the session first, or try again when it has come to rest"),
        false => failure
            .hint(format!("name what lies in the way as well: landbox diff {id} --stat lists it")),
    }
}

/// A session that can't be read is removed whole: nothing of it can be shown or kept on record.
fn discard_broken(
    call: &Invocation,
    state: &StateDir,
    id: &SessionId,
    dir: &Path,
    yes: bool,
) -> Result<u8> {
    let dir_shown = show(dir);
    let question =
        format!("Session {id} can't be read. Remove {dir_shown} with all that it wrote for good?");
    if !yes && !sure(call, &look_of(id), &question)? {
        return Ok(0);
    }
    // What a landing or an undo that broke off needs of this session must be there for it.
    for note in apply::recover_all(state)? {
        call.ui.warning(note);
    }
    state.remove_broken(id, dir)?;
    call.ui.status(format!("Removed session {id}."));
    if call.ui.json {
        call.ui.document(&serde_json::json!({ "id": id, "removed": true }))?;
    }
    Ok(0)
}

/// Asks; where nobody can be asked, that is an error.
fn sure(call: &Invocation, look: &str, question: &str) -> Result<bool> {
    match call.ui.confirm(question) {
        Some(true) => Ok(true),
        Some(false) => {
            call.ui.status("Nothing was thrown away.");
            Ok(false)
        }
        // Not written out: a command without the paths that were named would throw more away than was asked for.
        None => Err(Failure::new(Kind::Usage, call.ui.unasked())
            .hint(format!("the same command with --yes does it; {look}"))),
    }
}

fn look_of(id: &SessionId) -> String {
    format!("landbox diff {id} shows what goes")
}
