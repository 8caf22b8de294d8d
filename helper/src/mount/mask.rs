//! Hiding paths inside an overlay. A mask is a lower between the real folder and what the session wrote, so that
//! nothing the session or the host does can take it away; `outside.rs` uses the same for paths outside the layers.
//!
//! Two mask folders: `hide` holds a whiteout for each path; `show` lies on top of it and holds the empty object that
//! shows in its place. So an "opaque" mark is never needed, which a tmpfs cannot carry before Linux 6.6, and both back
//! ends read the result alike.

use super::target::{Kind, World, make};
use super::{At, failure};
use crate::failure::Failure;
use crate::open::{FOLDER, PLACE, open_beneath};
use crate::sys::mount::{NODEV, NOEXEC, NOSUID, RDONLY, clone_tree, restrict};
use landbox_shared::path::{AbsPath, RelPath};
use landbox_shared::plan::Loss;
use landbox_shared::policy::MaskKind;
use landbox_shared::tree::{Masks, Sketch, sketch};
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{
    FchmodatFlags, FileStat, Mode, SFlag, UtimensatFlags, fchmodat, fstat, mkdirat, mknodat,
    utimensat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchownat};
use std::os::fd::OwnedFd;

/// The lowers of an overlay that shows `real` without what is masked, top first.
pub(super) fn lowers(
    world: &mut World,
    folder: &AbsPath,
    real: OwnedFd,
    masks: &Masks,
) -> Result<Vec<OwnedFd>, Failure> {
    if masks.is_empty() {
        return Ok(vec![real]);
    }
    build(world, real, masks).at(folder, "building the masks below a folder")
}

fn build(world: &mut World, real: OwnedFd, masks: &Masks) -> nix::Result<Vec<OwnedFd>> {
    let (show, hide) = (world.scratch_folder()?, world.scratch_folder()?);
    let look = |path: &RelPath| {
        let stat = open_beneath(&real, path.as_bytes(), PLACE).and_then(fstat).ok();
        stat.filter(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFDIR)
    };
    let Sketch { folders, hidden, shown } = sketch(masks, look);
    for path in folders.keys() {
        mkdirat(&show, path.as_bytes(), Mode::S_IRWXU)?;
        mkdirat(&hide, path.as_bytes(), Mode::S_IRWXU)?;
    }
    for (path, kind) in shown {
        stand_in(&show, &path, kind)?;
    }
    for path in hidden {
        mknodat(&hide, path.as_bytes(), SFlag::S_IFCHR, Mode::empty(), 0)?;
    }
    // The merged view takes a folder's mode, owner and times from the topmost one: that must look like the real.
    for (path, stat) in &folders {
        copy_look(&show, path.as_bytes(), stat)?;
    }
    copy_look(&show, b".", &fstat(&real)?)?;
    Ok(vec![show, hide, real])
}

/// Makes the empty object that shows in place of a masked path.
pub(super) fn stand_in(folder: &OwnedFd, path: &RelPath, kind: MaskKind) -> nix::Result<()> {
    match kind {
        MaskKind::Dir => make(folder, path.as_bytes(), Kind::Folder),
        MaskKind::File => make(folder, path.as_bytes(), Kind::Other),
        MaskKind::Missing => Ok(()),
    }
}

/// Gives a folder the mode, owner and times in `stat`. An owner whom the session's user namespace does not know
/// cannot be given: it stays ours, and the real folder's own permissions still guard what is in it.
pub(super) fn copy_look(at: &OwnedFd, name: &[u8], stat: &FileStat) -> nix::Result<()> {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    for (uid, gid) in [(Some(uid), None), (None, Some(gid))] {
        match fchownat(at, name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(()) | Err(Errno::EINVAL) => {}
            Err(errno) => return Err(errno),
        }
    }
    let mode = Mode::from_bits_truncate(stat.st_mode & 0o7777);
    fchmodat(at, name, mode, FchmodatFlags::FollowSymlink)?;
    let accessed = TimeSpec::new(stat.st_atime, stat.st_atime_nsec);
    let modified = TimeSpec::new(stat.st_mtime, stat.st_mtime_nsec);
    utimensat(at, name, &accessed, &modified, UtimensatFlags::FollowSymlink)
}

/// Mounts an empty object, read-only, over each masked path below an entered folder. In an overlay the session could
/// else fill an empty folder or write into an empty file. Where nothing shows, there is nothing to protect, if the paths
/// are `hidden` whatever appears; else the host may have taken a file away and be about to put it back.
pub(super) fn cover(
    world: &mut World,
    merged: &OwnedFd,
    folder: &AbsPath,
    masks: &Masks,
    hidden: bool,
) -> Result<(), Failure> {
    for (path, (_, loss)) in masks.iter().filter(|(_, (kind, _))| *kind != MaskKind::Missing) {
        let shown = folder
            .join(path.as_bytes())
            .map_err(|_| failure(Errno::ENAMETOOLONG, folder, "a masked path is too long"))?;
        let done = match open_beneath(merged, path.as_bytes(), PLACE) {
            Ok(place) => cover_place(world, &place, &shown, *loss),
            Err(Errno::ENOENT | Errno::ENOTDIR) if hidden => Ok(()),
            Err(errno) => Err(failure(errno, &shown, "entering a masked path")),
        };
        unless_gone(done, *loss)?;
    }
    Ok(())
}

/// What may be lost may also be removed between being looked at and being covered.
pub(super) fn unless_gone(done: Result<(), Failure>, loss: Loss) -> Result<(), Failure> {
    done.or_else(|failure| match (loss, failure.errno) {
        (Loss::Tolerated, libc::ENOENT | libc::ENOTDIR) => Ok(()),
        (Loss::Tolerated | Loss::EndsSession, _) => Err(failure),
    })
}

fn cover_place(
    world: &mut World,
    place: &OwnedFd,
    path: &AbsPath,
    loss: Loss,
) -> Result<(), Failure> {
    let name = match Kind::of(place, path)? {
        Kind::Folder => EMPTY_FOLDER,
        Kind::Other => EMPTY_FILE,
    };
    let empty = clone_tree(&world.scratch, name).at(path, "copying an empty object")?;
    restrict(&empty, RDONLY | NOSUID | NODEV | NOEXEC, false)
        .at(path, "restricting an empty object")?;
    world.attach_at(&empty, place, path, loss)
}

const EMPTY_FOLDER: &str = "empty-folder";
const EMPTY_FILE: &str = "empty-file";

/// Makes the empty objects on the scratch tmpfs.
pub(super) fn make_empties(scratch: &OwnedFd) -> nix::Result<()> {
    mkdirat(scratch, EMPTY_FOLDER, Mode::from_bits_truncate(0o555))?;
    mknodat(scratch, EMPTY_FILE, SFlag::S_IFREG, Mode::from_bits_truncate(0o444), 0)
}

/// Makes and opens a new folder on the scratch tmpfs.
pub(super) fn new_folder(scratch: &OwnedFd, name: &str) -> nix::Result<OwnedFd> {
    mkdirat(scratch, name, Mode::S_IRWXU)?;
    open_beneath(scratch, name, FOLDER)
}
