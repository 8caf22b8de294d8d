//! Hiding paths outside the layers.
//!
//! A mount on a host's folder entry falls off when the host replaces that entry, and a path that does not exist yet
//! has no entry to mount on. So the nearest existing folder is covered: by a read-only overlay of mask folders over
//! itself; where the kernel refuses that (it contains other mounts), by a read-only copy made of one bind an entry;
//! and only where the path exists by a plain bind, whose loss the monitor notices.

use super::layer::overlay;
use super::mask::{self, Masks};
use super::source::{Hidden, open_beneath};
use super::system::new_tmpfs;
use super::target::{Kind, World, make};
use super::{At, failure, number};
use crate::sys::mount::{NODEV, NOEXEC, NOSUID, RDONLY, attach, clone_tree, restrict};
use landbox_shared::event::Failure;
use landbox_shared::path::AbsPath;
use landbox_shared::plan::{Loss, Op, Plan};
use landbox_shared::policy::MaskKind;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, readlinkat};
use nix::sys::stat::{FileStat, fstat, fstatat};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::symlinkat;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Hides paths outside the layers.
pub(super) fn hide(world: &mut World, masks: &[Hidden<'_>]) -> Result<(), Failure> {
    let mut folders: BTreeMap<AbsPath, Masks> = BTreeMap::new();
    for Hidden { target, kind, loss } in masks {
        // Gone since the plan was made. What can't be opened with the rights we have now, no session reaches.
        if *loss == Loss::Tolerated && *kind != MaskKind::Missing && world.open(target).is_err() {
            continue;
        }
        let (folder, place) = nearest_folder(world, target)?;
        let path = target
            .relative_to(&folder)
            .ok_or_else(|| failure(Errno::EINVAL, Some(target), "the root cannot be hidden"))?;
        let own = world.is_own(place.as_fd(), target)?;
        if !own && !folder.is_root() {
            folders.entry(folder).or_default().insert(path, (*kind, *loss));
            continue;
        }
        // Nothing of the host's appears on a mount of the session's own, and the root is one where it matters.
        match open_beneath(place.as_fd(), path.as_bytes()) {
            Ok(place) => mask::cover_place(world, place.as_fd(), target, *loss)?,
            Err(Errno::ENOENT | Errno::ENOTDIR) if own || *loss == Loss::Tolerated => {}
            Err(errno) => return Err(failure(errno, Some(target), "hiding a path below the root")),
        }
    }
    // Sorted: a folder is covered before those below it, which then lie on its cover.
    for (folder, masks) in &folders {
        match cover_folder(world, folder, masks) {
            // Removed since it was looked at.
            Err(gone) if loss(masks) == Loss::Tolerated && gone.errno == libc::ENOENT => {}
            done => done?,
        }
    }
    Ok(())
}

/// What the loss of a folder's cover means: as much as the loss of any mask in it.
fn loss(masks: &Masks) -> Loss {
    masks.values().map(|(_, loss)| *loss).min().unwrap_or(Loss::Tolerated)
}

fn cover_folder(world: &mut World, folder: &AbsPath, masks: &Masks) -> Result<(), Failure> {
    if cover_with_overlay(world, folder, masks)? {
        return Ok(());
    }
    cover_one_by_one(world, folder, masks)
}

/// The deepest folder above a path that exists in the new tree.
fn nearest_folder(world: &World, target: &AbsPath) -> Result<(AbsPath, OwnedFd), Failure> {
    let mut path = target.clone();
    while let Some(parent) = path.parent() {
        let place = world.open(&parent).and_then(|place| Ok((fstat(&place)?.st_mode, place)));
        match place {
            Ok((mode, place)) if mode & libc::S_IFMT == libc::S_IFDIR => {
                return Ok((parent, place));
            }
            Ok(_) => path = parent,
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EACCES) => path = parent,
            Err(errno) => return Err(failure(errno, Some(&parent), "entering a folder to mask")),
        }
    }
    Err(failure(Errno::EINVAL, Some(target), "the root cannot be hidden"))
}

/// Covers a folder with a read-only overlay of itself; whether that was possible.
fn cover_with_overlay(world: &mut World, folder: &AbsPath, masks: &Masks) -> Result<bool, Failure> {
    // Our own mounts below would vanish under the overlay; the kernel refuses the host's by itself.
    if world.points.iter().chain(&world.tolerated).any(|point| point.relative_to(folder).is_some())
    {
        return Ok(false);
    }
    let place = world.enter(folder, Kind::Folder)?;
    let flags = fstatvfs(&place).at(folder, "reading a mount's flags")?.flags();
    let hides_missing = masks.values().any(|(kind, _)| *kind == MaskKind::Missing);
    if !flags.contains(FsFlags::ST_RDONLY) && !hides_missing {
        // The rest of a writable folder stays writable.
        return Ok(false);
    }
    let (middle, _) = mask::middle(world, folder, place.as_fd(), masks)?;
    let lowers: Vec<BorrowedFd<'_>> =
        middle.iter().map(AsFd::as_fd).chain([place.as_fd()]).collect();
    let noexec = if flags.contains(FsFlags::ST_NOEXEC) { NOEXEC } else { 0 };
    match overlay(&lowers, None, RDONLY | NOSUID | NODEV | noexec) {
        Ok(tree) => {
            world.attach_at(tree.as_fd(), place.as_fd(), folder, loss(masks)).map(|()| true)
        }
        Err(_) => Ok(false),
    }
}

