//! Pairs a deleted and an added file of identical content into a rename. Content that occurs more than once on either
//! side is paired with nothing, so that every back end and every order gives the same answer.

use super::changeset::{Base, Change, Node};
use super::kind::{ChangeKind, ChangeState};
use landbox_shared::digest::Digest;
use std::collections::HashMap;

/// Joins the pairs of a sorted list; it stays sorted.
pub(crate) fn pair(changes: &mut Vec<Change>) {
    let mut deleted: HashMap<Digest, Option<usize>> = HashMap::new();
    let mut added: HashMap<Digest, Option<usize>> = HashMap::new();
    for (index, change) in changes.iter().enumerate() {
        let (side, node) = match change.kind {
            ChangeKind::Deleted => (&mut deleted, change.old_node()),
            ChangeKind::Added => (&mut added, change.new.as_ref()),
            ChangeKind::Special
            | ChangeKind::Type
            | ChangeKind::Renamed
            | ChangeKind::Symlink
            | ChangeKind::Modified
            | ChangeKind::Mode => continue,
        };
        let Some(Node::File { size: 1.., digest, .. }) = node else { continue };
        side.entry(*digest).and_modify(|only| *only = None).or_insert(Some(index));
    }
    let mut gone = vec![false; changes.len()];
    for (digest, to) in added {
        let (Some(to), Some(Some(from))) = (to, deleted.get(&digest)) else { continue };
        let from = &changes[*from];
        if !from.landable || !changes[to].landable || from.group != changes[to].group {
            continue;
        }
        let (old_path, old, state) = (from.path.clone(), from.old.clone(), from.state);
        if let Some(Some(index)) = deleted.get(&digest) {
            gone[*index] = true;
        }
        let change = &mut changes[to];
        change.kind = ChangeKind::Renamed;
        change.old_path = Some(old_path);
        change.old = old;
        if state == ChangeState::Drifted {
            change.state = state;
        }
    }
    let mut index = 0;
    changes.retain(|_| {
        index += 1;
        !gone[index - 1]
    });
    debug_assert!(changes.iter().all(|c| c.kind != ChangeKind::Renamed || c.old != Base::Absent));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::land::kind::Group;
    use landbox_shared::id::LayerId;
    use landbox_shared::path::RelPath;

    fn change(path: &str, added: bool, text: &[u8]) -> Change {
        let node = Node::File {
            mode: 0o644,
            size: text.len() as u64,
            digest: Digest::of("test", &[text]),
        };
        Change {
            layer: LayerId::new("project").unwrap(),
            path: RelPath::new(path).unwrap(),
            kind: if added { ChangeKind::Added } else { ChangeKind::Deleted },
            old_path: None,
            old: if added { Base::Absent } else { Base::Known(node.clone()) },
            new: added.then_some(node),
            group: Group::Project,
            state: ChangeState::Clean,
            landable: true,
            reason: None,
        }
    }

    fn paired(mut changes: Vec<Change>) -> Vec<(ChangeKind, String)> {
        pair(&mut changes);
        changes.iter().map(|c| (c.kind, c.path.to_string())).collect()
    }

    #[test]
    fn identical_unique_content_is_a_rename() {
        let mut changes = vec![change("a", false, b"x"), change("b", true, b"x")];
        pair(&mut changes);
        assert_eq!(changes.len(), 1);
        assert_eq!(changes[0].kind, ChangeKind::Renamed);
        assert_eq!(changes[0].old_path.as_ref().unwrap().to_string(), "a");
        assert_eq!(changes[0].old.node(), changes[0].new.as_ref());
    }

    #[test]
    fn empty_or_repeated_content_is_not() {
        use ChangeKind::{Added, Deleted};
        let both = [(Deleted, "a".to_owned()), (Added, "b".to_owned())];
        assert_eq!(paired(vec![change("a", false, b""), change("b", true, b"")]), both);
        let twice =
            vec![change("a", false, b"x"), change("b", true, b"x"), change("c", true, b"x")];
        assert_eq!(paired(twice).len(), 3);
        let mut other = vec![change("a", false, b"x"), change("b", true, b"x")];
        other[1].group = Group::Ignored;
        assert_eq!(paired(other), both);
    }
}
