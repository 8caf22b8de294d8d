//! The new tree while it grows: entering a target by descriptor, and making a mount point where that is allowed.

use super::mask::new_folder;
use super::{At, failure};
use crate::failure::Failure;
use crate::open::{PLACE, open_beneath};
use crate::sys::mount::attach;
use landbox_shared::path::AbsPath;
use landbox_shared::plan::Loss;
use landbox_shared::tree::Points;
use nix::errno::Errno;
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat, mknodat};
use std::os::fd::OwnedFd;

/// What a place is, as far as mounting is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A folder.
    Folder,
    /// Anything a folder cannot be mounted on.
    Other,
}

impl Kind {
    /// Reads it; a symbolic link is neither.
    pub(super) fn of(fd: &OwnedFd, path: &AbsPath) -> Result<Self, Failure> {
        let mode = fstat(fd).at(path, "reading what this is")?.st_mode & libc::S_IFMT;
        match mode {
            libc::S_IFDIR => Ok(Self::Folder),
            libc::S_IFLNK => Err(failure(Errno::ELOOP, path, "this is a symbolic link")),
            _ => Ok(Self::Other),
        }
    }
}

/// The new tree.
#[derive(Debug)]
pub(super) struct World {
    pub root: OwnedFd,
    /// A tmpfs that the session never sees, and that leaves with the old root: mask folders and empty objects.
    pub scratch: OwnedFd,
    scratch_folders: usize,
    /// The mounts made so far, in order.
    pub points: Points,
}

impl World {
    /// Starts with a root that is mounted.
    pub(super) fn new(root: OwnedFd, scratch: OwnedFd, path: AbsPath) -> Self {
        let mut points = Points::default();
        points.push(path, Loss::EndsSession);
        Self { root, scratch, scratch_folders: 0, points }
    }

    /// Makes a new folder on the scratch tmpfs.
    pub(super) fn scratch_folder(&mut self) -> nix::Result<OwnedFd> {
        self.scratch_folders += 1;
        new_folder(&self.scratch, &format!("mask-{}", self.scratch_folders))
    }

    /// Opens a place in the new tree, following no link.
    pub(super) fn open(&self, path: &AbsPath) -> nix::Result<OwnedFd> {
        let below = path.as_bytes().get(1..).filter(|below| !below.is_empty());
        open_beneath(&self.root, below.unwrap_or(b"."), PLACE)
    }

    /// Enters a target, following no link. What is missing is made on the session's own mounts alone: anywhere else it
    /// would end up in a layer's upper folder or on a real file system.
    pub(super) fn enter(&self, path: &AbsPath, kind: Kind) -> Result<OwnedFd, Failure> {
        let place = match (self.open(path), path.parent()) {
            (Err(Errno::ENOENT), Some(parent)) if self.points.is_own(&parent) => {
                let folder = self.enter(&parent, Kind::Folder)?;
                make(&folder, path.file_name().unwrap_or_default(), kind)
                    .and_then(|()| self.open(path))
                    .at(path, "making a mount point")?
            }
            (Err(Errno::ENOENT), _) => {
                let detail = "there is nothing here to mount on, and making it would change a real folder or a layer";
                return Err(failure(Errno::ENOENT, path, detail));
            }
            (opened, _) => opened.at(path, "entering a mount point")?,
        };
        if Kind::of(&place, path)? == kind {
            return Ok(place);
        }
        let errno = if kind == Kind::Folder { Errno::ENOTDIR } else { Errno::EISDIR };
        Err(failure(errno, path, "a folder and a file can't be mounted on each other"))
    }

    /// Attaches a detached tree at a target and records it.
    pub(super) fn attach(
        &mut self,
        tree: &OwnedFd,
        path: &AbsPath,
        kind: Kind,
    ) -> Result<(), Failure> {
        let place = self.enter(path, kind)?;
        self.attach_at(tree, &place, path, Loss::EndsSession)
    }

    /// Attaches a detached tree at a target that was entered already, and records it.
    pub(super) fn attach_at(
        &mut self,
        tree: &OwnedFd,
        place: &OwnedFd,
        path: &AbsPath,
        loss: Loss,
    ) -> Result<(), Failure> {
        attach(tree, place).at(path, "mounting")?;
        self.points.push(path.clone(), loss);
        Ok(())
    }
}

/// Makes an empty object to mount on.
pub(super) fn make(folder: &OwnedFd, name: &[u8], kind: Kind) -> nix::Result<()> {
    match kind {
        Kind::Folder => mkdirat(folder, name, Mode::from_bits_truncate(0o755)),
        Kind::Other => mknodat(folder, name, SFlag::S_IFREG, Mode::from_bits_truncate(0o644), 0),
    }
}
