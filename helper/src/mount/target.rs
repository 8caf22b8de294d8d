//! The new tree while it grows: entering a target by descriptor, and making a mount point where that is allowed.

use super::mask::new_folder;
use super::source::open_beneath;
use super::{At, failure};
use crate::sys::mount::{NODEV, NOSUID, RDONLY, attach, mount_id, restrict};
use landbox_shared::event::Failure;
use landbox_shared::path::AbsPath;
use landbox_shared::plan::{Access, Loss};
use nix::errno::Errno;
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat, mknodat};
use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

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
    pub(super) fn of(fd: BorrowedFd<'_>, path: &AbsPath) -> Result<Self, Failure> {
        let mode = fstat(fd).at(path, "reading what this is")?.st_mode & libc::S_IFMT;
        match mode {
            libc::S_IFDIR => Ok(Self::Folder),
            libc::S_IFLNK => Err(failure(Errno::ELOOP, Some(path), "this is a symbolic link")),
            _ => Ok(Self::Other),
        }
    }
}

/// Where a bound tree comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The session's own folder: mount points may be made inside.
    Session,
    /// The host.
    Host,
}

/// The new tree.
#[derive(Debug)]
pub(super) struct World {
    root: OwnedFd,
    scratch: OwnedFd,
    scratch_folders: usize,
    own: HashSet<u64>,
    /// The mount points made so far, in order.
    pub points: Vec<AbsPath>,
    /// Those of masks whose loss is tolerated.
    pub tolerated: Vec<AbsPath>,
}

impl World {
    /// Starts with a root that is mounted, and a scratch tmpfs that leaves with the old root.
    pub(super) fn new(root: OwnedFd, scratch: OwnedFd, point: AbsPath) -> Self {
        Self {
            root,
            scratch,
            scratch_folders: 0,
            own: HashSet::new(),
            points: vec![point],
            tolerated: vec![],
        }
    }

    /// The new root.
    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// A tmpfs that the session never sees: mask folders and empty objects lie there.
    pub(super) fn scratch(&self) -> BorrowedFd<'_> {
        self.scratch.as_fd()
    }

    /// Makes a new folder there.
    pub(super) fn scratch_folder(&mut self) -> nix::Result<OwnedFd> {
        self.scratch_folders += 1;
        new_folder(self.scratch.as_fd(), &format!("mask-{}", self.scratch_folders))
    }

    /// Opens a place in the new tree, following no link.
    pub(super) fn open(&self, path: &AbsPath) -> nix::Result<OwnedFd> {
        match path.as_bytes() {
            [b'/', below @ ..] if !below.is_empty() => open_beneath(self.root.as_fd(), below),
            _ => self.root.try_clone().map_err(|_| Errno::EMFILE),
        }
    }

    /// Allows mount points to be made on this mount.
    pub(super) fn adopt(&mut self, mount: BorrowedFd<'_>, path: &AbsPath) -> Result<(), Failure> {
        self.own.insert(mount_id(mount).at(path, "reading a mount's number")?);
        Ok(())
    }

    /// Whether this place lies on a mount that only the session fills.
    pub(super) fn is_own(&self, fd: BorrowedFd<'_>, path: &AbsPath) -> Result<bool, Failure> {
        Ok(self.own.contains(&mount_id(fd).at(path, "reading a mount's number")?))
    }

    /// Enters a target, component by component, following no link. What is missing is made on the session's own
    /// mounts alone: anywhere else it would end up in a layer's upper folder or on a real file system.
    pub(super) fn enter(&self, path: &AbsPath, kind: Kind) -> Result<OwnedFd, Failure> {
        // In one step where all of it is there, which is the rule.
        if let Ok(place) = self.open(path)
            && Kind::of(place.as_fd(), path)? == kind
        {
            return Ok(place);
        }
        let root = self.root.try_clone().map_err(|_| Errno::EMFILE);
        let mut place = root.at(path, "entering a mount point")?;
        let parts: Vec<&[u8]> =
            path.as_bytes().split(|b| *b == b'/').filter(|part| !part.is_empty()).collect();
        for (number, name) in parts.iter().enumerate() {
            let kind = if number + 1 == parts.len() { kind } else { Kind::Folder };
            place = match open_beneath(place.as_fd(), name) {
                Ok(next) => next,
                Err(Errno::ENOENT) if self.is_own(place.as_fd(), path)? => {
                    make(place.as_fd(), name, kind).at(path, "making a mount point")?;
                    open_beneath(place.as_fd(), name).at(path, "entering a mount point")?
                }
                Err(Errno::ENOENT) => {
                    let detail = "there is nothing here to mount on, and making it would change a real \
                                  folder or a layer";
                    return Err(failure(Errno::ENOENT, Some(path), detail));
                }
                Err(errno) => return Err(failure(errno, Some(path), "entering a mount point")),
            };
        }
        if Kind::of(place.as_fd(), path)? == kind {
            return Ok(place);
        }
        let (errno, detail) = match kind {
            Kind::Folder => (Errno::ENOTDIR, "a folder cannot be mounted on a file"),
            Kind::Other => (Errno::EISDIR, "a file cannot be mounted on a folder"),
        };
        Err(failure(errno, Some(path), detail))
    }

    /// Attaches a detached tree at a target and records it.
    pub(super) fn attach(&mut self, tree: BorrowedFd<'_>, path: &AbsPath) -> Result<(), Failure> {
        let target = self.enter(path, Kind::of(tree, path)?)?;
        self.attach_at(tree, target.as_fd(), path, Loss::EndsSession)
    }

    /// Attaches a detached tree at a target that was entered already, and records it.
    pub(super) fn attach_at(
        &mut self,
        tree: BorrowedFd<'_>,
        target: BorrowedFd<'_>,
        path: &AbsPath,
        loss: Loss,
    ) -> Result<(), Failure> {
        attach(tree, target).at(path, "mounting")?;
        match loss {
            Loss::EndsSession => self.points.push(path.clone()),
            Loss::Tolerated => self.tolerated.push(path.clone()),
        }
        Ok(())
    }

    /// Shows a copied tree at a target. Never set-user-id, never devices.
    pub(super) fn bind(
        &mut self,
        tree: OwnedFd,
        path: &AbsPath,
        access: Access,
        origin: Origin,
    ) -> Result<(), Failure> {
        let attributes = match access {
            Access::ReadOnly => NOSUID | NODEV | RDONLY,
            Access::ReadWrite => NOSUID | NODEV,
        };
        restrict(tree.as_fd(), attributes, true).at(path, "restricting a mount")?;
        self.attach(tree.as_fd(), path)?;
        match origin {
            Origin::Session => self.adopt(tree.as_fd(), path),
            Origin::Host => Ok(()),
        }
    }
}

/// Makes an empty object to mount on.
pub(super) fn make(folder: BorrowedFd<'_>, name: &[u8], kind: Kind) -> nix::Result<()> {
    match kind {
        Kind::Folder => mkdirat(folder, name, Mode::from_bits_truncate(0o755)),
        Kind::Other => mknodat(folder, name, SFlag::S_IFREG, Mode::from_bits_truncate(0o644), 0),
    }
}