fn cover_one_by_one(world: &mut World, folder: &AbsPath, masks: &Masks) -> Result<(), Failure> {
    let place = world.enter(folder, Kind::Folder)?;
    let missing = masks.keys().any(|path| open_beneath(place.as_fd(), path.as_bytes()).is_err());
    if missing {
        return cover_with_mirror(world, folder, place.as_fd(), masks);
    }
    masks.iter().try_for_each(|(path, (_, loss))| {
        mask::cover(world, place.as_fd(), folder, std::slice::from_ref(path), *loss)
    })
}

/// Covers a folder with a read-only copy: one bind an entry, without what is hidden. What the host adds to the folder
/// later does not show.
fn cover_with_mirror(
    world: &mut World,
    folder: &AbsPath,
    place: BorrowedFd<'_>,
    masks: &Masks,
) -> Result<(), Failure> {
    let hidden = masks
        .iter()
        .map(|(path, (kind, _))| {
            let name = path.components().next().unwrap_or_default();
            (name, if name == path.as_bytes() { *kind } else { MaskKind::Missing })
        })
        .collect();
    // Below the new root the host's mounts are read-only already, and a layer or a bind of the session's own among them
    // stays writable.
    let entries =
        Mirror::of(place, hidden, NOSUID | NODEV).at(folder, "copying a folder to mask")?;
    let mirror = new_tmpfs(0o755, None, NOSUID | NODEV).at(folder, "making a tmpfs")?;
    world.attach_at(mirror.as_fd(), place, folder, loss(masks))?;
    entries.fill(mirror.as_fd()).at(folder, "covering a folder with a copy of itself")
}

/// A folder's entries, copied.
pub(super) struct Mirror<'a> {
    look: FileStat,
    entries: Vec<(OsString, Entry)>,
    hidden: BTreeMap<&'a [u8], MaskKind>,
}

enum Entry {
    Link(OsString),
    Tree(OwnedFd, Kind),
}

impl<'a> Mirror<'a> {
    /// Copies the mounts of everything in a folder but what is hidden, each with the access it has and these
    /// restrictions added.
    pub(super) fn of(
        folder: BorrowedFd<'_>,
        hidden: BTreeMap<&'a [u8], MaskKind>,
        restrictions: u64,
    ) -> nix::Result<Self> {
        let listed = std::fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))
            .and_then(|all| all.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>, _>>())
            .map_err(|error| number(&error))?;
        let mut entries = Vec::new();
        for name in listed.into_iter().filter(|name| !hidden.contains_key(name.as_bytes())) {
            match copy_entry(folder, &name, restrictions) {
                Ok(entry) => entries.push((name, entry)),
                // The host removed it meanwhile.
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(Self { look: fstat(folder)?, entries, hidden })
    }

    /// Fills an attached, empty tmpfs, and makes it read-only.
    pub(super) fn fill(&self, mirror: BorrowedFd<'_>) -> nix::Result<()> {
        for (name, entry) in &self.entries {
            match entry {
                Entry::Link(to) => symlinkat(to.as_os_str(), mirror, name.as_os_str())?,
                Entry::Tree(tree, kind) => {
                    make(mirror, name.as_bytes(), *kind)?;
                    attach(tree.as_fd(), open_beneath(mirror, name.as_bytes())?.as_fd())?;
                }
            }
        }
        for (name, kind) in &self.hidden {
            match kind {
                MaskKind::Dir => make(mirror, name, Kind::Folder)?,
                MaskKind::File => make(mirror, name, Kind::Other)?,
                MaskKind::Missing => {}
            }
        }
        mask::copy_look(mirror, b".", &self.look)?;
        restrict(mirror, RDONLY | NOSUID | NODEV, false)
    }
}

fn copy_entry(folder: BorrowedFd<'_>, name: &OsStr, restrictions: u64) -> nix::Result<Entry> {
    let kind = match fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)?.st_mode & libc::S_IFMT {
        libc::S_IFLNK => return readlinkat(folder, name).map(Entry::Link),
        libc::S_IFDIR => Kind::Folder,
        _ => Kind::Other,
    };
    let tree = clone_tree(folder, Path::new(name))?;
    restrict(tree.as_fd(), restrictions, true)?;
    Ok(Entry::Tree(tree, kind))
}

/// Names directly below the root that do not exist but must stay hidden: then the root itself is made as a copy.
pub(super) fn missing_below_root(plan: &Plan) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    for op in &plan.ops {
        if let Op::Mask { target, loss: Loss::EndsSession, .. } = op {
            let name = target.as_bytes().split(|byte| *byte == b'/').nth(1).unwrap_or_default();
            let path = [b"/", name].concat();
            if nix::sys::stat::lstat(path.as_slice()).is_err() {
                names.push(name.to_vec());
            }
        }
    }
    names
}
