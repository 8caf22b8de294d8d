//! The id maps of a session's two user namespaces: N owns the boundary, T, inside it, is the task's.
//!
//! N maps the caller's id alone (`0 → caller`): a user namespace belongs to whoever made it, so any other id in the map
//! would be handed to every process of the caller. Called by root, who has every id already, the map is the caller's own.

use crate::evidence::{HelperMode, OwnerMap};
use crate::procfs::identity_over;

/// How many user namespaces lie between the caller and the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worlds {
    /// N and T.
    Two,
    /// N alone: the host refuses one made without its own privilege.
    One,
}

/// The id maps of both namespaces, each the users' and the groups'.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdMaps {
    /// Whether there is a T.
    pub worlds: Worlds,
    /// Which ids they hold.
    pub owner: OwnerMap,
    /// N's.
    pub n: [String; 2],
    /// The task's: T's, or N's where there is no T.
    pub task: [String; 2],
}

impl IdMaps {
    /// The maps for a caller with these `ids` (user and group) and these maps of its own; `None` where those can't be
    /// read.
    pub fn new(mode: HelperMode, ids: [u32; 2], own: &[String; 2], worlds: Worlds) -> Option<Self> {
        match mode {
            HelperMode::Root => {
                let [users, groups] = own.each_ref().map(|map| identity_over(map));
                let same = [users?, groups?];
                Some(Self { worlds, owner: OwnerMap::Full, n: same.clone(), task: same })
            }
            HelperMode::Unprivileged | HelperMode::Capable => {
                let middle = |id: u32| match worlds {
                    Worlds::Two => 0,
                    Worlds::One => id,
                };
                let n = ids.map(|id| format!("{} {id} 1\n", middle(id)));
                let task = ids.map(|id| format!("{id} {} 1\n", middle(id)));
                Some(Self { worlds, owner: OwnerMap::Single, n, task })
            }
        }
    }

    /// Whether a map of the task, as the kernel lists it, is the one that was meant.
    pub fn fits(meant: &str, found: &str) -> bool {
        found.split_whitespace().eq(meant.split_whitespace())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_never_holds_an_id_that_is_not_the_callers() {
        let own = ["0 0 4294967295\n".to_owned(), "0 0 4294967295\n".to_owned()];
        for mode in [HelperMode::Unprivileged, HelperMode::Capable] {
            let two = IdMaps::new(mode, [1000, 100], &own, Worlds::Two).unwrap();
            assert_eq!(two.n, ["0 1000 1\n", "0 100 1\n"]);
            assert_eq!(two.task, ["1000 0 1\n", "100 0 1\n"]);
            let one = IdMaps::new(mode, [1000, 100], &own, Worlds::One).unwrap();
            assert_eq!(one.n, ["1000 1000 1\n", "100 100 1\n"]);
            assert_eq!((one.task, one.owner), (one.n.clone(), OwnerMap::Single));
        }
        let root = IdMaps::new(HelperMode::Root, [0, 0], &own, Worlds::Two).unwrap();
        assert_eq!((root.n, root.owner), (own.clone(), OwnerMap::Full));
        let broken = [String::from("0 0\n"), own[1].clone()];
        assert_eq!(IdMaps::new(HelperMode::Root, [0, 0], &broken, Worlds::Two), None);
    }
}
