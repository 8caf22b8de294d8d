//! Which changes are meant: the project's own, and more or fewer where that was asked for.
//!
//! A change is chosen whole: a rename by either of its names, and left out by either. What a chosen change cannot land
//! without comes with it: the folders it lies in, and for a folder that becomes a file what the folder held.

mod exclude;
mod paths;

pub use exclude::Exclude;
pub use paths::Wanted;

use super::changeset::{Change, Changeset};
use super::digest::{ancestors, paths as paths_of};
use super::kind::{EntryType, Group};
use crate::error::Result;
use landbox_shared::path::RelPath;
use std::collections::HashSet;

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

    /// Finds the changes that are meant. A path at which nothing changed is an error.
    pub fn pick(&self, set: &Changeset) -> Result<Picked> {
        let chosen = self.chosen(set)?;
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
        let wanted = set.changes.iter().filter(|c| self.wants(c.group) && picked.covers(c));
        picked.held = wanted.map(|c| c.path.clone()).collect();
        if picked.held.len() < set.changes.len() {
            self.complete(set, &mut picked);
        }
        Ok(picked)
    }

    /// Adds what the chosen changes cannot land without.
    fn complete(&self, set: &Changeset, picked: &mut Picked) {
        let held: Vec<&Change> = set.changes.iter().filter(|c| picked.holds(c)).collect();
        let above = ancestors(held.iter().filter(|c| c.new.is_some()).map(|c| &c.path));
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
    fn chosen(&self, set: &Changeset) -> Result<Vec<Option<RelPath>>> {
        let changed = |path: &Option<RelPath>| match path {
            None => true,
            Some(path) => set.changes.iter().flat_map(paths_of).any(|p| p.is_within(path)),
        };
        let find = |wanted: &Wanted| {
            let readings = wanted.readings(&set.target)?;
            readings.into_iter().find(changed).ok_or_else(|| wanted.unmatched())
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

#[cfg(test)]
mod tests {
    use super::super::changeset::{Base, Node};
    use super::super::kind::{ChangeKind, ChangeState};
    use super::*;
    use landbox_shared::digest::Digest;
    use landbox_shared::id::LayerId;
    use landbox_shared::path::AbsPath;

    fn file() -> Node {
        Node::File { mode: 0o644, size: 1, digest: Digest::of("test", &[]) }
    }

    fn folder() -> Node {
        Node::Dir { mode: 0o700 }
    }

    fn change(path: &str, old: Option<Node>, new: Option<Node>) -> Change {
        Change {
            layer: LayerId::new("project").unwrap(),
            path: RelPath::new(path).unwrap(),
            kind: ChangeKind::Modified,
            old_path: None,
            old: old.map_or(Base::Absent, Base::Known),
            new,
            group: Group::Project,
            state: ChangeState::Clean,
            landable: true,
            reason: None,
        }
    }

    fn set(mut changes: Vec<Change>) -> Changeset {
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        Changeset {
            layer: LayerId::new("project").unwrap(),
            target: AbsPath::new("/p").unwrap(),
            changes,
            folders: Vec::new(),
        }
    }

    fn at(paths: &[&str], cwd: &str) -> Selection {
        let cwd = AbsPath::new(cwd).ok();
        let wanted = |p: &&str| Wanted::new(p.as_bytes().to_vec(), cwd.clone());
        Selection { paths: paths.iter().map(wanted).collect(), ..Selection::default() }
    }

    fn picked(selection: &Selection, set: &Changeset) -> Vec<String> {
        let picked = selection.pick(set).unwrap();
        set.changes.iter().filter(|c| picked.holds(c)).map(|c| c.path.to_string()).collect()
    }

    #[test]
    fn paths_are_read_from_where_the_owner_stands_and_then_from_the_project() {
        let set = set(vec![
            change("a/x", None, Some(file())),
            change("x", None, Some(file())),
            change("b/y", None, Some(file())),
        ]);
        assert_eq!(picked(&at(&["x"], "/p/a"), &set), ["a/x"]);
        assert_eq!(picked(&at(&["../x"], "/p/a"), &set), ["x"]);
        assert_eq!(picked(&at(&["b"], "/p/a"), &set), ["b/y"]);
        assert_eq!(picked(&at(&["./b/"], "/elsewhere"), &set), ["b/y"]);
        assert_eq!(picked(&at(&["/p/b/y", "x"], "/p"), &set), ["b/y", "x"]);
        assert_eq!(picked(&at(&["."], "/p"), &set).len(), 3);
        assert_eq!(picked(&at(&["."], "/p/a"), &set), ["a/x"]);
    }

    #[test]
    fn a_path_at_which_nothing_changed_is_named() {
        let set = set(vec![change("a", None, Some(file()))]);
        let failure = at(&["a", "nope\n"], "/p").pick(&set).unwrap_err();
        assert!(failure.message.contains("nope\\n"), "{}", failure.message);
        assert!(at(&["../other"], "/p").pick(&set).is_err());
        assert!(at(&["/other"], "/p").pick(&set).is_err());
    }

    #[test]
    fn a_rename_goes_by_either_of_its_names() {
        let mut renamed = change("new", Some(file()), Some(file()));
        renamed.kind = ChangeKind::Renamed;
        renamed.old_path = RelPath::new("old").ok();
        let set = set(vec![renamed, change("z", None, Some(file()))]);
        assert_eq!(picked(&at(&["old"], "/p"), &set), ["new"]);
        let exclude = Exclude::new(&["/old".into()]).unwrap();
        assert_eq!(picked(&Selection { exclude, ..Selection::default() }, &set), ["z"]);
    }

    #[test]
    fn what_a_chosen_change_needs_comes_with_it() {
        let set = set(vec![
            change("d", None, Some(folder())),
            change("d/e", None, Some(folder())),
            change("d/e/f", None, Some(file())),
            change("d/g", None, Some(file())),
            change("h", Some(folder()), Some(file())),
            change("h/i", Some(file()), None),
        ]);
        assert_eq!(picked(&at(&["d/e/f"], "/p"), &set), ["d", "d/e", "d/e/f"]);
        let exclude = Exclude::new(&["i".into(), "d/**".into(), "/d".into()]).unwrap();
        assert_eq!(picked(&Selection { exclude, ..Selection::default() }, &set), ["h", "h/i"]);
    }

    #[test]
    fn one_group_alone_can_be_asked_for() {
        let mut built = change("target/a", None, Some(file()));
        built.group = Group::Ignored;
        let mut git = change(".git/index", None, Some(file()));
        git.group = Group::Git;
        let set = set(vec![built, git, change("src", None, Some(file()))]);
        let only = |only| Selection { only, ..Selection::default() };
        assert_eq!(picked(&only(None), &set), ["src"]);
        assert_eq!(picked(&only(Some(Group::Ignored)), &set), ["target/a"]);
        assert_eq!(picked(&only(Some(Group::Git)), &set), [".git/index"]);
        let with = Selection { with_ignored: true, ..Selection::default() };
        assert_eq!(picked(&with, &set), ["src", "target/a"]);
    }
}
