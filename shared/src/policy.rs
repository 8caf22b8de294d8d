//! What a session may do. Resolved once from configuration and host facts, then frozen in the session's snapshot.

use crate::id::LayerId;
use crate::network::NetworkPolicy;
use crate::path::AbsPath;
use serde::{Deserialize, Serialize};

/// Version of [`Policy`] in a snapshot.
pub const POLICY_VERSION: u16 = 1;

/// Everything a session may read, write and reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// [`POLICY_VERSION`].
    pub version: u16,
    /// User id of the owner and of the task.
    pub uid: u32,
    /// Group id of the owner and of the task.
    pub gid: u32,
    /// The canonical home folder.
    pub home: AbsPath,
    /// The canonical working folder, which is the project.
    pub project: AbsPath,
    /// The layers, outermost first; a layer whose target lies inside another's comes after it.
    pub layers: Vec<LayerPolicy>,
    /// Paths that show as empty. They win over everything else.
    pub masks: Vec<Mask>,
    /// Paths the owner wants read-only, canonical, and mounts that can have no layer.
    pub read_only: Vec<AbsPath>,
    /// Paths that are the real thing, read-write, canonical: `authPaths` and `--auth`.
    pub auth: Vec<AbsPath>,
    /// Credential files kept in step through the merged view, at their declared place.
    pub credentials: Vec<AbsPath>,
    /// Folders through `/run` that hold executables the CLI needs, as `PATH` spells them; shown read-only.
    pub run_folders: Vec<AbsPath>,
    /// What the session may reach over the network.
    pub network: Network,
    /// The system-call filter.
    pub seccomp: SeccompProfile,
    /// Environment variables of the bot, in order.
    pub env: Vec<(String, String)>,
    /// Names removed from the caller's environment; a trailing `*` stands for any ending.
    pub env_removed: Vec<String>,
}

/// One layer of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerPolicy {
    /// Identifier and folder name.
    pub id: LayerId,
    /// What the layer covers.
    pub kind: LayerKind,
    /// The canonical folder it covers; also its lower.
    pub target: AbsPath,
    /// The back end that writes it. A layer is read only by the rules of the back end that wrote it.
    pub backend: Backend,
}

/// What a layer covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerKind {
    /// `$HOME`.
    Home,
    /// The working folder: the only layer that lands.
    Project,
    /// Another file system mounted below one of the others.
    Mount,
    /// The common folder of a linked git worktree.
    Worktree,
}

/// Which overlay implementation writes a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// The kernel's overlayfs in a user namespace, with `userxattr`.
    Kernel,
    /// fuse-overlayfs.
    Fuse,
}

/// A path that shows as empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mask {
    /// The canonical path (through its deepest existing ancestor).
    pub path: AbsPath,
    /// What was there when the session was created.
    pub kind: MaskKind,
}

/// What a mask shows in place of the real thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaskKind {
    /// An empty folder.
    Dir,
    /// An empty file.
    File,
    /// Nothing; it stays hidden when it appears on the host later.
    Missing,
}

/// What a session may reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// The host's network.
    Host,
    /// A namespace with loopback alone.
    None,
    /// A namespace with a user-mode link, filtered by destination address.
    Policy(NetworkPolicy),
}

impl Network {
    /// Whether the session has a network namespace of its own.
    pub fn is_own(&self) -> bool {
        match self {
            Self::Host => false,
            Self::None | Self::Policy(_) => true,
        }
    }

    /// Which of the three it is.
    pub fn kind(&self) -> NetworkKind {
        match self {
            Self::Host => NetworkKind::Host,
            Self::None => NetworkKind::None,
            Self::Policy(_) => NetworkKind::Policy,
        }
    }
}

/// A [`Network`] without what its policy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkKind {
    /// The host's network.
    Host,
    /// A namespace with loopback alone.
    None,
    /// A namespace with a user-mode link, filtered by destination address.
    Policy,
}

/// A set of system-call filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeccompProfile {
    /// Terminal injection, kernel keyrings and foreign system-call interfaces refused.
    Base,
    /// Base, and no other sockets than Internet ones, no namespaces, no rings: what a network policy needs to hold.
    Restricted,
}
