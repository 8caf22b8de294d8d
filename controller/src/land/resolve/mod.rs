//! Resolving: what a landing does with each selected change, judged against the project as it is at that moment.
//!
//! Three objects meet at a path: the **base** B (what the session saw), **mine** M (what is really there) and **theirs** T
//! (what the session left). "Nothing" is an object, too.
//!
//! | B, M, T | state | what happens |
//! |---|---|---|
//! | M = B | clean | T lands |
//! | M = T, whatever B is | merged | both made the same change: nothing is written |
//! | B unknown or not trusted | conflict | |
//! | nothing is there, and what was there cannot be told any more | conflict | nothing is resurrected |
//! | files, one side changed the content, one the mode | merged | both changes are kept |
//! | files, both changed the mode, differently | conflict | |
//! | text files, both changed the content | merged or conflict | as `git merge-file` says |
//! | binary files, or larger than what is kept, both changed the content | conflict | |
//! | a rename whose old name holds the owner's edit of it | merged | the edit moves to the new name |
//! | one side deleted, the other changed | conflict | nothing is resurrected, nothing is emptied |
//! | link retargeted, or another type, on one side and any change on the other | conflict | |
//! | added on both sides, different | conflict | |
//! | the folder it lies in is gone, a link, or no folder | conflict | |
//! | a folder becomes a file while the owner has put something into it, an empty folder, say | conflict | |
//! | a folder becomes a file while the owner has changed a file in it | conflict | both stay, or go, together |
//! | a folder becomes a file, and what it holds is what the base held, empty folders made anew among it | clean | T lands |
//! | a deleted folder in which the owner has put something | clean | what the session knew goes; the folder stays |
//!
//! # What apply takes
//!
//! [`resolve`] gives a [`Resolution`]: one [`Resolved`] for each change that was selected and can land, sorted by path.
//! * [`Resolution::check`] fails (exit 3) while any of them is unsettled; then nothing is applied.
//! * [`Resolution::effective`] says the same as [`Change`]s for the planner: their `old` is what apply must **find** at the
//!   moment of the exchange ([`Expect`]: an object equal in type, mode, size and digest, or link target; where it is
//!   anything else the exchange is taken back and all is undone), their `new` is what apply must **put** there. A path
//!   that stays as it is has none.
//! * Bytes come from [`Resolution::bodies`], which knows the written ones and the layer's.
//! * [`Resolution::folders`] are folders that must be made besides the changeset's own.
//! * [`Resolution::bases`] are the bases once the landing has happened, *not* what was put: a merge leaves the layer with T,
//!   so T is what later edits of the session go on from, and what the owner had of their own stays the owner's.
//! * [`Resolution::settled`]: the layer's object says nothing any more and may leave a stopped session's layer.

mod choose;
#[cfg(test)]
mod folders;
mod judge;
mod look;
#[cfg(test)]
mod matrix;
mod merge;
mod outcome;
#[cfg(test)]
mod random;
mod run;
#[cfg(test)]
mod tests;

pub use choose::{Choice, Choices, Chosen};
pub use outcome::{Resolution, ResolvedBodies};
pub use run::{resolve, resolve_telling};

use super::changeset::{Base, Change, Node};
use super::kind::{ChangeKind, ChangeState};
use super::rules;
use landbox_shared::path::RelPath;
use std::sync::Arc;

/// What must be found at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    Absent,
    /// An object equal to this one.
    Object {
        /// Type, mode, size and digest, or target.
        node: Node,
        /// Device and inode it had when it was looked at, where it was. Another inode of the same content is the owner's
        /// having written the same again, and is as good.
        identity: Option<((u32, u32), u64)>,
    },
}

impl Expect {
    /// The object.
    pub fn node(&self) -> Option<&Node> {
        match self {
            Self::Absent => None,
            Self::Object { node, .. } => Some(node),
        }
    }

    fn of(base: &Base) -> Self {
        match base {
            Base::Absent | Base::Unknown => Self::Absent,
            Base::Known(node) => Self::Object { node: node.clone(), identity: None },
        }
    }
}

/// What is done with a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The session's object is put there, perhaps with another mode; `None` takes away what is there.
    Layer(Option<Node>),
    /// A regular file of these bytes is put there: merged, conflict-marked, or chosen parts.
    Bytes(Written),
    /// The real object stays but for its permission bits, which become those of this.
    Mode(Node),
    /// The real object stays as it is, and the change counts as dealt with.
    Mine,
    /// The real object stays as it is, and so does the change, for another time.
    Skip,
    /// Nobody has decided yet.
    Open(Clash),
}

impl Decision {
    /// The same about another change that waits for it: where nobody has decided, because of `clash`.
    fn over(self, clash: &Clash) -> Self {
        match self {
            Self::Open(_) => Self::Open(clash.clone()),
            other @ (Self::Layer(_) | Self::Bytes(_) | Self::Mode(_) | Self::Mine | Self::Skip) => {
                other
            }
        }
    }
}

/// A file that landing makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its mode, size and digest: a [`Node::File`].
    pub node: Node,
    /// Its content.
    pub bytes: Arc<Vec<u8>>,
}

