//! What fuse-overlayfs notes of where a file of the layer came from.
//!
//! It gives the file the inode number of what lies at that path now. When that has become something else, or has other
//! names, both are one to it in the next mount: the session would see one's content under the other's name, and lose what
//! it wrote. Without the note the file is just itself.

use super::tree::Tree;
use crate::session::store::Session;
use landbox_shared::path::RelPath;
use landbox_shared::policy::Backend;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs;
use rustix::io::Errno;
use std::io;

const ORIGIN: &std::ffi::CStr = c"user.fuseoverlayfs.origin";

/// Removes the notes from a stopped session's layers. One that can't be removed stays.
pub fn forget_origins(session: &Session) {
    for layer in session.snapshot.policy.layers.iter().filter(|l| l.backend == Backend::Fuse) {
        if let Ok(tree) = Tree::open(&session.upper(&layer.id)) {
            let _ = forget(&tree);
        }
    }
}

fn forget(tree: &Tree) -> io::Result<()> {
    let mut todo: Vec<Option<RelPath>> = vec![None];
    while let Some(path) = todo.pop() {
        // The session may have left it without the right to read it.
        let Ok(dir) = tree.dir(path.as_ref()) else { continue };
        for entry in fs::Dir::read_from(&dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            match entry.file_type() {
                fs::FileType::Directory => {
                    let child = path.as_ref().map_or_else(|| RelPath::new(name), |p| p.join(name));
                    todo.extend(child.ok().map(Some));
                }
                fs::FileType::RegularFile => forget_one(&dir, name)?,
                fs::FileType::Symlink
                | fs::FileType::Fifo
                | fs::FileType::Socket
                | fs::FileType::CharacterDevice
                | fs::FileType::BlockDevice
                | fs::FileType::Unknown => {}
            }
        }
    }
    Ok(())
}

fn forget_one(dir: &OwnedFd, name: &[u8]) -> io::Result<()> {
    let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    match fs::lremovexattr(&path[..], ORIGIN) {
        Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
        // A file that its own owner may not write to: a mode that is changed for a moment is one that can be lost.
        Err(Errno::ACCESS | Errno::PERM) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
