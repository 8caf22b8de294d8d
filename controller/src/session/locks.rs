//! Who may touch a session: its controller, its helper, or whoever proves that neither is there.

use super::store::{Session, StateDir, show};
use crate::error::{Context, Result};
use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Holds a session's lock, so that no helper starts on it and nobody else changes it.
#[derive(Debug)]
pub struct SessionLock(
    #[expect(dead_code, reason = "held for its lock, released on drop")] OwnedFd,
);

/// Held by the controller of a session for as long as it lives: what is attended is neither swept nor taken over, and
/// its helper's lock is not tried, which could get into the helper's way.
#[derive(Debug)]
pub struct Attendance(
    #[expect(dead_code, reason = "held for its lock, released on drop")] pub(super) OwnedFd,
);

/// Keeps two sessions of one name from being made at once.
#[derive(Debug)]
pub struct NamesLock(#[expect(dead_code, reason = "held for its lock, released on drop")] OwnedFd);

impl StateDir {
    /// Waits until nobody else is making a named session.
    pub fn lock_names(&self) -> Result<NamesLock> {
        let path = self.root().join("names.lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let what = || format!("can't lock {}", show(&path));
        let fd = fs::open(&path, flags, Mode::from_raw_mode(0o600)).context(what)?;
        fs::flock(&fd, FlockOperation::LockExclusive).context(what)?;
        Ok(NamesLock(fd))
    }
}

impl Session {
    /// Held while the session's state is read, changed and written.
    pub(super) fn lock_state(&self) -> Result<OwnedFd> {
        let what = || format!("can't lock {}", show(&self.dir));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = fs::open(&self.dir, flags, Mode::empty()).context(what)?;
        fs::flock(&fd, FlockOperation::LockExclusive).context(what)?;
        Ok(fd)
    }

    /// Whether a controller attends the session or a helper holds its lock. A helper that is on its way out is waited for.
    pub fn is_running(&self) -> Result<bool> {
        // The controller's first: while it lives, nobody may touch the lock its helper is about to take.
        if lock_file(&self.dir.join("controller"))?.is_none() {
            return Ok(true);
        }
        Ok(self.try_lock()?.is_none())
    }

    /// Takes the session's lock, or gives `None` where a helper holds it. For whoever attends the session, or has seen that
    /// nobody does: the helper is on its way out then, and waited for while the kernel undoes its mounts.
    pub fn try_lock(&self) -> Result<Option<SessionLock>> {
        Ok(lock_in_time(&self.dir.join("lock"))?.map(SessionLock))
    }

    /// Attends the session, or gives `None` where another controller does.
    pub fn attend(&self) -> Result<Option<Attendance>> {
        Ok(lock_file(&self.dir.join("controller"))?.map(Attendance))
    }
}

/// How long a helper whose controller has ended may take.
const LEAVING: Duration = Duration::from_secs(5);

/// [`lock_file`] for what a helper holds that is on its way out.
pub(super) fn lock_in_time(path: &Path) -> Result<Option<OwnedFd>> {
    let until = Instant::now() + LEAVING;
    let mut pause = Duration::from_micros(500);
    loop {
        let lock = lock_file(path)?;
        if lock.is_some() || Instant::now() >= until {
            return Ok(lock);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Locks a file of a session's folder; `None` where somebody else holds it.
pub(super) fn lock_file(path: &Path) -> Result<Option<OwnedFd>> {
    let open = |how| fs::open(path, how | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    let fd = match open(OFlags::RDWR) {
        // Sessions can be looked at there.
        Err(Errno::ROFS) => open(OFlags::RDONLY),
        opened => opened,
    };
    let fd = fd.context(|| format!("can't open the session lock {}", show(path)))?;
    match fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(fd)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(e).context(|| format!("can't lock {}", show(path))),
    }
}
