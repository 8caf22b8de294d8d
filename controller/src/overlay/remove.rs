//! Removing trees that a task wrote: any depth, any mode, never through a link.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, Dir, Mode, OFlags, RawMode};
use rustix::io::Errno;
use std::ffi::CString;
use std::io;
use std::path::Path;

/// Folders deeper than this are moved up before they are emptied, so that neither descriptors nor the stack run out.
const DEPTH: u32 = 48;
/// Names taken from a folder at once.
const BATCH: usize = 4096;
const OWNER: RawMode = 0o700;

/// Removes `path` and everything below it. A path that does not exist is fine; a link is removed, not followed.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // The kernel says EISDIR for a folder; the standard allows EPERM.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(e) => return Err(e.into()),
    }
    empty_tree(path)?;
    Ok(fs::rmdir(path)?)
}

/// Removes everything below `path`, which must be a folder and stays.
pub fn empty_tree(path: &Path) -> io::Result<()> {
    let top = open_folder(fs::CWD, path)?;
    let mut moved = 0;
    // What was too deep came up to the top meanwhile: done when a round finds nothing.
    while empty(top.as_fd(), top.as_fd(), 0, &mut moved)? > 0 {}
    Ok(())
}

/// Empties `dir`; gives how many entries it found.
fn empty(dir: BorrowedFd<'_>, top: BorrowedFd<'_>, depth: u32, moved: &mut u64) -> io::Result<u64> {
    let mut found = 0;
    loop {
        let names = names(dir)?;
        if names.is_empty() {
            return Ok(found);
        }
        for name in names {
            found += 1;
            match fs::unlinkat(dir, &name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(Errno::ISDIR | Errno::PERM) => {}
                Err(e) => return Err(e.into()),
            }
            if depth >= DEPTH {
                // Renaming a folder needs to write its "..": its own mode must allow that.
                drop(open_folder(dir, &name)?);
                move_up(dir, &name, top, moved)?;
                continue;
            }
            let inner = open_folder(dir, &name)?;
            while empty(inner.as_fd(), top, depth + 1, moved)? > 0 {}
            drop(inner);
            match fs::unlinkat(dir, &name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

fn move_up(
    dir: BorrowedFd<'_>,
    name: &CString,
    top: BorrowedFd<'_>,
    moved: &mut u64,
) -> io::Result<()> {
    loop {
        *moved += 1;
        let target = format!(".deep-{moved}");
        match fs::renameat_with(dir, name, top, &target, fs::RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(()),
            // The task has a file of that name; the next number will do.
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
            if names.len() == BATCH {
                break;
            }
        }
    }
    Ok(names)
}

/// Opens a folder for emptying; one whose mode keeps its owner out is opened up first.
fn open_folder(at: impl AsFd, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    // By descriptor, so that what is opened up is what is emptied, and never the target of a link.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = fs::openat(at, name, flags, Mode::empty())?;
    let mode = fs::fstat(&handle)?.st_mode;
    let itself = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&handle));
    if mode & OWNER != OWNER {
        match fs::chmod(&itself, Mode::from_raw_mode(mode & 0o7777 | OWNER)) {
            // Root needs no mode; for anybody else the open below says what is wrong.
            Ok(()) | Err(Errno::PERM) => {}
            Err(e) => return Err(e.into()),
        }
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fs::openat(&handle, c".", flags, Mode::empty())?)
}

/// Bytes that a tree occupies, as far as it can be read; links are counted, not followed. What lies deeper than
/// descriptors reach is left out.
pub fn disk_usage(path: &Path) -> u64 {
    usage(fs::CWD, path, 4 * DEPTH)
}

fn usage(at: impl AsFd, name: impl rustix::path::Arg, depth: u32) -> u64 {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(dir) = fs::openat(at, name, flags, Mode::empty()) else { return 0 };
    let Ok(entries) = Dir::read_from(&dir) else { return 0 };
    let mut bytes = 0u64;
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let Ok(stat) = fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        bytes = bytes.saturating_add(u64::try_from(stat.st_blocks).unwrap_or(0) * 512);
        if depth > 0 && fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
            bytes = bytes.saturating_add(usage(&dir, name, depth - 1));
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn odd_modes_are_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("t");
        std::fs::create_dir_all(tree.join("x/y")).unwrap();
        std::fs::write(tree.join("x/y/z"), "1").unwrap();
        for (path, mode) in [("x/y/z", 0o000), ("x/y", 0o000), ("x", 0o555)] {
            std::fs::set_permissions(tree.join(path), PermissionsExt::from_mode(mode)).unwrap();
        }
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        remove_tree(&tree).unwrap();
    }

    #[test]
    fn links_are_removed_and_never_followed() {
        let dir = tempfile::tempdir().unwrap();
        let precious = dir.path().join("precious");
        std::fs::create_dir(&precious).unwrap();
        std::fs::write(precious.join("file"), "keep").unwrap();
        let tree = dir.path().join("t");
        std::fs::create_dir(&tree).unwrap();
        std::os::unix::fs::symlink(&precious, tree.join("link")).unwrap();
        remove_tree(&tree).unwrap();
        std::os::unix::fs::symlink(&precious, &tree).unwrap();
        remove_tree(&tree).unwrap();
        assert!(std::fs::symlink_metadata(&tree).is_err());
        assert_eq!(std::fs::read(precious.join("file")).unwrap(), b"keep");
    }

    #[test]
    fn a_tree_deeper_than_any_path_or_descriptor_limit_goes_too() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("t");
        std::fs::create_dir(&tree).unwrap();
        std::fs::create_dir(tree.join(".deep-1")).unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = fs::open(&tree, flags, Mode::empty()).unwrap();
        for _ in 0..3000 {
            fs::mkdirat(&at, "deep", Mode::from_raw_mode(0o700)).unwrap();
            at = fs::openat(&at, "deep", flags, Mode::empty()).unwrap();
        }
        drop(at);
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }
}
