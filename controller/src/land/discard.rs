//! Throwing a session's changes away.

use super::apply::{now, parts, recover, stop};
use super::layer::project_of;
use crate::error::{Context, Failure, Kind, Result};
use crate::overlay::remove::remove_tree;
use crate::session::store::{StateDir, show};
use landbox_shared::id::SessionId;

/// What the folder of the layers is called while it is removed from a full disk.
const LEAVING: &str = "layers.gone";

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
    let parts = ["layers", LEAVING, parts::LANDED, "base", "tmp", "vartmp", "outbox"]
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
