//! What remains to be done once a landing, or an undo, has happened. All of it can be done twice, and is, if it was cut
//! short.

use super::entry::{Detail, Entry, Standing};
use super::journal::{Journal, Work};
use super::plan::{Action, Step};
use super::{alive, back, parts, try_stop};
use crate::error::{Context, Result};
use crate::land::base::Store;
use crate::land::kind::EntryType;
use crate::land::layer::{LayerView, project_of};
use crate::land::receipt::{self, Line, Outcome, Receipt};
use crate::land::resolve::{Decision, Resolution, Resolved};
use crate::land::tree::{self, Time, Tree};
use crate::overlay::remove::remove_tree;
use crate::session::model::State;
use crate::session::store::{Session, StateDir, show};
use landbox_shared::digest::Digest;
use landbox_shared::path::RelPath;
use landbox_shared::policy::Backend;
use std::collections::BTreeSet;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// The folder of a session in which that lives on which went while it ran.
pub(in crate::land) const UNDONE: &str = "undone";

/// How it ended.
#[derive(Debug, Default)]
pub(in crate::land) struct Finished {
    /// Whether the session shows the changes again.
    pub pending: bool,
    /// Where what had landed is kept, because the session no longer holds all of it.
    pub kept: Option<PathBuf>,
    /// The same as a clause.
    pub note: Option<String>,
}

/// What whoever finishes work knows of the session.
#[derive(Clone, Copy, Debug)]
pub(in crate::land) enum Known<'a> {
    /// He holds it stopped.
    Stopped(&'a Session),
    /// It runs, and he may go where it is.
    Running(&'a Session),
    /// Nothing, or that there is none.
    Nothing,
}

/// Finishes work that has happened.
pub(in crate::land) fn finish(
    journal: &Journal,
    state: &StateDir,
    known: Known<'_>,
) -> Result<Finished> {
    match journal.work {
        Work::Landing => {
            // A session that can't be read, or is gone, has no use for it.
            if let Ok(mut session) = state.load(&journal.entry.session)
                && session.state.landing.count < journal.entry.number
            {
                let changes = crate::land::counts(&session, false).ok();
                count(&mut session, &journal.entry, |state| {
                    state.landing.synced = false;
                    state.changes = changes;
                })?;
            }
            journal.entry.stand(state, Standing::New, Standing::Kept)?;
            receipt::publish(journal.receipt.as_path())?;
            Ok(Finished::default())
        }
        Work::Undo => undo(journal, state, known),
    }
}

/// Records a landing in its session, which may be running, and what else there is to record.
pub(super) fn count(
    session: &mut Session,
    entry: &Entry,
    also: impl FnOnce(&mut State),
) -> Result<()> {
    session.amend(|state| {
        state.landing.count = entry.number;
        state.landing.last_at = Some(entry.at.clone());
        also(state);
    })
}

fn undo(journal: &Journal, state: &StateDir, known: Known<'_>) -> Result<Finished> {
    receipt::publish(journal.receipt.as_path())?;
    let entry = &journal.entry;
    if !entry.has_detail(state) {
        // It was finished but for the end of this.
        entry.remove(state)?;
        return Ok(Finished { pending: true, ..Finished::default() });
    }
    let loaded = match known {
        Known::Stopped(session) | Known::Running(session) => Some(session.clone()),
        Known::Nothing => state.load(&entry.session).ok(),
    };
    let mut all_back = false;
    if let Some(mut session) = loaded.filter(|s| s.state.landing.discarded_at.is_none()) {
        let stopped = match known {
            Known::Stopped(_) => None,
            // It may have ended since.
            Known::Running(_) | Known::Nothing => try_stop(&session)?,
        };
        let ours = stopped.is_some() || matches!(known, Known::Stopped(_));
        let mut changes = None;
        if let (Known::Running(_), false) = (known, ours) {
            all_back = alive::give_back(journal, state, &session)?;
        }
        if ours {
            all_back = give_back(journal, state, &session)?;
            session = state.load(&entry.session)?;
            changes = crate::land::counts(&session, false).ok();
        }
        // Amended, because a session that runs writes its own part.
        session.amend(|state| {
            state.changes = changes;
            state.landing.synced &= !ours;
            if !state.landing.undone.contains(&entry.number) {
                state.landing.undone.push(entry.number);
            }
        })?;
    }
    if all_back {
        if let Known::Running(session) = known {
            outlive(session, entry);
        }
        entry.remove(state)?;
        return Ok(Finished { pending: true, ..Finished::default() });
    }
    let kept = entry.store.to_path_buf();
    let note = format!(
        "session {} does not hold all of it any more: what had landed is kept in {}",
        entry.session,
        show(&kept)
    );
    Ok(Finished { pending: false, kept: Some(kept), note: Some(note) })
}

/// Lets what had landed, and is removed now, live on as long as a session on fuse-overlayfs runs that has seen it: 1.10 tells
/// objects apart by their inodes, and takes a new one of the session's that is given the same for the one that went. (In
/// another file system than the layer's no inode is the same.)
fn outlive(session: &Session, entry: &Entry) {
    if project_of(session).is_some_and(|layer| layer.backend == Backend::Fuse) {
        let all = session.dir.join(UNDONE);
        let make = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&all);
        // Where it can't be kept it goes, as it would for any other session.
        let _ =
            make.and_then(|()| std::fs::rename(&entry.store, all.join(entry.number.to_string())));
    }
}

