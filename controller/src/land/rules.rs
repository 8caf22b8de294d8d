//! What kind of change a pair of objects is, and what can land. Pure.

use super::changeset::{Base, Node};
use super::kind::{ChangeKind, EntryType, Group};
use super::tree::Meta;
use landbox_shared::path::RelPath;

pub(crate) const UNREADABLE: &str = "the session left it without the right to read it; resume the \
                                     session and chmod it, or land as root";
pub(crate) const FOREIGN_MARK: &str =
    "it carries an overlay mark that Landbox's mounts never write";
pub(crate) const TOO_DEEP: &str = "it holds names too deep for a path";
pub(crate) const UNLISTED: &str =
    "you may not list this folder, so nobody knows what deleting it takes";
pub(crate) const HIDDEN: &str = "the path is hidden from the session; what the session made there \
                                 never lands";
pub(crate) const BELOW: &str = "what it lies in cannot land";
pub(crate) const GIT: &str = "git's own files never land";
const SPECIAL: &str = "pipes, sockets and devices never land";
const SET_ID: &str = "set-user-id and set-group-id bits never land";
const HARD_LINK: &str = "it has other names (hard links), which keep the old content";
const OTHER_GROUP: &str = "it belongs to a group that you are not in, and will belong to yours";
const CAPABILITIES: &str = "it has file capabilities, which its new content will not have";
const ATTRIBUTES: &str = "you may not read it, so its access list and attributes will be lost";
const OTHER_OWNER: &str = "it belongs to another user, and will belong to you";

/// The kind, the first that fits.
pub(crate) fn kind(old: &Base, new: Option<&Node>) -> ChangeKind {
    let special = |node: &Node| match node.kind() {
        EntryType::Fifo | EntryType::Socket | EntryType::CharDevice | EntryType::BlockDevice => {
            true
        }
        EntryType::File | EntryType::Dir | EntryType::Symlink => false,
    };
    if new.is_some_and(special) || old.node().is_some_and(special) {
        return ChangeKind::Special;
    }
    match (old, new) {
        (Base::Absent, _) => ChangeKind::Added,
        (Base::Known(_) | Base::Unknown, None) => ChangeKind::Deleted,
        // A folder has no content of its own.
        (Base::Unknown, Some(Node::Dir { .. })) => ChangeKind::Mode,
        (Base::Unknown, Some(_)) => ChangeKind::Modified,
        (Base::Known(old), Some(new)) if old.kind() != new.kind() => ChangeKind::Type,
        (Base::Known(Node::Symlink { .. }), Some(_)) => ChangeKind::Symlink,
        (
            Base::Known(Node::File { size, digest, .. }),
            Some(Node::File { size: s, digest: d, .. }),
        ) if (size, digest) == (s, d) => ChangeKind::Mode,
        (Base::Known(Node::Dir { .. }), Some(_)) => ChangeKind::Mode,
        (Base::Known(_), Some(_)) => ChangeKind::Modified,
    }
}

/// Whether a change can land, and what is to be said about it.
pub(crate) fn landable(
    old: &Base,
    new: Option<&Node>,
    group: Group,
    hidden: bool,
    note: Option<&'static str>,
) -> (bool, Option<&'static str>) {
    if hidden {
        return (false, Some(HIDDEN));
    }
    if group == Group::Git {
        return (false, Some(GIT));
    }
    match (old, new) {
        (_, Some(Node::Special { .. })) => return (false, Some(SPECIAL)),
        (_, Some(Node::Unreadable { .. })) => return (false, Some(note.unwrap_or(UNREADABLE))),
        (Base::Known(Node::Unreadable { kind: EntryType::Dir, .. }), _) => {
            return (false, Some(note.unwrap_or(UNLISTED)));
        }
        (_, Some(Node::File { mode, .. })) => {
            // Bits that the base had already are nothing the session gave away.
            let had = match old {
                Base::Known(Node::File { mode, .. }) => *mode,
                Base::Known(_) | Base::Absent | Base::Unknown => 0,
            };
            if mode & 0o6000 & !had != 0 {
                return (false, Some(SET_ID));
            }
        }
        (_, Some(Node::Dir { .. } | Node::Symlink { .. }) | None) => {}
    }
    (true, note)
}

/// What the owner should know about replacing a real object. `has_capabilities` is asked only where it matters.
pub(crate) fn note(
    old: &Base,
    new: Option<&Node>,
    real: Option<&Meta>,
    has_capabilities: impl FnOnce() -> bool,
) -> Option<&'static str> {
    let (Some(Node::File { .. }), Some(real)) = (new, real) else { return None };
    if real.kind != EntryType::File || kind(old, new) == ChangeKind::Mode {
        return None;
    }
    if real.nlink > 1 {
        return Some(HARD_LINK);
    }
    if matches!(old, Base::Known(Node::Unreadable { .. })) {
        return Some(ATTRIBUTES);
    }
    let euid = rustix::process::geteuid();
    if !euid.is_root() && real.uid != euid.as_raw() {
        return Some(OTHER_OWNER);
    }
    let mine = || {
        real.gid == rustix::process::getegid().as_raw()
            || rustix::process::getgroups()
                .is_ok_and(|groups| groups.iter().any(|group| group.as_raw() == real.gid))
    };
    if !euid.is_root() && !mine() {
        return Some(OTHER_GROUP);
    }
    (real.mode & 0o111 != 0 && has_capabilities()).then_some(CAPABILITIES)
}

