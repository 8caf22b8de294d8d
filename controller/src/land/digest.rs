//! The digest that binds an apply to what was shown.
//!
//! Canonical encoding, version 1: every value is preceded by its length, every list by its count, and everything is
//! sorted by bytes. It covers what would be written and over what; not drift and not group, which are judged anew.

use super::changeset::{Base, Change, Changeset, Node};
use super::kind::{ChangeKind, EntryType};
use landbox_shared::digest::{Digest, Hasher};
use landbox_shared::path::RelPath;
use std::collections::HashSet;

/// Digest of the changes for which `selected` holds.
pub(crate) fn digest(sets: &[&Changeset], selected: impl Fn(&Change) -> bool) -> Digest {
    let mut out = Encoder(Hasher::new("changeset 1"));
    let mut sets: Vec<&&Changeset> = sets.iter().collect();
    sets.sort_by(|a, b| a.target.cmp(&b.target));
    out.count(sets.len());
    for set in sets {
        out.bytes(set.target.as_bytes());
        let chosen: Vec<&Change> = set.changes.iter().filter(|c| selected(c)).collect();
        out.count(chosen.len());
        chosen.iter().for_each(|change| out.change(change));
        let above = ancestors(chosen.iter().flat_map(|c| paths(c)));
        let folders: Vec<_> = set.folders.iter().filter(|f| above.contains(&f.path)).collect();
        out.count(folders.len());
        for folder in folders {
            out.bytes(folder.path.as_bytes());
            out.mode(folder.make);
        }
    }
    out.0.finish()
}

/// Digest of one change alone: what it is and over what.
pub(crate) fn of_change(change: &Change) -> Digest {
    let mut out = Encoder(Hasher::new("change 1"));
    out.change(change);
    out.0.finish()
}

/// The paths a change touches.
pub(crate) fn paths(change: &Change) -> impl Iterator<Item = &RelPath> {
    std::iter::once(&change.path).chain(&change.old_path)
}

/// Every folder above any of `paths`.
pub(crate) fn ancestors<'a>(paths: impl Iterator<Item = &'a RelPath>) -> HashSet<RelPath> {
    let mut out = HashSet::new();
    for path in paths {
        let mut above = path.parent();
        while let Some(folder) = above {
            above = folder.parent();
            if !out.insert(folder) {
                break;
            }
        }
    }
    out
}

struct Encoder(Hasher);

impl Encoder {
    fn count(&mut self, n: usize) {
        self.0.update(&(n as u64).to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.update(bytes);
    }

    fn tag(&mut self, tag: u8) {
        self.0.update(&[tag]);
    }

    fn mode(&mut self, mode: Option<u32>) {
        self.0.update(&mode.unwrap_or(u32::MAX).to_le_bytes());
    }

    fn change(&mut self, change: &Change) {
        self.bytes(change.path.as_bytes());
        self.tag(match change.kind {
            ChangeKind::Special => 1,
            ChangeKind::Type => 2,
            ChangeKind::Renamed => 3,
            ChangeKind::Added => 4,
            ChangeKind::Deleted => 5,
            ChangeKind::Symlink => 6,
            ChangeKind::Modified => 7,
            ChangeKind::Mode => 8,
        });
        self.bytes(change.old_path.as_ref().map_or(&[], RelPath::as_bytes));
        match &change.old {
            Base::Absent => self.tag(0),
            Base::Unknown => self.tag(1),
            Base::Known(node) => self.node(node),
        }
        match &change.new {
            None => self.tag(0),
            Some(node) => self.node(node),
        }
    }

    fn node(&mut self, node: &Node) {
        self.tag(2);
        self.tag(match node.kind() {
            EntryType::File => 1,
            EntryType::Dir => 2,
            EntryType::Symlink => 3,
            EntryType::Fifo => 4,
            EntryType::Socket => 5,
            EntryType::CharDevice => 6,
            EntryType::BlockDevice => 7,
        });
        self.mode(node.mode());
        match node {
            Node::File { size, digest, .. } => {
                self.tag(1);
                self.0.update(&size.to_le_bytes());
                self.0.update(&digest.0);
            }
            Node::Symlink { target } => {
                self.tag(2);
                self.bytes(target);
            }
            Node::Dir { .. } | Node::Special { .. } => self.tag(3),
            Node::Unreadable { .. } => self.tag(4),
        }
    }
}
