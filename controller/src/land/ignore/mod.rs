//! Which part of the project a changed path belongs to.
//!
//! The owner's real files decide, never the session's: the `.gitignore` of every folder as it really is, the
//! repository's `info/exclude` and the owner's own excludes; and git's index, which is asked only about what these
//! cover. Where the index cannot be read, a path stays in the project: shown and counted, not passed over.

mod dirs;
mod owner;
mod rules;
#[cfg(test)]
mod tests;

pub use owner::Owner;
pub(in crate::land) use owner::harmless;

use super::changeset::Change;
use super::kind::{EntryType, Group};
use super::{many, rules as landing_rules};
use dirs::Dirs;
use landbox_shared::path::AbsPath;
use landbox_shared::policy::LayerKind;
use std::collections::{HashMap, HashSet};

/// From so many changes on, looking at their folders is shared by two threads, each of which asks git.
const MANY: usize = 1024;

/// Sets the group of each of a layer's `changes`. Gives a sentence for the owner where git could not be asked.
pub fn assign_groups(
    target: &AbsPath,
    kind: LayerKind,
    changes: &mut [Change],
    owner: &Owner,
) -> Option<String> {
    match kind {
        // The common folder of a linked worktree: hooks, configuration and all.
        LayerKind::Worktree => {
            changes.iter_mut().for_each(to_git);
            None
        }
        LayerKind::Home => {
            changes.iter_mut().for_each(by_name);
            None
        }
        LayerKind::Project | LayerKind::Mount if changes.len() >= MANY => {
            let (one, other) = changes.split_at_mut(changes.len() / 2);
            let (mut first, mut second) = (None, None);
            let half = |changes, note: &mut Option<String>| {
                *note = by_rules(target, changes, owner);
                Ok(())
            };
            // Neither of them fails.
            let _ = many::beside(MANY, || half(other, &mut second), || half(one, &mut first));
            first.or(second)
        }
        LayerKind::Project | LayerKind::Mount => by_rules(target, changes, owner),
    }
}

/// Whether a component of `path` is git's own folder.
fn in_dot_git(path: &[u8]) -> bool {
    path.split(|b| *b == b'/').any(|part| part.eq_ignore_ascii_case(b".git"))
}

fn by_name(change: &mut Change) {
    change.group = Group::Project;
    if change_paths(change).any(in_dot_git) {
        to_git(change);
    }
}

/// What is git's own never lands.
fn to_git(change: &mut Change) {
    change.group = Group::Git;
    if std::mem::replace(&mut change.landable, false) {
        change.reason = Some(landing_rules::GIT.to_owned());
    }
}

/// The path and, for a rename, the one before it.
fn change_paths(change: &Change) -> impl Iterator<Item = &[u8]> {
    [Some(&change.path), change.old_path.as_ref()].into_iter().flatten().map(|p| p.as_bytes())
}

fn is_folder(change: &Change) -> bool {
    let node = change.new.as_ref().or(change.old_node());
    node.is_some_and(|n| n.kind() == EntryType::Dir)
}

/// A covered path: its repository, and how git names it there.
type Covered = (usize, Vec<u8>);

fn by_rules(target: &AbsPath, changes: &mut [Change], owner: &Owner) -> Option<String> {
    let mut dirs = Dirs::new(target, owner);
    // Covered paths per repository, as git names them; a change is ignored once none of its paths is tracked.
    let mut covered: HashMap<usize, HashSet<Vec<u8>>> = HashMap::new();
    let mut waiting: Vec<(usize, Vec<Covered>)> = Vec::new();
    for (index, change) in changes.iter_mut().enumerate() {
        by_name(change);
        if change.group == Group::Git {
            continue;
        }
        let folder = is_folder(change);
        if change_paths(change).any(|path| dirs.in_git_folder(path, folder)) {
            to_git(change);
            continue;
        }
        let found: Option<Vec<_>> =
            change_paths(change).map(|path| dirs.covered(path, folder)).collect();
        if let Some(found) = found {
            for (repo, path) in &found {
                covered.entry(*repo).or_default().insert(path.clone());
            }
            waiting.push((index, found));
        }
    }
    let mut tracked: HashMap<usize, HashSet<Vec<u8>>> = HashMap::new();
    let mut note = None;
    for (repo, paths) in &covered {
        match owner.tracked(dirs.repo_root(*repo), paths) {
            Ok(found) => {
                tracked.insert(*repo, found);
            }
            Err(why) => {
                note = Some(format!(
                    "can't ask git which files it tracks ({why}), so files that ignore rules cover \
                     are shown as part of the project"
                ));
            }
        }
    }
    for (index, found) in waiting {
        let free = |(repo, path): &Covered| {
            tracked.get(repo).is_some_and(|tracked| !tracked.contains(path))
        };
        if found.iter().all(free) {
            changes[index].group = Group::Ignored;
        }
    }
    note
}
