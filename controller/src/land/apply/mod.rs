//! Applying a changeset to the real project: all of it or nothing, also across a crash, and only what was shown.
//!
//! 1. Under the project's lock and the session's, the layer is scanned again and compared with what was shown.
//! 2. Every path must still be the base; else nothing happens.
//! 3. All new objects are prepared in the stage and synced, the new base records beside them, then the journal.
//! 4. Step by step, names are exchanged. A step that fails undoes all before it.
//! 5. The new base records take their place: from here on the landing has happened.
//! 6. What has landed leaves the layer.

mod commit;
mod journal;
#[cfg(test)]
mod journal_tests;
mod plan;
pub(super) mod prune;
#[cfg(test)]
mod prune_tests;
mod stage;
#[cfg(test)]
mod tests;

use super::changeset::{Base, Change, Changeset, Node};
use super::kind::Group;
use super::layer::{LayerView, project_of};
use super::resolve::resolve;
use super::select::Selection;
use super::tree::{self, Tree};
use crate::error::{Context, Failure, Kind, Result};
use crate::session::model::ChangeCounts;
use crate::session::store::{Attendance, Session, SessionLock, StateDir};
use journal::{Journal, ProjectLock};
use landbox_shared::digest::Digest;
use landbox_shared::id::SessionId;
use landbox_shared::path::{AbsPath, RelPath};
use stage::Stage;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a lock that others hold for a moment is waited for.
const PATIENCE: Duration = Duration::from_millis(200);

/// What a landing did.
#[derive(Debug)]
pub struct Landed {
    /// Number of changes that landed.
    pub changes: usize,
    /// Whether all of it is known to be on disk.
    pub synced: bool,
    /// Deleted folders that stay, because they hold something that does not land.
    pub staying: Vec<RelPath>,
    /// A path that somebody changed again right after it landed.
    pub disturbed: Option<RelPath>,
    /// Where the remains of an earlier landing went that lay in the way, and of which no journal tells.
    pub aside: Option<PathBuf>,
}

/// Undoes a landing on `project` that broke off, if there is one and nobody is landing there now. Gives a sentence.
pub fn recover(state: &StateDir, project: &AbsPath) -> Result<Option<String>> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(lock) = ProjectLock::take(state, project, false)? {
            return lock.recover();
        }
        if Instant::now() > until {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Undoes every landing that broke off, whatever project it was on.
pub fn recover_all(state: &StateDir) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    for project in ProjectLock::pending(state)? {
        notes.extend(recover(state, &project)?);
    }
    Ok(notes)
}

/// What an undone landing could not put back, where it lies in the session's folder: the owner's own files. So may be
/// what lies in a stage of which no journal tells any more.
pub fn kept(session_dir: &Path) -> Option<PathBuf> {
    let mut entries = std::fs::read_dir(session_dir).ok()?.filter_map(|entry| entry.ok());
    let is_kept =
        |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(journal::KEPT.as_bytes());
    let stage = session_dir.join(stage::NAME);
    let holds = |dir: &Path| std::fs::read_dir(dir).is_ok_and(|mut names| names.next().is_some());
    let found = entries.find(|entry| is_kept(&entry.file_name())).map(|entry| entry.path());
    found.or_else(|| holds(&stage).then_some(stage))
}

/// Moves a stage of which no journal tells out of the way of whoever empties the session's folder.
pub(super) fn keep_stage(session_dir: &Path, id: &SessionId) -> Result<()> {
    stage::clear(&session_dir.join(stage::NAME), id).map(|_| ())
}

/// Lands what `selection` holds of the session's project layer, if its digest is `shown`.
pub fn apply(
    state: &StateDir,
    id: &SessionId,
    selection: &Selection,
    shown: &Digest,
) -> Result<Landed> {
    apply_with(state, id, selection, shown, &mut |_| Ok(()))
}

/// Holds a session stopped: no controller and no helper takes it up.
#[derive(Debug)]
pub(super) struct Stopped {
    _attendance: Attendance,
    _lock: SessionLock,
}

/// Holds the session stopped, or gives `None` where it runs.
pub(super) fn try_stop(session: &Session) -> Result<Option<Stopped>> {
    // The controller's lock first: while a controller lives, nobody may touch the lock its helper is about to take.
    let Some(attendance) = session.attend()? else { return Ok(None) };
    Ok(session.try_lock()?.map(|lock| Stopped { _attendance: attendance, _lock: lock }))
}

