//! Reading a folder tree by descriptors: never through a link, never out of it, never onto another mount.
//!
//! Both sides of a landing go through here: the layer, which the task wrote, and the real project, in which anybody may
//! exchange a folder for a link while we look.

use super::changeset::Node;
use super::content;
use super::kind::EntryType;
use landbox_shared::digest::{Digest, Hasher};
use landbox_shared::path::RelPath;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A folder held open, below which everything happens.
#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
}

/// A time as the kernel gives it.
pub(crate) type Time = (i64, u32);

/// What one `statx` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    /// What it is.
    pub kind: EntryType,
    /// Permission bits, `0o7777`.
    pub mode: u32,
    /// In bytes.
    pub size: u64,
    /// Device, major and minor.
    pub dev: (u32, u32),
    /// Device number of a device file.
    pub rdev: (u32, u32),
    /// Inode number.
    pub ino: u64,
    /// Names it has.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of content or attributes.
    pub ctime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Birth, where the file system knows it.
    pub btime: Option<Time>,
}

/// Longest path that the kernel takes, with the byte that ends it.
const PATH_MAX: usize = 4096;

/// Resolution beneath a folder: no links, no magic links, no other mount.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

impl Tree {
    /// Opens the folder at `path`; its last step is not followed if it is a link.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self { root: fs::open(path, flags, Mode::empty())? })
    }

    /// Of a folder that is open already.
    pub(crate) fn of(root: OwnedFd) -> Self {
        Self { root }
    }

    /// The folder itself.
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens a folder beneath, to list it and look at what is in it; `None` is the root. One that may be listed alone is
    /// closed.
    pub(crate) fn dir(&self, path: Option<&RelPath>) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = path.map_or(&b"."[..], RelPath::as_bytes);
        // Its name for itself is something in it.
        let itself = [path, b"/."].concat();
        let path = if itself.len() < PATH_MAX { &itself } else { path };
        Ok(again(|| fs::openat2(&self.root, path, flags, Mode::empty(), BENEATH))?)
    }

    /// Opens a folder beneath to work with names in it, which needs no right to list it.
    pub(crate) fn place(&self, path: Option<&RelPath>) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = path.map_or(&b"."[..], RelPath::as_bytes);
        Ok(again(|| fs::openat2(&self.root, path, flags, Mode::empty(), BENEATH))?)
    }

    /// Opens a regular file beneath, as [`file_at`].
    pub(crate) fn file(&self, path: &RelPath) -> io::Result<File> {
        let open = |flags| fs::openat2(&self.root, path.as_bytes(), flags, Mode::empty(), BENEATH);
        regular(open)
    }

    /// What is at `path`; `None` if nothing is, or if a step on the way is no folder.
    pub(crate) fn meta(&self, path: &RelPath) -> io::Result<Option<Meta>> {
        match self.place(path.parent().as_ref()) {
            Ok(dir) => meta_at(&dir, path.file_name()),
            Err(e) if is_absence(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// Opens the folders of paths that come in some order: those that follow one another often lie in the same one.
pub(crate) struct Near<'a> {
    tree: &'a Tree,
    at: Option<(Option<RelPath>, OwnedFd)>,
}

impl<'a> Near<'a> {
    /// Of the folders of a tree.
    pub(crate) fn of(tree: &'a Tree) -> Self {
        Self { tree, at: None }
    }

    /// The folder in which `path` lies, as it was when the one before was asked for, if that was in the same one.
    pub(crate) fn parent(&mut self, path: &RelPath) -> io::Result<BorrowedFd<'_>> {
        let parent = path.parent();
        let found = match self.at.take() {
            Some(at) if at.0 == parent => at,
            Some(_) | None => {
                let place = self.tree.place(parent.as_ref())?;
                (parent, place)
            }
        };
        Ok(self.at.insert(found).1.as_fd())
    }

    /// What is at `path`, as [`Tree::meta`].
    pub(crate) fn meta(&mut self, path: &RelPath) -> io::Result<Option<Meta>> {
        match self.parent(path) {
            Ok(dir) => meta_at(dir, path.file_name()),
            Err(e) if is_absence(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// Whether an error of opening a folder says that there is no such folder: nothing there, or a file or link instead.
pub(crate) fn is_absence(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

/// The kernel gives up with EAGAIN on a resolution that races with a rename.
fn again<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    for _ in 0..64 {
        match call() {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
    call()
}

/// What lies at `name` in a folder; `None` if nothing does.
pub(crate) fn meta_at(dir: impl AsFd, name: &[u8]) -> io::Result<Option<Meta>> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    match fs::statx(dir.as_fd(), name, flags, mask) {
        Ok(stat) => Ok(Some(from_statx(&stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// What an open descriptor is.
pub(crate) fn meta_of(fd: impl AsFd) -> io::Result<Meta> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(from_statx(&fs::statx(fd.as_fd(), c"", AtFlags::EMPTY_PATH, mask)?))
}

fn from_statx(stat: &fs::Statx) -> Meta {
    let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::RegularFile => EntryType::File,
        FileType::Directory => EntryType::Dir,
        FileType::Symlink => EntryType::Symlink,
        FileType::Fifo => EntryType::Fifo,
        FileType::Socket => EntryType::Socket,
        FileType::BlockDevice => EntryType::BlockDevice,
        // The kernel has no other type; what it may add one day is surely nothing to land.
        FileType::CharacterDevice | FileType::Unknown => EntryType::CharDevice,
    };
    let time = |t: &fs::StatxTimestamp| (t.tv_sec, t.tv_nsec);
    let known = StatxFlags::from_bits_retain(stat.stx_mask);
    Meta {
        kind,
        mode: u32::from(stat.stx_mode) & 0o7777,
        size: stat.stx_size,
        dev: (stat.stx_dev_major, stat.stx_dev_minor),
        rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
        ino: stat.stx_ino,
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        ctime: time(&stat.stx_ctime),
        mtime: time(&stat.stx_mtime),
        btime: known.contains(StatxFlags::BTIME).then(|| time(&stat.stx_btime)),
    }
}

/// Whether the times of a file system are this kernel's own, so that they can be compared with those of another one. A
/// server's clock is nobody's business here.
pub(crate) fn has_kernel_time(fd: impl AsFd) -> bool {
    // ext4, XFS, Btrfs, tmpfs, F2FS, bcachefs, overlay.
    const LOCAL: [u32; 7] =
        [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0xF2F5_2010, 0xCA45_1A4E, 0x794C_7630];
    let kind = fs::fstatfs(fd).ok().and_then(|stat| u32::try_from(stat.f_type).ok());
    kind.is_some_and(|kind| LOCAL.contains(&kind))
}

/// The time, as file systems of this kernel write it.
pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
}

/// The time before which a file must have been written if whoever writes to it from now on leaves a trace in its times: the
/// clock by which they are kept has a grain.
pub(crate) fn settled() -> Time {
    const GRAIN: Duration = Duration::from_millis(100);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = since.saturating_sub(GRAIN);
    (i64::try_from(at.as_secs()).unwrap_or(i64::MAX), at.subsec_nanos())
}

/// The names in an open folder, in no order, without `.` and `..`.
pub(crate) fn names(dir: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    let mut out = Vec::new();
    for entry in fs::Dir::read_from(dir)? {
        add_name(&mut out, entry?.file_name());
    }
    Ok(out)
}

/// The same of a folder that was opened just now to be listed, by that very descriptor: it can be read once.
pub(crate) fn list(dir: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    /// Bytes that are read at once.
    const PIECE: usize = 8 << 10;
    let mut out = Vec::new();
    let mut buffer = [MaybeUninit::uninit(); PIECE];
    let mut entries = RawDir::new(dir, &mut buffer);
    while let Some(entry) = entries.next() {
        add_name(&mut out, entry?.file_name());
    }
    Ok(out)
}

fn add_name(out: &mut Vec<Vec<u8>>, name: &CStr) {
    let name = name.to_bytes();
    if name != b"." && name != b".." {
        out.push(name.to_vec());
    }
}

/// Opens a regular file in a folder for reading. Anything else, also what took its place meanwhile, is an error: no
/// link is followed and no pipe or device is waited for.
pub(crate) fn file_at(dir: impl AsFd, name: &[u8]) -> io::Result<File> {
    regular(|flags| fs::openat(dir.as_fd(), name, flags, Mode::empty()))
}

/// A regular file that `open` opens for reading.
fn regular(open: impl Fn(OFlags) -> rustix::io::Result<OwnedFd>) -> io::Result<File> {
    let flags = OFlags::RDONLY
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::NOCTTY
        | OFlags::NOATIME
        | OFlags::CLOEXEC;
    // NOATIME is for the owner of the file alone.
    let fd = match again(|| open(flags)) {
        Err(Errno::PERM) => again(|| open(flags - OFlags::NOATIME))?,
        other => other?,
    };
    let file = File::from(fd);
    if meta_of(&file)?.kind != EntryType::File {
        return Err(io::Error::other("no longer a regular file"));
    }
    Ok(file)
}

/// Target of a symbolic link in a folder.
pub(crate) fn link_at(dir: impl AsFd, name: &[u8]) -> io::Result<Vec<u8>> {
    Ok(fs::readlinkat(dir.as_fd(), name, Vec::new())?.into_bytes())
}

/// Reads the object at `name`, of which `meta` was just taken. Files are read in full.
pub(crate) fn node_at(dir: impl AsFd, name: &[u8], meta: &Meta) -> io::Result<Node> {
    let mode = meta.mode;
    Ok(match meta.kind {
        EntryType::File => {
            let (size, digest) = content::digest(&file_at(dir, name)?)?;
            Node::File { mode, size, digest }
        }
        EntryType::Dir => Node::Dir { mode },
        EntryType::Symlink => Node::Symlink { target: link_at(dir, name)? },
        kind @ (EntryType::Fifo
        | EntryType::Socket
        | EntryType::CharDevice
        | EntryType::BlockDevice) => Node::Special { kind, mode },
    })
}

/// Names and values of the extended attributes of an open file or folder, sorted by name; those of a file system that
/// knows none are none.
pub(crate) fn list_attributes(fd: impl AsFd) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    match fs::flistxattr_query(&fd) {
        Ok(0) | Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(Vec::new()),
        Ok(_) => {}
        Err(e) => return Err(e.into()),
    }
    // The kernel's own bound, for the list and for a value.
    let mut list = vec![0; 64 << 10];
    let len = fs::flistxattr(&fd, &mut list[..])?;
    let mut value = vec![0; 64 << 10];
    let mut found = Vec::new();
    for name in list[..len].split(|b| *b == 0).filter(|n| !n.is_empty()) {
        match fs::fgetxattr(&fd, name, &mut value[..]) {
            Ok(len) => found.push((name.to_vec(), value[..len].to_vec())),
            // Gone meanwhile, or not for us to read.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::NOTSUP) => {}
            Err(e) => return Err(e.into()),
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a file has capabilities, read without opening it.
pub(crate) fn has_capabilities(dir: impl AsFd, name: &[u8]) -> bool {
    let mut path = format!("/proc/self/fd/{}/", dir.as_fd().as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    fs::lgetxattr(path, c"security.capability", &mut [0u8; 64][..]).is_ok()
}

/// Digest of an object's extended attributes, access lists included. `None` where they can't be read.
pub(crate) fn attributes(dir: impl AsFd, name: &[u8], meta: &Meta) -> Option<Digest> {
    match meta.kind {
        EntryType::File => attributes_of(file_at(dir, name).ok()?),
        EntryType::Dir => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            attributes_of(fs::openat(dir, name, flags, Mode::empty()).ok()?)
        }
        EntryType::Symlink
        | EntryType::Fifo
        | EntryType::Socket
        | EntryType::CharDevice
        | EntryType::BlockDevice => Some(attributes_digest(&[])),
    }
}

/// The same of an open file or folder.
pub(crate) fn attributes_of(fd: impl AsFd) -> Option<Digest> {
    Some(attributes_digest(&list_attributes(fd).ok()?))
}

fn attributes_digest(list: &[(Vec<u8>, Vec<u8>)]) -> Digest {
    let mut hasher = Hasher::new("attributes 1");
    for (name, value) in list {
        for part in [name, value] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
    }
    hasher.finish()
}

/// Number of objects in a layer that are no folders: files and links that were written, and names that were deleted.
pub(crate) fn count(upper: &Path, backend: landbox_shared::policy::Backend) -> io::Result<u64> {
    use crate::overlay::marks::{Mark, name_mark};
    let tree = match Tree::open(upper) {
        Ok(tree) => tree,
        Err(e) if is_absence(&e) => return Ok(0),
        Err(e) => return Err(e),
    };
    let mut found = 0;
    let mut todo: Vec<Option<RelPath>> = vec![None];
    while let Some(path) = todo.pop() {
        let dir = match tree.dir(path.as_ref()) {
            Ok(dir) => dir,
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied || is_absence(&e) => continue,
            Err(e) => return Err(e),
        };
        for entry in fs::Dir::read_from(&dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let kind = entry.file_type();
            if kind == FileType::Directory {
                let child = match &path {
                    None => RelPath::new(name),
                    Some(parent) => parent.join(name),
                };
                todo.extend(child.ok().map(Some));
            } else if name_mark(backend, name, kind == FileType::CharacterDevice) != Mark::Note {
                found += 1;
            }
        }
    }
    Ok(found)
}
