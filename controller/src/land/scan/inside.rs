//! What a running session sees of a path: the one witness that its copy was made of the object that is really there.

use crate::land::kind::EntryType;
use crate::land::tree::{self, Meta, Time};
use landbox_shared::path::RelPath;
use rustix::fs::{self, Mode, OFlags, ResolveFlags};
use std::io;
use std::os::fd::OwnedFd;

/// The merged root of a layer on the kernel's overlay.
#[derive(Debug)]
pub(crate) struct Inside(pub(crate) OwnedFd);

impl Inside {
    /// The time at which the layer's object at `path`, in `upper`, was made, if it is a copy of the real object `real`.
    /// An overlay on one file system goes on showing the inode number of what it has copied; a number alone could be
    /// another file system's.
    pub(super) fn copied(
        &self,
        path: &RelPath,
        upper: &OwnedFd,
        real: &Meta,
    ) -> io::Result<Option<Time>> {
        let Some(ours) = tree::meta_at(upper, path.file_name())? else { return Ok(None) };
        if ours.dev != real.dev || ours.ino == real.ino || ours.kind != real.kind {
            return Ok(None);
        }
        let shown = self.look(path)?.filter(|m| (m.ino, m.kind) == (real.ino, real.kind));
        // A folder's copy is made without its content, and its age says nothing.
        let made = if ours.kind == EntryType::Dir { Some(ours.ctime) } else { ours.btime };
        Ok(shown.and(made))
    }

    fn look(&self, path: &RelPath) -> io::Result<Option<Meta>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let beneath =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let parent = path.parent();
        let parent = parent.as_ref().map_or(&b"."[..], RelPath::as_bytes);
        match fs::openat2(&self.0, parent, flags, Mode::empty(), beneath) {
            Ok(dir) => tree::meta_at(dir, path.file_name()),
            // The session has just moved it, or is gone.
            Err(_) => Ok(None),
        }
    }
}
