//! The journal of a landing, or of its undoing: written and synced before the project is touched, removed when all is
//! done. While it is there, the work either has happened and is to be finished, or is to be rolled back. A landing has
//! happened when the new base records have taken their place and its entry is there; an undo, when the landing's entry says
//! so.

use super::entry::{Entry, Standing, forget, sync_folder};
use super::plan::Step;
use super::stage::Stage;
use super::{commit, entry, exchange, finish, place};
use crate::error::{Context, Failure, Kind, Result};
use crate::land::tree::{self, Tree};
use crate::session::store::{StateDir, show};
use landbox_shared::id::SessionId;
use landbox_shared::path::{AbsPath, RelPath};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const VERSION: u16 = 1;

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::land) enum Work {
    Landing,
    Undo,
}

impl Work {
    /// The word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Landing => "a landing",
            Self::Undo => "the undo of a landing",
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::land) struct Journal {
    pub version: u16,
    pub work: Work,
    /// The landing, and where its stage is.
    pub entry: Entry,
    /// The new base records, beside their place.
    pub records: Option<AbsPath>,
    /// The receipt, to be published once the work has happened.
    pub receipt: AbsPath,
    pub steps: Vec<Step>,
    /// Whether all was prepared: before that, no step was done.
    pub ready: bool,
}

/// Held while a project is landed on.
#[derive(Debug)]
pub(in crate::land) struct ProjectLock {
    _lock: File,
    state: StateDir,
    project: AbsPath,
    dir: PathBuf,
    key: String,
}

impl ProjectLock {
    /// Takes the lock of a project; `None` only where `wait` is false and another landing has it.
    pub(in crate::land) fn take(
        state: &StateDir,
        project: &AbsPath,
        wait: bool,
    ) -> Result<Option<Self>> {
        let dir = state.root().join("landings");
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .context(|| format!("can't make {}", show(&dir)))?;
        let key = place::key(project);
        let path = dir.join(format!("{key}.lock"));
        let lock = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .context(|| format!("can't open {}", show(&path)))?;
        let operation = if wait {
            FlockOperation::LockExclusive
        } else {
            FlockOperation::NonBlockingLockExclusive
        };
        loop {
            match flock(&lock, operation) {
                Ok(()) => {
                    let (state, project) = (state.clone(), project.clone());
                    return Ok(Some(Self { _lock: lock, state, project, dir, key }));
                }
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e).context(|| format!("can't lock {}", show(&path))),
            }
        }
    }

    /// The projects on which a landing broke off.
    pub(super) fn pending(state: &StateDir) -> Result<Vec<AbsPath>> {
        let dir = state.root().join("landings");
        let what = || format!("can't list {}", show(&dir));
        let entries = match std::fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e).context(what),
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.context(what)?.path();
            if path.extension().is_some_and(|end| end == "json") {
                let bytes =
                    std::fs::read(&path).context(|| format!("can't read {}", show(&path)))?;
                let journal: Journal = serde_json::from_slice(&bytes)
                    .map_err(|_| broken(state, None, &path, "can't be understood"))?;
                found.push(journal.entry.project);
            }
        }
        Ok(found)
    }

    /// Whether work on a project broke off, or is under way. Asked without the lock, for which a full or read-only disk
    /// may have no room.
    pub(super) fn is_marked(state: &StateDir, project: &AbsPath) -> bool {
        let journal = format!("{}.json", place::key(project));
        state.root().join("landings").join(journal).exists()
    }

    fn path(&self) -> PathBuf {
        self.dir.join(format!("{}.json", self.key))
    }

    /// Whether work on the project broke off.
    pub(in crate::land) fn is_pending(&self) -> bool {
        self.path().exists()
    }

    /// Writes the journal to disk.
    pub(in crate::land) fn begin(&self, journal: &Journal) -> Result<()> {
        entry::write(&self.path(), journal)
    }

    /// Removes the journal.
    pub(in crate::land) fn end(&self) -> Result<()> {
        forget(&self.path())?;
        sync_folder(&self.dir)
    }

    /// Does every step of a journal, or none: one that fails rolls back all before it. `before` is called with the number
    /// of each before it is done.
    pub(in crate::land) fn carry_out(
        &self,
        journal: &Journal,
        project: &Tree,
        stage: &Stage,
        before: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let done = exchange::all(&journal.steps, project, stage, before);
        let Err(mut failure) = done else { return Ok(()) };
        if let Some(note) = journal.roll_back(&self.state, project)? {
            failure.hints.push(note);
        }
        self.end()?;
        Err(failure)
    }

    /// Finishes, or rolls back, work that did not come to its end. Gives a sentence about it.
    pub(in crate::land) fn recover(&self) -> Result<Option<String>> {
        let path = self.path();
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).context(|| format!("can't read {}", show(&path))),
        };
        let broken = |why: &str| broken(&self.state, Some(&self.project), &path, why);
        let journal: Journal =
            serde_json::from_slice(&bytes).map_err(|_| broken("can't be understood"))?;
        if journal.version != VERSION {
            return Err(broken("was written by another version of landbox"));
        }
        let Entry { session: id, project, root, .. } = &journal.entry;
        let tree = Tree::open(project.as_path())
            .map_err(|e| broken(&format!("can't be rolled back: {project}: {e}")))?;
        let meta = tree::meta_of(tree.root()).context(|| "can't read the project".into())?;
        if meta.ino != *root {
            return Err(broken("is about another folder of the same name"));
        }
        let word = journal.work.word();
        if !journal.ready {
            journal.roll_back(&self.state, &tree)?;
            self.end()?;
            return Ok(Some(format!(
                "{word} of session {id} broke off before it began; what was prepared for it is removed"
            )));
        }
        if journal.has_happened(&self.state) {
            let note = finish::finish(&journal, &self.state, finish::Known::Nothing)?.note;
            self.end()?;
            let note = note.map(|note| format!("; {note}")).unwrap_or_default();
            return Ok(Some(format!(
                "{word} on {project} broke off after its last step; it was finished, and is done{note}"
            )));
        }
        let note = journal.roll_back(&self.state, &tree)?;
        self.end()?;
        Ok(Some(note.unwrap_or_else(|| {
            let left = match journal.work {
                Work::Landing => "nothing of it is left",
                Work::Undo => "what had landed is there as before",
            };
            format!("{word} of session {id} broke off; it was rolled back, and {left}")
        })))
    }
}