/// Removes that, once the session has ended.
pub(in crate::land) fn forget_outlived(session: &Session) -> std::io::Result<()> {
    remove_tree(&session.dir.join(UNDONE))
}

/// Puts back into a stopped session's layer what left it when it landed, and the base as it was before. Gives whether
/// the session holds again all that had landed.
fn give_back(journal: &Journal, state: &StateDir, session: &Session) -> Result<bool> {
    let entry = &journal.entry;
    let Some(layer) = project_of(session).cloned() else { return Ok(false) };
    let path = session.upper(&layer.id);
    let upper = match Tree::open(&path) {
        Ok(upper) => upper,
        Err(e) if tree::is_absence(&e) => return Ok(false),
        Err(e) => return Err(e).context(|| format!("can't read the layer {}", show(&path))),
    };
    let parts = parts::parts_of(&state.sessions_dir(), &entry.session, entry.number);
    let project = Tree::open(entry.project.as_path())
        .context(|| format!("can't open the project {}", entry.project))?;
    let what = || format!("can't put what had landed back into {}", show(&path));
    back::put_back(&parts, &upper, layer.backend, &project).context(what)?;
    let Detail { rebased: paths, past, .. } = entry.detail(state)?;
    let mut store = Store::open(&session.dir, &layer.id)?;
    // What the session does not see now it is not to see again: what it had deleted, or deletes by the records alone.
    let unseen = |step: &&Step| match &step.action {
        // What only a checkpoint had deleted is the session's to see.
        Action::Put { .. } => !past,
        Action::Swap { .. } => store.is_in_layer(&step.path),
        Action::Take { .. } | Action::Mode { .. } => false,
    };
    let unseen: BTreeSet<&RelPath> =
        journal.steps.iter().filter(unseen).map(|step| &step.path).collect();
    back::hide(unseen.into_iter(), &upper, layer.backend, &project).context(what)?;
    store.restore(&parts::records_of(&parts), &paths, &project)?;
    drop(store);
    let view = LayerView::read(session, &layer, false)?;
    let changes = &view.changeset.changes;
    let shown: BTreeSet<&RelPath> = changes.iter().map(|change| &change.path).collect();
    let holds = |path: &RelPath| {
        shown.contains(path) || view.upper.meta(path).is_ok_and(|meta| meta.is_some())
    };
    // What came with the landing; a name that went is nothing to be lost.
    let landed = |step: &&Step| match &step.action {
        Action::Take { old } | Action::Swap { old, .. } => old.kind() != EntryType::Dir,
        Action::Put { .. } | Action::Mode { .. } => false,
    };
    Ok(journal.steps.iter().filter(landed).all(|step| holds(&step.path)))
}

/// The receipt of a landing.
pub(super) fn receipt(
    session: &Session,
    number: u32,
    digest: Digest,
    resolution: &Resolution,
    staying: &[RelPath],
) -> Receipt {
    let lines = resolution.items.iter().flat_map(|item| lines(item, staying)).collect();
    Receipt::landing(&session.snapshot, number, digest, lines)
}

/// What is said of one change: what is really found and put there.
fn lines(item: &Resolved, staying: &[RelPath]) -> Vec<Line> {
    let path = &item.change.path;
    let outcome = match &item.decision {
        _ if staying.contains(path) => Outcome::Stays,
        Decision::Layer(_) => Outcome::Landed,
        Decision::Bytes(_) | Decision::Mode(_) => Outcome::Merged,
        Decision::Mine => Outcome::Mine,
        Decision::Skip | Decision::Open(_) => Outcome::Skipped,
    };
    let put = item.effective();
    if put.is_empty() {
        let there = item.expect.node();
        return vec![Line::new(path, there, there, outcome)];
    }
    put.iter().flat_map(|change| Line::of(change, outcome)).collect()
}

/// The folders whose names the steps change, with the time of their last change.
pub(super) fn times(steps: &[Step], project: &Tree) -> Vec<(Option<RelPath>, Time)> {
    let parents: BTreeSet<Option<RelPath>> = steps.iter().map(|s| s.path.parent()).collect();
    let time = |path: &Option<RelPath>| -> Option<Time> {
        Some(tree::meta_of(project.place(path.as_ref()).ok()?).ok()?.mtime)
    };
    parents.into_iter().filter_map(|path| Some((path.clone(), time(&path)?))).collect()
}
