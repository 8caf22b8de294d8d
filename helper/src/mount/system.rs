//! The parts of the tree that every session has: the read-only root, `/proc` and `/dev`.

use super::mask::{make_empties, new_folder};
use super::source::Devices;
use super::target::{Kind, World, make};
use super::{At, misplaced};
use crate::failure::Failure;
use crate::open::{FOLDER, PLACE, open, open_beneath};
use crate::sys::mount::{
    NODEV, NOEXEC, NOSUID, RDONLY, Refusal, attach, clone_tree, file_system, restrict,
};
use landbox_shared::overlay::Setting;
use landbox_shared::path::AbsPath;
use landbox_shared::system::{CONSOLE, DEV_LINKS, PROC_READ_ONLY};
use nix::errno::Errno;
use nix::unistd::symlinkat;
use std::ffi::CStr;
use std::os::fd::OwnedFd;

/// Size limit of mask folders and of `/dev`, which hold names alone.
const SCRATCH_BYTES: u64 = 64 << 20;

/// A path the program itself names.
pub(super) fn fixed(path: &str) -> Result<AbsPath, Failure> {
    AbsPath::new(path).map_err(|_| misplaced("a fixed path is not canonical"))
}

/// Makes the new root, read-only, beside the old one: one recursive copy of the host's.
pub(super) fn root(tree: OwnedFd) -> Result<World, Failure> {
    let (path, dev) = (fixed("/")?, fixed("/dev")?);
    // Scratch takes the place of the old `/dev`, which has no further use, and leaves with the old root. The new root
    // grows inside. It must not cover the old root: who enters this namespace then would land in it.
    let scratch =
        new_tmpfs(0o755, SCRATCH_BYTES, NOSUID | NODEV | NOEXEC).at(&path, "making a tmpfs")?;
    open("/dev", PLACE).and_then(|dev| attach(&scratch, &dev)).at(&dev, "covering the old /dev")?;
    let place = make_empties(&scratch)
        .and_then(|()| new_folder(&scratch, "root"))
        .at(&path, "making a place for the new root")?;
    restrict(&tree, RDONLY | NOSUID | NODEV, true)
        .and_then(|()| attach(&tree, &place))
        .at(&path, "making the root read-only")?;
    Ok(World::new(tree, scratch, path))
}

/// Makes a tmpfs that is not attached yet.
pub(super) fn new_tmpfs(mode: u32, size: u64, attributes: u64) -> Result<OwnedFd, Refusal> {
    let (mode, size) = (format!("{:o}", mode & 0o7777), size.to_string());
    let options = [(c"source", "landbox"), (c"mode", &*mode), (c"size", &*size)];
    file_system(c"tmpfs", &options.map(text), attributes)
}

/// Mounts a fresh `/proc` and makes its writable system parts read-only.
pub(super) fn proc(world: &mut World) -> Result<(), Failure> {
    let path = fixed("/proc")?;
    let doing = "making a fresh /proc, which the kernel refuses where parts of the host's are mounted over, as in a container";
    let tree = file_system(c"proc", &[text((c"source", "proc"))], NOSUID | NODEV | NOEXEC);
    let tree = tree.at(&path, doing)?;
    world.attach(&tree, &path, Kind::Folder)?;
    for name in PROC_READ_ONLY {
        let path = fixed(&format!("/proc/{name}"))?;
        let part = match clone_tree(&tree, name) {
            Err(Errno::ENOENT) => continue,
            part => part.at(&path, "copying a part of /proc")?,
        };
        restrict(&part, RDONLY | NOSUID | NODEV | NOEXEC, true)
            .at(&path, "making a part of /proc read-only")?;
        world.attach(&part, &path, Kind::of(&part, &path)?)?;
    }
    Ok(())
}

/// Mounts a minimal `/dev`. Nothing of the host's ever appears in it.
pub(super) fn dev(world: &mut World, devices: Devices) -> Result<(), Failure> {
    let path = fixed("/dev")?;
    let tree = fill(&world.scratch, &devices).at(&path, "filling /dev")?;
    restrict(&tree, RDONLY | NOSUID | NODEV | NOEXEC, false).at(&path, "making /dev read-only")?;
    world.attach(&tree, &path, Kind::Folder)?;
    world.points.last_mut().into_iter().for_each(|point| point.own = true);
    let pts = devpts().at(&path, "making a devpts")?;
    world.attach(&pts, &fixed("/dev/pts")?, Kind::Folder)?;
    for (name, node) in devices {
        let path = fixed(&format!("/dev/{name}"))?;
        // Read-only does not hinder writing to a device; it keeps root from changing the host's node. The terminal is
        // the session's own.
        let read_only = if name == CONSOLE { 0 } else { RDONLY };
        restrict(&node, read_only | NOSUID | NOEXEC, false).at(&path, "restricting a device")?;
        world.attach(&node, &path, Kind::Other)?;
    }
    Ok(())
}

/// Makes `/dev` with its mount points and links on the scratch tmpfs, and copies the mount of that folder alone.
fn fill(scratch: &OwnedFd, devices: &Devices) -> nix::Result<OwnedFd> {
    make(scratch, b"dev", Kind::Folder)?;
    let dev = open_beneath(scratch, "dev", FOLDER)?;
    for name in [b"pts", b"shm"] {
        make(&dev, name, Kind::Folder)?;
    }
    for (name, _) in devices {
        make(&dev, name.as_bytes(), Kind::Other)?;
    }
    DEV_LINKS.iter().try_for_each(|(to, name)| symlinkat(*to, &dev, *name))?;
    clone_tree(&dev, "")
}

/// A devpts of the session's own. Terminals belong to group 5 by convention, where that group exists here.
fn devpts() -> Result<OwnedFd, Refusal> {
    let options = [(c"source", "devpts"), (c"mode", "0620"), (c"ptmxmode", "0666"), (c"gid", "5")];
    let options = options.map(text);
    let make = |options| file_system(c"devpts", options, NOSUID | NOEXEC);
    make(&options).or_else(|_| make(&options[..3]))
}

fn text((key, value): (&'static CStr, &str)) -> Setting {
    (key, value.into())
}
