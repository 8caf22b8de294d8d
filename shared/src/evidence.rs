//! What is true now: read back from the kernel by the helper after the boundary was set up, before the task starts.

use crate::digest::Digest;
use crate::id::LayerId;
use crate::network::route::LinkRecord;
use crate::network::ruleset::Ruleset;
use crate::path::AbsPath;
use crate::policy::{Backend, NetworkKind, SeccompProfile};
use crate::wire::WireError;
use serde::{Deserialize, Serialize};

/// The read-back of one launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Version of the helper.
    pub helper_version: String,
    /// With what rights the helper ran.
    pub mode: HelperMode,
    /// Digest of the policy named by the plan.
    pub policy_digest: Digest,
    /// Digest of the envelope that was carried out.
    pub envelope_digest: Digest,
    /// The namespaces of the task.
    pub namespaces: Vec<Namespace>,
    /// Which ids the task's world maps.
    pub owner_map: OwnerMap,
    /// Whether the task runs in a user namespace of its own inside the one that owns the boundary.
    pub second_user_namespace: bool,
    /// The mounts the plan asked for, as the kernel lists them in the task's mount namespace, in plan order.
    pub mounts: Vec<MountRecord>,
    /// Digest over every mount of the task's namespace: mount point, root, type, flags, device.
    pub mount_table_digest: Digest,
    /// Number of mounts in the task's namespace.
    pub mount_count: u32,
    /// Whether no mount has a peer group or a master.
    pub propagation_private: bool,
    /// The task's capability sets.
    pub caps: CapSets,
    /// The task's `NoNewPrivs`.
    pub no_new_privs: bool,
    /// The task's `Seccomp` mode (2 = filter).
    pub seccomp_mode: u8,
    /// Number of filters on the task.
    pub seccomp_filters: u32,
    /// The profile those filters were compiled from.
    pub seccomp_profile: SeccompProfile,
    /// Landlock ABI whose scoping is on; 0 where the kernel has none.
    pub landlock_abi: u32,
    /// What the session may reach. The policy itself, of which there can be a lot, is in the plan that the envelope's digest
    /// names; the rules that were made of it have a digest in the boundary.
    pub network: NetworkKind,
    /// What holds it to a policy; `None` where there is none.
    pub network_boundary: Option<NetworkRecord>,
    /// The layers, in plan order; their merged roots travel beside this as descriptors, in the same order.
    pub layers: Vec<LayerRecord>,
}

/// `Seccomp` of a process with filters.
const FILTERED: u8 = 2;

impl Evidence {
    /// What is wrong with the task whatever the plan was; `None` for one that has nothing left to misuse.
    pub fn flaw(&self) -> Option<&'static str> {
        let filtered = self.seccomp_mode == FILTERED;
        [
            (self.caps.is_empty(), "the task has capabilities"),
            (self.no_new_privs, "the task may gain privileges"),
            (filtered && self.seccomp_filters > 0, "the task has no system-call filter"),
            (self.propagation_private, "mounts of the host could appear inside"),
            (
                (self.network == NetworkKind::Policy) == self.network_boundary.is_some(),
                "the network is not held to its policy",
            ),
        ]
        .into_iter()
        .find_map(|(whole, flaw)| (!whole).then_some(flaw))
    }
}

/// What `/proc/PID/status` says of the task's rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskStatus {
    /// Its capability sets.
    pub caps: CapSets,
    /// `NoNewPrivs`.
    pub no_new_privs: bool,
    /// `Seccomp`.
    pub seccomp_mode: u8,
    /// `Seccomp_filters`.
    pub seccomp_filters: u32,
}

/// With what rights the helper ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HelperMode {
    /// With none, in an unprivileged user namespace.
    Unprivileged,
    /// With the packaged file capability.
    Capable,
    /// Called by root.
    Root,
}

impl HelperMode {
    /// What it means, in a few words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Unprivileged => "without privilege: your own keys count",
            Self::Capable => "with its file capability: the keys in /etc/landbox/trusted.d count",
            Self::Root => "as root: root's keys and those in /etc/landbox/trusted.d count",
        }
    }
}

/// What holds a session's traffic to its policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkRecord {
    /// Digest of the packet filter's rules, as they were read back.
    pub rules: Digest,
    /// Number of elements in their sets.
    pub elements: u32,
    /// The packet filter's generation; it grows with every change.
    pub generation: u32,
    /// The link.
    pub link: LinkRecord,
    /// Whether the kernel refuses the task a user namespace of its own, beside the filter that does.
    pub user_namespaces_closed: bool,
}

impl NetworkRecord {
    /// The record of what was read back; `limit` is what N says of the number of user namespaces it takes.
    pub fn new(
        table: &Ruleset,
        generation: u32,
        link: LinkRecord,
        limit: &str,
    ) -> Result<Self, WireError> {
        Ok(Self {
            rules: table.digest()?,
            elements: u32::try_from(table.elements()).unwrap_or(u32::MAX),
            generation,
            link,
            // T is the one there is, where there is one.
            user_namespaces_closed: matches!(limit.trim(), "0" | "1"),
        })
    }
}

/// Which ids a session's user namespace maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerMap {
    /// The caller's own id alone.
    Single,
    /// The caller's whole map: only where the caller is root.
    Full,
}

/// The kinds of namespaces evidence speaks of, as the kernel names them.
pub const NAMESPACES: [&str; 6] = ["user", "mnt", "pid", "ipc", "uts", "net"];

/// A namespace, named by its kind and inode number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// `user`, `mnt`, `pid`, `ipc`, `uts` or `net`.
    pub kind: String,
    /// Inode number of `/proc/PID/ns/<kind>`.
    pub inode: u64,
    /// Whether it differs from the caller's.
    pub own: bool,
}

/// One mount as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountRecord {
    /// Mount point in the new root.
    pub mount_point: AbsPath,
    /// File-system type.
    pub fs_type: String,
    /// Per-mount options, as listed (`ro,nosuid,relatime`).
    pub options: String,
    /// Device, `major:minor`.
    pub device: String,
}

/// Capability sets as bit masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapSets {
    /// `CapEff`.
    pub effective: u64,
    /// `CapPrm`.
    pub permitted: u64,
    /// `CapInh`.
    pub inheritable: u64,
    /// `CapBnd`.
    pub bounding: u64,
    /// `CapAmb`.
    pub ambient: u64,
}

impl CapSets {
    /// Whether every set is empty.
    pub fn is_empty(&self) -> bool {
        let Self { effective, permitted, inheritable, bounding, ambient } = *self;
        effective | permitted | inheritable | bounding | ambient == 0
    }
}

/// One layer as it was mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerRecord {
    /// Identifier.
    pub id: LayerId,
    /// The back end the kernel lists at its mount point.
    pub backend: Backend,
}
