//! Throwing a session's changes away.

use super::apply::{now, parts, prune_equal, recover, stop, stop_if_ended};
use super::layer::project_of;
use super::live::{Restored, take_back as take_back_layer};
use super::select::Selection;
use crate::error::{Context, Failure, Kind, Result};
use crate::overlay::remove::remove_tree;
use crate::session::store::{StateDir, show};
use landbox_shared::id::SessionId;
use landbox_shared::policy::{LayerKind, LayerPolicy};

/// What the folder of the layers is called while it is removed from a full disk.
const LEAVING: &str = "layers.gone";

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
        prune_equal(state, &session, &project)?;
        let counts = super::counts(&session, false)?;
        session.amend(|state| state.changes = Some(counts))?;
    }
    Ok(out)
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
    let parts =
        ["layers", LEAVING, parts::LANDED, "checkpoints", "base", "tmp", "vartmp", "outbox"]
            .map(|n| session.dir.join(n));
    if let Some(at) = &session.state.landing.discarded_at {
        // One that was interrupted is gone on with.
        if !parts.iter().any(|part| part.exists()) {
            let text = format!("session {id} was discarded already, at {at}");
            return Err(Failure::new(Kind::Nothing, text));
        }
    } else {
        // Recorded first: a half-removed layer must never be landed.
        session.state.landing.discarded_at = Some(now());
        session.state.changes = None;
        if let Err(full) = session.save_state() {
            // Often the session itself has filled the disk: then what is to go makes the room. It loses its name first,
            // so that here, too, nothing half removed can be landed.
            let (layers, leaving) = (session.dir.join("layers"), session.dir.join(LEAVING));
            if std::fs::rename(&layers, &leaving).is_err() && !leaving.exists() {
                return Err(full);
            }
            remove_tree(&leaving).context(|| format!("can't remove all of {}", show(&leaving)))?;
            session.save_state()?;
        }
    }
    for path in parts {
        remove_tree(&path).context(|| format!("can't remove all of {}", show(&path)))?;
    }
    Ok(())
}
