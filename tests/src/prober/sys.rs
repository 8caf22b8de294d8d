//! System calls by number, so that the prober asks the kernel and not a library. The one file of the prober with
//! `unsafe`.

use std::ffi::CString;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// An argument of a system call.
pub(crate) enum Arg<'a> {
    /// A number.
    N(i64),
    /// A string, which must be a real one: the kernel reads it.
    S(&'a CString),
    /// Memory that the kernel may read and write; the caller also passes a length that fits.
    M(&'a mut [u8]),
}

/// A number argument.
pub(crate) fn n(value: impl Into<i64>) -> Arg<'static> {
    Arg::N(value.into())
}

/// A path as the kernel takes it.
pub(crate) fn c(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().as_os_str().as_bytes()).expect("paths have no NUL bytes")
}

/// Makes a system call; `Err` is the error number.
pub(crate) fn call(number: i64, args: Vec<Arg<'_>>) -> Result<i64, i32> {
    let mut raw = [0i64; 6];
    for (slot, arg) in raw.iter_mut().zip(args) {
        *slot = match arg {
            Arg::N(value) => value,
            Arg::S(text) => text.as_ptr() as i64,
            Arg::M(memory) => memory.as_mut_ptr() as i64,
        };
    }
    // SAFETY: pointers come from borrows that outlive this call; where the kernel writes, callers pass a length that
    // fits (see `Arg::M`). The rest of the program is single-threaded and expects any descriptor to be closed.
    let result = unsafe { libc::syscall(number, raw[0], raw[1], raw[2], raw[3], raw[4], raw[5]) };
    if result >= 0 { Ok(result) } else { Err(errno()) }
}

/// Takes a descriptor that a call has just given.
pub(crate) fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the kernel gave it to the caller a moment ago, and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Runs `work` in a child and gives what it returns (0 to 126), or minus the signal that ended it.
pub(crate) fn in_child(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: this program has one thread, so the child may do whatever the parent may.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = work();
        // SAFETY: ends the child without running what the parent registered.
        unsafe { libc::_exit(code) }
    }
    if pid < 0 {
        return errno();
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0 && errno() == libc::EINTR {}
    if libc::WIFSIGNALED(status) { -libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

/// `clone` with these flags, as `fork` otherwise; the child ends at once.
pub(crate) fn clone(flags: i64) -> Result<i64, i32> {
    let raw = flags | i64::from(libc::SIGCHLD);
    // SAFETY: without a stack and without CLONE_VM this is fork: the child has a copy of everything, and this program
    // has one thread where it asks this.
    let result = unsafe { libc::syscall(libc::SYS_clone, raw, 0, 0, 0, 0) };
    if result == 0 {
        // SAFETY: ends the child without running what the parent registered.
        unsafe { libc::_exit(0) }
    }
    if result < 0 {
        return Err(errno());
    }
    let pid = i32::try_from(result).map_err(|_| libc::ERANGE)?;
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    Ok(result)
}

/// Maps `length` bytes of `fd` shared and writable and changes the first one.
pub(crate) fn write_mapped(fd: i32, length: usize) -> Result<i64, i32> {
    let flags = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), length, flags, libc::MAP_SHARED, fd, 0) };
    if at == libc::MAP_FAILED {
        return Err(errno());
    }
    // SAFETY: the mapping is at least one byte long and writable; nothing else refers to it.
    unsafe { at.cast::<u8>().write_volatile(b'!') };
    // SAFETY: exactly the mapping made above.
    unsafe { libc::munmap(at, length) };
    Ok(0)
}

/// The 32-bit entry: call 20 (getpid there, writev here) by `int $0x80`. Only in a child: it may not return.
#[cfg(target_arch = "x86_64")]
pub(crate) fn int80_getpid() -> i64 {
    let result: i64;
    // SAFETY: the 32-bit getpid takes no argument and touches no memory; the kernel clobbers r8 to r11.
    unsafe {
        std::arch::asm!(
            "int 0x80", inlateout("rax") 20i64 => result,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    result
}

/// The address of a byte of this process, for calls that want one of a process they attack.
pub(crate) fn address(bytes: &[u8]) -> i64 {
    bytes.as_ptr() as i64
}

/// Packs values of the machine's width, for structures the kernel reads.
pub(crate) fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}
