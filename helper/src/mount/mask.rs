//! Hiding paths inside an overlay. A mask is a lower between the real folder and what the session wrote, so that
//! nothing the session or the host does can take it away; `outside.rs` uses the same for paths outside the layers.
//!
//! Two mask folders at most. `hide` holds a whiteout or an empty file for each path; `show` lies on top of it and
//! holds an empty folder where a folder is hidden. So an "opaque" mark is never needed, which a tmpfs cannot carry
//! before Linux 6.6, and both back ends read the result alike.

use super::source::open_beneath;
use super::target::{Kind, World};
use super::{At, failure};
use crate::sys::mount::{NODEV, NOEXEC, NOSUID, RDONLY, clone_tree, restrict};
use landbox_shared::event::Failure;
use landbox_shared::path::{AbsPath, RelPath};
use landbox_shared::plan::{LayerMask, LayerOp, Loss};
use landbox_shared::policy::MaskKind;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{
    FchmodatFlags, FileStat, Mode, SFlag, UtimensatFlags, fchmodat, fstat, mkdirat, mknodat,
    utimensat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchownat};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Masks below one folder, sorted so that a path comes before what lies below it.
pub(super) type Masks = BTreeMap<RelPath, (MaskKind, Loss)>;

/// The masks of a layer.
pub(super) fn of_layer(layer: &LayerOp) -> Masks {
    let mask = |mask: &LayerMask| (mask.path.clone(), (mask.kind, Loss::EndsSession));
    layer.masks.iter().map(mask).collect()
}

/// Builds the mask folders for an overlay whose lowest folder is `real`. Returns them top first, and the paths that
/// show an empty object.
pub(super) fn middle(
    world: &mut World,
    folder: &AbsPath,
    real: BorrowedFd<'_>,
    masks: &Masks,
) -> Result<(Vec<OwnedFd>, Vec<RelPath>), Failure> {
    if masks.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let hides_folder = masks.values().any(|(kind, _)| *kind == MaskKind::Dir);
    let mut build = || {
        let hide = world.scratch_folder()?;
        let show = if hides_folder { Some(world.scratch_folder()?) } else { None };
        let mut tree =
            MaskTree { real, show, hide, parents: BTreeMap::new(), ends: BTreeSet::new() };
        let mut covers = Vec::new();
        for (path, (kind, _)) in masks {
            if tree.add(path, *kind)? {
                covers.push(path.clone());
            }
        }
        tree.finish()?;
        Ok((tree.show.into_iter().chain([tree.hide]).collect(), covers))
    };
    build().map_err(|errno| failure(errno, Some(folder), "building the masks below a folder"))
}

struct MaskTree<'a> {
    real: BorrowedFd<'a>,
    show: Option<OwnedFd>,
    hide: OwnedFd,
    parents: BTreeMap<Vec<u8>, FileStat>,
    ends: BTreeSet<Vec<u8>>,
}

