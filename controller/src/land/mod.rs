//! Landing: read a layer into a changeset, show it as a card and a patch, apply it to the real project.

pub mod apply;
mod base;
mod captures;
pub mod card;
pub mod changeset;
pub mod checkpoint;
mod content;
mod digest;
pub mod discard;
pub mod git;
pub mod hunks;
pub mod ignore;
pub mod interactive;
pub mod kind;
pub mod layer;
pub mod live;
mod many;
mod origin;
pub mod patch;
pub mod receipt;
mod renames;
pub mod resolve;
pub mod review;
pub mod risk;
mod rules;
mod scan;
pub mod select;
pub mod sync;
#[cfg(test)]
mod testing;
mod tree;
pub mod undo;
pub mod watch;

pub use layer::is_untouched;
pub use origin::forget_origins;
pub use review::{
    LeftBehind, counts, counts_and_ignored, layer_files, left_behind, other_layers, owner_edits,
};

use crate::error::{Failure, Kind, Result};
use crate::session::store::{Session, StateDir};

/// Takes out of a stopped session's layer what is no change of its own. What can't be taken out stays, and costs nothing
/// but the view of later edits.
pub fn forget_landed(state: &StateDir, session: &Session) {
    forget_outlived(session);
    if let Some(layer) = layer::project_of(session) {
        let _ = apply::prune_equal(state, session, layer);
    }
}

/// Removes what was undone while a session ran that has ended, and was kept for that long. What can't go now goes later.
pub fn forget_outlived(session: &Session) {
    let _ = apply::finish::forget_outlived(session);
}

/// Refuses a session whose layers were discarded.
fn check_present(session: &Session) -> Result<()> {
    let id = &session.snapshot.id;
    match &session.state.landing.discarded_at {
        // A start that was killed may have left nothing but the session's name.
        None if session.has_never_started() && !session.dir.join("layers").exists() => {
            Err(Failure::new(Kind::Nothing, format!("session {id} never started"))
                .hint(format!("landbox resume {id} starts it; landbox discard {id} removes it")))
        }
        None => Ok(()),
        Some(at) => Err(Failure::new(Kind::Nothing, format!("session {id} was discarded at {at}"))
            .hint("landbox ls lists the sessions, with what they hold")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_whose_start_was_cut_short_is_told_from_one_whose_layers_are_gone() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(&dir.path().join("state")).unwrap();
        let snapshot = crate::session::testing::snapshot("aaaaaaaaaa", None);
        let mut session = state.create(snapshot).unwrap();
        let said = check_present(&session).unwrap_err();
        assert_eq!((said.kind, said.message.ends_with("never started")), (Kind::Nothing, true));
        session.state.state = crate::session::model::Phase::Running;
        assert!(check_present(&session).is_ok());
    }
}
