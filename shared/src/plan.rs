//! What to do: the ordered, closed list of operations that makes a policy true on one host.

use crate::digest::Digest;
use crate::id::{LayerId, SessionId};
use crate::path::{AbsPath, RelPath};
use crate::policy::{Backend, MaskKind, Network, SeccompProfile};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashSet};
use std::iter::successors;

/// One launch of one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The session.
    pub session: SessionId,
    /// Digest of the frozen policy this plan was compiled from.
    pub policy_digest: Digest,
    /// The session's folder. Uppers, work folders and everything an [`Op::Private`] shows lie beneath it.
    pub session_dir: AbsPath,
    /// Number of this launch, from 1; names the work folders (`layers/<id>/work.<launch>`).
    pub launch: u32,
    /// The caller's effective user id.
    pub uid: u32,
    /// The caller's effective group id.
    pub gid: u32,
    /// What descriptors 0, 1 and 2 are.
    pub stdio: [Stdio; 3],
    /// Where the task starts; re-opened by path in the new root.
    pub cwd: AbsPath,
    /// What the session may reach.
    pub network: Network,
    /// The system-call filter.
    pub seccomp: SeccompProfile,
    /// Digest of the [`crate::exec::Exec`] frame that follows the envelope.
    pub exec_digest: Digest,
    /// The operations, in order; later ones win.
    pub ops: Vec<Op>,
}

impl Plan {
    /// The layers, in order.
    pub fn layers(&self) -> impl Iterator<Item = &LayerOp> {
        self.ops.iter().filter_map(|op| match op {
            Op::Layer(layer) => Some(layer),
            Op::Root
            | Op::Proc
            | Op::Dev { .. }
            | Op::Tmpfs { .. }
            | Op::Private { .. }
            | Op::Bind { .. }
            | Op::Mask { .. } => None,
        })
    }
}

impl Plan {
    /// How many programs beside the task it takes: a daemon a fuse layer, and the link of a network policy.
    pub fn children(&self) -> usize {
        let fuse = self.layers().filter(|layer| layer.backend == Backend::Fuse).count();
        fuse + usize::from(matches!(self.network, Network::Policy(_)))
    }
}

/// What one of the descriptors 0 to 2 is. Never a descriptor of the caller's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdio {
    /// The slave of the session's pseudo-terminal.
    Pty,
    /// A pipe the controller copies.
    Pipe,
}

impl Stdio {
    /// Whether a descriptor of the caller's, of a file with this mode, may be in its place. One that a caller opened leads,
    /// opened again through `/proc/self/fd`, to the real file through the caller's own mount, whatever is read-only inside.
    /// So a pipe, or nothing of the caller's: a terminal is opened anew.
    pub fn allows(self, mode: u32) -> bool {
        const KIND: u32 = 0o170_000;
        const PIPE: u32 = 0o010_000;
        match self {
            Self::Pty => true,
            Self::Pipe => mode & KIND == PIPE,
        }
    }
}

/// Read-only or read-write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Reading alone.
    ReadOnly,
    /// Reading and writing.
    ReadWrite,
}

/// One operation. Every path is canonical; targets are entered by descriptor without following a link in the last step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Binds the host's `/` recursively, read-only and nosuid, as the new root. First, and once.
    Root,
    /// Mounts a fresh `/proc` whose writable system parts are read-only. Once.
    Proc,
    /// Mounts a minimal `/dev` with its own devpts. Once.
    Dev {
        /// Path of the pseudo-terminal slave on the host, bound on `/dev/console`.
        console: Option<AbsPath>,
    },
    /// Mounts an empty tmpfs (`/run`, `/dev/shm`). Mount points below it are made as needed.
    Tmpfs {
        /// Where.
        target: AbsPath,
        /// Mode of its root, octal permission bits.
        mode: u32,
        /// Size limit in bytes.
        size: u64,
    },
    /// Shows a folder or file of the session's own folder (private `/tmp`, outbox, shim, private copies).
    Private {
        /// Beneath the session folder.
        source: RelPath,
        /// Where.
        target: AbsPath,
        /// How.
        access: Access,
    },
    /// Mounts a layer: lower is the real target, upper is `layers/<id>/upper` beneath the session folder.
    Layer(LayerOp),
    /// Binds a real path. Both must be of the same kind (folder or not).
    Bind {
        /// The real path.
        source: AbsPath,
        /// Where.
        target: AbsPath,
        /// How.
        access: Access,
    },
    /// Hides a path outside the layers (inside them, [`LayerOp::masks`]).
    Mask {
        /// What is hidden.
        target: AbsPath,
        /// What shows in its place.
        kind: MaskKind,
        /// What it means when the mask is gone.
        loss: Loss,
    },
}

