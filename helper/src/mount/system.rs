//! The parts of the tree that every session has: the read-only root, `/proc`, `/dev`, and empty tmpfs.

use super::mask::{make_empties, new_folder};
use super::outside::Mirror;
use super::source::{CONSOLE, Devices};
use super::target::World;
use super::{At, failure, misplaced};
use crate::sys::mount::{Context, NODEV, NOEXEC, NOSUID, RDONLY, attach, clone_tree, restrict};
use landbox_shared::event::Failure;
use landbox_shared::path::AbsPath;
use landbox_shared::policy::MaskKind;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, mkdirat, mknodat};
use nix::unistd::symlinkat;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Parts of `/proc` that root can write by owning the files, without any capability.
const PROC_READ_ONLY: [&str; 6] = ["sys", "sysrq-trigger", "irq", "bus", "fs", "acpi"];

const DEV_LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
];

/// A path the program itself names.
pub(super) fn fixed(path: &str) -> Result<AbsPath, Failure> {
    AbsPath::new(path).map_err(|_| misplaced("a fixed path is not canonical"))
}

/// Makes the new root, read-only, beside the old one: one recursive copy of the host's, or one of each entry where a
/// name that does not exist must stay hidden (`missing`).
pub(super) fn root(tree: OwnedFd, missing: &[Vec<u8>]) -> Result<World, Failure> {
    let path = fixed("/")?;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let old = |name: &str| {
        openat(AT_FDCWD, name, flags, Mode::empty()).at(&path, "entering the old root")
    };
    let hidden = missing.iter().map(|name| (name.as_slice(), MaskKind::Missing)).collect();
    let entries = if missing.is_empty() {
        None
    } else {
        let copied = Mirror::of(old("/")?.as_fd(), hidden, RDONLY | NOSUID | NODEV);
        Some(copied.at(&path, "copying the root")?)
    };
    // Scratch takes the place of the old `/dev`, which has no further use, and leaves with the old root. The new root
    // grows inside. It must not cover the old root: who enters this namespace then would land in it.
    let scratch = new_tmpfs(0o755, None, NOSUID | NODEV | NOEXEC).at(&path, "making a tmpfs")?;
    attach(scratch.as_fd(), old("/dev")?.as_fd()).at(&path, "covering the old /dev")?;
    make_empties(scratch.as_fd()).at(&path, "making empty objects")?;
    let place = new_folder(scratch.as_fd(), "root").at(&path, "making a place for the new root")?;
    let Some(entries) = entries else {
        restrict(tree.as_fd(), RDONLY | NOSUID | NODEV, true)
            .and_then(|()| attach(tree.as_fd(), place.as_fd()))
            .at(&path, "making the root read-only")?;
        return Ok(World::new(tree, scratch, path));
    };
    let mirror = new_tmpfs(0o755, None, NOSUID | NODEV).at(&path, "making a tmpfs")?;
    attach(mirror.as_fd(), place.as_fd())
        .and_then(|()| entries.fill(mirror.as_fd()))
        .at(&path, "copying the root")?;
    let root = mirror.try_clone().map_err(|_| Errno::EMFILE).at(&path, "copying the root")?;
    let mut world = World::new(root, scratch, path.clone());
    world.adopt(mirror.as_fd(), &path)?;
    Ok(world)
}

/// Makes a tmpfs that is not attached yet.
pub(super) fn new_tmpfs(mode: u32, size: Option<u64>, attributes: u64) -> nix::Result<OwnedFd> {
    let context = Context::open(c"tmpfs")?;
    context.text(c"source", "landbox")?;
    context.text(c"mode", format!("{:o}", mode & 0o7777))?;
    if let Some(size) = size {
        context.text(c"size", size.to_string())?;
    }
    context.mount(attributes)
}

