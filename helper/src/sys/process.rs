//! Processes: making them, signalling them by descriptor, ending this one.

use landbox_shared::event::Status;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sched::CloneFlags;
use nix::sys::signal::{SigHandler, Signal};
use nix::unistd::Pid;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;

/// A child that was made by [`clone`].
#[derive(Debug)]
pub(crate) struct Child {
    /// Its number in the maker's namespace.
    pub(crate) pid: Pid,
    /// Becomes readable when it ends.
    pub(crate) pidfd: OwnedFd,
}

impl Child {
    /// Whether it has ended, after at most so many milliseconds.
    pub(crate) fn ends_within(&self, limit: u16) -> bool {
        poll(&mut [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)], limit) == Ok(1)
    }
}

/// Forks, with the child in the new `namespaces`. Gives `None` in the child.
///
/// clone(2) and not clone3(2), because filters of container hosts answer the latter with ENOSYS.
pub(crate) fn clone(namespaces: CloneFlags) -> nix::Result<Option<Child>> {
    let mut pidfd: RawFd = -1;
    let flags = namespaces.bits() | libc::CLONE_PIDFD | libc::SIGCHLD;
    let none = null_mut::<libc::c_void>();
    // SAFETY: without CLONE_VM and with no stack this is fork(2): the child goes on with a copy of the memory. The
    // process has one thread, so no lock is held by anybody else at that moment. The kernel writes the descriptor
    // through the third argument, which outlives the call.
    let result = unsafe {
        libc::syscall(libc::SYS_clone, i64::from(flags), none, &raw mut pidfd, none, none)
    };
    match Errno::result(result)? {
        0 => Ok(None),
        pid => {
            let pid = Pid::from_raw(i32::try_from(pid).map_err(|_| Errno::EOVERFLOW)?);
            // SAFETY: the kernel just made this descriptor for us.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Some(Child { pid, pidfd }))
        }
    }
}

/// Sends a signal to the process behind a pidfd; nothing if it has ended.
pub(crate) fn signal(pidfd: &OwnedFd, signal: Signal) -> nix::Result<()> {
    let (fd, number, info) = (pidfd.as_raw_fd(), signal as i32, null_mut::<libc::siginfo_t>());
    // SAFETY: no siginfo is passed, so there is no pointer to get wrong.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, number, info, 0) };
    match Errno::result(result) {
        Ok(_) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Reaps one child that has ended. `None`: none has, or there is none. (nix's form fails for real-time signals.)
pub(crate) fn reap_any() -> nix::Result<Option<(Pid, Status)>> {
    let mut status = 0;
    // SAFETY: the kernel writes one integer, which outlives the call.
    let result = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    match Errno::result(result) {
        Ok(0) | Err(Errno::ECHILD) => Ok(None),
        // Without options nothing but an end is told.
        Ok(pid) => Ok(Some((Pid::from_raw(pid), Status::from_wait(status)))),
        Err(errno) => Err(errno),
    }
}

/// Gives a signal its default action.
pub(crate) fn default_action(signal: Signal) -> nix::Result<()> {
    // SAFETY: the default action runs no code of ours.
    unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) }.map(drop)
}

/// Ends this process at once, without destructors or exit handlers: in a forked child those belong to the parent.
pub(crate) fn leave(code: u8) -> ! {
    // SAFETY: _exit has no precondition.
    unsafe { libc::_exit(i32::from(code)) }
}

/// Empties the environment. Called once, first, while the process has one thread.
pub(crate) fn clear_environment() -> nix::Result<()> {
    // SAFETY: one thread, so nobody reads the environment meanwhile.
    if unsafe { libc::clearenv() } == 0 { Ok(()) } else { Err(Errno::ENOMEM) }
}

/// prctl(2) with one number, for options that take no pointer.
pub(crate) fn prctl(option: i32, value: u64) -> nix::Result<()> {
    let plain = [libc::PR_CAPBSET_DROP, libc::PR_SET_SECUREBITS].contains(&option);
    if !plain {
        return Err(Errno::EINVAL);
    }
    // SAFETY: neither of these options takes a pointer; the unused arguments are 0 as they must be.
    Errno::result(unsafe { libc::prctl(option, value, 0u64, 0u64, 0u64) }).map(drop)
}

/// Fresh random bytes.
pub(crate) fn random<const N: usize>() -> nix::Result<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: the kernel writes at most N bytes into an array of N.
    let result = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) };
    // Up to 256 bytes are given whole or not at all.
    if usize::try_from(Errno::result(result)?) == Ok(N) { Ok(bytes) } else { Err(Errno::EIO) }
}
