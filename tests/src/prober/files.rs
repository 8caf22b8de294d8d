//! Every way of changing a file or a folder by its path.

use crate::Log;
use crate::sys::{Arg, address, c, call, n, owned, queued, with_map, words, write_mapped};
use std::ffi::CString;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

const AT: i64 = libc::AT_FDCWD as i64;
const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const FILE_SETATTR: i64 = 469;

type Tried = Result<i64, i32>;

/// Opens by the kernel's own call.
pub(crate) fn open(path: impl AsRef<Path>, flags: i32) -> Result<OwnedFd, i32> {
    let path = c(path);
    let fd =
        call(libc::SYS_openat, vec![n(AT), Arg::S(&path), n(flags | libc::O_CLOEXEC), n(0o666)])?;
    let fd = i32::try_from(fd).map_err(|_| libc::EBADF)?;
    Ok(owned(fd))
}

fn write(fd: &OwnedFd) -> Tried {
    let mut mark = *b"PWNED\n";
    call(libc::SYS_write, vec![n(fd.as_raw_fd()), Arg::M(&mut mark), n(6)])
}

pub(crate) fn open_write(path: impl AsRef<Path>, flags: i32) -> Tried {
    write(&open(path, flags)?)
}

fn on_fd(path: &Path, flags: i32, work: impl FnOnce(i32) -> Tried) -> Tried {
    let fd = open(path, flags)?;
    work(fd.as_raw_fd())
}

fn io(result: std::io::Result<()>) -> Tried {
    result.map(|()| 0).map_err(|e| e.raw_os_error().unwrap_or(-1))
}

/// Tries all ways on `target` (a file or a folder) and beside it. Ways that remove it come last; where one of them
/// works, the next finds a new file in its place.
pub(crate) fn write_every_way(log: &mut Log, target: &Path, scratch: &Path) {
    let _ = fs::create_dir_all(scratch);
    // An earlier round may have removed it: where that worked, it is to be tried again.
    if let Some(dir) = target.parent().filter(|_| !target.exists()) {
        let _ = fs::create_dir_all(dir).and_then(|()| fs::write(target, "again"));
    }
    let on = target.to_string_lossy().into_owned();
    let mut attempt = |way: &str, result: Tried| log.add(way, &on, result);
    if target.is_dir() {
        in_folder(&mut attempt, target, scratch);
        attributes(&mut attempt, target);
        return;
    }
    contents(&mut attempt, target, scratch);
    attributes(&mut attempt, target);
    doors(&mut attempt, target, scratch);
    if let Some(dir) = target.parent() {
        in_folder(&mut attempt, dir, scratch);
    }
    names(&mut attempt, target, scratch);
}

