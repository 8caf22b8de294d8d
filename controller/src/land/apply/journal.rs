//! The journal of a landing: written and synced before the project is touched, removed when all is done. While it is
//! there, the landing either happened (the new base records have taken their place) or is to be undone.

use super::commit;
use super::plan::Step;
use super::stage::{self, Stage};
use crate::error::{Context, Failure, Kind, Result};
use crate::land::tree::{self, Tree};
use crate::session::store::{StateDir, show, write_json};
use landbox_shared::digest::Digest;
use landbox_shared::id::SessionId;
use landbox_shared::path::{AbsPath, RelPath};
use rustix::fs::{FlockOperation, flock, fsync};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const VERSION: u16 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Journal {
    pub version: u16,
    pub session: SessionId,
    pub project: AbsPath,
    /// Inode of the project's root.
    pub root: u64,
    pub stage: AbsPath,
    /// The new base records, beside their place. Their move there is the moment at which the landing has happened.
    pub records: AbsPath,
    /// Which landing of its session it is, counted from one.
    #[serde(default)]
    pub number: u32,
    pub steps: Vec<Step>,
}

/// Held while a project is landed on.
#[derive(Debug)]
pub(super) struct ProjectLock {
    _lock: File,
    state: StateDir,
    project: AbsPath,
    dir: PathBuf,
    key: String,
}

impl ProjectLock {
    /// Takes the lock of a project; `None` only where `wait` is false and another landing has it.
    pub(super) fn take(state: &StateDir, project: &AbsPath, wait: bool) -> Result<Option<Self>> {
        let dir = state.root().join("landings");
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .context(|| format!("can't make {}", show(&dir)))?;
        let digest = Digest::of("project", &[project.as_bytes()]);
        let key = digest.to_string().replace("sha256:", "");
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
                found.push(journal.project);
            }
        }
        Ok(found)
    }

    fn path(&self) -> PathBuf {
        self.dir.join(format!("{}.json", self.key))
    }

    /// Writes the journal to disk.
    pub(super) fn begin(&self, journal: &Journal) -> Result<()> {
        let path = self.path();
        write_json(&path, journal, 0o600)?;
        sync(&path)
    }

    /// Removes the journal.
    pub(super) fn end(&self) -> Result<()> {
        let path = self.path();
        std::fs::remove_file(&path).context(|| format!("can't remove {}", show(&path)))?;
        fsync(File::open(&self.dir).context(|| "can't open the landings folder".into())?)
            .context(|| "can't write the landings folder to disk".into())
    }

    /// Undoes, or tidies up after, a landing that did not come to its end. Gives a sentence about it.
    pub(super) fn recover(&self) -> Result<Option<String>> {
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
        let project = Tree::open(journal.project.as_path())
            .map_err(|e| broken(&format!("can't be undone: {}: {e}", journal.project)))?;
        let meta = tree::meta_of(project.root()).context(|| "can't read the project".into())?;
        if meta.ino != journal.root {
            return Err(broken("is about another folder of the same name"));
        }
        let happened = !journal.records.as_path().exists();
        if happened {
            self.count(&journal, &path)?;
            tidy(&journal)?;
            self.end()?;
            return Ok(Some(format!(
                "a landing on {} broke off after its last step",
                journal.project
            )));
        }
        let note = journal.undo(&project)?;
        self.end()?;
        let id = &journal.session;
        Ok(Some(note.unwrap_or_else(|| {
            format!("a landing of session {id} broke off; it was undone, and nothing of it is left")
        })))
    }

    /// Records in its session a landing that happened, if it did not come to that itself.
    fn count(&self, journal: &Journal, path: &Path) -> Result<()> {
        // A session that can't be read, or is gone, has no use for it.
        let Ok(mut session) = self.state.load(&journal.session) else { return Ok(()) };
        if session.state.landing.count >= journal.number {
            return Ok(());
        }
        let began = std::fs::metadata(path).and_then(|meta| meta.modified());
        let landing = &mut session.state.landing;
        landing.count = journal.number;
        landing.last_at = Some(began.map_or_else(|_| super::now(), super::time_word));
        landing.synced = false;
        session.state.changes = crate::land::counts(&session, false).ok();
        session.save_state()
    }
}

