//! A layer made anew from what a checkpoint says of it.

use super::folder::Folder;
use super::model::{Body, Entry};
use crate::land::content;
use crate::land::kind::EntryType;
use crate::land::tree::Tree;
use landbox_shared::path::RelPath;
use rustix::fs::{
    self, AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Makes the layer at `path`, where nothing is yet.
pub(super) fn rebuild(entries: &[Entry], folder: &Folder, path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(path)?;
    let tree = Tree::open(path)?;
    for entry in entries {
        let Some(path) = &entry.path else { continue };
        let place = tree.place(path.parent().as_ref())?;
        object(&place, path, entry, folder, &tree)?;
    }
    // Modes and times of folders from the deepest up: what is put into one changes both.
    let folders = entries.iter().rev().filter(|entry| entry.body == Body::Dir);
    for entry in folders {
        let dir = tree.dir(entry.path.as_ref())?;
        finish(&dir, entry)?;
    }
    Ok(())
}

fn object(
    place: &OwnedFd,
    path: &RelPath,
    entry: &Entry,
    folder: &Folder,
    tree: &Tree,
) -> io::Result<()> {
    let name = path.file_name();
    match &entry.body {
        Body::Dir => Ok(fs::mkdirat(place, name, Mode::from_raw_mode(0o700))?),
        Body::File { digest, size } => {
            let from = File::open(folder.object(digest))?;
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let to = File::from(fs::openat(place, name, flags, Mode::from_raw_mode(0o600))?);
            // Shared where the file system can, which costs nothing; a copy elsewhere.
            let held = match fs::ioctl_ficlone(&to, &from) {
                Ok(()) => content::digest(&to)?,
                Err(_) => content::copy(&from, &to)?,
            };
            if held != (*size, *digest) {
                return Err(io::Error::other("the content of the checkpoint is damaged"));
            }
            finish(&to, entry)
        }
        Body::Link(target) => {
            fs::symlinkat(&target[..], place, name)?;
            own(entry, |uid, gid| {
                fs::chownat(place, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            })?;
            Ok(fs::utimensat(place, name, &times(entry), AtFlags::SYMLINK_NOFOLLOW)?)
        }
        Body::Same(first) => {
            let from = tree.place(first.parent().as_ref())?;
            Ok(fs::linkat(&from, first.file_name(), place, name, AtFlags::empty())?)
        }
        Body::Special { kind, device } => {
            let kind = match kind {
                EntryType::CharDevice => FileType::CharacterDevice,
                EntryType::BlockDevice => FileType::BlockDevice,
                EntryType::Fifo
                | EntryType::File
                | EntryType::Dir
                | EntryType::Symlink
                | EntryType::Socket => FileType::Fifo,
            };
            let device = fs::makedev(device.0, device.1);
            let mode = Mode::from_raw_mode(entry.mode);
            fs::mknodat(place, name, kind, mode, device)?;
            // The umask had a say in it. Nobody else is here who could put a link in its place.
            fs::chmodat(place, name, mode, AtFlags::empty())?;
            own(entry, |uid, gid| {
                fs::chownat(place, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            })?;
            Ok(fs::utimensat(place, name, &times(entry), AtFlags::SYMLINK_NOFOLLOW)?)
        }
    }
}

/// Owner, attributes, mode and time, in that order: each may be changed by the one before.
fn finish(fd: impl AsFd, entry: &Entry) -> io::Result<()> {
    own(entry, |uid, gid| fs::fchown(&fd, Some(uid), Some(gid)))?;
    for (name, value) in &entry.attributes {
        match fs::fsetxattr(&fd, &name[..], value, XattrFlags::empty()) {
            // Another's to set: it was not the session that set it.
            Ok(()) | Err(Errno::PERM | Errno::NOTSUP) => {}
            Err(e) => return Err(e.into()),
        }
    }
    fs::fchmod(&fd, Mode::from_raw_mode(entry.mode))?;
    Ok(fs::futimens(&fd, &times(entry))?)
}

/// Gives an object to whom it belonged, if that is another than who makes it.
fn own(entry: &Entry, set: impl FnOnce(Uid, Gid) -> rustix::io::Result<()>) -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if entry.owner == (uid, gid) {
        return Ok(());
    }
    Ok(set(Uid::from_raw(entry.owner.0), Gid::from_raw(entry.owner.1))?)
}

fn times(entry: &Entry) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: entry.modified.0, tv_nsec: entry.modified.1.into() },
    }
}