fn contents(attempt: &mut dyn FnMut(&str, Tried), target: &Path, scratch: &Path) {
    let path = c(target);
    attempt("open for writing", open_write(target, libc::O_WRONLY));
    attempt("open for appending", open_write(target, libc::O_WRONLY | libc::O_APPEND));
    attempt("open for both", open_write(target, libc::O_RDWR));
    attempt(
        "open for reading, truncating",
        open(target, libc::O_RDONLY | libc::O_TRUNC).map(|_| 0),
    );
    attempt("create over", open_write(target, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC));
    attempt("truncate", call(libc::SYS_truncate, vec![Arg::S(&path), n(1)]));
    let mapped = |fd: i32| write_mapped(fd, 4096);
    attempt("shared map", on_fd(target, libc::O_RDWR, mapped));
    attempt("shared map of a read-only descriptor", on_fd(target, libc::O_RDONLY, mapped));
    for (way, mode) in [("fallocate", 0), ("punch a hole", 3), ("zero a range", 0x10)] {
        let fallocate = |fd: i32| call(libc::SYS_fallocate, vec![n(fd), n(mode), n(0), n(4096)]);
        attempt(way, on_fd(target, libc::O_RDWR, fallocate));
    }
    let source = scratch.join("source");
    let _ = fs::write(&source, "PWNED\n");
    let copy = |number: i64, args: &dyn Fn(i32, i32) -> Vec<Arg<'static>>| {
        let from = open(&source, libc::O_RDONLY)?;
        let to = open(target, libc::O_WRONLY)?;
        call(number, args(from.as_raw_fd(), to.as_raw_fd()))
    };
    let range = |from, to| vec![n(from), n(0), n(to), n(0), n(6), n(0)];
    attempt("copy_file_range", copy(libc::SYS_copy_file_range, &range));
    attempt("sendfile", copy(libc::SYS_sendfile, &|from, to| vec![n(to), n(from), n(0), n(6)]));
    attempt("clone", copy(libc::SYS_ioctl, &|from, to| vec![n(to), n(0x4004_9409), n(from)]));
    attempt("splice", {
        let through_a_pipe = |to: i32| {
            let mut ends = [0; 8];
            call(libc::SYS_pipe2, vec![Arg::M(&mut ends), n(libc::O_CLOEXEC)])?;
            let [read, write] = [&ends[..4], &ends[4..]]
                .map(|end| end.try_into().map_or(-1, i32::from_ne_bytes))
                .map(owned);
            self::write(&write)?;
            let args = vec![n(read.as_raw_fd()), n(0), n(to), n(0), n(6), n(0)];
            call(libc::SYS_splice, args)
        };
        on_fd(target, libc::O_WRONLY, through_a_pipe)
    });
    for (way, flags) in [
        ("write at a place", libc::O_RDWR),
        ("write past the cache", libc::O_RDWR | libc::O_DIRECT),
    ] {
        attempt(
            way,
            on_fd(target, flags, |fd| {
                // As the device wants it aligned, and a whole block long.
                let mut blocks = vec![b'P'; 3 * 4096];
                let skip = blocks.as_ptr().align_offset(4096);
                let block = blocks.get_mut(skip..skip + 4096).ok_or(libc::EFAULT)?;
                call(libc::SYS_pwrite64, vec![n(fd), Arg::M(block), n(4096), n(0)])
            }),
        );
    }
    // struct iovec, twice the same mark.
    attempt(
        "write pieces",
        on_fd(target, libc::O_WRONLY, |fd| {
            let mark = *b"PWNED\n";
            let piece = [address(&mark).cast_unsigned(), 6];
            let mut pieces = words(&[piece, piece].concat());
            call(libc::SYS_pwritev2, vec![n(fd), Arg::M(&mut pieces), n(2), n(0), n(0), n(0)])
        }),
    );
    attempt("write in the background", on_fd(target, libc::O_WRONLY, in_the_background));
    attempt("write through a ring", through_a_ring(target));
    for (way, flags) in
        [("ftruncate", libc::O_RDWR), ("ftruncate a read-only descriptor", libc::O_RDONLY)]
    {
        attempt(way, on_fd(target, flags, |fd| call(libc::SYS_ftruncate, vec![n(fd), n(2)])));
    }
}

/// Linux's own asynchronous writes.
fn in_the_background(fd: i32) -> Tried {
    let mut context = words(&[0]);
    call(libc::SYS_io_setup, vec![n(1), Arg::M(&mut context)])?;
    let context = context.try_into().map_or(0, i64::from_ne_bytes);
    let mark = *b"PWNED\n";
    // struct iocb: data, key, IOCB_CMD_PWRITE and the descriptor, address, length, place, flags.
    let command = 1 | u64::from(fd.cast_unsigned()) << 32;
    let block = words(&[0, 0, command, address(&mark).cast_unsigned(), 6, 0, 0, 0]);
    let mut list = words(&[address(&block).cast_unsigned()]);
    let mut event = words(&[0; 4]);
    let answer =
        call(libc::SYS_io_submit, vec![n(context), n(1), Arg::M(&mut list)]).and_then(|_| {
            let args = vec![n(context), n(1), n(1), Arg::M(&mut event), n(0)];
            call(libc::SYS_io_getevents, args)
        });
    let _ = call(libc::SYS_io_destroy, vec![n(context)]);
    answer?;
    let result = event[16..24].try_into().map_or(-1, i64::from_ne_bytes);
    if result < 0 { Err(i32::try_from(-result).unwrap_or(-1)) } else { Ok(result) }
}