/// Gives back the set-id bits that fuse-overlayfs drops whenever it copies an object up. A file whose content changed has
/// none in any case: the kernel takes them from whoever writes.
pub(crate) fn restore_set_id(new: &mut Node, base: &Base, parent: Option<u32>) {
    match (new, base) {
        (Node::Dir { mode }, Base::Known(Node::Dir { mode: old })) => *mode |= old & 0o6000,
        // Made in a folder with the set-group-id bit, a folder has it too.
        (Node::Dir { mode }, Base::Absent | Base::Known(_)) => {
            *mode |= parent.unwrap_or(0) & 0o2000;
        }
        (
            Node::File { mode, size, digest },
            Base::Known(Node::File { mode: old, size: s, digest: d }),
        ) if (&*size, &*digest) == (s, d) => *mode |= old & 0o6000,
        (
            Node::File { .. }
            | Node::Dir { .. }
            | Node::Symlink { .. }
            | Node::Special { .. }
            | Node::Unreadable { .. },
            _,
        ) => {}
    }
}

/// Whether an added or deleted folder's mode is worth a line: it is neither the usual one nor that of the folder it
/// lies in.
pub(crate) fn mode_matters(mode: u32, parent: Option<u32>) -> bool {
    mode != 0o755 && Some(mode) != parent
}

/// Whether a path is git's own: any component equal to `.git` in any case.
pub(crate) fn is_git(path: &RelPath) -> bool {
    path.components().any(|c| c.eq_ignore_ascii_case(b".git"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use landbox_shared::digest::Digest;

    fn file(mode: u32, text: &[u8]) -> Node {
        let digest = Digest::of("test", &[text]);
        Node::File { mode, size: text.len() as u64, digest }
    }

    fn link(target: &[u8]) -> Node {
        Node::Symlink { target: target.to_vec() }
    }

    #[test]
    fn the_first_kind_that_fits_is_taken() {
        let fifo = Node::Special { kind: EntryType::Fifo, mode: 0o644 };
        let known = Base::Known;
        let rows = [
            (Base::Absent, Some(fifo.clone()), ChangeKind::Special),
            (known(fifo), None, ChangeKind::Special),
            (known(file(0o644, b"a")), Some(link(b"a")), ChangeKind::Type),
            (known(Node::Dir { mode: 0o755 }), Some(file(0o644, b"")), ChangeKind::Type),
            (Base::Absent, Some(file(0o644, b"a")), ChangeKind::Added),
            (known(file(0o644, b"a")), None, ChangeKind::Deleted),
            (known(link(b"a")), Some(link(b"b")), ChangeKind::Symlink),
            (known(file(0o644, b"a")), Some(file(0o755, b"b")), ChangeKind::Modified),
            (known(file(0o644, b"a")), Some(file(0o755, b"a")), ChangeKind::Mode),
            (known(Node::Dir { mode: 0o755 }), Some(Node::Dir { mode: 0o700 }), ChangeKind::Mode),
            (Base::Unknown, Some(file(0o644, b"a")), ChangeKind::Modified),
            (Base::Unknown, Some(Node::Dir { mode: 0o700 }), ChangeKind::Mode),
            (Base::Unknown, None, ChangeKind::Deleted),
            // A chmod of what the owner can't read: nobody can say that the content is the same.
            (
                known(Node::Unreadable { kind: EntryType::File, mode: 0 }),
                Some(file(0o644, b"a")),
                ChangeKind::Modified,
            ),
        ];
        for (old, new, expected) in rows {
            assert_eq!(kind(&old, new.as_ref()), expected, "{old:?} {new:?}");
        }
    }

    #[test]
    fn set_id_bits_land_only_where_they_were() {
        let new = file(0o4755, b"b");
        let judge = |old: &Base| landable(old, Some(&new), Group::Project, false, None).0;
        assert!(!judge(&Base::Absent));
        assert!(!judge(&Base::Known(file(0o755, b"a"))));
        assert!(judge(&Base::Known(file(0o4755, b"a"))));
        let dir = Node::Dir { mode: 0o2775 };
        assert!(landable(&Base::Absent, Some(&dir), Group::Project, false, None).0);
    }

    #[test]
    fn git_in_any_case_and_hidden_paths_never_land() {
        for path in [".git", "a/.GIT/hooks/x", ".Git/config"] {
            assert!(is_git(&RelPath::new(path).unwrap()), "{path}");
        }
        for path in [".gitignore", "git", "a/.github/x"] {
            assert!(!is_git(&RelPath::new(path).unwrap()), "{path}");
        }
        let new = file(0o644, b"");
        assert!(!landable(&Base::Absent, Some(&new), Group::Git, false, None).0);
        assert!(!landable(&Base::Absent, Some(&new), Group::Project, true, None).0);
    }
}
