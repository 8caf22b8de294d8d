//! The caller's umask. One that takes rights from the owner too would lock Landbox out of its own folders: it works by a
//! milder one, and what it starts for the caller has the caller's.

use rustix::fs::Mode;
use rustix::process::umask;
use std::sync::OnceLock;

/// The caller's umask and ours, where they differ.
static BOTH: OnceLock<(Mode, Mode)> = OnceLock::new();

/// Has this process make nothing that its owner can't use. Call it first, before there is another thread.
pub fn soften() {
    let callers = umask(Mode::RWXG | Mode::RWXO);
    let ours = callers.difference(Mode::RWXU);
    umask(ours);
    if ours != callers {
        let _ = BOTH.set((callers, ours));
    }
}

/// Does `start`, which starts a program for the caller, under the caller's umask.
pub fn as_callers<T>(start: impl FnOnce() -> T) -> T {
    let Some((callers, ours)) = BOTH.get() else { return start() };
    umask(*callers);
    let started = start();
    umask(*ours);
    started
}
