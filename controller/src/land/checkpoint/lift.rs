//! Looking into what a session has closed to everybody, its owner included: once it has ended, such a file or folder is
//! opened up for the look and closed again after it. What each was is written down first, so that whoever comes next
//! closes what a look that was cut short has left open.
//!
//! ```text
//! <session>/checkpoints/lifted    while a look is at it: a line for each that is opened up
//! ```

use super::folder::Folder;
use crate::land::kind::EntryType;
use crate::land::tree::{Meta, Tree, is_absence, meta_of};
use crate::session::store::Session;
use landbox_shared::id::LayerId;
use landbox_shared::path::RelPath;
use rustix::fs::{self, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// One that was opened up; a path of `None` is the layer's root.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lifted {
    layer: LayerId,
    path: Option<RelPath>,
    was: u32,
    is: u32,
}

/// What one look has opened up. Dropped, it closes all of it again.
#[derive(Debug)]
pub(super) struct Lifts<'a> {
    session: &'a Session,
    noted: PathBuf,
    file: Option<File>,
    all: Vec<Lifted>,
}

impl<'a> Lifts<'a> {
    /// For a look at a session that has ended: else it could change the same object at the same time.
    pub(super) fn new(session: &'a Session, folder: &Folder) -> Self {
        Self { session, noted: folder.lifted(), file: None, all: Vec::new() }
    }

    /// Opens an object up if it is closed to its owner. Whether it was.
    pub(super) fn lift(
        &mut self,
        layer: &LayerId,
        path: Option<&RelPath>,
        meta: &Meta,
    ) -> io::Result<bool> {
        let Some(is) = needed(meta) else { return Ok(false) };
        let fd = handle(&self.session.upper(layer), path)?;
        let found = meta_of(&fd)?;
        if (found.ino, found.mode) != (meta.ino, meta.mode) {
            return Err(io::Error::other("it was changed while it was looked at"));
        }
        self.open(&fd, Lifted { layer: layer.clone(), path: path.cloned(), was: meta.mode, is })?;
        Ok(true)
    }

    /// Opens up the folders on the way to a path of a layer, for who moves something there.
    pub(super) fn lift_way(&mut self, layer: &LayerId, path: &RelPath) -> io::Result<()> {
        each_closed(&self.session.upper(layer), path, |path, fd, was| {
            self.open(fd, Lifted { layer: layer.clone(), path, was, is: was | 0o700 })
        })
    }

    fn open(&mut self, fd: &OwnedFd, lifted: Lifted) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(File::create(&self.noted)?),
        };
        let mut line = serde_json::to_vec(&lifted)?;
        line.push(b'\n');
        file.write_all(&line)?;
        let is = lifted.is;
        self.all.push(lifted);
        change(fd, is)
    }
}

impl Drop for Lifts<'_> {
    fn drop(&mut self) {
        if self.file.is_some() {
            close(self.session, &self.all, &self.noted);
        }
    }
}

/// Closes what a look that was cut short has left open. The caller holds the folder.
pub(super) fn mend(session: &Session, noted: &Path) {
    let Ok(text) = std::fs::read(noted) else { return };
    // The last line may be torn: then its object was not opened yet.
    let lines = text.split(|b| *b == b'\n');
    let all: Vec<Lifted> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    close(session, &all, noted);
}

/// The deepest first: a folder that is closed lets nobody in. What can't be closed now is closed the next time.
fn close(session: &Session, all: &[Lifted], noted: &Path) {
    let mut closed = true;
    for lifted in all.iter().rev() {
        closed &= close_one(session, lifted).is_ok();
    }
    if closed {
        let _ = std::fs::remove_file(noted);
    }
}

fn close_one(session: &Session, lifted: &Lifted) -> io::Result<()> {
    let fd = match handle(&session.upper(&lifted.layer), lifted.path.as_ref()) {
        Ok(fd) => fd,
        Err(e) if is_absence(&e) => return Ok(()),
        Err(e) => return Err(e),
    };
    // What has another mode was given that since.
    if meta_of(&fd)?.mode == lifted.is { change(&fd, lifted.was) } else { Ok(()) }
}

/// The mode by which its owner may look into an object who may not by the one it has.
fn needed(meta: &Meta) -> Option<u32> {
    let rights = match meta.kind {
        EntryType::Dir => 0o500,
        EntryType::File => 0o400,
        EntryType::Symlink
        | EntryType::Fifo
        | EntryType::Socket
        | EntryType::CharDevice
        | EntryType::BlockDevice => return None,
    };
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let ours = !uid.is_root() && meta.uid == uid.as_raw();
    // A bit that says which group new files get is lost where that is not ours.
    let keeps = meta.mode & 0o2000 == 0 || meta.gid == gid.as_raw();
    (ours && keeps && meta.mode & rights != rights).then_some(meta.mode | rights)
}

/// Opens up the folders on the way to a path of a tree that is about to be removed.
pub(super) fn open_up(tree: &Path, path: &RelPath) -> io::Result<()> {
    each_closed(tree, path, |_, fd, was| change(fd, was | 0o700))
}

/// Has every folder on the way to a path opened up that is closed to its owner, those above first.
fn each_closed(
    tree: &Path,
    path: &RelPath,
    mut open: impl FnMut(Option<RelPath>, &OwnedFd, u32) -> io::Result<()>,
) -> io::Result<()> {
    let above = std::iter::successors(path.parent(), RelPath::parent).map(Some);
    let mut way: Vec<Option<RelPath>> = above.chain([None]).collect();
    way.reverse();
    for folder in way {
        let fd = match handle(tree, folder.as_ref()) {
            Ok(fd) => fd,
            Err(e) if is_absence(&e) => break,
            Err(e) => return Err(e),
        };
        let meta = meta_of(&fd)?;
        if meta.kind == EntryType::Dir && meta.mode & 0o700 != 0o700 {
            open(folder, &fd, meta.mode)?;
        }
    }
    Ok(())
}

/// The object itself, whatever its mode, and no other by way of a link.
fn handle(upper: &Path, path: Option<&RelPath>) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Some(path) = path else {
        return Ok(fs::open(upper, flags | OFlags::DIRECTORY, Mode::empty())?);
    };
    let place = Tree::open(upper)?.place(path.parent().as_ref())?;
    Ok(fs::openat(&place, path.file_name(), flags, Mode::empty())?)
}

fn change(fd: &OwnedFd, mode: u32) -> io::Result<()> {
    let itself = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(fs::chmod(itself, Mode::from_raw_mode(mode))?)
}
