//! What is kept of a landing so that it can be undone.
//!
//! ```text
//! <state>/undo/<project>/<session>-<n>.json    0600: which landing, and where the old objects are
//! <state>/undo/<project>/<session>-<n>.steps   what it did, and its receipt
//! <state>/undo/<project>/<session>-<n>.commit  where it was committed, too: that commit and the one before it, as lines
//! <place>/<project>/<session>-<n>/             the old objects, by the number of their step
//! ```
//! `.new` until the landing has happened; `.undone` from the moment in which it is undone.

use super::place::{self, UNDO};
use super::plan::Step;
use crate::error::{Context, Result};
use crate::land::receipt::Receipt;
use crate::land::tree::Time;
use crate::overlay::remove::remove_tree;
use crate::session::store::{StateDir, show};
use landbox_shared::id::SessionId;
use landbox_shared::path::{AbsPath, RelPath};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::{BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const VERSION: u16 = 1;

/// Which landing, and where what it displaced is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::land) struct Entry {
    version: u16,
    pub session: SessionId,
    /// Which landing of its session, from one.
    pub number: u32,
    /// Which landing on its project.
    pub sequence: u64,
    /// RFC 3339, UTC.
    pub at: String,
    pub project: AbsPath,
    /// Inode of the project's root.
    pub root: u64,
    /// The folder of the old objects.
    pub store: AbsPath,
    /// Number of changes.
    pub changes: u64,
    /// What the old objects take.
    pub bytes: u64,
}

/// What a landing did.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::land) struct Detail {
    version: u16,
    pub steps: Vec<Step>,
    /// The paths that had another base before it.
    pub rebased: BTreeSet<RelPath>,
    /// The folders whose names changed, with the time of their last change before that.
    pub times: Vec<(Option<RelPath>, Time)>,
    pub receipt: Receipt,
    /// Whether it was a checkpoint that landed: of that the layer says nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub past: bool,
}

/// Where an entry stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::land) enum Standing {
    /// It is being made.
    New,
    /// It happened and can be undone.
    Kept,
    /// It was undone, or is being undone.
    Undone,
}

impl Standing {
    fn ending(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Kept => "json",
            Self::Undone => "undone",
        }
    }
}

impl Entry {
    /// The entry of a landing that is about to begin.
    pub(in crate::land) fn new(
        session: SessionId,
        number: u32,
        sequence: u64,
        project: AbsPath,
        root: u64,
        store: AbsPath,
    ) -> Self {
        let at = super::now();
        let version = VERSION;
        Self { version, session, number, sequence, at, project, root, store, changes: 0, bytes: 0 }
    }

    /// The name of its files and of its store.
    pub(in crate::land) fn name(&self) -> String {
        name(&self.session, self.number)
    }

    /// Its file, for a standing.
    pub(in crate::land) fn path(&self, state: &StateDir, standing: Standing) -> PathBuf {
        folder(state, &self.project).join(format!("{}.{}", self.name(), standing.ending()))
    }

    fn detail_path(&self, state: &StateDir) -> PathBuf {
        folder(state, &self.project).join(format!("{}.steps", self.name()))
    }

    /// Writes it, for a landing that has not begun. Gives the files, which the caller brings to disk.
    pub(in crate::land) fn write(&self, state: &StateDir, detail: &Detail) -> Result<[PathBuf; 2]> {
        let dir = folder(state, &self.project);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .context(|| format!("can't make {}", show(&dir)))?;
        let files = [self.detail_path(state), self.path(state, Standing::New)];
        lay_down(&files[0], detail, false)?;
        lay_down(&files[1], self, false)?;
        Ok(files)
    }

