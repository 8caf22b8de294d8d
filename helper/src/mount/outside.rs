//! Hiding paths outside the layers.
//!
//! A mount on a host's folder entry falls off when the host replaces that entry, and a path that does not exist yet
//! has no entry to mount on. So the nearest existing folder is covered: by a read-only overlay of mask folders over
//! itself; where that is not possible (it contains other mounts), by a read-only copy made of one bind an entry;
//! and only where the path exists by a plain bind, whose loss the monitor notices.

use super::layer::{noexec, overlay};
use super::mask;
use super::source::Hidden;
use super::system::new_tmpfs;
use super::target::{Kind, World, make};
use super::{At, failure};
use crate::failure::Failure;
use crate::open::{PLACE, open_beneath};
use crate::sys::mount::{NODEV, NOSUID, RDONLY, attach, clone_tree, restrict};
use landbox_shared::path::{AbsPath, RelPath};
use landbox_shared::plan::Loss;
use landbox_shared::policy::MaskKind;
use landbox_shared::tree::{Masks, loss};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, readlinkat};
use nix::sys::stat::{fstat, fstatat};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::symlinkat;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Hides paths outside the layers.
pub(super) fn hide(world: &mut World, masks: &[Hidden<'_>]) -> Result<(), Failure> {
    let mut folders: BTreeMap<AbsPath, Masks> = BTreeMap::new();
    for (target, kind, loss) in masks {
        // Gone since the plan was made. What can't be opened with the rights we have now, no session reaches.
        if *loss == Loss::Tolerated && *kind != MaskKind::Missing && world.open(target).is_err() {
            continue;
        }
        let folder = nearest_folder(world, target)?;
        let path = target
            .relative_to(&folder)
            .ok_or_else(|| failure(Errno::EINVAL, target, "the root cannot be hidden"))?;
        folders.entry(folder).or_default().insert(path, (*kind, *loss));
    }
    // Sorted: a folder is covered before those below it, which then lie on its cover.
    for (folder, masks) in &folders {
        mask::unless_gone(cover(world, folder, masks), loss(masks))?;
    }
    Ok(())
}

/// The deepest folder above a path that exists in the new tree.
fn nearest_folder(world: &World, target: &AbsPath) -> Result<AbsPath, Failure> {
    for parent in std::iter::successors(target.parent(), AbsPath::parent) {
        match world.open(&parent).and_then(fstat) {
            Ok(stat) if stat.st_mode & libc::S_IFMT == libc::S_IFDIR => return Ok(parent),
            Ok(_) | Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EACCES) => {}
            Err(errno) => return Err(failure(errno, &parent, "entering a folder to mask")),
        }
    }
    Err(failure(Errno::EINVAL, target, "the root cannot be hidden"))
}

/// Covers a folder, or the paths in it, in the best way that is possible.
fn cover(world: &mut World, folder: &AbsPath, masks: &Masks) -> Result<(), Failure> {
    let mut place = world.enter(folder, Kind::Folder)?;
    // Nothing of the host's appears on a mount of the session's own.
    let mut hidden = world.points.is_own(folder);
    if !hidden {
        if cover_with_overlay(world, folder, &place, masks)? {
            return Ok(());
        }
        let is_missing = |(path, (kind, _)): (&RelPath, &(MaskKind, Loss))| {
            *kind == MaskKind::Missing || open_beneath(&place, path.as_bytes(), PLACE).is_err()
        };
        hidden = masks.iter().any(is_missing);
        if hidden {
            cover_with_copy(world, folder, &place, masks)?;
            place = world.enter(folder, Kind::Folder)?;
        }
    }
    mask::cover(world, &place, folder, masks, hidden)
}

/// Covers a folder with a read-only overlay of itself; whether that was possible.
fn cover_with_overlay(
    world: &mut World,
    folder: &AbsPath,
    place: &OwnedFd,
    masks: &Masks,
) -> Result<bool, Failure> {
    // Our own mounts below would vanish under the overlay; the kernel refuses the host's by itself.
    if world.points.any_below(folder) {
        return Ok(false);
    }
    let flags = fstatvfs(place).at(folder, "reading a mount's flags")?.flags();
    let hides_missing = masks.values().any(|(kind, _)| *kind == MaskKind::Missing);
    if !flags.contains(FsFlags::ST_RDONLY) && !hides_missing {
        // The rest of a writable folder stays writable.
        return Ok(false);
    }
    let real = place.try_clone().map_err(|_| Errno::EMFILE).at(folder, "covering a folder")?;
    let lowers = mask::lowers(world, folder, real, masks)?;
    match overlay(&lowers, None, RDONLY | NOSUID | NODEV | noexec(&lowers)) {
        Ok(tree) => world.attach_at(&tree, place, folder, loss(masks)).map(|()| true),
        Err(_) => Ok(false),
    }
}

/// Covers a folder with a read-only copy: one bind an entry, without what is hidden. What the host adds to the folder
/// later does not show. The binds are as read-only as what they copy: a layer among them stays writable.
fn cover_with_copy(
    world: &mut World,
    folder: &AbsPath,
    place: &OwnedFd,
    masks: &Masks,
) -> Result<(), Failure> {
    let hidden: BTreeSet<&[u8]> =
        masks.keys().filter_map(|path| path.components().next()).collect();
    let copy = new_tmpfs(0o755, COPY_BYTES, NOSUID | NODEV).at(folder, "making a tmpfs")?;
    world.attach_at(&copy, place, folder, loss(masks))?;
    let fill = || {
        let list = format!("/proc/self/fd/{}", place.as_raw_fd());
        let number = |e: std::io::Error| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO));
        for entry in std::fs::read_dir(list).map_err(number)? {
            let name = entry.map_err(number)?.file_name();
            if !hidden.contains(name.as_bytes()) {
                // The host may have removed it meanwhile.
                let copied = copy_entry(place, &copy, &name);
                copied.or_else(|errno| if errno == Errno::ENOENT { Ok(()) } else { Err(errno) })?;
            }
        }
        for (path, (kind, _)) in masks.iter().filter(|(path, _)| path.parent().is_none()) {
            mask::stand_in(&copy, path, *kind)?;
        }
        mask::copy_look(&copy, b".", &fstat(place)?)?;
        restrict(&copy, RDONLY | NOSUID | NODEV, false)
    };
    fill().at(folder, "covering a folder with a copy of itself")?;
    if folder.is_root() {
        world.root = copy;
    }
    Ok(())
}

/// Room for mount points alone.
const COPY_BYTES: u64 = 64 << 20;

fn copy_entry(from: &OwnedFd, to: &OwnedFd, name: &OsStr) -> nix::Result<()> {
    let kind = match fstatat(from, name, AtFlags::AT_SYMLINK_NOFOLLOW)?.st_mode & libc::S_IFMT {
        libc::S_IFLNK => return symlinkat(readlinkat(from, name)?.as_os_str(), to, name),
        libc::S_IFDIR => Kind::Folder,
        _ => Kind::Other,
    };
    let tree = clone_tree(from, name)?;
    make(to, name.as_bytes(), kind)?;
    attach(&tree, &open_beneath(to, name.as_bytes(), PLACE)?)
}
