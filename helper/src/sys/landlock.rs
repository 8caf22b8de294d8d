//! Landlock: a domain that only scopes. The C library has no wrappers for these three calls.

use nix::errno::Errno;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null;

/// Abstract Unix sockets outside the domain can't be reached.
pub(crate) const SCOPE_ABSTRACT_UNIX_SOCKET: u64 = 1;
/// Processes outside the domain can't be signalled.
pub(crate) const SCOPE_SIGNAL: u64 = 2;

const CREATE_RULESET_VERSION: u32 = 1;

/// `struct landlock_ruleset_attr` as of ABI 6.
#[repr(C)]
struct RulesetAttr {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// The kernel's Landlock ABI; 0 where it has none or it is switched off.
pub(crate) fn abi() -> u32 {
    // SAFETY: with this flag the kernel wants no attributes and a size of 0.
    let version = unsafe { create_ruleset(null(), 0, CREATE_RULESET_VERSION) };
    version.map_or(0, |version| u32::try_from(version).unwrap_or(0))
}

/// Puts the calling thread, and what it forks and executes, into a domain with these scopes. Needs `no_new_privs`.
pub(crate) fn enter_scopes(scoped: u64) -> nix::Result<()> {
    let attr = RulesetAttr { handled_access_fs: 0, handled_access_net: 0, scoped };
    // SAFETY: the kernel reads `size_of` bytes of a struct laid out as its own.
    let fd = unsafe { create_ruleset(&raw const attr, size_of::<RulesetAttr>(), 0) }?;
    let fd = RawFd::try_from(fd).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel just made this descriptor for us.
    let ruleset = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: takes no pointer.
    let entered =
        unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
    Errno::result(entered).map(drop)
}

/// # Safety
///
/// `attr` must point to `size` bytes that live until this returns.
unsafe fn create_ruleset(attr: *const RulesetAttr, size: usize, flags: u32) -> nix::Result<i64> {
    // SAFETY: the caller's promise is all the kernel asks for.
    Errno::result(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, attr, size, flags) })
}
