//! System calls by number, so that the prober asks the kernel and not a library. The one file of the prober with
//! `unsafe`.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
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

/// Has the kernel carry out one entry of a ring (io_uring), which no system call names, and gives its result.
pub(crate) fn queued(entry: [u8; 64]) -> Result<i64, i32> {
    // At least a page on every machine: the entries, and after them the rings themselves.
    const PART: usize = 64 << 10;
    let flags = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 2 * PART, flags.0, flags.1, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(errno());
    }
    let rings = at.cast::<u8>().wrapping_add(PART);
    // SAFETY: the mapping is longer than an entry, and nothing else refers to it.
    unsafe { at.cast::<[u8; 64]>().write_volatile(entry) };
    let result = submitted(at as u64, rings);
    // SAFETY: exactly the mapping made above; the ring that used it was closed with its descriptor.
    unsafe { libc::munmap(at, 2 * PART) };
    result
}

fn submitted(entries: u64, rings: *mut u8) -> Result<i64, i32> {
    // struct io_uring_params: IORING_SETUP_NO_MMAP, and where the memory is that we made.
    let mut params = [0; 120];
    params[8..12].copy_from_slice(&(1u32 << 14).to_ne_bytes());
    params[72..80].copy_from_slice(&entries.to_ne_bytes());
    params[112..120].copy_from_slice(&(rings as u64).to_ne_bytes());
    let ring = call(libc::SYS_io_uring_setup, vec![n(1), Arg::M(&mut params)])?;
    let ring = owned(i32::try_from(ring).map_err(|_| libc::EBADF)?);
    // What the kernel says of where in the rings it is, which is less than a page.
    let place = |field: usize| {
        let offset = params[field..field + 4].try_into().map_or(0, u32::from_ne_bytes);
        rings.wrapping_add(offset as usize % 4096).cast::<u32>()
    };
    let (tail, first, answer) = (place(44), place(64), place(100));
    // SAFETY: it lies in the mapping, which outlives this call, and is aligned as the kernel made it.
    unsafe { first.write_volatile(0) };
    // SAFETY: the same.
    unsafe { tail.write_volatile(1) };
    call(libc::SYS_io_uring_enter, vec![n(ring.as_raw_fd()), n(1), n(1), n(1), n(0), n(0)])?;
    // After eight bytes of user data.
    let result = answer.wrapping_add(2);
    // SAFETY: the same.
    let result = i64::from(unsafe { result.read_volatile() }.cast_signed());
    if result < 0 { Err(i32::try_from(-result).unwrap_or(-1)) } else { Ok(result) }
}

/// Maps a page of `fd` for reading and gives what `work` says of the name that the kernel has for it.
pub(crate) fn with_map<T>(fd: i32, work: impl FnOnce(&str) -> Result<T, i32>) -> Result<T, i32> {
    let flags = (libc::PROT_READ, libc::MAP_PRIVATE);
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 1, flags.0, flags.1, fd, 0) };
    if at == libc::MAP_FAILED {
        return Err(errno());
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let start = format!("{:x}-", at as usize);
    let range = maps.lines().find(|line| line.starts_with(&start));
    let result = work(range.and_then(|line| line.split(' ').next()).unwrap_or_default());
    // SAFETY: exactly the mapping made above.
    unsafe { libc::munmap(at, 1) };
    result
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