/// Opened and written without a system call that says so.
fn through_a_ring(target: &Path) -> Tried {
    // struct io_uring_sqe: what, where, offset, address, length and flags.
    let entry = |what: u8, fd: i32, address: i64, length: u32, flags: i32| {
        let mut entry = [0; 64];
        entry[0] = what;
        entry[4..8].copy_from_slice(&fd.to_ne_bytes());
        entry[16..24].copy_from_slice(&address.to_ne_bytes());
        entry[24..28].copy_from_slice(&length.to_ne_bytes());
        entry[28..32].copy_from_slice(&flags.to_ne_bytes());
        entry
    };
    let path = c(target);
    let flags = libc::O_WRONLY | libc::O_CLOEXEC;
    let opened = queued(entry(18, libc::AT_FDCWD, address(path.as_bytes()), 0, flags))?;
    let fd = owned(i32::try_from(opened).map_err(|_| libc::EBADF)?);
    let mark = *b"PWNED\n";
    queued(entry(23, fd.as_raw_fd(), address(&mark), 6, 0))
}

fn attributes(attempt: &mut dyn FnMut(&str, Tried), target: &Path) {
    let path = c(target);
    let name = c("user.landbox-probe");
    let uid = i64::from(rustix::process::getuid().as_raw());
    attempt("chmod", call(libc::SYS_fchmodat, vec![n(AT), Arg::S(&path), n(0o777)]));
    attempt("chmod set-uid", call(libc::SYS_fchmodat, vec![n(AT), Arg::S(&path), n(0o4777)]));
    attempt("chown", call(libc::SYS_fchownat, vec![n(AT), Arg::S(&path), n(uid), n(-1), n(0)]));
    attempt("utimes", call(libc::SYS_utimensat, vec![n(AT), Arg::S(&path), n(0), n(0)]));
    let mut value = *b"x";
    let set = vec![Arg::S(&path), Arg::S(&name), Arg::M(&mut value), n(1), n(0)];
    attempt("setxattr", call(libc::SYS_setxattr, set));
    attempt("removexattr", call(libc::SYS_removexattr, vec![Arg::S(&path), Arg::S(&name)]));
    // An access list of one entry each for owner, group and others, all rights.
    let mut acl = words(&[0x0007_0001_0000_0002, 0xffff_ffff | 0x0007_0004 << 32]);
    acl.extend(words(&[0xffff_ffff | 0x0007_0020 << 32]));
    acl.extend(u32::MAX.to_ne_bytes());
    let name = c("system.posix_acl_access");
    let length = i64::try_from(acl.len()).unwrap_or(0);
    let set = vec![Arg::S(&path), Arg::S(&name), Arg::M(&mut acl), n(length), n(0)];
    attempt("set an access list", call(libc::SYS_setxattr, set));
    // The same through a descriptor that was opened for reading: it carries the mount's own flags.
    attempt(
        "fchmod",
        on_fd(target, libc::O_RDONLY, |fd| call(libc::SYS_fchmod, vec![n(fd), n(0o777)])),
    );
    attempt(
        "futimens",
        on_fd(target, libc::O_RDONLY, |fd| {
            call(libc::SYS_utimensat, vec![n(fd), n(0), n(0), n(0)])
        }),
    );
    attempt(
        "fchown",
        on_fd(target, libc::O_RDONLY, |fd| call(libc::SYS_fchown, vec![n(fd), n(uid), n(-1)])),
    );
    attempt(
        "fsetxattr",
        on_fd(target, libc::O_RDONLY, |fd| {
            let (name, mut value) = (c("user.landbox-probe"), *b"x");
            let args = vec![n(fd), Arg::S(&name), Arg::M(&mut value), n(1), n(0)];
            call(libc::SYS_fsetxattr, args)
        }),
    );
    // Newer calls for the same, by number: the C library of the build may not know them.
    let no_follow = libc::AT_SYMLINK_NOFOLLOW;
    let args = vec![n(AT), Arg::S(&path), n(0o777), n(no_follow)];
    attempt("fchmodat2", call(FCHMODAT2, args));
    // struct xattr_args: value, size, flags.
    let name = c("user.landbox-probe");
    let value = *b"x";
    let mut set = words(&[address(&value).cast_unsigned(), 1]);
    let args = vec![n(AT), Arg::S(&path), n(0), Arg::S(&name), Arg::M(&mut set), n(16)];
    attempt("setxattrat", call(SETXATTRAT, args));
    // struct file_attr, and fsxattr for the older call: do not back it up.
    let mut set = words(&[0x80, 0, 0]);
    attempt(
        "file_setattr",
        call(FILE_SETATTR, vec![n(AT), Arg::S(&path), Arg::M(&mut set), n(24), n(0)]),
    );
    attempt(
        "set extended flags",
        on_fd(target, libc::O_RDONLY, |fd| {
            let mut set = words(&[0x80, 0, 0, 0]);
            call(libc::SYS_ioctl, vec![n(fd), n(0x401c_5820), Arg::M(&mut set)])
        }),
    );
    for (way, flag) in [("chattr +i", 0x10u64), ("chattr +A", 0x80)] {
        attempt(
            way,
            on_fd(target, libc::O_RDONLY, |fd| {
                let mut flags = words(&[flag]);
                call(libc::SYS_ioctl, vec![n(fd), n(0x4008_6602), Arg::M(&mut flags)])
            }),
        );
    }
}