impl Journal {
    /// The journal of `steps`.
    pub(super) fn new(
        session: &SessionId,
        project: &AbsPath,
        root: u64,
        stage: &Path,
        records: &Path,
        number: u32,
        steps: Vec<Step>,
    ) -> Result<Self> {
        let abs = |path: &Path| {
            AbsPath::from_path(path).context(|| format!("can't use the path {}", show(path)))
        };
        Ok(Self {
            version: VERSION,
            session: session.clone(),
            project: project.clone(),
            root,
            stage: abs(stage)?,
            records: abs(records)?,
            number,
            steps,
        })
    }

    /// Undoes what was done and removes the stage. Gives a sentence if something had to be left in it.
    pub(super) fn undo(&self, project: &Tree) -> Result<Option<String>> {
        let path = self.stage.to_path_buf();
        let stage = match Stage::open(path.clone()) {
            Ok(stage) => stage,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                remove(self.records.as_path())?;
                return Ok(None);
            }
            Err(e) => return Err(e).context(|| format!("can't open {}", show(&path))),
        };
        let stuck = commit::undo(&self.steps, project, &stage);
        sync_parents(&self.steps, project);
        if stuck.is_empty() {
            tidy(self)?;
            return Ok(None);
        }
        // Out of the way of the next landing, and never removed by one.
        let kept = set_aside(&path, &self.session)?;
        remove(self.records.as_path())?;
        let list: Vec<String> =
            stuck.iter().map(|(index, path)| format!("{path} (as {index})")).collect();
        Ok(Some(format!(
            "a landing was undone, but these paths were written to meanwhile and stay as they are: {}; \
             what was there before is kept in {}",
            list.join(", "),
            show(&kept)
        )))
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

/// The folders that may hold what a landing took from a project: every stage there is.
fn stages(state: &StateDir, project: Option<&AbsPath>) -> Vec<PathBuf> {
    let below = |dir: &Path| -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let sessions = below(&state.root().join("sessions"));
    let mut found: Vec<PathBuf> = sessions.iter().map(|dir| dir.join(stage::NAME)).collect();
    let hidden = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        name.strip_prefix(stage::HIDDEN.as_bytes())
            .and_then(|id| std::str::from_utf8(id).ok())
            .is_some_and(|id| SessionId::new(id).is_some())
    };
    // Without a name to go by, it lies in the folder of one of the projects that are known.
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
        let root = project.to_path_buf();
        found.extend(below(&root.join(".git")).into_iter().chain(below(&root)).filter(hidden));
    }
    found.retain(|path| std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()));
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

/// Removes what a landing that happened, or was undone, leaves over.
pub(super) fn tidy(journal: &Journal) -> Result<()> {
    let stage = journal.stage.as_path();
    crate::overlay::remove::remove_tree(stage)
        .context(|| format!("can't remove {}", show(stage)))?;
    remove(journal.records.as_path())
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).context(|| format!("can't remove {}", show(path)))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a file and its name to disk.
pub(super) fn sync(path: &Path) -> Result<()> {
    let what = || format!("can't write {} to disk", show(path));
    File::open(path).and_then(|f| f.sync_all()).context(what)?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    File::open(dir).and_then(|f| f.sync_all()).context(what)
}

/// Writes the folders whose names changed to disk; gives whether that worked for all of them.
pub(super) fn sync_parents(steps: &[Step], project: &Tree) -> bool {
    let parents: BTreeSet<Option<RelPath>> = steps.iter().map(|s| s.path.parent()).collect();
    let there: Vec<Option<RelPath>> = parents
        .into_iter()
        .filter(|p| !matches!(project.place(p.as_ref()), Err(e) if tree::is_absence(&e)))
        .collect();
    // A folder that cannot be opened cannot be said to be on disk.
    let open = |p: &Option<RelPath>| project.dir(p.as_ref()).map_err(std::io::Error::other);
    crate::land::sync::files(&there, |p| open(p).map(File::from)).is_ok()
}
