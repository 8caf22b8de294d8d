//! Landing into git: what a session changed as commits of the owner's repository, or as mail that `git am` takes.
//!
//! Git itself does the work, as the owner's tool, because it alone knows every form that a repository may have (linked
//! worktrees, SHA-256, packed refs, reftables, alternates). It never works on anything that a session wrote but bytes:
//!
//! 1. New objects are made in a private repository of ours (the **workshop**), with no configuration but ours, from
//!    bytes that were read without following links and compared with what was shown. It borrows the owner's objects.
//! 2. They move to the owner's repository as one pack, which git checks to the last link.
//! 3. A branch is made or moved by one transaction that names the commit it expects.
//!
//! No hook, filter, monitor, textconv or external diff runs; the work tree is never read by git, and the index is written
//! only where a landing is committed, and only at the paths that landed.

mod base;
mod branch;
mod commit;
mod history;
mod keep;
mod mail;
mod message;
mod repo;
mod run;
mod stream;
mod workshop;

pub use branch::{Branch, to_branch};
pub use commit::{Committed, Prepared, ready_to_commit};
pub use history::Wanted;
pub use keep::unkept;
pub use mail::write_mail;
pub use message::Message;

use super::changeset::{Base, Bodies, Change, Node};
use super::kind::EntryType;
use super::patch::coverage;
use landbox_shared::id::LayerId;
use landbox_shared::path::RelPath;
use std::collections::HashSet;

/// The part of a selection that git can hold.
#[derive(Debug)]
pub(super) struct Sayable<'a> {
    /// Changes a commit can carry.
    pub changes: Vec<&'a Change>,
    /// Number of changes of which a commit can say nothing: empty folders, odd names.
    pub unsaid: usize,
}

impl<'a> Sayable<'a> {
    /// Sorts them out. `obstructed` are changes for which git would have to take away what does not land.
    pub(super) fn of(
        changes: impl Iterator<Item = &'a Change>,
        obstructed: &HashSet<RelPath>,
    ) -> Self {
        let mut out = Self { changes: Vec::new(), unsaid: 0 };
        for change in changes.filter(|c| c.landable) {
            // What nobody knows the base of is not passed over: it must be refused.
            let unknown = change.old == Base::Unknown;
            if unknown || coverage(change).writes() && !obstructed.contains(&change.path) {
                out.changes.push(change);
            } else if !is_plain_folder(change) {
                out.unsaid += 1;
            }
        }
        out
    }
}

/// A folder that comes or goes: in git, it is what is in it that does.
fn is_plain_folder(change: &Change) -> bool {
    let dir = |node: Option<&Node>| node.is_none_or(|n| n.kind() == EntryType::Dir);
    dir(change.old_node()) && dir(change.new.as_ref())
}

/// What a landing into git is made of.
pub(super) struct Source<'a> {
    pub sayable: Sayable<'a>,
    pub bodies: &'a dyn Bodies,
    /// Paths that were hidden from the session.
    pub masks: &'a [RelPath],
    /// The layer that the changes are in.
    pub layer: &'a LayerId,
}