    /// Moves it from one standing to another, once.
    pub(in crate::land) fn stand(
        &self,
        state: &StateDir,
        from: Standing,
        to: Standing,
    ) -> Result<()> {
        let (old, new) = (self.path(state, from), self.path(state, to));
        match std::fs::rename(&old, &new) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && new.exists() => {}
            other => other.context(|| format!("can't rename {}", show(&old)))?,
        }
        sync_folder(&folder(state, &self.project))
    }

    /// Says that it is undone: from here on it is. The time of the file tells when, for what is kept of it.
    pub(in crate::land) fn undone_now(&self, state: &StateDir) -> Result<()> {
        let path = self.path(state, Standing::Kept);
        let now = std::fs::FileTimes::new().set_modified(std::time::SystemTime::now());
        std::fs::File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_times(now))
            .context(|| format!("can't write {}", show(&path)))?;
        self.stand(state, Standing::Kept, Standing::Undone)
    }

    fn commit_path(&self, state: &StateDir) -> PathBuf {
        folder(state, &self.project).join(format!("{}.commit", self.name()))
    }

    /// Notes the commit of what landed, and the one before it.
    pub(in crate::land) fn note_commit(&self, state: &StateDir, lines: &str) -> Result<()> {
        let path = self.commit_path(state);
        std::fs::write(&path, lines).context(|| format!("can't write {}", show(&path)))
    }

    /// What was noted of its commit.
    pub(in crate::land) fn commit(&self, state: &StateDir) -> Option<String> {
        std::fs::read_to_string(self.commit_path(state)).ok()
    }

    /// Whether it is known what the landing did: it is as long as nothing of it was removed.
    pub(super) fn has_detail(&self, state: &StateDir) -> bool {
        self.detail_path(state).exists()
    }

    /// What the landing did.
    pub(in crate::land) fn detail(&self, state: &StateDir) -> Result<Detail> {
        let path = self.detail_path(state);
        let bytes = std::fs::read(&path).context(|| format!("can't read {}", show(&path)))?;
        serde_json::from_slice(&bytes).context(|| format!("can't understand {}", show(&path)))
    }

    /// Removes it with all that is kept for it. The name goes first: what is cut short is found by no one as whole.
    pub(in crate::land) fn remove(&self, state: &StateDir) -> Result<()> {
        for standing in [Standing::New, Standing::Kept] {
            forget(&self.path(state, standing))?;
        }
        let store = self.store.as_path();
        remove_tree(store).context(|| format!("can't remove {}", show(store)))?;
        let parts = super::parts::parts_of(&state.sessions_dir(), &self.session, self.number);
        remove_tree(&parts).context(|| format!("can't remove {}", show(&parts)))?;
        forget(&self.detail_path(state))?;
        forget(&self.commit_path(state))?;
        forget(&self.path(state, Standing::Undone))?;
        for path in [self.detail_path(state), self.path(state, Standing::New)] {
            let mut beside = path.into_os_string();
            beside.push(".write");
            forget(Path::new(&beside))?;
        }
        place::tidy(store, state);
        let _ = std::fs::remove_dir(folder(state, &self.project));
        Ok(())
    }
}

impl Detail {
    /// Puts the parts together.
    pub(in crate::land) fn new(
        steps: Vec<Step>,
        rebased: BTreeSet<RelPath>,
        times: Vec<(Option<RelPath>, Time)>,
        receipt: Receipt,
    ) -> Self {
        Self { version: VERSION, steps, rebased, times, receipt, past: false }
    }
}

/// The name of a landing.
pub(in crate::land) fn name(session: &SessionId, number: u32) -> String {
    format!("{session}-{number}")
}

/// The folder of a project's entries.
fn folder(state: &StateDir, project: &AbsPath) -> PathBuf {
    state.root().join(UNDO).join(place::key(project))
}

/// The entries of a standing on one project, the oldest first. What can't be read is left out: it undoes nothing.
pub(in crate::land) fn of(state: &StateDir, project: &AbsPath, standing: Standing) -> Vec<Entry> {
    in_folder(&folder(state, project), standing)
}

/// The entries of a standing on every project.
pub(in crate::land) fn all(state: &StateDir, standing: Standing) -> Vec<Entry> {
    let Ok(folders) = std::fs::read_dir(state.root().join(UNDO)) else { return Vec::new() };
    let folders = folders.filter_map(|entry| entry.ok());
    folders.flat_map(|entry| in_folder(&entry.path(), standing)).collect()
}

fn in_folder(dir: &Path, standing: Standing) -> Vec<Entry> {
    let Ok(files) = std::fs::read_dir(dir) else { return Vec::new() };
    let paths = files.filter_map(|entry| Some(entry.ok()?.path()));
    let ours = |path: &PathBuf| path.extension().is_some_and(|end| end == standing.ending());
    let read = |path: PathBuf| -> Option<Entry> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    };
    let mut found: Vec<Entry> =
        paths.filter(ours).filter_map(read).filter(|e| e.version == VERSION).collect();
    found.sort_by_key(|entry| entry.sequence);
    found
}

/// The number of the next landing on a project.
pub(in crate::land) fn next_sequence(state: &StateDir, project: &AbsPath) -> u64 {
    let last = |standing| of(state, project, standing).last().map_or(0, |e| e.sequence);
    last(Standing::Kept).max(last(Standing::Undone)) + 1
}

/// Writes a document beside its place, to disk, and renames it there. The project's lock is held, so the name beside it
/// can be a fixed one, and one that was left there is written over.
pub(in crate::land) fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    lay_down(path, value, true)?;
    sync_folder(path.parent().unwrap_or(Path::new("/")))
}

fn lay_down(path: &Path, value: &impl Serialize, synced: bool) -> Result<()> {
    let what = || format!("can't write {}", show(path));
    let mut beside = path.as_os_str().to_owned();
    beside.push(".write");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)
        .context(what)?;
    let mut out = BufWriter::with_capacity(256 << 10, file);
    serde_json::to_writer(&mut out, value).context(what)?;
    out.write_all(b"\n").context(what)?;
    let file = out.into_inner().map_err(std::io::IntoInnerError::into_error).context(what)?;
    if synced {
        file.sync_all().context(what)?;
    }
    std::fs::rename(&beside, path).context(what)
}

pub(in crate::land) fn sync_folder(dir: &Path) -> Result<()> {
    std::fs::File::open(dir)
        .and_then(|f| f.sync_all())
        .context(|| format!("can't write {} to disk", show(dir)))
}

/// Removes a file that may be gone.
pub(in crate::land) fn forget(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).context(|| format!("can't remove {}", show(path)))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
