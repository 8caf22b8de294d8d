//! How much of a changeset one patch takes. What a session claims costs it nothing (a sparse file of a terabyte is one
//! call), but every byte of it would have to be named, compressed and written.

use super::coverage;
use crate::land::changeset::{Change, Node};
use landbox_shared::path::RelPath;
use std::collections::HashSet;

/// Bytes of files, before and after, that a patch speaks for. Written out at worst twice as long, they stay within the
/// 1 GiB that `git apply` reads.
const ROOM: u64 = 512 << 20;

/// Paths of the changes for which there is no room in a patch of all that `lands`. The small come first, so that a
/// large one displaces nothing but what is larger still.
pub fn beyond(changes: &[Change], lands: impl Fn(&Change) -> bool) -> HashSet<RelPath> {
    let written = changes.iter().filter(|c| coverage(c).writes() && lands(c));
    let mut sizes: Vec<(u64, &RelPath)> = written.map(|c| (bytes(c), &c.path)).collect();
    sizes.sort_unstable();
    let mut used = 0u64;
    let over = sizes.into_iter().skip_while(|(size, _)| {
        used = used.saturating_add(*size);
        used <= ROOM
    });
    over.map(|(_, path)| path.clone()).collect()
}

/// The bytes of a change's files that a patch holds.
fn bytes(change: &Change) -> u64 {
    let content = |node: Option<&Node>| match node {
        Some(Node::File { size, digest, .. }) => Some((*size, *digest)),
        Some(
            Node::Dir { .. }
            | Node::Symlink { .. }
            | Node::Special { .. }
            | Node::Unreadable { .. },
        )
        | None => None,
    };
    let (old, new) = (content(change.old_node()), content(change.new.as_ref()));
    if change.old_path.is_none() && old == new {
        return 0;
    }
    let size = |side: Option<(u64, _)>| side.map_or(0, |(size, _)| size);
    size(old).saturating_add(size(new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::land::changeset::Base;
    use crate::land::kind::{ChangeKind, ChangeState, Group};
    use landbox_shared::digest::Digest;
    use landbox_shared::id::LayerId;

    fn file(size: u64) -> Node {
        Node::File { mode: 0o644, size, digest: Digest::of("test", &[&size.to_le_bytes()]) }
    }

    fn change(path: &str, old: Base, new: Option<Node>) -> Change {
        Change {
            layer: LayerId::new("project").unwrap(),
            path: RelPath::new(path).unwrap(),
            kind: ChangeKind::Modified,
            old_path: None,
            old,
            new,
            group: Group::Project,
            state: ChangeState::Clean,
            landable: true,
            reason: None,
        }
    }

    fn left_out(changes: &[Change], lands: impl Fn(&Change) -> bool) -> Vec<String> {
        let mut out: Vec<String> =
            beyond(changes, lands).iter().map(|path| path.to_string()).collect();
        out.sort();
        out
    }

    #[test]
    fn the_largest_have_no_place_and_both_sides_count() {
        let changes = [
            change("a", Base::Absent, Some(file(1 << 40))),
            change("b", Base::Known(file(ROOM / 2)), Some(file(ROOM / 2 + 1))),
            change("c", Base::Absent, Some(file(ROOM / 2))),
            change("d", Base::Known(file(ROOM / 2)), None),
            change("e", Base::Known(file(0)), Some(file(0))),
        ];
        assert_eq!(left_out(&changes, |_| true), ["a", "b"]);
        assert_eq!(left_out(&changes, |c| c.path.as_bytes() != b"c"), ["a", "b"]);
        assert!(left_out(&changes[2..], |_| true).is_empty());
    }

    #[test]
    fn content_that_stays_needs_no_place() {
        let mut moved = change("a", Base::Known(file(1 << 40)), Some(file(1 << 40)));
        assert!(left_out(std::slice::from_ref(&moved), |_| true).is_empty());
        moved.old_path = Some(RelPath::new("b").unwrap());
        assert_eq!(left_out(&[moved], |_| true), ["a"]);
    }

    #[test]
    fn what_no_patch_could_hold_anyway_takes_no_place() {
        let odd = change(".git/x", Base::Absent, Some(file(ROOM)));
        let plain = change("b", Base::Absent, Some(file(ROOM)));
        assert!(left_out(&[odd, plain], |_| true).is_empty());
    }
}
