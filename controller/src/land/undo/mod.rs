//! Undo: the exact state before a landing, through the same journal. All of it or nothing; never over what somebody has
//! made of a path since.

mod inverse;
mod keeping;
#[cfg(test)]
mod tests;

pub use keeping::{KEPT_BYTES, KEPT_DAYS, Swept, summary, sweep};

use super::apply::entry::{self, Detail, Entry, Standing};
use super::apply::journal::{Journal, ProjectLock, Work, sync_parents};
use super::apply::stage::Stage;
use super::apply::{alive, commit, finish, landing, stop_if_ended};
use super::base::Store;
use super::base::own::Folders;
use super::layer::project_of;
use super::live::go_in;
use super::tree::{self, Time, Tree};
use crate::error::{Context, Failure, Kind, Result};
use crate::seal::Key;
use crate::session::store::{Session, StateDir, show};
use crate::ui::text::visible;
use landbox_shared::id::SessionId;
use landbox_shared::path::{AbsPath, RelPath};
use rustix::fs::{self, AtFlags, Timespec, Timestamps, UTIME_OMIT};
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

/// The commit that was made of a landing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Its name.
    pub id: String,
    /// The name of the one before it, if there is one.
    pub parent: Option<String>,
}

/// Notes the commit that was made of a session's last landing.
pub fn note_commit(
    state: &StateDir,
    session: &SessionId,
    id: &str,
    parent: Option<&str>,
) -> Result<()> {
    let mut all = entry::all(state, Standing::Kept);
    all.retain(|entry| entry.session == *session);
    match all.into_iter().max_by_key(|entry| entry.number) {
        Some(entry) => entry.note_commit(state, &format!("{id}\n{}\n", parent.unwrap_or_default())),
        None => Ok(()),
    }
}

/// What an undo did.
#[derive(Debug)]
pub struct Undone {
    /// Whose landing.
    pub session: SessionId,
    /// Where.
    pub project: AbsPath,
    /// Which landing of the session.
    pub number: u32,
    /// When it had landed.
    pub landed_at: String,
    /// Number of changes that were taken back.
    pub changes: u64,
    /// Whether the session shows them again.
    pub pending: bool,
    /// The commit that was made of it, which stays.
    pub commit: Option<Commit>,
    /// Where what had landed is kept, if the session no longer holds all of it.
    pub kept: Option<PathBuf>,
    /// A path that somebody changed again right afterwards.
    pub disturbed: Option<RelPath>,
    /// The receipt.
    pub receipt: PathBuf,
}

/// A landing that can be undone.
#[derive(Clone, Debug)]
pub struct Target(Entry);

impl Target {
    /// Where it landed.
    pub fn project(&self) -> &AbsPath {
        &self.0.project
    }

    /// Whose.
    pub fn session(&self) -> &SessionId {
        &self.0.session
    }
}

/// The last landing of the session `selector` names, which may be gone, or of all on the project `here`.
pub fn find(state: &StateDir, selector: Option<&str>, here: Option<&AbsPath>) -> Result<Target> {
    let nothing = |what: String, id: Option<&SessionId>| {
        let kept = format!("a landing can be undone for {KEPT_DAYS} days");
        Failure::new(Kind::Nothing, what).hint(match id {
            Some(id) => format!("{kept}; landbox show {id} lists the receipts of what it landed"),
            None => {
                format!("{kept}; landbox ls lists the sessions, landbox undo ID takes one's back")
            }
        })
    };
    let Some(selector) = selector else {
        let last = here.and_then(|here| entry::of(state, here, Standing::Kept).pop());
        return last.map(Target).ok_or_else(|| {
            nothing("there is no landing in this directory to undo".to_owned(), None)
        });
    };
    let of = |id: &SessionId| {
        let mut all = entry::all(state, Standing::Kept);
        all.retain(|entry| entry.session == *id);
        all.into_iter().max_by_key(|entry| entry.number)
    };
    let id = match state.find(Some(selector), None) {
        Ok(session) => session.snapshot.id,
        // A landing outlives its session.
        Err(failure) => match SessionId::new(selector) {
            Some(id) if of(&id).is_some() => id,
            Some(_) | None => return Err(failure),
        },
    };
    let found = of(&id).map(Target);
    found.ok_or_else(|| {
        nothing(format!("session {id} has no landing that can be undone"), Some(&id))
    })
}