/// Why the owner must decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clash {
    /// Nobody knows what the session saw.
    Untrusted,
    /// There is nothing now, and nobody knows whether there was when the session made its own.
    Unseen,
    /// Both edited the same lines.
    Lines,
    /// Both changed the content, and it is no text that can be merged.
    Content(&'static str),
    /// Both changed the mode, differently.
    Modes,
    /// The owner deleted what the session changed.
    Gone,
    /// The session deleted what the owner changed.
    Deleted,
    /// Both put something different where nothing was.
    Added,
    /// At least one side made another kind of object of it.
    Types,
    /// Both pointed the link elsewhere.
    Targets,
    /// The folder it lies in is no longer one.
    Folder(RelPath),
    /// A folder that should become something else holds this, which the session never saw.
    Holds(RelPath),
    /// A folder that should become something else holds this, which stays, because the owner has changed it.
    Keeps(RelPath),
}

impl std::fmt::Display for Clash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            Self::Untrusted => {
                "it may have changed meanwhile: nobody knows what it was when the session changed it"
            }
            Self::Unseen => {
                "it is not there, and you may have deleted it meanwhile: names have come or gone in its folder, and \
                 nobody saw what was there when the session made it"
            }
            Self::Lines => "you and the session edited the same lines",
            Self::Content(why) => {
                return write!(f, "you and the session both changed its content, and {why}");
            }
            Self::Modes => "you and the session gave it different permissions",
            Self::Gone => "you deleted it, the session changed it",
            Self::Deleted => "you changed it, the session deleted it",
            Self::Added => "you and the session both made it, differently",
            Self::Types => "you and the session made different kinds of things of it",
            Self::Targets => "you and the session pointed the link to different places",
            Self::Folder(path) => {
                let path = crate::ui::text::visible(path.as_bytes());
                return write!(f, "{path} is no longer the folder that it was");
            }
            Self::Holds(path) => {
                let path = crate::ui::text::visible(path.as_bytes());
                return write!(f, "{path} is there now, which the session never saw");
            }
            Self::Keeps(path) => {
                let path = crate::ui::text::visible(path.as_bytes());
                return write!(f, "you changed {path}, which it holds");
            }
        };
        f.write_str(text)
    }
}

/// One change with what is done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The change as it was scanned.
    pub change: Change,
    /// How the real path stands to it: never [`ChangeState::Drifted`] any more.
    pub state: ChangeState,
    /// Why the owner had, or has, to decide.
    pub clash: Option<Clash>,
    /// What is done.
    pub decision: Decision,
    /// What apply must find at the path.
    pub expect: Expect,
    /// For a rename, what apply must find at its old path.
    pub expect_old: Option<Expect>,
}

impl Resolved {
    /// Whether nobody has decided yet.
    pub fn is_open(&self) -> bool {
        matches!(self.decision, Decision::Open(_))
    }

    /// The change as the owner is shown it: with how it stands, and why, and what is done about it.
    pub fn face(&self) -> Change {
        let done = match &self.decision {
            Decision::Open(_) => None,
            Decision::Mine => Some("yours stays"),
            Decision::Skip => Some("it is left for another time"),
            Decision::Layer(_) => Some("the session's takes its place"),
            Decision::Mode(_) => Some("the session's permissions take the place of yours"),
            Decision::Bytes(_) => Some("both are written, with conflict markers"),
        };
        let reason = match &self.clash {
            None if self.decision == Decision::Mine => Some("you made the same change".to_owned()),
            None => self.change.reason.clone(),
            Some(clash) => Some(match done {
                None => clash.to_string(),
                Some(done) => format!("{clash}; {done}"),
            }),
        };
        Change { state: self.state, reason, ..self.change.clone() }
    }

    /// The change as apply must carry it out: nothing where the project is not touched, two changes where a rename meets
    /// something that a rename can't say.
    pub fn effective(&self) -> Vec<Change> {
        let new = match &self.decision {
            Decision::Layer(node) => node.clone(),
            Decision::Bytes(written) => Some(written.node.clone()),
            Decision::Mode(node) => Some(node.clone()),
            Decision::Mine | Decision::Skip | Decision::Open(_) => return Vec::new(),
        };
        let old = |expect: &Expect| expect.node().cloned().map_or(Base::Absent, Base::Known);
        if let (ChangeKind::Renamed, Some(from), Some(there)) =
            (self.change.kind, &self.change.old_path, &self.expect_old)
        {
            if self.state == ChangeState::Clean {
                return vec![Change { new, ..self.change.clone() }];
            }
            let gone = self.plain(from.clone(), old(there), None);
            let come = self.plain(self.change.path.clone(), old(&self.expect), new);
            return gone.into_iter().chain(come).collect();
        }
        self.plain(self.change.path.clone(), old(&self.expect), new).into_iter().collect()
    }

    /// A change without an old path; `None` if somebody has made it already.
    fn plain(&self, path: RelPath, old: Base, new: Option<Node>) -> Option<Change> {
        if old.node() == new.as_ref() {
            return None;
        }
        let kind = rules::kind(&old, new.as_ref());
        let (old_path, state) = (None, self.state);
        Some(Change { path, kind, old_path, old, new, state, ..self.change.clone() })
    }
}
