//! Which changes are meant: the project's own, and more or fewer where that was asked for.
//!
//! A change is chosen whole: a rename by either of its names, and left out by either. What a chosen change cannot land
//! without comes with it: the folders it lies in, and for a folder that becomes a file what the folder held.

mod exclude;
mod parts;
mod paths;
#[cfg(test)]
mod pick_tests;
#[cfg(test)]
mod tests;

pub use exclude::Exclude;
pub use parts::{Part, Reviewed};
pub use paths::Wanted;

use super::changeset::{Change, Changeset};
use super::digest::{ancestors, of_change, paths as paths_of};
use super::kind::{EntryType, Group};
use super::resolve::Choices;
use crate::error::{Failure, Kind, Result};
use crate::ui::text::visible_name;
use landbox_shared::digest::Digest;
use landbox_shared::id::SessionId;
use landbox_shared::path::RelPath;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What the caller asked for.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Also what the project's ignore rules cover.
    pub with_ignored: bool,
    /// This group alone.
    pub only: Option<Group>,
    /// Only these paths and what lies below them; empty is everything.
    pub paths: Vec<Wanted>,
    /// Not these.
    pub exclude: Exclude,
    /// Everything there is, git's files too: for layers that are looked at and never landed.
    pub all: bool,
    /// They are taken back, not landed: what was named goes, and the folders it lies in stay as the session has them.
    pub back: bool,
    /// Of the session as it was at this checkpoint.
    pub checkpoint: Option<u32>,
    /// What the owner has picked of all that by hand.
    pub reviewed: Option<Arc<Reviewed>>,
    /// What is done about conflicts.
    pub choices: Choices,
}

/// A selection put to one changeset.
#[derive(Clone, Debug)]
pub struct Picked {
    held: HashSet<RelPath>,
    covered: HashSet<RelPath>,
}

impl Picked {
    /// Whether a change is part of the selection.
    pub fn holds(&self, change: &Change) -> bool {
        self.held.contains(&change.path)
    }

    /// Whether a change lies where the selection looks, of whatever group it is.
    pub fn covers(&self, change: &Change) -> bool {
        self.covered.contains(&change.path)
    }
}

impl Selection {
    /// Whether changes of a group are wanted.
    pub fn wants(&self, group: Group) -> bool {
        let usual = match group {
            Group::Project => true,
            Group::Ignored => self.with_ignored,
            Group::Git => false,
        };
        self.only.map_or(usual || self.all, |only| only == group)
    }

    /// Finds the changes of session `id` that are meant. A path at which nothing changed is an error, and so is a change that was picked
    /// by hand and is another one now.
    pub fn pick(&self, set: &Changeset, id: &SessionId) -> Result<Picked> {
        self.check_reviewed(set)?;
        let chosen = self.chosen(set, id)?;
        let covers = |c: &&Change| {
            (chosen.is_empty()
                || chosen.iter().any(|path| match path {
                    None => true,
                    Some(path) => paths_of(c).any(|p| p.is_within(path)),
                }))
                && !paths_of(c).any(|path| self.exclude.covers(path, is_folder(c)))
        };
        let covered: HashSet<RelPath> =
            set.changes.iter().filter(covers).map(|c| c.path.clone()).collect();
        let mut picked = Picked { held: HashSet::new(), covered };
        let by_hand = |c: &Change| {
            self.reviewed.as_ref().is_none_or(|reviewed| reviewed.paths.contains_key(&c.path))
        };
        let wanted =
            set.changes.iter().filter(|c| self.wants(c.group) && by_hand(c) && picked.covers(c));
        picked.held = wanted.map(|c| c.path.clone()).collect();
        if picked.held.len() < set.changes.len() {
            self.complete(set, &mut picked);
        }
        Ok(picked)
    }

    fn check_reviewed(&self, set: &Changeset) -> Result<()> {
        let Some(reviewed) = &self.reviewed else { return Ok(()) };
        let by_path = set.changes.iter().map(|c| (&c.path, c));
        let now: HashMap<&RelPath, &Change> = by_path.collect();
        let is_other = |(path, digest): &(&RelPath, &Digest)| {
            now.get(*path).is_none_or(|change| of_change(change) != **digest)
        };
        match reviewed.paths.iter().filter(is_other).map(|(path, _)| path).min() {
            None => Ok(()),
            Some(path) => Err(Failure::new(
                Kind::Refused,
                format!(
                    "{} was changed again after you had reviewed it",
                    visible_name(path.as_bytes())
                ),
            )
            .hint("the same command again asks about what is new, and remembers the rest")),
        }
    }

    /// Adds what the chosen changes cannot land without.
    fn complete(&self, set: &Changeset, picked: &mut Picked) {
        let held: Vec<&Change> = set.changes.iter().filter(|c| picked.holds(c)).collect();
        let needs = |c: &&&Change| !self.back && c.new.is_some();
        let above = ancestors(held.iter().filter(needs).map(|c| &c.path));
        let emptied: HashSet<&RelPath> =
            held.iter().filter(|c| stops_being_a_folder(c)).map(|c| &c.path).collect();
        let below = |c: &Change| {
            let mut up =
                paths_of(c).flat_map(|p| std::iter::successors(p.parent(), RelPath::parent));
            !emptied.is_empty() && up.any(|folder| emptied.contains(&folder))
        };
        let more = set
            .changes
            .iter()
            .filter(|c| above.contains(&c.path) && is_folder(c) || self.wants(c.group) && below(c));
        for change in more {
            picked.held.insert(change.path.clone());
            picked.covered.insert(change.path.clone());
        }
    }

    /// The paths that were typed, each as the one of its readings at which something changed.
    fn chosen(&self, set: &Changeset, id: &SessionId) -> Result<Vec<Option<RelPath>>> {
        let changed = |path: &Option<RelPath>| match path {
            None => true,
            Some(path) => set.changes.iter().flat_map(paths_of).any(|p| p.is_within(path)),
        };
        let find = |wanted: &Wanted| {
            let readings = wanted.readings(&set.target)?;
            readings.into_iter().find(changed).ok_or_else(|| wanted.unmatched(id))
        };
        self.paths.iter().map(find).collect()
    }
}

fn is_folder(change: &Change) -> bool {
    let node = change.new.as_ref().or(change.old_node());
    node.is_some_and(|node| node.kind() == EntryType::Dir)
}

fn stops_being_a_folder(change: &Change) -> bool {
    let was = change.old_node().is_some_and(|node| node.kind() == EntryType::Dir);
    was && change.new.as_ref().is_some_and(|node| node.kind() != EntryType::Dir)
}
