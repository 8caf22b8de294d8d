//! What `landbox land` says at its end: what landed and what waits, or that there was nothing to land.

use super::Invocation;
use crate::error::{Failure, Kind, Result};
use crate::land::apply::Landed;
use crate::land::card::Card;
use crate::land::kind::Group;
use crate::land::review::Review;
use crate::session::store::{Session, StateDir, show};
use crate::ui::text::{counted, visible};
use landbox_shared::id::SessionId;

/// Nothing that was asked for is there to land. Of a session that nobody named, with the others of its folder that hold
/// something.
pub(super) fn nothing(
    state: &StateDir,
    session: &Session,
    review: &Review,
    chosen: bool,
    unnamed: bool,
) -> Failure {
    const NAMED: usize = 3;
    let id = &session.snapshot.id;
    let mut failure = empty(id, chosen, review.count(Group::Project));
    let ignored = review.count(Group::Ignored);
    if ignored > 0 && !chosen {
        let files = counted(ignored, "file", "files");
        failure = failure.hint(format!(
            "the project's ignore rules cover {files}; landbox land {id} --with-ignored lands that too"
        ));
    }
    let project = &session.snapshot.policy.project;
    let listed = if unnamed { state.sessions().ok() } else { None };
    let others = listed.into_iter().flat_map(|listing| listing.sessions);
    let pending = others.filter(|other| {
        let files = other.state.changes.map_or(0, |changes| changes.files);
        let open = other.state.landing.discarded_at.is_none();
        let other = &other.snapshot;
        open && files > 0 && other.id != *id && other.policy.project == *project
    });
    pending.take(NAMED).fold(failure, |failure, other| {
        let other = &other.snapshot.id;
        failure.hint(format!("session {other} of this directory has: landbox land {other}"))
    })
}

/// `waiting`: how many changes of the project there are, chosen or not.
fn empty(id: &SessionId, chosen: bool, waiting: u64) -> Failure {
    if !chosen || waiting == 0 {
        return Failure::new(Kind::Nothing, format!("session {id} has nothing to land"))
            .hint(format!("landbox show {id} says what it holds and what has landed of it"));
    }
    let changes = counted(waiting, "change", "changes");
    Failure::new(
        Kind::Nothing,
        format!("session {id} has nothing to land of what you chose, which leaves out {changes}"),
    )
    .hint(format!("landbox diff {id} --stat lists what there is"))
}

/// Tells what landed, what else is to be known of it, and what can be done next.
pub(super) fn report(
    call: &Invocation,
    state: &StateDir,
    session: &Session,
    card: &Card,
    landed: &Landed,
) -> Result<u8> {
    let id = &session.snapshot.id;
    let held = card.changes.iter().filter(|c| !c.landable && c.group == Group::Project).count();
    if call.ui.json {
        call.ui.document(card)?;
    } else {
        let changes = counted(landed.changes as u64, "change", "changes");
        let target = &session.snapshot.policy.project;
        let dropped = match landed.dropped {
            0 => String::new(),
            1 => "1 of the session's changes was dropped; ".to_owned(),
            n => format!("{n} of the session's changes were dropped; "),
        };
        call.ui.status(format!(
            "Landed {changes} in {target}; {dropped}landbox undo {id} takes it back."
        ));
        // Not known of a session that runs.
        let left = state.load(id).ok().and_then(|session| session.state.changes);
        let waiting = left.map_or(0, |left| left.files).saturating_sub(held as u64);
        if waiting > 0 {
            let files = counted(waiting, "file waits", "files wait");
            call.ui.status(format!("{files} in the session: landbox land {id}"));
        }
    }
    if let Some(path) = &landed.aside {
        call.ui.warning(format!(
            "an earlier landing left files behind, perhaps the project's own; they are kept in {}",
            show(path)
        ));
    }
    for path in &landed.staying {
        let why = "stays, because it holds something that does not land";
        call.ui.warning(format!("{} {why}", visible(path.as_bytes())));
    }
    if held > 0 {
        call.ui.warning(format!("{held} of the changes can't land; landbox diff {id} says why"));
    }
    match &landed.disturbed {
        None => Ok(0),
        Some(path) => Err(Failure::new(
            Kind::Failed,
            format!(
                "all of it landed, but {} was changed again right afterwards",
                visible(path.as_bytes())
            ),
        )
        .hint("look at that file: it is no longer what was reviewed")),
    }
}
