//! The session's folder and its lock, the proof of life.

use crate::failure::{Context, Failure, Stage, failed, require_at};
use crate::open::{open, open_beneath};
use landbox_shared::path::AbsPath;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{SFlag, fstat};
use std::fs::{File, TryLockError};
use std::os::fd::OwnedFd;

const LOCK: &str = "lock";
const RUNS: &str = "the session is already running";

/// The session's folder, locked by this process and what it forks, until the last of them ends.
#[derive(Debug)]
pub(crate) struct Locked {
    pub(crate) folder: OwnedFd,
    /// Closing its last copy gives the lock up.
    pub(crate) lock: File,
}

/// Opens the session's folder without following a link, checks that it is the caller's alone, and takes its lock.
pub(crate) fn lock(path: &AbsPath, uid: u32) -> Result<Locked, Failure> {
    const STAGE: Stage = Stage::Lock;
    let folder = open_folder(path, STAGE)?;
    let stat = fstat(&folder).at(STAGE, path, "reading owner and mode")?;
    let own = stat.st_uid == uid && stat.st_mode & 0o077 == 0;
    require_at(own, STAGE, path, "the session's folder must be yours with mode 0700")?;
    let path = path.as_path().join(LOCK);
    let lock = open_beneath(&folder, LOCK, OFlag::O_RDWR | OFlag::O_NONBLOCK);
    let lock = lock.at(STAGE, &path, "opening the session's lock")?;
    let stat = fstat(&lock).at(STAGE, &path, "reading the lock's owner")?;
    let own = stat.st_uid == uid && stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
    require_at(own, STAGE, &path, "the session's lock must be a regular file of yours")?;
    let lock = File::from(lock);
    match lock.try_lock() {
        Ok(()) => Ok(Locked { folder, lock }),
        Err(TryLockError::WouldBlock) => Err(failed(STAGE, Errno::EWOULDBLOCK, &path, RUNS)),
        Err(TryLockError::Error(e)) => Err(e).at(STAGE, &path, "taking the session's lock"),
    }
}

/// Opens the session's folder again in the mount namespace of the calling process: mounts can't be made from a descriptor
/// of another one. A folder that was replaced meanwhile is refused.
pub(crate) fn reopen(folder: &OwnedFd, path: &AbsPath) -> Result<OwnedFd, Failure> {
    const STAGE: Stage = Stage::Mount;
    let again = open_folder(path, STAGE)?;
    let identity = |fd| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
    let same = identity(&again).and_then(|again| Ok(again == identity(folder)?));
    let same = same.at(STAGE, path, "reading the session's folder")?;
    require_at(same, STAGE, path, "the session's folder was replaced")?;
    Ok(again)
}

fn open_folder(path: &AbsPath, stage: Stage) -> Result<OwnedFd, Failure> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
    open(path.as_path(), flags).at(stage, path, "opening the session's folder")
}
