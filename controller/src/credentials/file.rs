//! One small file that somebody else writes: read whole or not at all, replaced in one step.

use landbox_shared::digest::Digest;
use landbox_shared::path::RelPath;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Largest credential file.
const LIMIT: u64 = 1 << 20;

/// How the names of files begin that stand beside a login until they take its place.
const TEMPORARY: &[u8] = b".landbox-";

/// What tells one state of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    size: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl Stamp {
    fn of(stat: &Stat) -> Self {
        Self {
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

/// A file's whole content.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    pub(super) digest: Digest,
    /// Time of the last write, for telling which side is newer.
    pub(super) modified: (i64, u64),
}

/// Opens a file beneath `root` that hostile hands may have laid there: no link on the way, nothing that blocks, regular.
pub(super) fn open_beneath(root: impl AsFd, path: &RelPath) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = fs::openat2(root, path.as_path(), flags, Mode::empty(), beneath()).ok()?;
    is_small_regular(&fs::fstat(&fd).ok()?).then_some(fd)
}

/// Opens a real file of the owner's.
pub(super) fn open_real(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = fs::open(path, flags, Mode::empty()).ok()?;
    is_small_regular(&fs::fstat(&fd).ok()?).then_some(fd)
}

/// Opens a folder of the owner's.
pub(super) fn open_folder(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::open(path, flags, Mode::empty()).ok()
}

/// Opens a folder that hostile hands may have laid there.
pub(super) fn open_folder_beneath(root: impl AsFd, path: &RelPath) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat2(root, path.as_path(), flags, Mode::empty(), beneath()).ok()
}

/// The names of the small regular files in a folder, sorted; of what may be many, the first thousand entries are looked at.
/// Our own temporary files are none of them.
pub(super) fn names_in(folder: Option<OwnedFd>) -> Vec<Vec<u8>> {
    let Some(folder) = folder else { return Vec::new() };
    let Ok(entries) = fs::Dir::read_from(&folder) else { return Vec::new() };
    let is_login = |name: &std::ffi::CStr| {
        let stat = fs::statat(&folder, name, fs::AtFlags::SYMLINK_NOFOLLOW);
        !name.to_bytes().starts_with(TEMPORARY) && stat.is_ok_and(|stat| is_small_regular(&stat))
    };
    let names = entries.take(1_000).flatten();
    let mut names: Vec<Vec<u8>> = names
        .filter(|entry| is_login(entry.file_name()))
        .map(|entry| entry.file_name().to_bytes().to_vec())
        .collect();
    names.sort();
    names
}

fn beneath() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
}

fn is_small_regular(stat: &Stat) -> bool {
    fs::FileType::from_raw_mode(stat.st_mode).is_file()
        && u64::try_from(stat.st_size).is_ok_and(|size| size <= LIMIT)
}

pub(super) fn stamp(fd: &OwnedFd) -> Option<Stamp> {
    fs::fstat(fd).ok().map(|stat| Stamp::of(&stat))
}

/// Reads a file, or gives `None` where it changes meanwhile or is not complete: empty, or JSON that does not parse.
pub(super) fn read(fd: OwnedFd, is_json: bool) -> Option<Content> {
    let before = fs::fstat(&fd).ok()?;
    let mut file = std::fs::File::from(fd);
    let mut bytes = Vec::new();
    Read::by_ref(&mut file).take(LIMIT + 1).read_to_end(&mut bytes).ok()?;
    let after = fs::fstat(&file).ok()?;
    let whole = u64::try_from(bytes.len()).is_ok_and(|length| length <= LIMIT) && !bytes.is_empty();
    if !whole || Stamp::of(&before) != Stamp::of(&after) {
        return None;
    }
    if is_json && serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_err() {
        return None;
    }
    let digest = Digest::of("credential", &[&bytes]);
    Some(Content { bytes, digest, modified: (after.st_mtime, after.st_mtime_nsec) })
}

/// Replaces a real file in one step, mode 0600 and on disk, if `still` holds just before. Missing folders on the way are
/// made, for a first login.
pub(super) fn replace_real(
    path: &Path,
    bytes: &[u8],
    still: impl FnOnce() -> bool,
) -> std::io::Result<bool> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    std::os::unix::fs::DirBuilderExt::mode(std::fs::DirBuilder::new().recursive(true), 0o700)
        .create(dir)?;
    let mut file = tempfile::Builder::new()
        .prefix(".landbox-")
        .permissions(PermissionsExt::from_mode(0o600))
        .tempfile_in(dir)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    if !still() {
        return Ok(false);
    }
    file.persist(path)?;
    // The rename too: a token that was used up by its refresh exists nowhere else.
    std::fs::File::open(dir)?.sync_all()?;
    Ok(true)
}

/// Replaces a file through the merged view, if `still` holds just before. Not synced: nothing in a layer is.
pub(super) fn replace_beneath(
    root: impl AsFd,
    path: &RelPath,
    bytes: &[u8],
    still: impl FnOnce() -> bool,
) -> Result<bool, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = match path.parent() {
        Some(parent) => fs::openat2(root, parent.as_path(), flags, Mode::empty(), beneath())?,
        None => fs::openat(root, c".", flags, Mode::empty())?,
    };
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|_| Errno::IO)?;
    let temporary = format!(".landbox-{:016x}", u64::from_ne_bytes(random));
    let create =
        OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(&dir, &temporary, create, Mode::from_raw_mode(0o600))?;
    let written = std::fs::File::from(file).write_all(bytes).is_ok();
    let name = OsStr::from_bytes(path.file_name());
    if written && still() && fs::renameat(&dir, &temporary, &dir, name).is_ok() {
        return Ok(true);
    }
    fs::unlinkat(&dir, &temporary, fs::AtFlags::empty())?;
    Ok(false)
}