/// The same file through another name: links, magic links, handles, descriptors opened again.
fn doors(attempt: &mut dyn FnMut(&str, Tried), target: &Path, scratch: &Path) {
    let link = scratch.join("link");
    let _ = fs::remove_file(&link);
    let through = io(std::os::unix::fs::symlink(target, &link));
    attempt("through a symbolic link", through.and_then(|_| open_write(&link, libc::O_WRONLY)));
    let hard = scratch.join("hard");
    let _ = fs::remove_file(&hard);
    let through = io(fs::hard_link(target, &hard));
    attempt("through a hard link", through.and_then(|_| open_write(&hard, libc::O_WRONLY)));
    for (way, flags) in
        [("a descriptor for reading", libc::O_RDONLY), ("a bare descriptor", libc::O_PATH)]
    {
        attempt(
            &format!("{way}, opened again"),
            on_fd(target, flags, |fd| {
                open_write(format!("/proc/self/fd/{fd}"), libc::O_WRONLY | libc::O_TRUNC)
            }),
        );
        attempt(
            &format!("{way}, linked anew"),
            on_fd(target, flags, |fd| {
                let (old, new) = (c(format!("/proc/self/fd/{fd}")), c(scratch.join("anew")));
                let _ = fs::remove_file(scratch.join("anew"));
                let args =
                    vec![n(AT), Arg::S(&old), n(AT), Arg::S(&new), n(libc::AT_SYMLINK_FOLLOW)];
                call(libc::SYS_linkat, args)?;
                open_write(scratch.join("anew"), libc::O_WRONLY)
            }),
        );
    }
    let parent = rustix::process::getppid().map_or(1, |p| p.as_raw_nonzero().get());
    for process in ["self".to_owned(), "1".to_owned(), parent.to_string()] {
        let root = PathBuf::from(format!("/proc/{process}/root"));
        let below = target.strip_prefix("/").unwrap_or(target);
        let way = if process == "self" || process == "1" { process.as_str() } else { "parent" };
        attempt(&format!("/proc/{way}/root"), open_write(root.join(below), libc::O_WRONLY));
        attempt(&format!("/proc/{way}/cwd"), {
            let up = "../".repeat(40);
            open_write(format!("/proc/{process}/cwd/{up}{}", below.display()), libc::O_WRONLY)
        });
    }
    attempt(
        "its name among the maps",
        on_fd(target, libc::O_RDONLY, |fd| {
            with_map(fd, |range| {
                open_write(format!("/proc/self/map_files/{range}"), libc::O_WRONLY)
            })
        }),
    );
    attempt("by handle", {
        let path = c(target);
        let mut handle = vec![0; 8 + 128];
        handle[..4].copy_from_slice(&128u32.to_ne_bytes());
        let mut mount = vec![0; 8];
        let args = vec![n(AT), Arg::S(&path), Arg::M(&mut handle), Arg::M(&mut mount), n(0)];
        call(libc::SYS_name_to_handle_at, args).and_then(|_| {
            on_fd(Path::new("/"), libc::O_RDONLY, |fd| {
                let args = vec![n(fd), Arg::M(&mut handle), n(libc::O_WRONLY)];
                call(libc::SYS_open_by_handle_at, args)
            })
        })
    });
    let path = c(target);
    attempt("process accounting", call(libc::SYS_acct, vec![Arg::S(&path)]));
    attempt("swapon", call(libc::SYS_swapon, vec![Arg::S(&path), n(0)]));
}

