//! Descriptors: adopting the inherited ones, closing the rest, the terminal, file capabilities.

use nix::errno::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

static ADOPTED: AtomicBool = AtomicBool::new(false);

/// Takes the two inherited descriptors, 3 and 4, once. `None` if either is not open, or they were taken before.
pub(crate) fn adopt() -> Option<(OwnedFd, OwnedFd)> {
    // SAFETY: F_GETFD takes no pointer and changes nothing, whatever the number is.
    let is_open = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 };
    if ADOPTED.swap(true, Ordering::Relaxed) || !is_open(3) || !is_open(4) {
        return None;
    }
    // SAFETY: the descriptor is open (just asked), and nothing else in this process owns it: it was inherited, and the
    // flag above lets it be adopted once.
    let envelope = unsafe { OwnedFd::from_raw_fd(3) };
    // SAFETY: as above.
    let events = unsafe { OwnedFd::from_raw_fd(4) };
    Some((envelope, events))
}

/// Closes every descriptor from `first` to `last`. Only for descriptors that no value of this process owns, or right
/// before the process image is replaced.
pub(crate) fn close_range(first: RawFd, last: RawFd) -> nix::Result<()> {
    // SAFETY: takes no pointer. The callers close inherited descriptors before anything is opened, or run in a child
    // that executes or ends next, so no owner closes a number that was given out again.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    Errno::result(result).map(drop)
}

/// Makes the terminal the controlling one of the calling session leader.
pub(crate) fn control(terminal: BorrowedFd<'_>) -> nix::Result<()> {
    // SAFETY: TIOCSCTTY takes an integer, 0: no stealing from another session.
    let result = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) };
    Errno::result(result).map(drop)
}

/// The file capabilities of an open file as stored, or `None` where it has none.
pub(crate) fn file_capabilities(file: BorrowedFd<'_>) -> nix::Result<Option<Vec<u8>>> {
    let mut value = vec![0u8; 64];
    let (fd, name) = (file.as_raw_fd(), c"security.capability".as_ptr());
    // SAFETY: the name is a C string, and the kernel writes at most the given length into `value`.
    let read = unsafe { libc::fgetxattr(fd, name, value.as_mut_ptr().cast(), value.len()) };
    match Errno::result(read) {
        Ok(length) => {
            value.truncate(usize::try_from(length).unwrap_or(0));
            Ok(Some(value))
        }
        Err(Errno::ENODATA | Errno::EOPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno),
    }
}
