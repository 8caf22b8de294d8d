//! Folders to work in, in a session's own, which no session sees. They go when they are dropped; those of a process that
//! was killed, or interrupted at a question, go with the next one that is made, or by `gc`.

use crate::error::{Context, Result};
use crate::overlay::remove::remove_tree;
use crate::session::store::show;
use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The folder that holds them.
const ALL: &str = "scratch";

/// A folder that is one process's alone, as long as this lives.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    _lock: OwnedFd,
}

impl Scratch {
    /// Makes one in a session's folder.
    pub(crate) fn new(session_dir: &Path) -> Result<Self> {
        let all = session_dir.join(ALL);
        let what = || format!("can't make room in {}", show(&all));
        match std::fs::DirBuilder::new().mode(0o700).create(&all) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(e).context(what),
            Ok(()) | Err(_) => {}
        }
        // Nobody takes the new one for a dead one before it is locked.
        let _making = lock(&all, FlockOperation::LockExclusive).context(what)?;
        clear(&all);
        let path = tempfile::Builder::new().prefix("").tempdir_in(&all).context(what)?.keep();
        let lock = lock(&path, FlockOperation::NonBlockingLockExclusive).context(what)?;
        Ok(Self { path, _lock: lock })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What can't go now goes later.
        let _ = remove_tree(&self.path);
    }
}

/// Removes what no living process works in. Whoever can't be sure leaves it.
pub(crate) fn sweep(session_dir: &Path) {
    let all = session_dir.join(ALL);
    if let Ok(_making) = lock(&all, FlockOperation::NonBlockingLockExclusive) {
        clear(&all);
    }
}

fn clear(all: &Path) {
    let Ok(entries) = std::fs::read_dir(all) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if let Ok(_dead) = lock(&path, FlockOperation::NonBlockingLockExclusive) {
            let _ = remove_tree(&path);
        }
    }
}

fn lock(path: &Path, how: FlockOperation) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = fs::open(path, flags, Mode::empty())?;
    loop {
        match fs::flock(&fd, how) {
            Err(Errno::INTR) => {}
            done => return done.map(|()| fd),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn names(dir: &Path) -> usize {
        std::fs::read_dir(dir.join(ALL)).unwrap().count()
    }

    #[test]
    fn what_the_dead_left_goes_and_what_the_living_work_in_stays() {
        let dir = tempfile::tempdir().unwrap();
        let living = Scratch::new(dir.path()).unwrap();
        let dead = dir.path().join(ALL).join("dead");
        let leave = || {
            std::fs::create_dir_all(dead.join("closed")).unwrap();
            std::fs::write(dead.join("file"), "x").unwrap();
            let closed = std::fs::Permissions::from_mode(0o500);
            std::fs::set_permissions(dead.join("closed"), closed).unwrap();
        };
        leave();
        sweep(dir.path());
        assert!(!dead.exists() && living.path().exists());
        leave();
        let other = Scratch::new(dir.path()).unwrap();
        assert!(!dead.exists());
        assert_eq!(names(dir.path()), 2);
        drop((living, other));
        assert_eq!(names(dir.path()), 0);
        sweep(&dir.path().join("nothing"));
    }
}
