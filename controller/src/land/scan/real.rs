//! The real side of a scan: what the base of a path is, and whether the real path still is it.

use super::{Folder, Scan, Shows};
use crate::land::base::{Record, Stamp};
use crate::land::changeset::{Base, Node};
use crate::land::kind::{ChangeState, EntryType, Group};
use crate::land::rules;
use crate::land::tree::{self, Meta, is_absence};
use landbox_shared::path::RelPath;
use std::io;
use std::os::fd::OwnedFd;

/// What the store or the real tree says of a path.
pub(super) struct Evaluated {
    pub(super) base: Base,
    pub(super) state: ChangeState,
    pub(super) real: Option<Meta>,
}

impl Scan<'_> {
    pub(super) fn open_real(&self, path: Option<&RelPath>) -> io::Result<Option<OwnedFd>> {
        let Some(real) = &self.real else { return Ok(None) };
        match real.dir(path) {
            Ok(dir) => Ok(Some(dir)),
            // A folder that may be entered but not listed still tells what a known name is.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => match real.place(path) {
                Ok(dir) => Ok(Some(dir)),
                Err(_) => Ok(None),
            },
            Err(e)
                if is_absence(&e)
                    || rustix::io::Errno::from_io_error(&e) == Some(rustix::io::Errno::XDEV) =>
            {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    pub(super) fn list_real(&mut self, folder: &Folder, dir: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
        match tree::names(dir) {
            Ok(names) => Ok(names),
            Err(e) => {
                // Only a folder opened as a mere place, for want of the right to list it.
                let Some(path) = &folder.path else { return Err(e) };
                let kind = EntryType::Dir;
                let base =
                    Base::Known(Node::Unreadable { kind, mode: folder.old_mode.unwrap_or(0) });
                self.emit(path.clone(), base, None, ChangeState::Clean, Some(rules::UNLISTED));
                Ok(Vec::new())
            }
        }
    }

    /// The base of a path, and whether the real path still is it. What was not known is recorded.
    pub(super) fn evaluate(
        &mut self,
        folder: &Folder,
        path: &RelPath,
        name: &[u8],
        upper: Option<&OwnedFd>,
        real: Option<&OwnedFd>,
    ) -> io::Result<Evaluated> {
        let meta = match real.map(|dir| tree::meta_at(dir, name)) {
            // The real folder may be listed, and nothing in it looked at.
            Some(Err(e)) if e.kind() == io::ErrorKind::PermissionDenied => {
                let (base, state) = (Base::Unknown, ChangeState::Drifted);
                return Ok(Evaluated { base, state, real: None });
            }
            meta => meta.transpose()?.flatten(),
        };
        // What has left counts as long as it is gone, and the session holds something in its place; from then on for good.
        let left = self.store.get(path).is_some_and(|record| record.left);
        if left && meta.is_none() && upper.is_some() {
            self.store.put(path.clone(), Record::of(Base::Unknown));
        }
        if let Some(record) = self.store.kept(path).filter(|record| !record.left) {
            let is_dir = matches!(record.base, Base::Known(Node::Dir { .. }));
            if self.glance && !is_dir {
                let (base, state) = (record.base.clone(), ChangeState::Clean);
                return Ok(Evaluated { base, state, real: meta });
            }
            let base = record.base.clone();
            let stamp = record.stamp.clone();
            let clean = stands(&base, stamp.as_deref(), meta.as_ref(), real, name)?;
            // It was read, and need not be read again. A server's clock may tell of no later edit.
            if let (true, Some(meta), Some(dir)) = (clean, &meta, real)
                && meta.kind == EntryType::File
                && stamp.as_deref() != Some(&Stamp::of(meta))
                && self.seen.seen().is_settled(meta)
                && tree::has_kernel_time(dir)
            {
                self.store.stamp(path, Stamp::of(meta));
            }
            let state = if clean { ChangeState::Clean } else { ChangeState::Drifted };
            return Ok(Evaluated { base, state, real: meta });
        }
        let complete =
            folder.path.as_ref().is_some_and(|p| self.store.kept(p).is_some_and(|r| r.complete));
        let known_absent = folder.shows == Shows::Nothing || complete;
        let (base, stamp, extent) = match (&meta, real) {
            (Some(_), _) | (None, _) if known_absent => (Base::Absent, None, None),
            (Some(meta), Some(dir)) => self.look(folder, path, dir, name, meta, upper)?,
            // Nothing there, and what the layer holds may have taken the place of what the owner has deleted meanwhile.
            (Some(_) | None, _) => {
                let absent = folder.trusted
                    && match upper {
                        Some(dir) => self.was_absent(path, name, dir, real)?,
                        None => true,
                    };
                let base = if absent { Base::Absent } else { Base::Unknown };
                (base, None, None)
            }
        };
        let clean = match &base {
            Base::Absent => meta.is_none(),
            Base::Known(_) => true,
            Base::Unknown => false,
        };
        let stamp = stamp.map(Box::new);
        let record = Record { stamp, extent, ..Record::of(base.clone()) };
        // A landing under way may be why nobody knows: whoever scans after it does, or judges as strictly.
        if self.glance && base == Base::Unknown {
            self.unrecorded = true;
        } else {
            self.store.put(path.clone(), record);
        }
        let state = if clean { ChangeState::Clean } else { ChangeState::Drifted };
        Ok(Evaluated { base, state, real: meta })
    }

    /// Takes the real object as the base, if it surely is what the session saw.
    #[expect(clippy::type_complexity, reason = "the three parts of a record, taken apart at once")]
    pub(super) fn look(
        &mut self,
        folder: &Folder,
        path: &RelPath,
        dir: &OwnedFd,
        name: &[u8],
        meta: &Meta,
        upper: Option<&OwnedFd>,
    ) -> io::Result<(Base, Option<Stamp>, Option<(u64, u64)>)> {
        let Some(epoch) = self.facts.epoch else { return Ok((Base::Unknown, None, None)) };
        // The session's copy comes from this very object, and the object is older than the copy.
        let copied = match (self.inside, upper) {
            (Some(inside), Some(upper)) => inside.copied(path, upper, meta)?,
            (Some(_) | None, _) => None,
        };
        if !folder.trusted && copied.is_none() {
            return Ok((Base::Unknown, None, None));
        }
        if meta.kind == EntryType::Dir {
            // The owner's making or removing of a name in a folder changes both of its times, and says nothing about
            // the folder itself. A rename of it, or a new mode, changes the one alone, until a name is made in it: then
            // only the folder above tells that there was no rename, or the session itself, which has it open.
            let above = || -> io::Result<tree::Time> {
                let changed = tree::meta_of(dir)?.ctime;
                Ok(self.store.changed_by_others(path.parent().as_ref(), changed))
            };
            let old = meta.ctime < epoch
                || (meta.btime.is_none_or(|b| b < epoch)
                    && meta.ctime == meta.mtime
                    && (copied.is_some() || above()? < epoch));
            let stamp = Some(Stamp::of(meta));
            return Ok(if old {
                (Base::Known(Node::Dir { mode: meta.mode }), stamp, None)
            } else {
                (Base::Unknown, None, None)
            });
        }
        if !(folder.trusted && meta.ctime < epoch || copied.is_some_and(|at| meta.ctime < at)) {
            return Ok((Base::Unknown, None, None));
        }
        let keep = self.group(path) != Group::Git;
        let (node, extent) = match self.store.capture(dir, name, meta, keep) {
            Ok(captured) => captured,
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                (Node::Unreadable { kind: meta.kind, mode: meta.mode }, None)
            }
            Err(_) => return Ok((Base::Unknown, None, None)),
        };
        // Unchanged while it was read?
        match tree::meta_at(dir, name)? {
            Some(after) if Stamp::of(&after) == Stamp::of(meta) => {
                Ok((Base::Known(node), Some(Stamp::of(meta)), extent))
            }
            Some(_) | None => Ok((Base::Unknown, None, None)),
        }
    }
}

/// Whether the real object still is the base.
fn stands(
    base: &Base,
    stamp: Option<&Stamp>,
    meta: Option<&Meta>,
    dir: Option<&OwnedFd>,
    name: &[u8],
) -> io::Result<bool> {
    let node = match base {
        Base::Unknown => return Ok(false),
        Base::Absent => return Ok(meta.is_none()),
        Base::Known(node) => node,
    };
    let (Some(meta), Some(dir)) = (meta, dir) else { return Ok(false) };
    if stamp == Some(&Stamp::of(meta)) {
        return Ok(true);
    }
    if node.kind() != meta.kind || node.mode().is_some_and(|m| m != meta.mode) {
        return Ok(false);
    }
    // Names come and go in a folder; another folder is another folder.
    if meta.kind == EntryType::Dir && stamp.is_some_and(|s| !s.is_of(meta)) {
        return Ok(false);
    }
    if node.size().is_some_and(|s| s != meta.size) {
        return Ok(false);
    }
    match tree::node_at(dir, name, meta) {
        Ok(found) => Ok(found == *node),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied || is_absence(&e) => Ok(false),
        Err(e) => Err(e),
    }
}
