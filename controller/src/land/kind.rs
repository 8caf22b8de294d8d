//! The words of a changeset, as the documents spell them.

use serde::{Deserialize, Serialize};

/// What happened to a path: the first that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// A fifo, socket or device is or was there.
    Special,
    /// File, folder or link became another of these.
    Type,
    /// The same content under another name.
    Renamed,
    /// It was not there.
    Added,
    /// It is gone.
    Deleted,
    /// A link points elsewhere.
    Symlink,
    /// Other content, perhaps another mode too.
    Modified,
    /// Another mode alone.
    Mode,
}

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryType {
    /// A regular file.
    File,
    /// A folder.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// Which part of the project a path belongs to.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// The project proper.
    #[default]
    Project,
    /// What the owner's ignore rules cover and git does not track.
    Ignored,
    /// Git's own files: shown, never landed.
    Git,
}

/// How the real path stands to the base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeState {
    /// The real path is the base.
    #[default]
    Clean,
    /// The real path is no longer the base, or the base is unknown.
    Drifted,
    /// The owner's edit and the session's were merged.
    Merged,
    /// The owner's edit and the session's touch.
    Conflict,
}

/// Whether a layer's data would survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// All of it is on disk.
    Synced,
    /// Some may still be in memory alone.
    Unsynced,
}
