//! What a session changed: the layer against the base, as data. No I/O but what [`Bodies`] is asked for.

use super::kind::{ChangeKind, ChangeState, EntryType, Group};
use crate::error::Result;
use landbox_shared::digest::Digest;
use landbox_shared::id::LayerId;
use landbox_shared::path::{AbsPath, RelPath};
use serde::{Deserialize, Serialize};
use std::fs::File;

/// One object: what landing compares and carries. Times and owners are not part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Node {
    /// A regular file.
    File {
        /// Permission bits, `0o7777`.
        mode: u32,
        /// In bytes.
        size: u64,
        /// [`super::content::digest`] of the bytes.
        digest: Digest,
    },
    /// A folder.
    Dir {
        /// Permission bits, `0o7777`.
        mode: u32,
    },
    /// A symbolic link.
    Symlink {
        /// Where it points, as written.
        target: Vec<u8>,
    },
    /// A pipe, socket or device.
    Special {
        /// Which.
        kind: EntryType,
        /// Permission bits, `0o7777`.
        mode: u32,
    },
    /// Something in the layer that cannot be read (mode 000, or a mark this back end never writes).
    Unreadable {
        /// What it is.
        kind: EntryType,
        /// Permission bits, `0o7777`.
        mode: u32,
    },
}

impl Node {
    /// The type.
    pub fn kind(&self) -> EntryType {
        match self {
            Self::File { .. } => EntryType::File,
            Self::Dir { .. } => EntryType::Dir,
            Self::Symlink { .. } => EntryType::Symlink,
            Self::Special { kind, .. } | Self::Unreadable { kind, .. } => *kind,
        }
    }

    /// Permission bits; `None` for a symbolic link, which has none of its own.
    pub fn mode(&self) -> Option<u32> {
        match self {
            Self::File { mode, .. }
            | Self::Dir { mode }
            | Self::Special { mode, .. }
            | Self::Unreadable { mode, .. } => Some(*mode),
            Self::Symlink { .. } => None,
        }
    }

    /// Size of a regular file.
    pub fn size(&self) -> Option<u64> {
        match self {
            Self::File { size, .. } => Some(*size),
            Self::Dir { .. }
            | Self::Symlink { .. }
            | Self::Special { .. }
            | Self::Unreadable { .. } => None,
        }
    }

    /// Target of a symbolic link.
    pub fn target(&self) -> Option<&[u8]> {
        match self {
            Self::Symlink { target } => Some(target),
            Self::File { .. }
            | Self::Dir { .. }
            | Self::Special { .. }
            | Self::Unreadable { .. } => None,
        }
    }
}

/// What was really there when the session first wrote the path; after a landing, what was landed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Base {
    /// Nothing.
    Absent,
    /// This.
    Known(Node),
    /// The real path had already changed when it was first looked at: nobody knows. Such a path is drifted.
    Unknown,
}

impl Base {
    /// The object, where it is known and there was one.
    pub fn node(&self) -> Option<&Node> {
        match self {
            Self::Known(node) => Some(node),
            Self::Absent | Self::Unknown => None,
        }
    }
}

/// One changed path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whose layer.
    pub layer: LayerId,
    /// Below the layer's target.
    pub path: RelPath,
    /// How.
    pub kind: ChangeKind,
    /// For [`ChangeKind::Renamed`], where it was; then `old` is what was there.
    pub old_path: Option<RelPath>,
    /// The base.
    pub old: Base,
    /// What the session left; `None` for nothing.
    pub new: Option<Node>,
    /// Its group.
    pub group: Group,
    /// Whether the real path is still the base.
    pub state: ChangeState,
    /// Whether apply can carry it.
    pub landable: bool,
    /// Why it can't, or what the owner should know about it. A sentence without a full stop.
    pub reason: Option<String>,
}

impl Change {
    /// The old object, where there was one and it is known.
    pub fn old_node(&self) -> Option<&Node> {
        self.old.node()
    }
}

/// The bytes of a file as it was.
#[derive(Debug)]
pub enum OldBytes {
    /// From the base store.
    Kept(Vec<u8>),
    /// The real file still has them.
    Real(File),
}

/// Gives the bytes of regular files in a changeset.
pub trait Bodies: Sync {
    /// The bytes of `change.old` (a [`Node::File`]); `None` where they are no longer to be had, because the owner has
    /// changed the file meanwhile and the bytes were too many to keep.
    fn old_bytes(&self, change: &Change) -> Result<Option<OldBytes>>;

    /// The bytes of `change.new` (a [`Node::File`]).
    fn new_bytes(&self, change: &Change) -> Result<File>;
}

/// What one layer holds: changes, and the folders that come and go with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changeset {
    /// The layer.
    pub layer: LayerId,
    /// The real folder.
    pub target: AbsPath,
    /// Sorted by path.
    pub changes: Vec<Change>,
    /// Sorted by path.
    pub folders: Vec<ImpliedFolder>,
}

/// A folder that is not a change of its own, because others below it are and its mode is an ordinary one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpliedFolder {
    /// Below the layer's target.
    pub path: RelPath,
    /// The mode to make it with; `None` if it is to go once it is empty.
    pub make: Option<u32>,
    /// Whether the real path is still the base.
    pub state: ChangeState,
}
