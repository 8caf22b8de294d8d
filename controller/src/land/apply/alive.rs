//! Giving back to a session that runs what landed and is undone.
//!
//! What its layer does not hold it sees in the owner's tree, where it is about to go. So it is copied into the layer before
//! anything is undone, by way of what the session sees: the other way round, names that the session has looked up would
//! lead nowhere. What was deleted by the landing and comes back is deleted for the session afterwards. What it has written
//! since the landing it keeps.

use super::entry::Detail;
use super::journal::Journal;
use super::parts;
use super::plan::{Action, Step};
use crate::error::{Context, Result};
use crate::land::base::Store;
use crate::land::layer::{LayerView, project_of};
use crate::land::live;
use crate::land::tree::Tree;
use crate::session::store::{Session, StateDir, show};
use landbox_shared::path::RelPath;
use std::collections::BTreeSet;

/// Before the steps of an undo: has the layer hold what they take away. What can't be copied is missed afterwards.
pub(in crate::land) fn hold(session: &Session, steps: &[Step]) -> Result<()> {
    let Some(layer) = project_of(session) else { return Ok(()) };
    let goes = |step: &&Step| match &step.action {
        Action::Take { .. } | Action::Swap { .. } | Action::Mode { .. } => true,
        Action::Put { .. } => false,
    };
    let paths: BTreeSet<&RelPath> = steps.iter().filter(goes).map(|step| &step.path).collect();
    live::copy_up(session, layer, paths)
}

/// After them: the base as it was before the landing, and what came back deleted again. Gives whether the session holds
/// all that had landed.
pub(super) fn give_back(journal: &Journal, state: &StateDir, session: &Session) -> Result<bool> {
    let entry = &journal.entry;
    let Some(layer) = project_of(session) else { return Ok(false) };
    let path = session.upper(&layer.id);
    let what = || format!("can't read the layer {}", show(&path));
    let upper = Tree::open(&path).context(what)?;
    let project = Tree::open(entry.project.as_path())
        .context(|| format!("can't open the project {}", entry.project))?;
    let Detail { rebased, past, .. } = entry.detail(state)?;
    let moved = parts::parts_of(&state.sessions_dir(), &entry.session, entry.number);
    let held = |step: &Step| live::holds(&upper, layer.backend, &step.path);
    let mut store = Store::open(&session.dir, &layer.id)?;
    let mut unseen = BTreeSet::new();
    for step in &journal.steps {
        let hidden = match &step.action {
            // What only a checkpoint had deleted is the session's to see.
            Action::Put { .. } => !past,
            // It had deleted it since.
            Action::Swap { .. } => store.is_in_layer(&step.path),
            Action::Take { .. } | Action::Mode { .. } => false,
        };
        if hidden && !held(step).context(what)? {
            unseen.insert(&step.path);
        }
    }
    store.restore(&parts::records_of(&moved), &rebased, &project)?;
    drop(store);
    // What can't be reached is counted below.
    let _ = live::look_again(session, layer, journal.steps.iter().map(|step| &step.path));
    let _ = live::take_away(session, layer, unseen);
    let view = LayerView::read(session, layer, true)?;
    let shown: BTreeSet<&RelPath> = view.changeset.changes.iter().map(|c| &c.path).collect();
    let is_back = |step: &Step| match &step.action {
        Action::Put { .. } if past => true,
        Action::Take { .. } | Action::Swap { .. } | Action::Put { .. } => {
            shown.contains(&step.path) || held(step).unwrap_or(false)
        }
        Action::Mode { .. } => true,
    };
    Ok(journal.steps.iter().all(is_back))
}