impl MaskTree<'_> {
    fn folders(&self) -> impl Iterator<Item = &OwnedFd> {
        self.show.iter().chain([&self.hide])
    }

    /// Hides one path; whether an empty object shows in its place.
    fn add(&mut self, path: &RelPath, kind: MaskKind) -> nix::Result<bool> {
        if !self.make_parents(path)? {
            return Ok(false);
        }
        let name = path.as_bytes();
        self.ends.insert(name.to_vec());
        match (kind, &self.show) {
            (MaskKind::File, _) => {
                mknodat(&self.hide, name, SFlag::S_IFREG, Mode::from_bits_truncate(0o444), 0)?;
                Ok(true)
            }
            (MaskKind::Dir, Some(show)) => {
                mkdirat(show, name, Mode::from_bits_truncate(0o555))?;
                self.whiteout(name)?;
                Ok(true)
            }
            (MaskKind::Dir, None) | (MaskKind::Missing, _) => {
                self.whiteout(name)?;
                Ok(false)
            }
        }
    }

    fn whiteout(&self, name: &[u8]) -> nix::Result<()> {
        mknodat(&self.hide, name, SFlag::S_IFCHR, Mode::empty(), 0)
    }

    /// Makes the folders above a path. Where one of them is no folder that we can see, that is what gets hidden, with
    /// everything that may appear below it; then there is nothing more to do.
    fn make_parents(&mut self, path: &RelPath) -> nix::Result<bool> {
        let path = path.as_bytes();
        for (cut, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            let parent = &path[..cut];
            if self.ends.contains(parent) {
                return Ok(false);
            }
            if self.parents.contains_key(parent) {
                continue;
            }
            match open_beneath(self.real, parent).and_then(fstat) {
                Ok(stat) if stat.st_mode & libc::S_IFMT == libc::S_IFDIR => {
                    for folder in self.folders() {
                        mkdirat(folder, parent, Mode::S_IRWXU)?;
                    }
                    self.parents.insert(parent.to_vec(), stat);
                }
                Ok(_) | Err(_) => {
                    self.ends.insert(parent.to_vec());
                    self.whiteout(parent)?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The merged view takes a folder's mode, owner and times from the topmost one: ours must look like the real.
    fn finish(&mut self) -> nix::Result<()> {
        self.parents.insert(b".".to_vec(), fstat(self.real)?);
        for folder in self.folders() {
            for (name, stat) in &self.parents {
                copy_look(folder.as_fd(), name, stat)?;
            }
        }
        Ok(())
    }
}

/// Gives a folder the mode, owner and times in `stat`. An owner whom the session's user namespace does not know
/// cannot be given: it stays ours, and the real folder's own permissions still guard what is in it.
pub(super) fn copy_look(at: BorrowedFd<'_>, name: &[u8], stat: &FileStat) -> nix::Result<()> {
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

/// Mounts an empty object, read-only, over each path of an overlay: without it the session could fill an empty folder
/// or write into an empty file. Where nothing shows, there is nothing to protect.
pub(super) fn cover(
    world: &mut World,
    merged: BorrowedFd<'_>,
    folder: &AbsPath,
    paths: &[RelPath],
    loss: Loss,
) -> Result<(), Failure> {
    for path in paths {
        let shown = folder
            .join(path.as_bytes())
            .map_err(|_| failure(Errno::ENAMETOOLONG, Some(folder), "a masked path is too long"))?;
        match open_beneath(merged, path.as_bytes()) {
            Ok(place) => match cover_place(world, place.as_fd(), &shown, loss) {
                Err(gone) if loss == Loss::Tolerated && gone.errno == libc::ENOENT => {}
                done => done?,
            },
            Err(Errno::ENOENT | Errno::ENOTDIR) => {}
            Err(errno) => return Err(failure(errno, Some(&shown), "entering a masked path")),
        }
    }
    Ok(())
}

/// Mounts an empty object of the same kind, read-only, over a place.
pub(super) fn cover_place(
    world: &mut World,
    place: BorrowedFd<'_>,
    path: &AbsPath,
    loss: Loss,
) -> Result<(), Failure> {
    let name = match Kind::of(place, path)? {
        Kind::Folder => EMPTY_FOLDER,
        Kind::Other => EMPTY_FILE,
    };
    let empty = clone_tree(world.scratch(), Path::new(name)).at(path, "copying an empty object")?;
    restrict(empty.as_fd(), RDONLY | NOSUID | NODEV | NOEXEC, false)
        .at(path, "restricting an empty object")?;
    world.attach_at(empty.as_fd(), place, path, loss)
}

const EMPTY_FOLDER: &str = "empty-folder";
const EMPTY_FILE: &str = "empty-file";

/// Makes the empty objects on the scratch tmpfs.
pub(super) fn make_empties(scratch: BorrowedFd<'_>) -> nix::Result<()> {
    mkdirat(scratch, EMPTY_FOLDER, Mode::from_bits_truncate(0o555))?;
    mknodat(scratch, EMPTY_FILE, SFlag::S_IFREG, Mode::from_bits_truncate(0o444), 0)
}

/// Makes and opens a new folder on the scratch tmpfs.
pub(super) fn new_folder(scratch: BorrowedFd<'_>, name: &str) -> nix::Result<OwnedFd> {
    mkdirat(scratch, name, Mode::S_IRWXU)?;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(scratch, name, flags, Mode::empty())
}