/// New things in a folder.
fn in_folder(attempt: &mut dyn FnMut(&str, Tried), dir: &Path, scratch: &Path) {
    let path = |name: &str| c(dir.join(format!("pwned-{name}")));
    let file = path("file");
    attempt("create a file", {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        call(libc::SYS_openat, vec![n(AT), Arg::S(&file), n(flags), n(0o644)])
    });
    attempt(
        "create a folder",
        call(libc::SYS_mkdirat, vec![n(AT), Arg::S(&path("dir")), n(0o755)]),
    );
    attempt("create a link", {
        let to = c("/etc/passwd");
        call(libc::SYS_symlinkat, vec![Arg::S(&to), n(AT), Arg::S(&path("link"))])
    });
    attempt("nameless file, then named", {
        open(dir, libc::O_WRONLY | libc::O_TMPFILE).and_then(|fd| {
            write(&fd)?;
            let old = c(format!("/proc/self/fd/{}", fd.as_raw_fd()));
            let new = path("named");
            let args = vec![n(AT), Arg::S(&old), n(AT), Arg::S(&new), n(libc::AT_SYMLINK_FOLLOW)];
            call(libc::SYS_linkat, args)
        })
    });
    for (way, mode, device) in [
        ("fifo", libc::S_IFIFO, 0),
        ("socket", libc::S_IFSOCK, 0),
        ("null device", libc::S_IFCHR, 0x103),
        ("whiteout", libc::S_IFCHR, 0),
        ("disk device", libc::S_IFBLK, 0x800),
    ] {
        let node = path(way);
        let made = call(libc::SYS_mknodat, vec![n(AT), Arg::S(&node), n(mode | 0o666), n(device)]);
        attempt(&format!("make a {way}"), made);
    }
    let (old, new) = (c(scratch.join("source")), path("moved"));
    let _ = fs::write(scratch.join("source"), "PWNED\n");
    attempt(
        "move in",
        call(libc::SYS_renameat2, vec![n(AT), Arg::S(&old), n(AT), Arg::S(&new), n(0)]),
    );
}

/// The name itself: moved, exchanged, replaced, removed.
fn names(attempt: &mut dyn FnMut(&str, Tried), target: &Path, scratch: &Path) {
    let path = c(target);
    let fresh = |name: &str| {
        let path = scratch.join(name);
        let _ = fs::write(&path, "PWNED\n");
        c(path)
    };
    // Beside the target, because a move between mounts is refused whatever the rights.
    let beside = c(target.with_extension("pwned"));
    attempt("replace by a file from elsewhere", rename(&fresh("new"), &path, 0));
    attempt(
        "link beside",
        call(libc::SYS_linkat, vec![n(AT), Arg::S(&path), n(AT), Arg::S(&beside), n(0)]),
    );
    attempt("exchange", rename(&beside, &path, 2));
    attempt("move away", rename(&path, &beside, 0));
    attempt("move back, no replacing", rename(&beside, &path, 1));
    attempt("leave a whiteout", rename(&path, &beside, 4));
    let _ = fs::write(target, "again");
    attempt("unlink", call(libc::SYS_unlinkat, vec![n(AT), Arg::S(&path), n(0)]));
    let _ = fs::write(target, "again");
    if let Some(dir) = target.parent() {
        let folder = c(dir);
        let away = c(dir.with_extension("pwned"));
        attempt("move its folder away", rename(&folder, &away, 0));
        attempt("remove its folder", io(fs::remove_dir_all(dir)));
    }
}

/// Whether descriptor `fd`, opened again by its magic link, takes a write.
pub(crate) fn reopened(fd: u32) -> Tried {
    open_write(format!("/proc/self/fd/{fd}"), libc::O_WRONLY | libc::O_NONBLOCK)
}

/// Writes into a FIFO if there is a reader.
pub(crate) fn into_fifo(path: &Path) -> Tried {
    open_write(path, libc::O_WRONLY | libc::O_NONBLOCK)
}

fn rename(from: &CString, to: &CString, flags: u32) -> Tried {
    call(libc::SYS_renameat2, vec![n(AT), Arg::S(from), n(AT), Arg::S(to), n(flags)])
}
