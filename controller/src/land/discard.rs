//! Throwing a session's changes away.

use super::apply::finish::UNDONE;
use super::apply::{now, parts, prune_equal, recover, stop, stop_if_ended};
use super::layer::project_of;
use super::live::{Restored, take_back as take_back_layer};
use super::select::Selection;
use crate::error::{Context, Failure, Kind, Result};
use crate::overlay::remove::remove_tree;
use crate::session::store::{DISCARDED, Session, StateDir, show};
use landbox_shared::id::SessionId;
use landbox_shared::policy::{LayerKind, LayerPolicy};
use std::io;
use std::path::{Path, PathBuf};

/// Takes back what `selection` holds of the project, and without paths of every other layer but the home, of a session
/// that may be running: the real contents take the place of what it wrote. The session itself goes on.
pub fn take_back(state: &StateDir, id: &SessionId, selection: &Selection) -> Result<Restored> {
    let session = state.load(id)?;
    super::check_present(&session)?;
    let project = project_of(&session).cloned().ok_or_else(|| {
        Failure::new(Kind::Nothing, format!("session {id} ran without the sandbox"))
    })?;
    // A landing of this project and this would get into each other's way.
    recover(state, &project.target)?;
    let stopped = stop_if_ended(&session)?;
    let mut session = state.load(id)?;
    let selection = Selection { all: true, back: true, ..selection.clone() };
    let mut out = Restored::default();
    let policy = session.snapshot.policy.clone();
    let wanted = |layer: &&LayerPolicy| match layer.kind {
        LayerKind::Project => true,
        LayerKind::Worktree | LayerKind::Mount => selection.paths.is_empty(),
        // A CLI that loses its own notes while it runs has no use for what it sees.
        LayerKind::Home => false,
    };
    for layer in policy.layers.iter().filter(wanted) {
        let restored = take_back_layer(&session, layer, &selection, stopped.is_none())?;
        if layer.kind == LayerKind::Project {
            out.done.extend(restored.done);
        }
        out.left.extend(restored.left);
    }
    if stopped.is_some() {
        match settle(state, &mut session, &project) {
            // It is done all the same, and the figures are taken anew by whoever asks next.
            Err(failure) if failure.is_for_room() => {}
            settled => settled?,
        }
    }
    Ok(out)
}

fn settle(state: &StateDir, session: &mut Session, project: &LayerPolicy) -> Result<()> {
    prune_equal(state, session, project)?;
    let counts = super::counts(session, false)?;
    session.amend(|state| state.changes = Some(counts))
}

/// Removes what the session wrote: layers, base, private temporary folders. The session itself stays on record, without
/// its name being in use.
pub fn discard(state: &StateDir, id: &SessionId) -> Result<()> {
    let session = state.load(id)?;
    if let Some(layer) = project_of(&session) {
        // What a landing or an undo that broke off needs of this session must be there for it.
        recover(state, &layer.target)?;
    }
    let _stopped = stop(&session)?;
    let mut session = state.load(id)?;
    let parts = ["layers", parts::LANDED, UNDONE, "checkpoints", "base", "tmp", "vartmp", "outbox"]
        .map(|name| session.dir.join(name));
    let gone = session.dir.join(DISCARDED);
    if let Some(at) = &session.state.landing.discarded_at {
        // One that was interrupted is gone on with.
        if !parts.iter().chain([&gone]).any(|part| part.exists()) {
            let text = format!("session {id} was discarded already, at {at}");
            return Err(Failure::new(Kind::Nothing, text)
                .hint("landbox gc removes what is on record of it"));
        }
    } else {
        session.state.landing.discarded_at = Some(now());
        session.state.changes = None;
    }
    // Recorded first: a half-removed layer must never be landed.
    let recorded = match session.save_state() {
        Ok(()) => true,
        Err(full) => match record_by_name(&session, &gone) {
            Ok(()) => {
                empty(&gone)?;
                false
            }
            // A name may cost room, too. What is nobody's change goes first, then.
            Err(_) => {
                make_room(&session).map_err(|_| full)?;
                session.save_state()?;
                true
            }
        },
    };
    remove_all(&parts)?;
    // What went has made room, as a rule. Where it has not, the name goes on saying it.
    if recorded || session.save_state().is_ok() { remove_all(&[gone]) } else { Ok(()) }
}

/// Often the session itself has filled the disk on which its end cannot be recorded for that. A name can be changed on a
/// full disk, and is as good a record.
fn record_by_name(session: &Session, gone: &Path) -> io::Result<()> {
    if gone.exists() {
        return Ok(());
    }
    match std::fs::rename(session.dir.join("layers"), gone) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => std::fs::create_dir(gone),
        other => other,
    }
}

/// Removes what a session keeps beside its changes, and has the file system count what that gives. Names alone are removed:
/// Btrfs changes and shortens nothing once its quota is used up.
fn make_room(session: &Session) -> Result<()> {
    let beside = ["checkpoints", "tmp", "vartmp", "scratch", UNDONE];
    remove_all(&beside.map(|name| session.dir.join(name)))?;
    let what = || format!("can't sync {}", show(&session.dir));
    let dir = std::fs::File::open(&session.dir).context(what)?;
    rustix::fs::syncfs(&dir).context(what)
}

fn remove_all(parts: &[PathBuf]) -> Result<()> {
    for path in parts {
        remove_tree(path).context(|| format!("can't remove all of {}", show(path)))?;
    }
    Ok(())
}

/// Removes what a folder holds.
fn empty(folder: &Path) -> Result<()> {
    let names = std::fs::read_dir(folder)
        .and_then(|all| all.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
    remove_all(&names.context(|| format!("can't list {}", show(folder)))?)
}
