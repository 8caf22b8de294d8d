//! The file-descriptor based mount interface, which neither libc nor nix wraps.
//!
//! Needs Linux 5.12 (`mount_setattr`). No path of the caller's ever enters an option string.

use nix::errno::Errno;
use std::ffi::{CStr, CString, c_char, c_long, c_uint};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null;

/// Set-user-id bits and file capabilities have no effect.
pub(crate) const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
/// Device nodes cannot be opened.
pub(crate) const NODEV: u64 = libc::MOUNT_ATTR_NODEV;
/// Programs cannot be executed.
pub(crate) const NOEXEC: u64 = libc::MOUNT_ATTR_NOEXEC;
/// Nothing can be written.
pub(crate) const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;

fn c_path(path: &Path) -> nix::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)
}

fn owned(result: c_long) -> nix::Result<OwnedFd> {
    let fd = RawFd::try_from(Errno::result(result)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made this descriptor for us and nothing else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Copies the mount tree at `path` below `dir` (`""` for `dir` itself) into a detached one. Always recursive: in a
/// user namespace the kernel refuses to copy a folder without the mounts the host put over parts of it.
pub(crate) fn clone_tree(dir: BorrowedFd<'_>, path: &Path) -> nix::Result<OwnedFd> {
    let path = c_path(path)?;
    let flags = libc::OPEN_TREE_CLONE
        | libc::OPEN_TREE_CLOEXEC
        | (libc::AT_RECURSIVE | libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW).cast_unsigned();
    // SAFETY: the path is a NUL-terminated string that outlives the call.
    owned(unsafe { libc::syscall(libc::SYS_open_tree, dir.as_raw_fd(), path.as_ptr(), flags) })
}

/// Attaches a detached mount tree on top of whatever `target` refers to.
pub(crate) fn attach(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> nix::Result<()> {
    let flags = libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH;
    let (tree, target, here) = (tree.as_raw_fd(), target.as_raw_fd(), c"".as_ptr());
    // SAFETY: both paths are the same NUL-terminated constant.
    Errno::result(unsafe { libc::syscall(libc::SYS_move_mount, tree, here, target, here, flags) })
        .map(drop)
}

/// Sets attributes of a mount, or of a whole tree, and makes it private.
pub(crate) fn restrict(tree: BorrowedFd<'_>, attributes: u64, recursive: bool) -> nix::Result<()> {
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    let attr = libc::mount_attr {
        attr_set: attributes,
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    // SAFETY: `attr` is a valid mount_attr of the size passed and outlives the call.
    Errno::result(unsafe {
        let (fd, here, size) = (tree.as_raw_fd(), c"".as_ptr(), size_of::<libc::mount_attr>());
        libc::syscall(libc::SYS_mount_setattr, fd, here, flags, &raw const attr, size)
    })
    .map(drop)
}

/// The kernel's number for the mount that `fd` lies on, as mountinfo lists it.
pub(crate) fn mount_id(fd: BorrowedFd<'_>) -> nix::Result<u64> {
    // SAFETY: the structure is plain numbers, for which zero is a value.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let (path, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
    // SAFETY: the path is a NUL-terminated constant, and the kernel fills in the structure, which outlives the call.
    Errno::result(unsafe {
        libc::statx(fd.as_raw_fd(), path, flags, libc::STATX_MNT_ID, &raw mut found)
    })?;
    let known = found.stx_mask & libc::STATX_MNT_ID != 0;
    known.then_some(found.stx_mnt_id).ok_or(Errno::ENOSYS)
}

/// A file system that is being configured.
#[derive(Debug)]
pub(crate) struct Context(File);

impl Context {
    /// Starts one of this type.
    pub(crate) fn open(kind: &CStr) -> nix::Result<Self> {
        // SAFETY: the name is a NUL-terminated string that outlives the call.
        let fd = unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), libc::FSOPEN_CLOEXEC) };
        owned(fd).map(|fd| Self(File::from(fd)))
    }

    fn config(&self, command: c_uint, key: *const c_char, value: *const c_char) -> nix::Result<()> {
        // SAFETY: the callers pass NULL or NUL-terminated strings that outlive the call.
        Errno::result(unsafe {
            libc::syscall(libc::SYS_fsconfig, self.0.as_raw_fd(), command, key, value, 0)
        })
        .map(drop)
    }

    /// Sets an option without a value.
    pub(crate) fn flag(&self, key: &CStr) -> nix::Result<()> {
        self.config(libc::FSCONFIG_SET_FLAG, key.as_ptr(), null())
    }

    /// Sets an option to a text.
    pub(crate) fn text(&self, key: &CStr, value: impl Into<Vec<u8>>) -> nix::Result<()> {
        let value = CString::new(value).map_err(|_| Errno::EINVAL)?;
        self.config(libc::FSCONFIG_SET_STRING, key.as_ptr(), value.as_ptr())
    }

    /// Makes the file system and returns it as a detached mount.
    pub(crate) fn mount(&self, attributes: u64) -> nix::Result<OwnedFd> {
        self.config(libc::FSCONFIG_CMD_CREATE, null(), null())?;
        // SAFETY: no pointer is passed.
        owned(unsafe {
            libc::syscall(libc::SYS_fsmount, self.0.as_raw_fd(), libc::FSMOUNT_CLOEXEC, attributes)
        })
    }

    /// What the kernel said first about a failure; empty where it says nothing.
    pub(crate) fn complaint(&self) -> String {
        let mut message = [0; 1024];
        let length = (&self.0).read(&mut message).unwrap_or(0);
        let text = String::from_utf8_lossy(message.get(..length).unwrap_or_default());
        text.trim_start_matches("e ").trim().to_owned()
    }
}