/// Holds the session stopped. A command that only looks holds its locks for a moment, so one look is not enough.
pub(super) fn stop(session: &Session) -> Result<Stopped> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(stopped) = try_stop(session)? {
            return Ok(stopped);
        }
        if Instant::now() > until {
            let id = &session.snapshot.id;
            return Err(Failure::new(Kind::Refused, format!("session {id} is still running"))
                .hint("end it first; landbox diff already shows what it has changed"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `before` is called with the number of each step before it is done.
fn apply_with(
    state: &StateDir,
    id: &SessionId,
    selection: &Selection,
    shown: &Digest,
    before: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Landed> {
    let mut session = state.load(id)?;
    let layer = project_of(&session).cloned().ok_or_else(|| nothing(id))?;
    let lock = ProjectLock::take(state, &layer.target, true)?
        .ok_or_else(|| Failure::new(Kind::Failed, "can't lock the project"))?;
    lock.recover()?;
    let _stopped = stop(&session)?;
    // Anything may have happened while we waited: another landing of this very session, say.
    session = state.load(id)?;
    super::check_present(&session)?;
    let mut view = LayerView::read(&session, &layer, false)?;
    view.narrow(selection);
    let set = view.changeset.clone();
    let picked = selection.pick(&set)?;
    let holds = |c: &Change| picked.holds(c);
    let found = super::digest::digest(&[&set], holds);
    let chosen: Vec<&Change> = set.changes.iter().filter(|c| holds(c) && c.landable).collect();
    if chosen.is_empty() {
        return Err(nothing(id));
    }
    if found != *shown {
        return Err(Failure::new(
            Kind::Refused,
            format!("the changes are not the ones that were shown: their digest is {found} now"),
        )
        .hint(format!("landbox land {id} shows them as they are")));
    }
    let resolution = resolve(&session, &view, &chosen, &selection.choices)?;
    resolution.check()?;
    if resolution.landed() == 0 {
        return Err(nothing(id));
    }
    let project = Tree::open(layer.target.as_path())
        .context(|| format!("can't open the project {}", layer.target))?;
    let effective = resolution.effective();
    let put: Vec<&Change> = effective.iter().collect();
    let planned = resolution.planned(set.clone());
    let mut plan = plan::plan(&planned, &put, &view.masks, &project)?;
    let stage = Stage::make(&project, layer.target.as_path(), &session.dir, id)?;
    let by_path: HashMap<&RelPath, &Change> = put.iter().map(|c| (&c.path, *c)).collect();
    let filled = stage.fill(&mut plan.steps, &project, &by_path, &resolution.bodies(&view));
    let mut bases = resolution.bases();
    bases.retain(|(path, _)| !plan.staying.contains(path));
    bases.extend(plan.owners.iter().map(|path| (path.clone(), None)));
    let mut settled = resolution.settled(&view);
    settled.extend(plan.owners.iter().map(|path| (path.clone(), None)));
    let prepared = filled.and_then(|()| {
        let new = |node: &Option<Node>| node.clone().map_or(Base::Absent, Base::Known);
        for (path, node) in &plan.landed {
            view.store.rebase(path.clone(), new(node));
        }
        for (path, node) in &bases {
            view.store.rebase(path.clone(), new(node));
        }
        view.store.write_beside()
    });
    let records = match prepared {
        Ok(records) => records,
        Err(failure) => {
            // Nothing in the project was touched.
            let _ = crate::overlay::remove::remove_tree(&stage.path);
            return Err(failure);
        }
    };
    records.as_file().sync_all().context(|| "can't write the base store to disk".into())?;
    let records = records.into_temp_path();
    let root = tree::meta_of(project.root()).context(|| "can't read the project".into())?.ino;
    let number = session.state.landing.count.saturating_add(1);
    let steps = plan.steps.clone();
    let journal = Journal::new(id, &layer.target, root, &stage.path, &records, number, steps)?;
    lock.begin(&journal)?;
    // From here on the journal decides over the file's fate, not our own end.
    let records = records.keep().context(|| "can't keep the base store".into())?;
    let done = plan.steps.iter().enumerate().try_for_each(|(index, step)| {
        before(index)?;
        commit::perform(index, step, &project, &stage)
    });
    if let Err(mut failure) = done {
        if let Some(note) = journal.undo(&project)? {
            failure.hints.push(note);
        }
        lock.end()?;
        return Err(failure);
    }
    let mut synced = journal::sync_parents(&plan.steps, &project);
    let disturbed = commit::verify(&plan.steps, &project);
    before(plan.steps.len())?;
    view.store.replace(&records)?;
    synced &= journal::sync(&view.store.path()).is_ok();
    session.state.landing.count = number;
    session.state.landing.last_at = Some(now());
    session.state.changes = Some(left(&set, &bases, &view)?);
    session.state.landing.synced &= synced;
    session.save_state()?;
    let (landed, steps) = (&plan.landed, &plan.steps);
    prune::prune(&view, layer.backend, &project, &session.dir, landed, steps, &settled);
    journal::tidy(&journal)?;
    lock.end()?;
    let Stage { aside, .. } = stage;
    Ok(Landed { changes: resolution.landed(), synced, staying: plan.staying, disturbed, aside })
}

/// RFC 3339, UTC, whole seconds.
pub(super) fn now() -> String {
    time_word(std::time::SystemTime::now())
}

/// The same of a given time.
fn time_word(at: std::time::SystemTime) -> String {
    let at = jiff::Timestamp::try_from(at).unwrap_or_else(|_| jiff::Timestamp::now());
    at.round(jiff::Unit::Second).unwrap_or(at).to_string()
}

/// Figures of what a landing leaves: changes that cannot land or were not chosen.
fn left(
    set: &Changeset,
    bases: &[(RelPath, Option<Node>)],
    view: &LayerView,
) -> Result<ChangeCounts> {
    let landed: HashSet<&RelPath> = bases.iter().map(|(path, _)| path).collect();
    let rest =
        set.changes.iter().filter(|c| c.group == Group::Project && !landed.contains(&c.path));
    let mut out = ChangeCounts { files: 0, added: 0, deleted: 0 };
    for change in rest {
        let figures = super::patch::figures(change, view)?;
        out.files += 1;
        out.added += figures.added.unwrap_or(0);
        out.deleted += figures.deleted.unwrap_or(0);
    }
    for (path, part) in view.parts.iter().filter(|(path, _)| landed.contains(path)) {
        let (added, deleted) = view.beyond(path, part)?;
        out.files += 1;
        out.added += added;
        out.deleted += deleted;
    }
    Ok(out)
}

fn nothing(id: &SessionId) -> Failure {
    Failure::new(Kind::Nothing, format!("session {id} has nothing to land"))
}
