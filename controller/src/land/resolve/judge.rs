//! The table of the module above, row by row. Pure.

use super::Clash;
use crate::land::changeset::{Base, Node};
use crate::land::kind::EntryType;

/// What three objects make of each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The owner has left it alone.
    Clean,
    /// Both sides made the same change.
    Same,
    /// The session's content with this mode.
    Theirs { mode: u32 },
    /// The owner's content with this mode.
    Mine { mode: u32 },
    /// The contents must be merged; the result has this mode.
    Merge { mode: u32 },
    /// The owner must decide.
    Clash(Clash),
}

/// Judges one path.
pub(super) fn judge(base: &Base, mine: Option<&Node>, theirs: Option<&Node>) -> Verdict {
    let old = match base {
        Base::Absent => None,
        Base::Known(node) => Some(node),
        Base::Unknown if mine == theirs => return Verdict::Same,
        Base::Unknown if mine.is_none() => return Verdict::Clash(Clash::Unseen),
        Base::Unknown => return Verdict::Clash(Clash::Untrusted),
    };
    if mine == old {
        return Verdict::Clean;
    }
    if mine == theirs {
        return Verdict::Same;
    }
    match (old, mine, theirs) {
        (None, _, _) => Verdict::Clash(Clash::Added),
        (Some(_), None, _) => Verdict::Clash(Clash::Gone),
        (Some(_), Some(_), None) => Verdict::Clash(Clash::Deleted),
        (Some(old), Some(mine), Some(theirs)) => three(old, mine, theirs),
    }
}

fn three(old: &Node, mine: &Node, theirs: &Node) -> Verdict {
    match (old, mine, theirs) {
        (
            Node::File { mode: b, digest: old, .. },
            Node::File { mode: m, digest: mine, .. },
            Node::File { mode: t, digest: theirs, .. },
        ) => {
            let Some(mode) = one_of(*b, *m, *t) else { return Verdict::Clash(Clash::Modes) };
            if old == mine || mine == theirs {
                Verdict::Theirs { mode }
            } else if old == theirs {
                Verdict::Mine { mode }
            } else {
                Verdict::Merge { mode }
            }
        }
        (Node::Symlink { .. }, Node::Symlink { .. }, Node::Symlink { .. }) => {
            Verdict::Clash(Clash::Targets)
        }
        (Node::Dir { .. }, Node::Dir { .. }, Node::Dir { .. }) => Verdict::Clash(Clash::Modes),
        (Node::Unreadable { .. }, ..)
        | (_, Node::Unreadable { .. }, _)
        | (_, _, Node::Unreadable { .. }) => Verdict::Clash(Clash::Content("it can't be read")),
        (
            Node::File { .. } | Node::Symlink { .. } | Node::Dir { .. } | Node::Special { .. },
            _,
            _,
        ) => Verdict::Clash(Clash::Types),
    }
}

/// The one value that a change on at most one side gives.
fn one_of(base: u32, mine: u32, theirs: u32) -> Option<u32> {
    if mine == base || mine == theirs {
        Some(theirs)
    } else if theirs == base {
        Some(mine)
    } else {
        None
    }
}

/// Judges a file that the session moved: `from` is what is really there under its old name.
pub(super) fn judge_move(base: &Base, from: Option<&Node>, theirs: Option<&Node>) -> Verdict {
    match judge(base, from, theirs) {
        // The move changes no content, so the owner's edit of it goes along.
        Verdict::Mine { mode } | Verdict::Merge { mode } => Verdict::Mine { mode },
        // The same content under the old name is not what a move leaves there.
        Verdict::Same => match (base, from) {
            (Base::Known(Node::File { .. }), Some(Node::File { mode, .. })) => {
                Verdict::Mine { mode: *mode }
            }
            (Base::Known(_) | Base::Absent | Base::Unknown, _) => Verdict::Clash(Clash::Untrusted),
        },
        other @ (Verdict::Clean | Verdict::Theirs { .. } | Verdict::Clash(_)) => other,
    }
}

/// Whether an object is a file or folder that may have been put there by anybody.
pub(super) fn is_dir(node: Option<&Node>) -> bool {
    node.is_some_and(|n| n.kind() == EntryType::Dir)
}
