//! How a session comes to be: what was decided is frozen, and its name taken.

use super::show;
use crate::config::Config;
use crate::error::{Failure, Kind, Result};
use crate::session::model::{MODEL_VERSION, Snapshot};
use crate::session::store::{Attendance, NamesLock, Session, StateDir};
use crate::session::{self};
use landbox_shared::bytes;
use landbox_shared::path::AbsPath;
use landbox_shared::policy::Policy;
use landbox_shared::wire;
use std::os::unix::ffi::OsStrExt;

/// The digest of a policy that fits a snapshot.
pub(super) fn digest(policy: &Policy) -> Result<landbox_shared::digest::Digest> {
    wire::policy_digest(policy)
        .map_err(|e| Failure::new(Kind::Usage, format!("the policy is too big: {e}")))
}

/// Freezes what was decided.
pub(super) fn freeze(
    config: &Config,
    name: Option<String>,
    policy: Policy,
    isolated: bool,
) -> Result<Snapshot> {
    let canonical = config.file.as_ref().and_then(|file| file.canonicalize().ok());
    let config_file = canonical.and_then(|file| AbsPath::from_path(&file).ok());
    Ok(Snapshot {
        version: MODEL_VERSION,
        id: session::fresh_id()?,
        name,
        bot: config.bot.clone(),
        config_file,
        command: config.command.iter().map(|a| bytes::escape(a.as_bytes())).collect(),
        created_at: session::now(),
        isolated,
        packaged_helper: config.packaged_helper,
        checkpoints: config.checkpoints,
        policy_digest: digest(&policy)?,
        policy,
        // When it is written.
        digest: None,
    })
}

/// Makes the session, with its name checked while nobody else can take it.
pub(super) fn create(state: &StateDir, snapshot: Snapshot) -> Result<(Session, Attendance)> {
    let _names: Option<NamesLock> = match &snapshot.name {
        Some(name) => {
            let lock = state.lock_names()?;
            refuse_taken(state, name)?;
            Some(lock)
        }
        None => None,
    };
    state.start(snapshot)
}

/// Refuses a name that an un-landed session has. Sessions that never got anywhere make room.
fn refuse_taken(state: &StateDir, name: &str) -> Result<()> {
    let listing = state.sessions()?;
    if listing.sessions.iter().any(|s| s.snapshot.id.as_str() == name) {
        return Err(Failure::new(Kind::Refused, format!("{name} is the id of another session"))
            .hint("choose another --name"));
    }
    let named = listing.sessions.iter().filter(|s| s.snapshot.name.as_deref() == Some(name));
    for session in named {
        let id = &session.snapshot.id;
        if session.is_running()? {
            return Err(Failure::new(Kind::Refused, format!("session {name} ({id}) is running"))
                .hint("choose another --name, or wait for its end"));
        }
        if session.has_never_started() {
            if let Some(_lock) = session.try_lock()? {
                state.remove(session)?;
            }
            continue;
        }
        if show::holds_changes(session) {
            return Err(Failure::new(
                Kind::Refused,
                format!("the name {name} is in use by session {id}, which was neither landed nor discarded"),
            )
            .hint(format!("landbox resume {id} goes on in it; landbox land {id} or landbox discard {id} frees the name")));
        }
    }
    Ok(())
}
