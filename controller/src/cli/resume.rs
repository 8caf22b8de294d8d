//! `landbox resume`.

use super::start::{self, Starter};
use super::{Invocation, run, show};
use crate::config::Checkpoints;
use crate::error::{Failure, Kind, Result};
use crate::host::storage::require_answers;
use crate::host::{Facts, Fuse, UpperSupport, helper};
use crate::session::store::{Attendance, Session, StateDir, show as show_path};
use clap::Args;
use landbox_shared::bytes;
use landbox_shared::policy::Backend;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub(super) struct ResumeArgs {
    /// Write the session document to FILE at exit
    #[arg(long, value_name = "FILE")]
    report: Option<std::path::PathBuf>,
    // Refused: it is no use where stdout belongs to the command, so help does not list it.
    #[arg(long, hide = true)]
    json: bool,
    /// Session: exact id, exact name, or a unique prefix
    #[arg(value_name = "ID")]
    id: String,
    /// Another command instead of the first one
    #[arg(value_name = "CMD", last = true)]
    command: Vec<OsString>,
}

pub(super) fn resume(call: &Invocation, args: ResumeArgs) -> Result<u8> {
    let facts = Facts::gather()?;
    let state = StateDir::open(facts.state_dir.as_path())?;
    let mut session = state.find(Some(&args.id), None)?;
    run::put_right(call, &state, &session.snapshot.policy.project)?;
    if session.snapshot.packaged_helper {
        helper::require_packaged(true)?;
    }
    let starter = Starter::new(call, facts, state)?;
    if let Some(note) = crate::land::checkpoint::finish(&starter.state, &session)? {
        call.ui.warning(note);
    }
    if let Some(note) = crate::land::live::clear(&session)? {
        call.ui.warning(note);
    }
    // Held until the end: the session is neither landed, removed nor resumed a second time meanwhile.
    let _attendance = attend(&session)?;
    // What another command did before the session was ours counts.
    session = starter.state.load(&session.snapshot.id)?;
    refuse_closed(&session)?;
    refuse_emptied(&session)?;
    let layers = session.snapshot.policy.layers.iter().map(|layer| &layer.target);
    require_answers(&starter.facts.mounts, layers)?;
    same_backends(&session, &starter.facts)?;
    starter.refuse_unsigned(&session)?;
    run::admit(&session.snapshot.policy, None)?;
    let command = if args.command.is_empty() { frozen_command(&session)? } else { args.command };
    // While nothing is mounted: what is found clean now has its base recorded before the epochs move on.
    show::refresh_changes(&mut session, false);
    // What landed while the session ran lies in its layer still, and would hide what its owner makes of it.
    crate::land::forget_landed(&starter.state, &session);
    crate::land::forget_origins(&session);
    match session.snapshot.checkpoints {
        Checkpoints::Turn => crate::land::checkpoint::before_launch(&mut session),
        Checkpoints::Manual => {}
    }
    let begun = start::begin()?;
    match starter.launch(&mut session, &command, args.report.as_deref(), begun) {
        Ok(code) => Ok(code),
        Err(unstarted) => {
            let recorded = unstarted.record(&mut session);
            starter.report(&session, args.report.as_deref(), Vec::new());
            let told = run::tell(call, unstarted, &command);
            recorded.and(told)
        }
    }
}

/// Takes the session. A command that only looks holds its locks for a moment, so one look is not enough.
fn attend(session: &Session) -> Result<Attendance> {
    let until = Instant::now() + Duration::from_millis(200);
    loop {
        if let Some(attendance) = session.attend()?
            && session.try_lock()?.is_some()
        {
            return Ok(attendance);
        }
        if Instant::now() > until {
            return Err(running(session));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A layer that is gone is not the same as one in which nothing was written.
fn refuse_emptied(session: &Session) -> Result<()> {
    if session.state.launches.iter().all(|launch| launch.boundary.is_none()) {
        return Ok(());
    }
    let layers = session.snapshot.policy.layers.iter().map(|l| (l, session.upper(&l.id)));
    for (layer, upper) in layers {
        if !std::fs::symlink_metadata(&upper).is_ok_and(|meta| meta.is_dir()) {
            let id = &session.snapshot.id;
            let message =
                format!("layer {} of session {id} is missing: {}", layer.id, show_path(&upper));
            return Err(Failure::new(Kind::Failed, message)
                .hint(format!("put it back, or throw the session away: landbox discard {id}")));
        }
    }
    Ok(())
}

fn running(session: &Session) -> Failure {
    let id = &session.snapshot.id;
    Failure::new(Kind::Refused, format!("session {id} is running or being landed")).hint(format!(
        "wait for it, or end its command; landbox land {id} reviews what it wrote so far"
    ))
}

fn refuse_closed(session: &Session) -> Result<()> {
    let id = &session.snapshot.id;
    if !session.snapshot.isolated {
        return Err(Failure::new(Kind::Refused, format!("session {id} ran without a boundary"))
            .hint("there is nothing to go on in; start a new one with landbox run"));
    }
    if session.state.landing.discarded_at.is_some() {
        return Err(Failure::new(Kind::Refused, format!("session {id} was discarded"))
            .hint("start a new one with landbox run"));
    }
    let uid = rustix::process::geteuid().as_raw();
    if session.snapshot.policy.uid != uid {
        return Err(Failure::new(
            Kind::Refused,
            format!(
                "session {id} belongs to uid {}, not to you ({uid})",
                session.snapshot.policy.uid
            ),
        ));
    }
    Ok(())
}

/// A layer is mounted by the back end that wrote it, or not at all: the other one would misread it.
fn same_backends(session: &Session, facts: &Facts) -> Result<()> {
    let id = &session.snapshot.id;
    let keep = format!("landbox diff {id} and landbox land {id} work without it");
    for layer in &session.snapshot.policy.layers {
        let failure = |why: String, remedy: &str| {
            Err(Failure::new(
                Kind::Unavailable,
                format!("layer {} of session {id} {why}", layer.id),
            )
            .hint(remedy)
            .hint(keep.clone()))
        };
        match (layer.backend, &facts.fuse, &facts.upper) {
            (Backend::Fuse, Fuse::NoProgram, _) => {
                return failure(
                    "was written by fuse-overlayfs, which is not installed".into(),
                    "install fuse-overlayfs (landbox doctor --fix)",
                );
            }
            (Backend::Fuse, Fuse::NoDevice, _) => {
                return failure(
                    "was written by fuse-overlayfs, and /dev/fuse is closed to you".into(),
                    "make it usable: sudo modprobe fuse && sudo chmod 666 /dev/fuse",
                );
            }
            (Backend::Kernel, _, UpperSupport::No(why)) => {
                return failure(
                    format!(
                        "was written by the kernel's overlay, which can't be mounted now: {why}"
                    ),
                    "move the state folder back to where it was (LANDBOX_STATE_DIR)",
                );
            }
            (Backend::Fuse, Fuse::Yes, _) | (Backend::Kernel, _, UpperSupport::Yes) => {}
        }
    }
    Ok(())
}

fn frozen_command(session: &Session) -> Result<Vec<OsString>> {
    let words = session.snapshot.command.iter();
    words
        .map(|word| bytes::unescape(word).map(OsString::from_vec))
        .collect::<Option<Vec<_>>>()
        .filter(|words| !words.is_empty())
        .ok_or_else(|| {
            let id = &session.snapshot.id;
            Failure::new(Kind::Refused, format!("the command of session {id} can't be understood"))
                .hint(format!("name one: landbox resume {id} -- CMD"))
        })
}
