//! Folders that a patch cannot take away. Git removes a folder with its last file, and fails half way where something
//! else is left in a folder that a file or a link is to replace.

use super::{Class, class, coverage};
use crate::land::changeset::{Base, Change};
use landbox_shared::path::RelPath;
use std::collections::HashSet;

/// Paths of the changes that put a file or a link in the place of a folder which git would find not empty. `lands` says
/// whether a change is to be part of the patch.
pub fn obstructed(changes: &[Change], lands: impl Fn(&Change) -> bool) -> HashSet<RelPath> {
    let replaced: HashSet<RelPath> = changes
        .iter()
        .filter(|c| matches!(class(c.old_node()), Class::Folder))
        .filter(|c| matches!(class(c.new.as_ref()), Class::Git(_)))
        .map(|c| c.path.clone())
        .collect();
    if replaced.is_empty() {
        return replaced;
    }
    let goes = |c: &Change| lands(c) && coverage(c).writes();
    let old_path = |c: &Change| c.old_path.clone().unwrap_or_else(|| c.path.clone());
    let had: Vec<&Change> = changes.iter().filter(|c| c.old != Base::Absent).collect();
    // A folder goes with the last file in it.
    let emptied: HashSet<RelPath> =
        had.iter().filter(|c| goes(c)).flat_map(|c| folders_of(&old_path(c))).collect();
    had.iter()
        .filter(|c| !(goes(c) || c.new.is_none() && emptied.contains(&c.path)))
        .flat_map(|c| folders_of(&old_path(c)))
        .filter(|folder| replaced.contains(folder))
        .collect()
}

/// The folders that `path` lies in.
fn folders_of(path: &RelPath) -> Vec<RelPath> {
    std::iter::successors(path.parent(), RelPath::parent).collect()
}
