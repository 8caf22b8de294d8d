//! Throwing a session's changes away.

use super::apply::{now, recover, stop};
use super::layer::project_of;
use crate::error::{Context, Failure, Kind, Result};
use crate::overlay::remove::remove_tree;
use crate::session::store::{StateDir, show};
use landbox_shared::id::SessionId;

/// Removes what the session wrote: layers, base, private temporary folders. The session itself stays on record, without
/// its name being in use.
pub fn discard(state: &StateDir, id: &SessionId) -> Result<()> {
    let session = state.load(id)?;
    if let Some(layer) = project_of(&session) {
        // A landing of this session that broke off keeps the owner's files in the session's folder.
        recover(state, &layer.target)?;
    }
    let _stopped = stop(&session)?;
    let mut session = state.load(id)?;
    let parts =
        ["layers", "base", "landing", "tmp", "vartmp", "outbox"].map(|n| session.dir.join(n));
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
        session.save_state()?;
    }
    for path in parts {
        remove_tree(&path).context(|| format!("can't remove all of {}", show(&path)))?;
    }
    Ok(())
}
