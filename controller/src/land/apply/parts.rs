//! What left a session's layer because it landed, kept beside the layer until the landing can't be undone any more.
//!
//! ```text
//! <session>/landed/<n>/names      the paths in the layer, each ended by NUL, in the order in which they left
//! <session>/landed/<n>/<i>        what was at the i-th
//! <session>/landed/<n>/records    the base store as it was before the landing
//! ```

use crate::land::digest::ancestors;
use crate::land::kind::EntryType;
use crate::land::tree::{self, Tree};
use crate::overlay::marks;
use crate::overlay::prepare::dress_like;
use landbox_shared::id::SessionId;
use landbox_shared::path::RelPath;
use landbox_shared::policy::Backend;
use rustix::fs::{self, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How the folder is called in the session's.
pub(in crate::land) const LANDED: &str = "landed";

const NAMES: &str = "names";
const RECORDS: &str = "records";

/// The folder of one landing's parts.
pub(in crate::land) fn parts_of(sessions: &Path, session: &SessionId, number: u32) -> PathBuf {
    sessions.join(session.as_str()).join(LANDED).join(number.to_string())
}

/// The base store as it was before the landing.
pub(in crate::land) fn records_of(parts: &Path) -> PathBuf {
    parts.join(RECORDS)
}

/// The parts of a landing that is being made.
#[derive(Debug)]
pub(super) struct Parts {
    dir: Tree,
    names: File,
    next: usize,
}

impl Parts {
    /// Makes the folder; what an earlier landing of that number left there was never landed.
    pub(super) fn make(path: &Path) -> io::Result<Self> {
        crate::overlay::remove::remove_tree(path)?;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let names =
            File::options().write(true).create_new(true).mode(0o600).open(path.join(NAMES))?;
        Ok(Self { dir: Tree::open(path)?, names, next: 0 })
    }

    /// Opens what an earlier landing has put away, to add to it. `None` where it has left nothing to add to.
    pub(super) fn reopen(path: &Path) -> io::Result<Option<Self>> {
        let open = || -> io::Result<Self> {
            let mut names = File::options().read(true).append(true).open(path.join(NAMES))?;
            let mut bytes = Vec::new();
            names.read_to_end(&mut bytes)?;
            // What was cut short named nothing that moved.
            let whole = bytes.iter().rposition(|b| *b == 0).map_or(0, |end| end + 1);
            names.set_len(whole as u64)?;
            let next = bytes[..whole].iter().filter(|b| **b == 0).count();
            Ok(Self { dir: Tree::open(path)?, names, next })
        };
        match open() {
            Ok(parts) => Ok(Some(parts)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Moves the object at `path` of the layer, of which `place` is the folder, here. Its name is written down first.
    pub(super) fn take(&mut self, place: &OwnedFd, path: &RelPath) -> io::Result<()> {
        let mut line = path.as_bytes().to_vec();
        line.push(0);
        self.names.write_all(&line)?;
        let slot = self.next.to_string();
        self.next += 1;
        Ok(fs::renameat(place, path.file_name(), self.dir.root(), slot.as_str())?)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.names.sync_all()?;
        Ok(fs::fsync(self.dir.root())?)
    }
}

/// Puts everything back into the layer that the session has not written again since. `project` is what shows through the
/// layer, as it was before the landing.
pub(in crate::land) fn put_back(
    path: &Path,
    upper: &Tree,
    backend: Backend,
    project: &Tree,
) -> io::Result<()> {
    let names = match std::fs::read(path.join(NAMES)) {
        Ok(names) => names,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    let dir = Tree::open(path)?;
    // What follows the last NUL was cut short, before its object moved.
    let whole = names.iter().rposition(|b| *b == 0).map_or(0, |end| end + 1);
    let mut way = Way { upper, backend, project, closed: HashSet::new() };
    let lines: Vec<&[u8]> = names[..whole].split(|b| *b == 0).collect();
    for (slot, line) in lines.iter().enumerate().rev().filter(|(_, line)| !line.is_empty()) {
        let slot = slot.to_string();
        if tree::meta_at(dir.root(), slot.as_bytes())?.is_none() {
            continue;
        }
        let Ok(to) = RelPath::new(*line) else { continue };
        way.back(dir.root(), slot.as_bytes(), &to)?;
    }
    Ok(())
}

/// The folders that what comes back lies in. They left the layer with a later landing, or because they held nothing.
struct Way<'a> {
    upper: &'a Tree,
    backend: Backend,
    project: &'a Tree,
    /// Folders that the session has removed since, with all that was in them.
    closed: HashSet<RelPath>,
}

impl Way<'_> {
    /// Moves what lies at `name` in `from` back to `to`. Of a folder in whose place the session has one again, what it
    /// holds.
    fn back(&mut self, from: BorrowedFd<'_>, name: &[u8], to: &RelPath) -> io::Result<()> {
        self.make(to)?;
        let moved = self.upper.place(to.parent().as_ref()).and_then(|place| {
            let flags = RenameFlags::NOREPLACE;
            Ok(fs::renameat_with(from, name, &place, to.file_name(), flags)?)
        });
        match moved {
            Err(e) if Errno::from_io_error(&e) == Some(Errno::EXIST) => {}
            Err(e) if !tree::is_absence(&e) => return Err(e),
            // Or the session has made something else of a folder above: that is what it wants.
            Ok(()) | Err(_) => return Ok(()),
        }
        // So it has here, unless there is a folder on both sides, through which others show.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(dir) = fs::openat(from, name, flags, Mode::empty()) else { return Ok(()) };
        let names = tree::names(&dir)?;
        let hides = |marks: marks::FolderMarks| marks.opaque || marks.redirected;
        if hides(marks::folder_marks(self.backend, &dir, &names)?)
            || self.upper.meta(to)?.is_none_or(|meta| meta.kind != EntryType::Dir)
        {
            return Ok(());
        }
        for name in names {
            let Ok(child) = to.join(&name) else { continue };
            self.back(dir.as_fd(), &name, &child)?;
        }
        Ok(())
    }

    /// Makes those that are missing on the way to `path`, each as one through which the real folder shows. Where none
    /// would, the session has removed it.
    fn make(&mut self, path: &RelPath) -> io::Result<()> {
        let Some(parent) = path.parent() else { return Ok(()) };
        match self.upper.place(Some(&parent)) {
            Err(e) if tree::is_absence(&e) => {}
            other => return other.map(drop),
        }
        // The outermost first.
        let all: BTreeSet<RelPath> = ancestors(std::iter::once(path)).into_iter().collect();
        for folder in all {
            if self.closed.contains(&folder) {
                break;
            }
            let dir = self.upper.dir(folder.parent().as_ref())?;
            let marks = marks::folder_marks(self.backend, &dir, &tree::names(&dir)?)?;
            let note = [b".wh.", folder.file_name()].concat();
            let is_gone = match self.backend {
                Backend::Kernel => false,
                Backend::Fuse => tree::meta_at(&dir, &note)?.is_some(),
            };
            let there = tree::meta_at(&dir, folder.file_name())?;
            let opens = !marks.opaque && !marks.redirected && !is_gone;
            let made = match there {
                Some(meta) => opens && meta.kind == EntryType::Dir,
                None => opens && self.make_one(&dir, &folder)?,
            };
            if !made {
                self.closed.insert(folder);
                break;
            }
        }
        Ok(())
    }

    fn make_one(&self, dir: &OwnedFd, folder: &RelPath) -> io::Result<bool> {
        let real = match self.project.place(Some(folder)) {
            Ok(real) => real,
            Err(e) if tree::is_absence(&e) => return Ok(false),
            Err(e) => return Err(e),
        };
        let stat = fs::fstat(&real)?;
        fs::mkdirat(dir, folder.file_name(), Mode::from_raw_mode(0o700))?;
        let made = self.upper.dir(Some(folder))?;
        dress_like(&made, &stat, self.project.dir(Some(folder)).ok().as_ref())?;
        Ok(true)
    }
}
