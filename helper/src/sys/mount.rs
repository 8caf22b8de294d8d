//! The file-descriptor based mount interface, which neither libc nor nix wraps.
//!
//! Needs Linux 5.12 (`mount_setattr`). No path of the caller's ever enters an option string.

use landbox_shared::overlay::{Setting, Value};
use nix::NixPath;
use nix::errno::Errno;
use std::ffi::{CStr, CString, c_char, c_long, c_uint};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null;

/// Set-user-id bits and file capabilities have no effect.
pub(crate) const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
/// Device nodes cannot be opened.
pub(crate) const NODEV: u64 = libc::MOUNT_ATTR_NODEV;
/// Programs cannot be executed.
pub(crate) const NOEXEC: u64 = libc::MOUNT_ATTR_NOEXEC;
/// Nothing can be written.
pub(crate) const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;

/// Why the kernel does not make a file system: the error, and the kernel's own words, if it has any.
pub(crate) type Refusal = (Errno, String);

fn owned(result: c_long) -> nix::Result<OwnedFd> {
    let fd = RawFd::try_from(Errno::result(result)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made this descriptor for us and nothing else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Copies the mount tree at `path` below `dir` (`""` for `dir` itself) into a detached one. Always recursive: in a
/// user namespace the kernel refuses to copy a folder without the mounts the host put over parts of it.
pub(crate) fn clone_tree(dir: &OwnedFd, path: &(impl NixPath + ?Sized)) -> nix::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE
        | libc::OPEN_TREE_CLOEXEC
        | (libc::AT_RECURSIVE | libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW).cast_unsigned();
    // SAFETY: the path is a NUL-terminated string that outlives the call.
    owned(path.with_nix_path(|path| unsafe {
        libc::syscall(libc::SYS_open_tree, dir.as_raw_fd(), path.as_ptr(), flags)
    })?)
}

/// Attaches a detached mount tree on top of whatever `target` refers to.
pub(crate) fn attach(tree: &OwnedFd, target: &OwnedFd) -> nix::Result<()> {
    let flags = libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH;
    let (tree, target, here) = (tree.as_raw_fd(), target.as_raw_fd(), c"".as_ptr());
    // SAFETY: both paths are the same NUL-terminated constant.
    Errno::result(unsafe { libc::syscall(libc::SYS_move_mount, tree, here, target, here, flags) })
        .map(drop)
}

/// Sets attributes of a mount, or of a whole tree, and makes it private.
pub(crate) fn restrict(tree: &OwnedFd, attributes: u64, recursive: bool) -> nix::Result<()> {
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

/// Makes a file system and returns it as a detached mount.
pub(crate) fn file_system(
    kind: &CStr,
    options: &[Setting],
    attributes: u64,
) -> Result<OwnedFd, Refusal> {
    // SAFETY: the name is a NUL-terminated string that outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), libc::FSOPEN_CLOEXEC) };
    let context = File::from(owned(fd).map_err(|errno| (errno, String::new()))?);
    let make = || {
        for (key, value) in options {
            let key = key.as_ptr();
            match value {
                Value::Flag => configure(&context, libc::FSCONFIG_SET_FLAG, key, null(), 0)?,
                Value::Text(text) => {
                    let text = CString::new(text.as_str()).map_err(|_| Errno::EINVAL)?;
                    configure(&context, libc::FSCONFIG_SET_STRING, key, text.as_ptr(), 0)?;
                }
                Value::Descriptor(fd) => {
                    configure(&context, libc::FSCONFIG_SET_FD, key, null(), *fd)?;
                }
            }
        }
        configure(&context, libc::FSCONFIG_CMD_CREATE, null(), null(), 0)?;
        let (fd, flags) = (context.as_raw_fd(), libc::FSMOUNT_CLOEXEC);
        // SAFETY: no pointer is passed.
        owned(unsafe { libc::syscall(libc::SYS_fsmount, fd, flags, attributes) })
    };
    make().map_err(|errno| (errno, complaint(&context)))
}

fn configure(
    context: &File,
    command: c_uint,
    key: *const c_char,
    value: *const c_char,
    number: RawFd,
) -> nix::Result<()> {
    let fd = context.as_raw_fd();
    // SAFETY: the caller passes NULL or NUL-terminated strings that outlive the call.
    Errno::result(unsafe { libc::syscall(libc::SYS_fsconfig, fd, command, key, value, number) })
        .map(drop)
}

/// What the kernel said first about a failure; empty where it says nothing.
fn complaint(mut context: &File) -> String {
    let mut message = [0; 1024];
    let length = context.read(&mut message).unwrap_or(0);
    let text = String::from_utf8_lossy(message.get(..length).unwrap_or_default());
    text.trim_start_matches("e ").trim().to_owned()
}
