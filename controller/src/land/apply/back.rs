//! Putting back into a layer what left it with a landing that is undone, so that the session sees what it saw.

use super::parts;
use crate::land::digest::ancestors;
use crate::land::kind::EntryType;
use crate::land::tree::{self, Tree};
use crate::overlay::marks::{self, FolderMarks, Mark};
use crate::overlay::prepare::dress_like;
use landbox_shared::path::RelPath;
use landbox_shared::policy::Backend;
use rustix::fs::{self, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Puts everything back into the layer that the session has not written again since. `project` is what shows through the
/// layer, as it was before the landing.
pub(in crate::land) fn put_back(
    path: &Path,
    upper: &Tree,
    backend: Backend,
    project: &Tree,
) -> io::Result<()> {
    let all = parts::read(path)?;
    if all.is_empty() {
        return Ok(());
    }
    let dir = Tree::open(path)?;
    let mut way = Way::new(upper, backend, project);
    for (slot, to) in all {
        if tree::meta_at(dir.root(), slot.as_bytes())?.is_some() {
            way.back(dir.root(), slot.as_bytes(), &to)?;
        }
    }
    Ok(())
}

/// Marks as deleted what the session does not see and would see again: each of `paths`, sorted, is in the project again.
/// The mark may have left the layer when the session made something there and removed it, while there was nothing below.
pub(super) fn hide<'a>(
    paths: impl Iterator<Item = &'a RelPath>,
    upper: &Tree,
    backend: Backend,
    project: &Tree,
) -> io::Result<()> {
    let mut way = Way::new(upper, backend, project);
    paths.into_iter().try_for_each(|path| way.hide(path))
}

/// The folders that what comes back lies in. They left the layer with a later landing, or because they held nothing.
struct Way<'a> {
    upper: &'a Tree,
    backend: Backend,
    project: &'a Tree,
    /// Folders that the session has removed since, with all that was in them.
    closed: HashSet<RelPath>,
}

impl<'a> Way<'a> {
    fn new(upper: &'a Tree, backend: Backend, project: &'a Tree) -> Self {
        Self { upper, backend, project, closed: HashSet::new() }
    }

    /// Moves what lies at `name` in `from` back to `to`. Of a folder in whose place the session has one again, what it
    /// holds.
    fn back(&mut self, from: BorrowedFd<'_>, name: &[u8], to: &RelPath) -> io::Result<()> {
        self.make(to)?;
        let moved = self.upper.place(to.parent().as_ref()).and_then(|place| {
            if self.says_otherwise(&place, to)? {
                return Ok(());
            }
            let flags = RenameFlags::NOREPLACE;
            Ok(fs::renameat_with(from, name, &place, to.file_name(), flags)?)
        });
        match moved {
            Err(e) if Errno::from_io_error(&e) == Some(Errno::EXIST) => {}
            Err(e) if !tree::is_absence(&e) => return Err(e),
            // Or the session has made something else of a folder above: that is what it wants.
            Ok(()) | Err(_) => return Ok(()),
        }
        // So it has here, unless there is a folder on both sides.
        let Ok(dir) = fs::openat(from, name, FOLDER, Mode::empty()) else { return Ok(()) };
        let Ok(there) = self.upper.dir(Some(to)) else { return Ok(()) };
        // One that hides what is below is what the session has made of it since: nothing of what was there is in it.
        if hides(self.marks(&there)?) {
            return Ok(());
        }
        let found = self.marks(&dir)?;
        if found.redirected {
            return Ok(());
        }
        for name in tree::names(&dir)? {
            let Ok(child) = to.join(&name) else { continue };
            if marks::name_mark(self.backend, &name, false) != Mark::Note {
                self.back(dir.as_fd(), &name, &child)?;
            }
        }
        // The session saw through it what had landed, which it holds again itself. Last, so that all of this can be done
        // twice.
        if found.opaque { marks::make_opaque(self.backend, &there) } else { Ok(()) }
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
            let opens = !hides(self.marks(&dir)?) && !self.is_noted(&dir, &folder)?;
            let made = match tree::meta_at(&dir, folder.file_name())? {
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

    /// Marks a name as deleted, if the real one would show there.
    fn hide(&mut self, path: &RelPath) -> io::Result<()> {
        self.make(path)?;
        for folder in ancestors(std::iter::once(path)).iter().map(Some).chain([None]) {
            match self.upper.dir(folder) {
                Ok(dir) if hides(self.marks(&dir)?) => return Ok(()),
                Ok(_) => {}
                Err(e) if tree::is_absence(&e) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        let place = self.upper.place(path.parent().as_ref())?;
        if self.is_noted(&place, path)? || tree::meta_at(&place, path.file_name())?.is_some() {
            return Ok(());
        }
        marks::make_whiteout(&place, path.file_name())
    }

    /// Whether the layer says by another name that what is to come back is deleted, or, of a note, that it is not.
    fn says_otherwise(&self, dir: &OwnedFd, path: &RelPath) -> io::Result<bool> {
        Ok(match marks::name_mark(self.backend, path.file_name(), false) {
            Mark::WhiteoutOf(name) => tree::meta_at(dir, &name)?.is_some(),
            Mark::Object | Mark::Whiteout | Mark::Note => self.is_noted(dir, path)?,
        })
    }

    /// Whether fuse-overlayfs has noted, beside the name, that it is deleted.
    fn is_noted(&self, dir: &OwnedFd, path: &RelPath) -> io::Result<bool> {
        Ok(match self.backend {
            Backend::Kernel => false,
            Backend::Fuse => tree::meta_at(dir, &[b".wh.", path.file_name()].concat())?.is_some(),
        })
    }

    fn marks(&self, dir: &OwnedFd) -> io::Result<FolderMarks> {
        marks::folder_marks(self.backend, dir, &tree::names(dir)?)
    }
}

fn hides(marks: FolderMarks) -> bool {
    marks.opaque || marks.redirected
}