/// Undoes a landing.
pub fn undo(state: &StateDir, target: &Target, key: &Key) -> Result<Undone> {
    undo_with(state, target, key, &mut |_| Ok(()))
}

/// `before` is called with the number of each step before it is done.
fn undo_with(
    state: &StateDir,
    target: &Target,
    key: &Key,
    before: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Undone> {
    let entry = &target.0;
    let lock = ProjectLock::take(state, &entry.project, true)?
        .ok_or_else(|| Failure::new(Kind::Failed, "can't lock the project"))?;
    lock.recover()?;
    let kept = entry.path(state, Standing::Kept);
    if !kept.exists() {
        return Err(Failure::new(Kind::Nothing, "that landing was undone already"));
    }
    let session = state.load(&entry.session).ok();
    let stopped = session.as_ref().map(stop_if_ended).transpose()?.flatten();
    // Anything may have happened to it while we waited.
    let session = state.load(&entry.session).ok();
    let project = Tree::open(entry.project.as_path())
        .context(|| format!("can't open the project {}", entry.project))?;
    let root = tree::meta_of(project.root()).context(|| "can't read the project".into())?;
    if root.ino != entry.root {
        let why = format!("{} is not the folder any more in which it landed", entry.project);
        return Err(Failure::new(Kind::Conflict, why));
    }
    let detail = entry.detail(state)?;
    refuse_later(state, entry, &detail)?;
    let path = entry.store.to_path_buf();
    let stage = Stage::open(path.clone())
        .context(|| format!("can't open {}, where the old files are kept", show(&path)))?;
    refuse_changed(inverse::changed(&detail.steps, &project, &stage))?;
    let steps = inverse::inverse(&detail.steps, &stage)?;
    let times = times(state, entry, &detail, &project);
    let commit = entry.commit(state).and_then(|lines| {
        let mut lines = lines.lines().map(str::to_owned);
        let (id, parent) = (lines.next()?, lines.next().filter(|line| !line.is_empty()));
        Some(Commit { id, parent })
    });
    let receipt = detail.receipt.undone();
    let mut journal = Journal::new(Work::Undo, entry.clone(), None, &receipt.path(state))?;
    journal.steps = steps;
    journal.ready = true;
    // Its receipt is written over by the next undo of it, and never published but by one.
    let receipt = receipt.prepare(state, key)?;
    if let (Some(session), None) = (&session, &stopped) {
        // The owner's tree comes first: what can't be given to the session is kept, and said.
        let _ = go_in(session).and_then(|()| alive::hold(session, &journal.steps));
    }
    let parents = journal.steps.iter().map(|step| step.path.parent());
    let folders = Folders::of(&project, parents.chain([None]));
    if let Err(failure) = lock.begin(&journal) {
        // Nothing was touched.
        let _ = lock.end();
        let _ = super::receipt::withdraw(&receipt);
        return Err(failure);
    }
    lock.carry_out(&journal, &project, &stage, before)?;
    let disturbed = commit::changed(&journal.steps, &project).into_iter().next();
    for (path, time) in times {
        restore_time(&project, path.as_ref(), time);
    }
    sync_parents(&journal.steps, &project);
    before(journal.steps.len())?;
    entry.undone_now(state)?;
    let known = match (&session, &stopped) {
        (None, _) => finish::Known::Nothing,
        (Some(session), Some(_)) => finish::Known::Stopped(session),
        (Some(session), None) => finish::Known::Running(session),
    };
    let finished = finish::finish(&journal, state, known).map_err(|failure| {
        failure.hint(
            "the project is as it was before the landing; the next landbox command does the rest",
        )
    })?;
    if let Some(session) = &session {
        own_folders(session, &project, folders, &journal);
    }
    lock.end()?;
    Ok(Undone {
        session: entry.session.clone(),
        project: entry.project.clone(),
        number: entry.number,
        landed_at: entry.at.clone(),
        changes: entry.changes,
        pending: finished.pending,
        commit,
        kept: finished.kept,
        disturbed,
        receipt,
    })
}

/// Writes down, for the session, which folders nobody has changed but its landing and the undo.
fn own_folders(session: &Session, project: &Tree, folders: Folders, journal: &Journal) {
    if let Some(layer) = project_of(session)
        && session.state.landing.discarded_at.is_none()
        && let Ok(mut store) = Store::open(&session.dir, &layer.id)
    {
        store.keep_rest();
        std::thread::sleep(landing::TICK);
        let now = folders.again(project);
        landing::own_folders(&mut store, folders, now, &journal.steps);
    }
}

/// Later landings on the same paths must be undone first: their undo would look for what they found.
fn refuse_later(state: &StateDir, entry: &Entry, detail: &Detail) -> Result<()> {
    let mine: HashSet<&RelPath> = detail.steps.iter().filter_map(inverse::own_path).collect();
    let later = entry::of(state, &entry.project, Standing::Kept);
    for other in later.iter().filter(|other| other.sequence > entry.sequence) {
        let theirs = other.detail(state)?;
        let shared = theirs.steps.iter().filter_map(inverse::own_path).find(|p| mine.contains(p));
        if let Some(path) = shared {
            let (id, number) = (&other.session, other.number);
            let path = visible(path.as_bytes());
            return Err(Failure::new(
                Kind::Conflict,
                format!("landing {number} of session {id} came later and changed {path} too"),
            )
            .hint(format!("undo that one first: landbox undo {id}")));
        }
    }
    Ok(())
}

fn refuse_changed(changed: Vec<RelPath>) -> Result<()> {
    const NAMED: usize = 50;
    if changed.is_empty() {
        return Ok(());
    }
    let mut names: Vec<String> =
        changed.iter().take(NAMED).map(|path| visible(path.as_bytes())).collect();
    if changed.len() > NAMED {
        names.push(format!("and {} more", changed.len() - NAMED));
    }
    Err(Failure::new(
        Kind::Conflict,
        format!(
            "nothing was undone, because these paths are no longer what had landed: {}",
            names.join(", ")
        ),
    )
    .hint("put them back to what had landed, or edit them by hand"))
}

/// The times to give back to folders: of those that nobody else has changed since the landing. While other sessions
/// look through to the project, a folder's times tell them what is new, and stay as they come.
fn times(
    state: &StateDir,
    entry: &Entry,
    detail: &Detail,
    project: &Tree,
) -> BTreeMap<Option<RelPath>, Time> {
    let watched = state.sessions().is_ok_and(|listing| {
        listing.sessions.iter().any(|other| {
            other.snapshot.id != entry.session
                && other.snapshot.policy.project == entry.project
                && other.is_running().unwrap_or(true)
        })
    });
    let Some(landed) = keeping::changed_at(&entry.path(state, Standing::Kept)) else {
        return BTreeMap::new();
    };
    let untouched = |path: &Option<RelPath>| match project.place(path.as_ref()) {
        Ok(dir) => tree::meta_of(dir).is_ok_and(|meta| meta.mtime <= landed),
        // Gone with the landing, so it comes back from the stage.
        Err(e) => tree::is_absence(&e),
    };
    let all = detail.times.iter().filter(|(path, _)| !watched && untouched(path));
    all.cloned().collect()
}

fn restore_time(project: &Tree, path: Option<&RelPath>, time: Time) {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: time.0, tv_nsec: time.1.into() },
    };
    // The owner of a folder may; for anybody else it stays as it is.
    let _ = match path {
        None => fs::futimens(project.root(), &times),
        Some(path) => match project.place(path.parent().as_ref()) {
            Ok(dir) => fs::utimensat(&dir, path.file_name(), &times, AtFlags::SYMLINK_NOFOLLOW),
            Err(_) => Ok(()),
        },
    };
}
