//! The layer's side of a scan: folders, marks, objects.

use super::{Folder, Scan, Shows};
use crate::land::changeset::{Base, Node};
use crate::land::content;
use crate::land::kind::{ChangeState, EntryType};
use crate::land::rules;
use crate::land::tree::{self, Meta, is_absence};
use crate::overlay::marks::{self, FolderMarks, Mark};
use landbox_shared::path::RelPath;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

/// A folder of the layer, opened.
pub(super) struct UpperFolder {
    pub(super) dir: OwnedFd,
    pub(super) names: Vec<Vec<u8>>,
    pub(super) found: FolderMarks,
}

impl Scan<'_> {
    /// Opens a folder of the layer. One that cannot be read is a change that cannot land.
    pub(super) fn open_upper(&mut self, folder: &Folder) -> io::Result<Option<UpperFolder>> {
        let path = folder.path.as_ref();
        let why = match self.upper.dir(path) {
            Ok(dir) => {
                let names = tree::list(&dir)?;
                let found = marks::folder_marks(self.facts.layer.backend, &dir, &names)?;
                if !found.redirected {
                    return Ok(Some(UpperFolder { dir, names, found }));
                }
                rules::FOREIGN_MARK
            }
            Err(e) if is_absence(&e) && path.is_some() => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => rules::UNREADABLE,
            Err(e) => return Err(e),
        };
        let Some(path) = path else { return Err(io::Error::other(why)) };
        self.broken(folder, path.clone(), why);
        Ok(None)
    }

    /// Says of a folder of the layer that it cannot land as it is. This replaces what was said of it before.
    pub(super) fn broken(&mut self, folder: &Folder, path: RelPath, why: &'static str) {
        let new = Node::Unreadable { kind: EntryType::Dir, mode: folder.new_mode.unwrap_or(0) };
        let (base, state) = match (&folder.pending, folder.old_mode, folder.shows) {
            (Some(pending), _, _) => (pending.base.clone(), pending.state),
            (None, Some(mode), _) => (Base::Known(Node::Dir { mode }), ChangeState::Clean),
            (None, None, Shows::Nothing) => (Base::Absent, ChangeState::Clean),
            (None, None, Shows::Through | Shows::Hidden | Shows::Gone) => {
                (Base::Unknown, ChangeState::Drifted)
            }
        };
        self.emit(path, base, Some(new), state, Some(why));
    }

    /// The names of a folder of the layer: `Some` for an object, `None` for a deleted name.
    pub(super) fn entries(
        &self,
        path: Option<&RelPath>,
        dir: &OwnedFd,
        names: &[Vec<u8>],
        found: FolderMarks,
    ) -> io::Result<BTreeMap<Vec<u8>, Option<Meta>>> {
        let backend = self.facts.layer.backend;
        let mut out = BTreeMap::new();
        for name in names {
            // Gone since it was listed: the session is running.
            let Some(meta) = tree::meta_at(dir, name)? else { continue };
            let null = meta.kind == EntryType::CharDevice && meta.rdev == (0, 0);
            match marks::name_mark(backend, name, null) {
                Mark::Note => {}
                Mark::Whiteout => {
                    out.insert(name.clone(), None);
                }
                Mark::WhiteoutOf(other) => {
                    out.entry(other).or_insert(None);
                }
                Mark::Object if self.facts.prepared.is(path, dir, name, &meta) => {}
                Mark::Object => {
                    let empty = meta.kind == EntryType::File && meta.size == 0;
                    let whiteout = found.xattr_whiteouts
                        && empty
                        && marks::is_xattr_whiteout(tree::file_at(dir, name)?)?;
                    out.insert(name.clone(), (!whiteout).then_some(meta));
                }
            }
        }
        Ok(out)
    }

    /// Reads an object of the layer; what cannot be read is said to be so. `None` for one that is gone, or has become
    /// something else, since its folder was listed: the session is running.
    pub(super) fn read_upper(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        meta: &Meta,
    ) -> io::Result<Option<(Node, Option<&'static str>)>> {
        let Meta { kind, mode, .. } = *meta;
        match self.read(dir, name, meta) {
            Ok(found) => Ok(Some(found)),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                Ok(Some((Node::Unreadable { kind, mode }, Some(rules::UNREADABLE))))
            }
            Err(e) => match tree::meta_at(dir, name)? {
                Some(now) if now.kind == kind => Err(e),
                Some(_) | None => Ok(None),
            },
        }
    }

    fn read(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        meta: &Meta,
    ) -> io::Result<(Node, Option<&'static str>)> {
        let Meta { kind, mode, size, .. } = *meta;
        if kind != EntryType::File {
            return Ok((tree::node_at(dir, name, meta)?, None));
        }
        if self.glance {
            return Ok((Node::File { mode, size, digest: content::digest_of(b"") }, None));
        }
        if let Some(digest) = self.seen.seen().get(meta) {
            return Ok((Node::File { mode, size, digest }, None));
        }
        self.read += 1;
        let file = tree::file_at(dir, name)?;
        if marks::is_without_content(self.facts.layer.backend, &file)? {
            return Ok((Node::Unreadable { kind, mode }, Some(rules::FOREIGN_MARK)));
        }
        let (read, digest) = content::digest(&file)?;
        if read == size {
            self.seen.seen().put(meta, digest);
        }
        Ok((Node::File { mode, size: read, digest }, None))
    }

    pub(super) fn may_be_copied(
        &self,
        path: &RelPath,
        dir: &OwnedFd,
        name: &[u8],
    ) -> io::Result<bool> {
        let Some(meta) = tree::meta_at(dir, name)? else { return Ok(false) };
        let backend = self.facts.layer.backend;
        let opened = match meta.kind {
            EntryType::File => tree::file_at(dir, name).map(OwnedFd::from),
            EntryType::Dir => {
                use rustix::fs::{Mode, OFlags, openat};
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                openat(dir, name, flags, Mode::empty()).map_err(Into::into)
            }
            EntryType::Symlink
            | EntryType::Fifo
            | EntryType::Socket
            | EntryType::CharDevice
            | EntryType::BlockDevice => return Ok(false),
        };
        match opened {
            Ok(fd) => marks::may_be_copied(backend, path.as_bytes(), fd),
            // It cannot be read; then it cannot land either.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(false),
            Err(e) => Err(e),
        }
    }
}
