//! The journal of a landing: written and synced before the project is touched, removed when all is done. While it is
//! there, the landing either happened (the new base records have taken their place) or is to be undone.

use super::commit;
use super::plan::Step;
use super::stage::Stage;
use crate::error::{Context, Failure, Kind, Result};
use crate::land::tree::{self, Tree};
use crate::session::store::{StateDir, show, write_json};
use landbox_shared::digest::Digest;
use landbox_shared::id::SessionId;
use landbox_shared::path::{AbsPath, RelPath};
use rustix::fs::{FlockOperation, flock, fsync};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
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
    pub steps: Vec<Step>,
}

/// Held while a project is landed on.
#[derive(Debug)]
pub(super) struct ProjectLock {
    _lock: File,
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
                Ok(()) => return Ok(Some(Self { _lock: lock, dir, key })),
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
                    .map_err(|_| broken(&path, "can't be understood"))?;
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
        let broken = |why: &str| broken(&path, why);
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
}

impl Journal {
    /// The journal of `steps`.
    pub(super) fn new(
        session: &SessionId,
        project: &AbsPath,
        root: u64,
        stage: &Path,
        records: &Path,
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
        let kept = (1..)
            .map(|n| path.with_file_name(format!("{KEPT}{}-{n}", self.session)))
            .find(|p| !p.exists())
            .unwrap_or(path.clone());
        std::fs::rename(&path, &kept).context(|| format!("can't rename {}", show(&path)))?;
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

fn broken(path: &Path, why: &str) -> Failure {
    let message = format!("a landing broke off, and its journal {} {why}", show(path));
    Failure::new(Kind::Failed, message)
        .hint("look at the project and the journal by hand, then remove the journal")
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
    let parents: std::collections::BTreeSet<Option<RelPath>> =
        steps.iter().map(|s| s.path.parent()).collect();
    let there: Vec<Option<RelPath>> = parents
        .into_iter()
        .filter(|p| !matches!(project.place(p.as_ref()), Err(e) if tree::is_absence(&e)))
        .collect();
    // A folder that cannot be opened cannot be said to be on disk.
    let open = |p: &Option<RelPath>| project.dir(p.as_ref()).map_err(std::io::Error::other);
    crate::land::sync::files(&there, |p| open(p).map(File::from)).is_ok()
}