/// What it means for a session to lose a mask outside its layers. A mount on a path of the host falls off when the host
/// removes or replaces that path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Loss {
    /// The session ends: for what the owner hid, and for Landbox's own folders.
    EndsSession,
    /// The session goes on, and a mask whose path is gone before it could be made is left out: for what Landbox hides by
    /// itself (the host's sockets and other `/proc`, second names of what is hidden), which comes and goes with the
    /// host's services and mounts.
    ///
    /// What was hidden is gone as well then. What the host makes later at the same place may show: a service that starts
    /// again can be connected to. It stays hidden wherever the folder around it is there still and could be covered
    /// whole, which is the rule.
    Tolerated,
}

impl Op {
    /// The place where this shows something real of the host's to be written.
    pub fn shown_writable(&self) -> Option<&AbsPath> {
        match self {
            Self::Bind { source: _, target, access: Access::ReadWrite } => Some(target),
            Self::Bind { source: _, target: _, access: Access::ReadOnly }
            | Self::Root
            | Self::Proc
            | Self::Dev { .. }
            | Self::Tmpfs { .. }
            | Self::Private { .. }
            | Self::Layer(_)
            | Self::Mask { .. } => None,
        }
    }
}

/// One layer to mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerOp {
    /// Identifier and folder name.
    pub id: LayerId,
    /// The real folder, which is both the lower and the place the merged view appears.
    pub target: AbsPath,
    /// Which overlay implementation.
    pub backend: Backend,
    /// Paths hidden inside this layer. A path below another mask of the same layer is left out.
    pub masks: Vec<LayerMask>,
}

impl LayerOp {
    /// Whether no mask of this layer is there twice or lies in another.
    pub fn masks_are_apart(&self) -> bool {
        let all: HashSet<&RelPath> = self.masks.iter().map(|mask| &mask.path).collect();
        let in_another =
            |path: &RelPath| successors(path.parent(), RelPath::parent).any(|p| all.contains(&p));
        all.len() == self.masks.len() && !all.iter().any(|path| in_another(path))
    }
}

/// A path hidden inside a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerMask {
    /// Below the layer's target.
    pub path: RelPath,
    /// What shows in its place.
    pub kind: MaskKind,
}

/// Whether something shown at `target` would show what one of `masks` hides: it lies in a mask, or covers one.
pub fn opens_a_mask(target: &AbsPath, masks: &BTreeSet<&AbsPath>) -> bool {
    let inside = successors(Some(target.clone()), AbsPath::parent).any(|p| masks.contains(&p));
    // Sorted by bytes, whatever lies below a path comes after it, but not always next to it.
    let after = masks.range::<AbsPath, _>(target..);
    let mut after = after.take_while(|mask| mask.as_bytes().starts_with(target.as_bytes()));
    inside || after.any(|mask| mask.is_within(target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pipe_may_be_in_a_pipes_place() {
        let kinds = [0o010_600, 0o100_644, 0o020_620, 0o140_755, 0o040_755, 0o060_660];
        assert_eq!(kinds.map(|mode| Stdio::Pipe.allows(mode)), kinds.map(|mode| mode == 0o010_600));
        assert!(kinds.into_iter().all(|mode| Stdio::Pty.allows(mode)));
    }

    #[test]
    fn a_target_in_or_around_a_mask_opens_it_and_a_neighbour_does_not() {
        let abs = |text: &str| AbsPath::new(text).unwrap();
        let masks = ["/a/b", "/a-b", "/c"].map(abs);
        let masks = masks.iter().collect();
        for opens in ["/", "/a", "/a/b", "/a/b/c", "/c/d"] {
            assert!(opens_a_mask(&abs(opens), &masks), "{opens}");
        }
        for apart in ["/a/bc", "/a/a", "/a-", "/d", "/cd"] {
            assert!(!opens_a_mask(&abs(apart), &masks), "{apart}");
        }
    }
}
