//! One name of a folder: layer and base put side by side.

use super::real::Evaluated;
use super::{Folder, Pending, Scan, Shows};
use crate::land::changeset::{Base, Node};
use crate::land::kind::{ChangeState, EntryType};
use crate::land::rules;
use crate::land::tree::{self, Meta};
use landbox_shared::path::RelPath;
use landbox_shared::policy::Backend;
use std::io;
use std::os::fd::OwnedFd;

/// A folder that is being looked at, opened on both sides.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) folder: &'a Folder,
    /// Whether what the base holds here is hidden.
    pub(super) hidden: bool,
    pub(super) upper: Option<&'a OwnedFd>,
    pub(super) real: Option<&'a OwnedFd>,
}

/// Whether the layer holds what is really there. Then it does not matter that nobody knows what the session saw first:
/// nothing of it is left to land, and what the owner writes from now on is an edit of the owner's alone.
fn is_real(new: &Node, meta: &Meta, dir: &OwnedFd, name: &[u8]) -> bool {
    let may_be = match new {
        Node::File { mode, size, digest: _ } => {
            (meta.kind, meta.mode, meta.size) == (EntryType::File, *mode, *size)
        }
        Node::Symlink { target: _ } => meta.kind == EntryType::Symlink,
        Node::Dir { .. } | Node::Special { .. } | Node::Unreadable { .. } => false,
    };
    may_be && tree::node_at(dir, name, meta).is_ok_and(|real| real == *new)
}

impl Scan<'_> {
    /// Looks at one name. Returns whether the base and the layer have an object there.
    pub(super) fn entry(
        &mut self,
        place: &Place<'_>,
        path: RelPath,
        name: &[u8],
        entry: Option<Meta>,
    ) -> io::Result<(bool, bool)> {
        let Place { folder, hidden, upper, real } = *place;
        if self.facts.masks.iter().any(|mask| path.is_within(mask)) {
            return Ok((false, self.masked(folder, path, name, entry, upper)?));
        }
        let (new, why) = match (entry, upper) {
            (Some(meta), Some(dir)) => match self.read_upper(dir, name, &meta)? {
                Some((node, why)) => (Some(node), why),
                None => return Ok((false, false)),
            },
            (Some(_) | None, _) => (None, None),
        };
        let Evaluated { base, state, real: real_meta } =
            self.evaluate(folder, &path, name, upper.filter(|_| new.is_some()), real)?;
        let (base, state) = match (&new, &real_meta, real) {
            (Some(new), Some(meta), Some(dir))
                if base == Base::Unknown && is_real(new, meta, dir, name) =>
            {
                let base = Base::Known(new.clone());
                self.store.rebase(path.clone(), base.clone());
                (base, ChangeState::Clean)
            }
            _ => (base, state),
        };
        let mut new = new;
        if let (Some(new), Backend::Fuse) = (&mut new, self.facts.layer.backend) {
            rules::restore_set_id(new, &base, folder.new_mode);
        }
        let in_base = !matches!(base, Base::Absent);
        let in_layer = new.is_some();
        let has_capabilities = || real.is_some_and(|dir| tree::has_capabilities(dir, name));
        let why =
            why.or_else(|| rules::note(&base, new.as_ref(), real_meta.as_ref(), has_capabilities));
        let folder_mode = |node: &Node| match node {
            Node::Dir { mode } => Some(*mode),
            Node::File { .. }
            | Node::Symlink { .. }
            | Node::Special { .. }
            | Node::Unreadable { .. } => None,
        };
        let old_dir = base.node().and_then(folder_mode);
        let new_dir = new.as_ref().and_then(folder_mode);
        let below = |shows, trusted, pending| Folder {
            path: Some(path.clone()),
            shows,
            trusted,
            pending,
            old_mode: old_dir,
            new_mode: new_dir,
        };
        let through = if hidden { Shows::Hidden } else { Shows::Through };
        match (old_dir, new_dir) {
            // Nothing deeper to look at.
            (None, None) => self.compare(path, base, new, state, why),
            (Some(old), Some(new_mode)) => {
                let trusted = folder.trusted && state == ChangeState::Clean;
                self.todo.push(below(through, trusted, None));
                if old != new_mode {
                    self.compare(path, base, new, state, why);
                }
            }
            (None, Some(mode)) if base == Base::Absent => {
                let matters = rules::mode_matters(mode, folder.new_mode);
                let pending = Pending { base, new, state, matters };
                self.todo.push(below(Shows::Nothing, false, Some(pending)));
            }
            (None, Some(mode)) if base == Base::Unknown => {
                // The owner has replaced the folder, or changed its mode: all below is uncertain.
                self.todo.push(below(through, false, None));
                if real_meta.is_none_or(|m| m.kind != EntryType::Dir || m.mode != mode) {
                    self.compare(path, base, new, state, why);
                }
            }
            (None, Some(_)) => {
                self.todo.push(below(Shows::Nothing, false, None));
                self.compare(path, base, new, state, why);
            }
            (Some(mode), None) => {
                let trusted = folder.trusted && state == ChangeState::Clean;
                if new.is_none() {
                    let matters = rules::mode_matters(mode, folder.old_mode);
                    let pending = Pending { base, new, state, matters };
                    self.todo.push(below(Shows::Gone, trusted, Some(pending)));
                } else {
                    self.todo.push(below(Shows::Gone, trusted, None));
                    self.compare(path, base, new, state, why);
                }
            }
        }
        Ok((in_base, in_layer))
    }

    /// A name below a mask: the session never saw the real thing, which is not looked at, and nothing of it lands.
    pub(super) fn masked(
        &mut self,
        folder: &Folder,
        path: RelPath,
        name: &[u8],
        entry: Option<Meta>,
        upper: Option<&OwnedFd>,
    ) -> io::Result<bool> {
        let (Some(meta), Some(dir)) = (entry, upper) else { return Ok(false) };
        let Some((node, _)) = self.read_upper(dir, name, &meta)? else { return Ok(false) };
        if let Node::Dir { mode } = node {
            let pending = Pending {
                base: Base::Absent,
                new: Some(node),
                state: ChangeState::Clean,
                matters: false,
            };
            self.todo.push(Folder {
                path: Some(path),
                shows: Shows::Nothing,
                trusted: false,
                pending: Some(pending),
                old_mode: folder.old_mode,
                new_mode: Some(mode),
            });
        } else {
            self.emit(path, Base::Absent, Some(node), ChangeState::Clean, Some(rules::HIDDEN));
        }
        Ok(true)
    }
}