impl Journal {
    /// The journal of work that is about to be prepared.
    pub(in crate::land) fn new(
        work: Work,
        entry: Entry,
        records: Option<&Path>,
        receipt: &Path,
    ) -> Result<Self> {
        let abs = |path: &Path| {
            AbsPath::from_path(path).context(|| format!("can't use the path {}", show(path)))
        };
        let records = records.map(abs).transpose()?;
        let (receipt, steps) = (abs(receipt)?, Vec::new());
        Ok(Self { version: VERSION, work, entry, records, receipt, steps, ready: false })
    }

    /// Whether all of it is done but for the finish.
    fn has_happened(&self, state: &StateDir) -> bool {
        match (&self.work, &self.records) {
            (Work::Landing, Some(records)) => {
                let is_kept = |standing| self.entry.path(state, standing).exists();
                let kept = [Standing::New, Standing::Kept].into_iter().any(is_kept);
                self.ready && !records.as_path().exists() && kept
            }
            (Work::Landing, None) => false,
            (Work::Undo, _) => !self.entry.path(state, Standing::Kept).exists(),
        }
    }

    /// Rolls back what was done; after a landing, removes all that was prepared. Gives a sentence if something had to be
    /// left in the stage.
    pub(in crate::land) fn roll_back(
        &self,
        state: &StateDir,
        project: &Tree,
    ) -> Result<Option<String>> {
        let path = self.entry.store.to_path_buf();
        let stuck = match Stage::open(path.clone()) {
            Ok(stage) => {
                let stuck = commit::roll_back(&self.steps, project, &stage);
                sync_parents(&self.steps, project);
                stuck
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(e).context(|| format!("can't open {}", show(&path))),
        };
        if self.work == Work::Undo && stuck.is_empty() {
            crate::land::receipt::withdraw(self.receipt.as_path())?;
            return Ok(None);
        }
        // Out of the way of the next landing, and never removed by one.
        let kept =
            if stuck.is_empty() { None } else { Some(set_aside(&path, &self.entry.session)?) };
        match self.work {
            Work::Landing => self.discard(state)?,
            // What left the session's layer stays until the landing would have been forgotten.
            Work::Undo => {
                crate::land::receipt::withdraw(self.receipt.as_path())?;
                self.entry.stand(state, Standing::Kept, Standing::Undone)?;
            }
        }
        let list: Vec<String> =
            stuck.iter().map(|(slot, path)| format!("{path} (as {slot})")).collect();
        Ok(kept.map(|kept| {
            format!(
                "{} was rolled back, but these paths were written to meanwhile and stay as they are: {}; \
                 what else was to be there is kept in {}",
                self.work.word(),
                list.join(", "),
                show(&kept)
            )
        }))
    }

    /// Removes what was prepared for work that does not happen. The records go last, after what says that they decide: where
    /// they are gone and the entry is not, the landing has happened.
    pub(super) fn discard(&self, state: &StateDir) -> Result<()> {
        crate::land::receipt::withdraw(self.receipt.as_path())?;
        self.entry.remove(state)?;
        if let Some(records) = &self.records {
            let undo = state.root().join(place::UNDO);
            // Not there where nothing was prepared yet.
            if undo.exists() {
                sync_folder(&undo)?;
            }
            forget(records.as_path())?;
        }
        Ok(())
    }
}

/// What is said of a journal that is no help.
fn broken(state: &StateDir, project: Option<&AbsPath>, path: &Path, why: &str) -> Failure {
    let message = format!("a landing broke off, and its journal {} {why}", show(path));
    let failure = Failure::new(Kind::Failed, message);
    let stages: Vec<String> = stages(state, project).iter().map(|stage| show(stage)).collect();
    let failure = if stages.is_empty() {
        failure.hint("nothing of the project was found aside, so it was not begun or is all done")
    } else {
        failure.hint(format!(
            "what the landing took from the project may lie in {}; put back what the project lacks",
            stages.join(", ")
        ))
    };
    failure.hint("look at the project and the journal by hand, then remove the journal")
}

/// The folders that may hold what a landing took from a project: every stage of which no entry tells.
fn stages(state: &StateDir, project: Option<&AbsPath>) -> Vec<PathBuf> {
    let below = |dir: &Path| -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let mut folders = match project {
        Some(project) => vec![state.root().join(place::UNDO).join(place::key(project))],
        None => below(&state.root().join(place::UNDO)),
    };
    // Without a name to go by, it lies in a place of one of the projects that are known.
    let projects: BTreeSet<AbsPath> = match project {
        Some(project) => BTreeSet::from([project.clone()]),
        None => state
            .sessions()
            .map(|listing| listing.sessions)
            .unwrap_or_default()
            .into_iter()
            .map(|session| session.snapshot.policy.project)
            .collect(),
    };
    for project in &projects {
        let places = place::outside(project);
        folders.extend(places.into_iter().map(|dir| dir.join(place::key(project))));
    }
    let known: BTreeSet<PathBuf> = [Standing::Kept, Standing::Undone]
        .into_iter()
        .flat_map(|standing| entry::all(state, standing))
        .map(|entry| entry.store.to_path_buf())
        .collect();
    let mut found: Vec<PathBuf> = folders.iter().flat_map(|dir| below(dir)).collect();
    found.retain(|path| {
        !known.contains(path) && std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
    });
    found
}

/// What landings left aside of a project, for its owner to put back: of that no entry tells.
pub(super) fn kept(state: &StateDir, project: &AbsPath) -> Vec<PathBuf> {
    let mut found = stages(state, Some(project));
    found.retain(|path| std::fs::read_dir(path).is_ok_and(|mut names| names.next().is_some()));
    found.sort();
    found
}

/// Gives a stage a name under which no landing makes, or removes, one. Gives its new path.
pub(super) fn set_aside(path: &Path, session: &SessionId) -> Result<PathBuf> {
    let is_free = |p: &PathBuf| std::fs::symlink_metadata(p).is_err();
    let kept = (1..)
        .map(|n| path.with_file_name(format!("{KEPT}{session}-{n}")))
        .find(is_free)
        .unwrap_or_else(|| path.to_path_buf());
    std::fs::rename(path, &kept).context(|| format!("can't rename {}", show(path)))?;
    Ok(kept)
}

/// How the folder is named that keeps what an undone landing could not put back.
pub(super) const KEPT: &str = "landbox-kept-";

/// Writes a file and its name to disk.
pub(super) fn sync(path: &Path) -> Result<()> {
    let what = || format!("can't write {} to disk", show(path));
    File::open(path).and_then(|f| f.sync_all()).context(what)?;
    sync_folder(path.parent().unwrap_or(Path::new("/")))
}

/// Writes the folders whose names changed to disk; gives whether that worked for all of them.
pub(in crate::land) fn sync_parents(steps: &[Step], project: &Tree) -> bool {
    let parents: BTreeSet<Option<RelPath>> = steps.iter().map(|s| s.path.parent()).collect();
    let there: Vec<Option<RelPath>> = parents
        .into_iter()
        .filter(|p| !matches!(project.place(p.as_ref()), Err(e) if tree::is_absence(&e)))
        .collect();
    // A folder that cannot be opened cannot be said to be on disk.
    let open = |p: &Option<RelPath>| project.dir(p.as_ref()).map_err(std::io::Error::other);
    let what = || "can't write the project's folders to disk".to_owned();
    crate::land::sync::files(&there, |p| open(p).map(File::from), what).is_ok()
}
