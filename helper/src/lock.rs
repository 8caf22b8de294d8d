//! The session's folder and its lock, the proof of life.

use crate::failure::{Context, failed, refused_at};
use landbox_shared::event::{Failure, Stage};
use landbox_shared::path::AbsPath;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, SFlag, fstat};
use std::fs::{File, TryLockError};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

const LOCK: &str = "lock";

/// The session's folder, locked by this process and what it forks, until the last of them ends.
#[derive(Debug)]
pub(crate) struct Locked {
    folder: OwnedFd,
    lock: Held,
}

/// The lock alone. Closing its last copy gives it up.
#[derive(Debug)]
pub(crate) struct Held {
    _file: File,
}

/// Opens the session's folder without following a link, checks that it is the caller's alone, and takes its lock.
pub(crate) fn lock(path: &AbsPath, uid: u32) -> Result<Locked, Failure> {
    let folder = open_folder(path, Stage::Lock)?;
    let stat = fstat(&folder).at(Stage::Lock, path.as_bytes(), "reading owner and mode")?;
    if stat.st_uid != uid || stat.st_mode & 0o077 != 0 {
        return Err(refused_at(
            Stage::Lock,
            path.as_bytes(),
            "the session's folder must be yours with mode 0700",
        ));
    }
    let full = path.as_path().join(LOCK);
    let full = full.as_os_str().as_encoded_bytes();
    let how = OpenHow::new()
        .flags(OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    let lock = openat2(folder.as_fd(), Path::new(LOCK), how).at(
        Stage::Lock,
        full,
        "opening the session's lock",
    )?;
    let stat = fstat(&lock).at(Stage::Lock, full, "reading the lock's owner")?;
    if stat.st_uid != uid || kind(&stat) != SFlag::S_IFREG {
        return Err(refused_at(
            Stage::Lock,
            full,
            "the session's lock must be a regular file of yours",
        ));
    }
    let lock = File::from(lock);
    match lock.try_lock() {
        Ok(()) => Ok(Locked { folder, lock: Held { _file: lock } }),
        Err(TryLockError::WouldBlock) => Err(failed(
            Stage::Lock,
            nix::errno::Errno::EWOULDBLOCK,
            full,
            "the session is already running",
        )),
        Err(TryLockError::Error(e)) => Err(e).at(Stage::Lock, full, "taking the session's lock"),
    }
}

impl Locked {
    /// Keeps the lock and lets go of the folder.
    pub(crate) fn held(self) -> Held {
        self.lock
    }

    /// Opens the folder again in the mount namespace of the calling process: mounts can't be made from a descriptor of
    /// another one. A folder that was replaced meanwhile is refused.
    pub(crate) fn reopen(&self, path: &AbsPath) -> Result<OwnedFd, Failure> {
        const STAGE: Stage = Stage::Mount;
        let again = open_folder(path, STAGE)?;
        let identity = |fd| {
            let stat = fstat(fd).at(STAGE, path.as_bytes(), "reading the session's folder")?;
            Ok::<_, Failure>((stat.st_dev, stat.st_ino))
        };
        if identity(again.as_fd())? != identity(self.folder.as_fd())? {
            return Err(refused_at(STAGE, path.as_bytes(), "the session's folder was replaced"));
        }
        Ok(again)
    }
}

fn open_folder(path: &AbsPath, stage: Stage) -> Result<OwnedFd, Failure> {
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(AT_FDCWD, path.as_path(), how).at(
        stage,
        path.as_bytes(),
        "opening the session's folder",
    )
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}
