//! Which changes are meant: the project's own, and more where more was asked for.

use super::changeset::Change;
use super::kind::Group;
use landbox_shared::path::RelPath;

/// What the caller asked for.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Also what the project's ignore rules cover.
    pub with_ignored: bool,
    /// Only these paths and what lies below them; empty is everything.
    pub paths: Vec<RelPath>,
    /// Everything there is, git's files too: for layers that are looked at and never landed.
    pub all: bool,
}

impl Selection {
    /// Whether a change is part of it.
    pub fn holds(&self, change: &Change) -> bool {
        let group = match change.group {
            Group::Project => true,
            Group::Ignored => self.with_ignored,
            Group::Git => false,
        };
        (group || self.all) && self.covers(change)
    }

    /// Whether a change lies at or below the chosen paths.
    pub fn covers(&self, change: &Change) -> bool {
        self.paths.is_empty()
            || self
                .paths
                .iter()
                .any(|chosen| super::digest::paths(change).any(|p| p.is_within(chosen)))
    }
}
