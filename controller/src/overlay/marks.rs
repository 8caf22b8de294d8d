//! The marks by which an overlay back end writes "deleted" and "replaced" into a layer.
//!
//! Only the marks of the back end that wrote the layer count. The task can make a file called `.wh.x` through the
//! kernel's overlay, and can set `user.overlay.opaque` through fuse-overlayfs: each is plain content there.

use landbox_shared::policy::Backend;
use rustix::fs::{FileType, Mode, OFlags, XattrFlags, fgetxattr, fsetxattr, mknodat, openat};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;

/// What a name in a layer's folder means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// An object of the session's.
    Object,
    /// The name is deleted.
    Whiteout,
    /// Another name of the folder is deleted.
    WhiteoutOf(Vec<u8>),
    /// The back end's own note, which says nothing about any name.
    Note,
}

/// How a folder of a layer hides what lies below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolderMarks {
    /// Nothing of the base shows through.
    pub opaque: bool,
    /// Empty files with a mark are whiteouts, too.
    pub xattr_whiteouts: bool,
    /// It stands for a folder of another name: never written with our mount options, and not understood.
    pub redirected: bool,
}

/// Reads the marks of an open folder, whose names are `names`.
pub fn folder_marks(
    backend: Backend,
    dir: impl AsFd,
    names: &[Vec<u8>],
) -> io::Result<FolderMarks> {
    match backend {
        Backend::Kernel => {
            let opaque = attribute(&dir, c"user.overlay.opaque")?;
            Ok(FolderMarks {
                opaque: opaque.as_deref() == Some(b"y"),
                xattr_whiteouts: opaque.as_deref() == Some(b"x"),
                redirected: attribute(&dir, c"user.overlay.redirect")?.is_some(),
            })
        }
        Backend::Fuse => {
            // Each of the first two can be set by the back end alone; it refuses them, and these names, to the task.
            let opaque = attribute(&dir, c"user.fuseoverlayfs.opaque")?.as_deref() == Some(b"y")
                || attribute(&dir, c"trusted.overlay.opaque")?.as_deref() == Some(b"y")
                || names.iter().any(|n| n == b".wh..wh..opq");
            let redirected = attribute(&dir, c"user.fuseoverlayfs.redirect")?.is_some();
            Ok(FolderMarks { opaque, xattr_whiteouts: false, redirected })
        }
    }
}

/// What an entry means by its name and type alone. `null_device` says whether it is a character device 0:0.
pub fn name_mark(backend: Backend, name: &[u8], null_device: bool) -> Mark {
    match backend {
        Backend::Kernel if null_device => Mark::Whiteout,
        Backend::Kernel => Mark::Object,
        Backend::Fuse => match name.strip_prefix(b".wh.") {
            Some(b".opq" | b".wh..opq") => Mark::Note,
            Some(rest) if !rest.is_empty() => Mark::WhiteoutOf(rest.to_vec()),
            Some(_) | None if null_device => Mark::Whiteout,
            Some(_) | None => Mark::Object,
        },
    }
}

/// Whether an open, empty regular file is a whiteout in a folder with [`FolderMarks::xattr_whiteouts`].
pub fn is_xattr_whiteout(file: impl AsFd) -> io::Result<bool> {
    Ok(attribute(file, c"user.overlay.whiteout")?.is_some())
}

/// Whether an open file's content is kept elsewhere: never written with our mount options, and not understood.
pub fn is_without_content(backend: Backend, file: impl AsFd) -> io::Result<bool> {
    match backend {
        Backend::Kernel => Ok(attribute(file, c"user.overlay.metacopy")?.is_some()),
        Backend::Fuse => Ok(false),
    }
}

/// Whether an open object, which lies at `path` in its layer, may have been copied from that very path of the base. It
/// was surely not if it was made anew; fuse-overlayfs also notes from where it copied, the kernel notes nothing that an
/// ordinary user could read.
pub fn may_be_copied(backend: Backend, path: &[u8], fd: impl AsFd) -> io::Result<bool> {
    match backend {
        Backend::Kernel => Ok(attribute(fd, c"user.overlay.origin")?.is_some()),
        Backend::Fuse => {
            let mut value = [0; landbox_shared::limits::PATH_BYTES];
            match fgetxattr(fd, c"user.fuseoverlayfs.origin", &mut value[..]) {
                Ok(len) => Ok(value[..len] == *path),
                Err(Errno::NODATA | Errno::NOTSUP) => Ok(false),
                Err(Errno::RANGE) => Ok(true),
                Err(e) => Err(e.into()),
            }
        }
    }
}

/// Makes an open folder of a layer hide the real one.
pub fn make_opaque(backend: Backend, dir: impl AsFd) -> io::Result<()> {
    match backend {
        Backend::Kernel => {
            fsetxattr(dir, c"user.overlay.opaque", b"y", XattrFlags::empty())?;
        }
        Backend::Fuse => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(dir, c".wh..wh..opq", flags, Mode::from_raw_mode(0o700))?;
        }
    }
    Ok(())
}

/// Marks a name at which the layer has nothing as deleted. Either back end takes this mark for one.
pub fn make_whiteout(place: impl AsFd, name: &[u8]) -> io::Result<()> {
    Ok(mknodat(place, name, FileType::CharacterDevice, Mode::empty(), 0)?)
}

/// An attribute's value, cut off at 64 bytes: the ones that are compared are one byte long.
fn attribute(fd: impl AsFd, name: &std::ffi::CStr) -> io::Result<Option<Vec<u8>>> {
    let mut value = [0; 64];
    match fgetxattr(fd, name, &mut value[..]) {
        Ok(len) => Ok(Some(value[..len.min(value.len())].to_vec())),
        Err(Errno::RANGE) => Ok(Some(Vec::new())),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_marks_on_the_back_end_that_writes_them_alone() {
        assert_eq!(name_mark(Backend::Kernel, b".wh.x", false), Mark::Object);
        assert_eq!(name_mark(Backend::Kernel, b".wh..wh..opq", false), Mark::Object);
        assert_eq!(name_mark(Backend::Kernel, b"x", true), Mark::Whiteout);
        assert_eq!(name_mark(Backend::Fuse, b".wh.x", false), Mark::WhiteoutOf(b"x".to_vec()));
        assert_eq!(name_mark(Backend::Fuse, b".wh..wh..opq", false), Mark::Note);
        assert_eq!(name_mark(Backend::Fuse, b".wh..opq", true), Mark::Note);
        assert_eq!(name_mark(Backend::Fuse, b"x", true), Mark::Whiteout);
        assert_eq!(name_mark(Backend::Fuse, b".wh.", false), Mark::Object);
        assert_eq!(name_mark(Backend::Fuse, b"plain", false), Mark::Object);
    }
}