/// Mounts an empty tmpfs that mount points may be made in.
pub(super) fn tmpfs(
    world: &mut World,
    target: &AbsPath,
    mode: u32,
    size: u64,
) -> Result<(), Failure> {
    let tree = new_tmpfs(mode, Some(size), NOSUID | NODEV).at(target, "making a tmpfs")?;
    world.attach(tree.as_fd(), target)?;
    world.adopt(tree.as_fd(), target)
}

/// Mounts a fresh `/proc` and makes its writable system parts read-only.
pub(super) fn proc(world: &mut World) -> Result<(), Failure> {
    let path = fixed("/proc")?;
    let fresh = || {
        let context = Context::open(c"proc")?;
        context.text(c"source", "proc")?;
        context.mount(NOSUID | NODEV | NOEXEC)
    };
    let tree = fresh().map_err(|errno| {
        let detail = if errno == Errno::EPERM {
            "the kernel refuses a fresh /proc here, because parts of the host's are mounted over, as in a container"
        } else {
            "making a fresh /proc"
        };
        failure(errno, Some(&path), detail)
    })?;
    world.attach(tree.as_fd(), &path)?;
    for name in PROC_READ_ONLY {
        let path = fixed(&format!("/proc/{name}"))?;
        let part = match clone_tree(tree.as_fd(), Path::new(name)) {
            Ok(part) => part,
            Err(Errno::ENOENT) => continue,
            Err(errno) => return Err(failure(errno, Some(&path), "copying a part of /proc")),
        };
        restrict(part.as_fd(), RDONLY | NOSUID | NODEV | NOEXEC, true)
            .at(&path, "making a part of /proc read-only")?;
        world.attach(part.as_fd(), &path)?;
    }
    Ok(())
}

/// Mounts a minimal `/dev`.
pub(super) fn dev(world: &mut World, devices: Devices) -> Result<(), Failure> {
    let path = fixed("/dev")?;
    let tree =
        new_tmpfs(0o755, Some(1 << 20), NOSUID | NODEV | NOEXEC).at(&path, "making a tmpfs")?;
    world.attach(tree.as_fd(), &path)?;
    // Nothing of the host's ever appears here.
    world.adopt(tree.as_fd(), &path)?;
    fill(tree.as_fd(), &devices).at(&path, "filling /dev")?;
    let pts = devpts().at(&path, "making a devpts")?;
    world.attach(pts.as_fd(), &fixed("/dev/pts")?)?;
    for (name, node) in devices {
        let path = fixed(&format!("/dev/{name}"))?;
        // Read-only does not hinder writing to a device; it keeps root from changing the host's node. The terminal is
        // the session's own.
        let read_only = if name == CONSOLE { 0 } else { RDONLY };
        restrict(node.as_fd(), read_only | NOSUID | NOEXEC, false)
            .at(&path, "restricting a device")?;
        world.attach(node.as_fd(), &path)?;
    }
    restrict(tree.as_fd(), RDONLY | NOSUID | NODEV | NOEXEC, false)
        .at(&path, "making /dev read-only")
}

/// Makes the mount points and links of `/dev`.
fn fill(dev: BorrowedFd<'_>, devices: &Devices) -> nix::Result<()> {
    for name in ["pts", "shm"] {
        mkdirat(dev, name, Mode::from_bits_truncate(0o755))?;
    }
    for (name, _) in devices {
        mknodat(dev, *name, SFlag::S_IFREG, Mode::from_bits_truncate(0o444), 0)?;
    }
    for (to, name) in DEV_LINKS {
        symlinkat(to, dev, name)?;
    }
    Ok(())
}

/// A devpts of the session's own. Terminals belong to group 5 by convention, where that group exists here.
fn devpts() -> nix::Result<OwnedFd> {
    let with_group = |group: bool| {
        let context = Context::open(c"devpts")?;
        context.text(c"source", "devpts")?;
        context.text(c"mode", "0620")?;
        context.text(c"ptmxmode", "0666")?;
        if group {
            context.text(c"gid", "5")?;
        }
        context.mount(NOSUID | NOEXEC)
    };
    with_group(true).or_else(|_| with_group(false))
}
