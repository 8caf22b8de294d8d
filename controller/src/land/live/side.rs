//! Where the real contents are put back: the merged view of a running session, or the layer of a stopped one.

use crate::land::changeset::Node;
use crate::land::content;
use crate::land::kind::EntryType;
use crate::land::tree::{self, Meta, Tree};
use crate::overlay::marks::{self, Mark};
use landbox_shared::path::RelPath;
use landbox_shared::policy::Backend;
use rustix::fs::{self, AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// A tree to write to.
#[derive(Debug)]
pub(super) struct Side<'a> {
    pub(super) tree: &'a Tree,
    /// The back end, where the tree is a layer itself and its marks count.
    pub(super) layer: Option<Backend>,
}

impl Side<'_> {
    /// What lies there; a mark of the layer is nothing.
    pub(super) fn meta(&self, path: &RelPath) -> io::Result<Option<Meta>> {
        let meta = or_nothing(self.tree.meta(path))?;
        Ok(meta.filter(|meta| self.layer.is_none() || !is_whiteout(meta)))
    }

    /// What lies there, with its content.
    pub(super) fn node(&self, path: &RelPath) -> io::Result<Option<Node>> {
        let Some(meta) = self.meta(path)? else { return Ok(None) };
        let node = self.tree.place(path.parent().as_ref());
        or_nothing(node.and_then(|at| tree::node_at(&at, path.file_name(), &meta)).map(Some))
    }

    /// Whether the real folder shows in this one of the layer wherever that holds nothing.
    pub(super) fn shows_through(&self, path: Option<&RelPath>, real: &Tree) -> bool {
        let Some(backend) = self.layer else { return false };
        let mut at = path.cloned();
        loop {
            let is_folder = at.as_ref().is_none_or(|p| {
                real.meta(p).is_ok_and(|m| m.is_some_and(|m| m.kind == EntryType::Dir))
            });
            let open = match self.tree.dir(at.as_ref()) {
                Ok(dir) => tree::names(&dir)
                    .and_then(|names| marks::folder_marks(backend, &dir, &names))
                    .is_ok_and(|found| !found.opaque && !found.redirected),
                Err(_) => false,
            };
            if !is_folder || !open {
                return false;
            }
            match at {
                None => return true,
                Some(path) => at = path.parent(),
            }
        }
    }

    /// Takes away what the layer says of a name, so that the real thing shows.
    pub(super) fn uncover(&self, path: &RelPath) -> io::Result<()> {
        let place = self.folder_of(path)?;
        if let Some(meta) = tree::meta_at(&place, path.file_name())? {
            if meta.kind == EntryType::Dir {
                self.empty_of_marks(path)?;
                fs::unlinkat(&place, path.file_name(), AtFlags::REMOVEDIR)?;
            } else {
                fs::unlinkat(&place, path.file_name(), AtFlags::empty())?;
            }
        }
        self.unnote(&place, path)
    }

    /// Takes away a file, or a folder that is empty.
    pub(super) fn remove(&self, path: &RelPath) -> io::Result<()> {
        let place = match self.tree.place(path.parent().as_ref()) {
            Ok(place) => place,
            Err(e) if tree::is_absence(&e) => return Ok(()),
            Err(e) => return Err(e),
        };
        let Some(meta) = tree::meta_at(&place, path.file_name())? else { return Ok(()) };
        if self.layer.is_some() && is_whiteout(&meta) {
            return Ok(());
        }
        if meta.kind == EntryType::Dir {
            self.empty_of_marks(path)?;
            return Ok(fs::unlinkat(&place, path.file_name(), AtFlags::REMOVEDIR)?);
        }
        Ok(fs::unlinkat(&place, path.file_name(), AtFlags::empty())?)
    }

    /// A folder of a layer that holds nothing but marks is empty to whoever looks through it.
    fn empty_of_marks(&self, path: &RelPath) -> io::Result<()> {
        let Some(backend) = self.layer else { return Ok(()) };
        let dir = self.tree.dir(Some(path))?;
        let names = tree::names(&dir)?;
        let mut all = Vec::new();
        for name in names {
            let Some(meta) = tree::meta_at(&dir, &name)? else { continue };
            match marks::name_mark(backend, &name, is_whiteout(&meta)) {
                Mark::Object => return Ok(()),
                Mark::Whiteout | Mark::WhiteoutOf(_) | Mark::Note => all.push(name),
            }
        }
        for name in all {
            fs::unlinkat(&dir, &name[..], AtFlags::empty())?;
        }
        Ok(())
    }

    /// Makes an empty file beside a path.
    pub(super) fn create(&self, path: &RelPath, name: &str) -> io::Result<File> {
        let place = self.folder_of(path)?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(fs::openat(&place, name, flags, Mode::from_raw_mode(0o600))?))
    }

    /// Puts what was prepared in its place.
    pub(super) fn put(&self, path: &RelPath, prepared: &str) -> io::Result<()> {
        let place = self.tree.place(path.parent().as_ref())?;
        if self.meta(path)?.is_some_and(|meta| meta.kind == EntryType::Dir) {
            self.remove(path)?;
        }
        self.unnote(&place, path)?;
        Ok(fs::renameat(&place, prepared, &place, path.file_name())?)
    }

    /// Takes away what was prepared and is not wanted.
    pub(super) fn forget(&self, path: &RelPath, prepared: &str) {
        if let Ok(place) = self.tree.place(path.parent().as_ref()) {
            let _ = fs::unlinkat(&place, prepared, AtFlags::empty());
        }
    }

    /// Makes a link beside a path.
    pub(super) fn create_link(&self, path: &RelPath, name: &str, target: &[u8]) -> io::Result<()> {
        Ok(fs::symlinkat(target, self.folder_of(path)?, name)?)
    }

    /// Gives a folder this mode, if it is there.
    pub(super) fn close(&self, path: &RelPath, mode: u32) -> io::Result<()> {
        match self.tree.dir(Some(path)) {
            Ok(dir) => Ok(fs::fchmod(&dir, Mode::from_raw_mode(mode))?),
            Err(e) if tree::is_absence(&e) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Makes a folder, by another name first, or gives the one that is there this mode.
    pub(super) fn folder(&self, path: &RelPath, mode: u32, name: &str) -> io::Result<()> {
        let place = self.folder_of(path)?;
        match self.meta(path)? {
            Some(meta) if meta.kind == EntryType::Dir => {
                if meta.mode == mode {
                    return Ok(());
                }
            }
            Some(_) => {
                self.remove(path)?;
                self.make(&place, path, name)?;
            }
            None => self.make(&place, path, name)?,
        }
        let dir = self.tree.dir(Some(path))?;
        Ok(fs::fchmod(&dir, Mode::from_raw_mode(mode))?)
    }

    /// A folder where there was none. In a layer it hides the real one: what is not put back in it stays away.
    fn make(&self, place: &OwnedFd, path: &RelPath, name: &str) -> io::Result<()> {
        let mode = Mode::from_raw_mode(0o700);
        let Some(backend) = self.layer else {
            return Ok(fs::mkdirat(place, path.file_name(), mode)?);
        };
        fs::mkdirat(place, name, mode)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = fs::openat(place, name, flags, Mode::empty())?;
        marks::make_opaque(backend, &dir)?;
        // A rename can't put a folder over the mark of a deleted name.
        if tree::meta_at(place, path.file_name())?.is_some_and(|meta| is_whiteout(&meta)) {
            fs::unlinkat(place, path.file_name(), AtFlags::empty())?;
        }
        self.unnote(place, path)?;
        Ok(fs::renameat(place, name, place, path.file_name())?)
    }

    /// Removes the note by which fuse-overlayfs may say, beside a name, that it is deleted.
    fn unnote(&self, place: impl AsFd, path: &RelPath) -> io::Result<()> {
        if self.layer != Some(Backend::Fuse) {
            return Ok(());
        }
        let note = [b".wh.", path.file_name()].concat();
        match tree::meta_at(&place, &note)? {
            Some(meta) if meta.kind != EntryType::Dir => {
                Ok(fs::unlinkat(&place, &note[..], AtFlags::empty())?)
            }
            Some(_) | None => Ok(()),
        }
    }

    fn folder_of(&self, path: &RelPath) -> io::Result<OwnedFd> {
        self.tree.place(path.parent().as_ref())
    }
}

/// Fills a file with what a real one holds; gives what it is then.
pub(super) fn fill(from: &File, to: &File, real: &Meta) -> io::Result<Node> {
    let (size, digest) = content::copy(from, to)?;
    fs::fchmod(to, Mode::from_raw_mode(real.mode))?;
    fs::futimens(to, &times(real))?;
    Ok(Node::File { mode: real.mode, size, digest })
}

/// What is gone since its folder was looked up, or was made a file of, is nothing. (fuse-overlayfs says so late.)
fn or_nothing<T>(found: io::Result<Option<T>>) -> io::Result<Option<T>> {
    match found {
        Err(e) if tree::is_absence(&e) => Ok(None),
        other => other,
    }
}

/// Has an overlay copy an object into its layer, as it is.
pub(super) fn touch(merged: &Tree, path: &RelPath, meta: &Meta) -> io::Result<()> {
    let place = merged.place(path.parent().as_ref())?;
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    Ok(fs::utimensat(&place, path.file_name(), &times(meta), flags)?)
}

fn is_whiteout(meta: &Meta) -> bool {
    meta.kind == EntryType::CharDevice && meta.rdev == (0, 0)
}

fn times(real: &Meta) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: real.mtime.0, tv_nsec: real.mtime.1.into() },
    }
}

const TEMPORARY: &str = ".landbox-";

/// A name that nobody else has.
pub(super) fn temporary() -> io::Result<String> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|_| io::Error::other("no random numbers"))?;
    Ok(format!("{TEMPORARY}{:016x}", u64::from_ne_bytes(random)))
}

/// The path of a name in a folder.
pub(super) fn within(folder: Option<&RelPath>, name: &str) -> io::Result<RelPath> {
    let joined = folder.map_or_else(|| RelPath::new(name), |folder| folder.join(name.as_bytes()));
    joined.map_err(io::Error::other)
}

/// Whether it is such a name.
pub(super) fn is_temporary(name: &[u8]) -> bool {
    let random = name.strip_prefix(TEMPORARY.as_bytes());
    random.is_some_and(|random| random.len() == 16 && random.iter().all(u8::is_ascii_hexdigit))
}
