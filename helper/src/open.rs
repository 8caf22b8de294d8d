//! Opening by canonical path, or beneath a folder. No link is followed, not in the last step either: with `O_PATH` that
//! gives the link itself, which everybody here refuses.

use nix::NixPath;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use std::os::fd::{AsFd, OwnedFd};

/// For a place, nothing of which can be read or written.
pub(crate) const PLACE: OFlag = OFlag::O_PATH;
/// For a place that must be a folder.
pub(crate) const FOLDER: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY);

/// Opens a path from the root.
pub(crate) fn open(path: &(impl NixPath + ?Sized), flags: OFlag) -> nix::Result<OwnedFd> {
    openat2(AT_FDCWD, path, how(flags, ResolveFlag::empty()))
}

/// Opens what lies beneath a folder, and never outside it.
pub(crate) fn open_beneath(
    folder: impl AsFd,
    path: &(impl NixPath + ?Sized),
    flags: OFlag,
) -> nix::Result<OwnedFd> {
    openat2(folder, path, how(flags, ResolveFlag::RESOLVE_BENEATH))
}

fn how(flags: OFlag, resolve: ResolveFlag) -> OpenHow {
    OpenHow::new()
        .flags(flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(resolve | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS)
}
