//! For tests alone, of this crate and of those that use it: a small plan that every judge accepts, and evidence that fits it.
//! A test changes the one thing that it is about.
#![allow(clippy::unwrap_used)] // tests

use crate::digest::Digest;
use crate::evidence::{
    CapSets, Evidence, HelperMode, LayerRecord, MountRecord, Namespace, OwnerMap,
};
use crate::id::{LayerId, SessionId};
use crate::path::AbsPath;
use crate::plan::{LayerOp, Op, Plan, Stdio};
use crate::policy::{Backend, Network, NetworkKind, SeccompProfile};

/// An absolute path.
pub fn abs(text: &str) -> AbsPath {
    AbsPath::new(text).unwrap()
}

/// The name of the only layer.
pub fn project() -> LayerId {
    LayerId::new("project").unwrap()
}

/// A layer at `/p`, over the host's network, with these operations after it.
pub fn plan(more: Vec<Op>) -> Plan {
    let layer =
        LayerOp { id: project(), target: abs("/p"), backend: Backend::Kernel, masks: Vec::new() };
    Plan {
        session: SessionId::new("abcdefghij").unwrap(),
        policy_digest: Digest([1; 32]),
        session_dir: abs("/state/sessions/abcdefghij"),
        launch: 1,
        uid: 1000,
        gid: 1000,
        stdio: [Stdio::Pipe; 3],
        cwd: abs("/p"),
        network: Network::Host,
        seccomp: SeccompProfile::Base,
        exec_digest: Digest([3; 32]),
        ops: [vec![Op::Root, Op::Layer(layer)], more].concat(),
    }
}

/// One mount as the kernel lists it.
pub fn mounted(point: &str, fs_type: &str, options: &str) -> MountRecord {
    let device = "0:1".into();
    MountRecord {
        mount_point: abs(point),
        fs_type: fs_type.into(),
        options: options.into(),
        device,
    }
}

/// What the kernel says of [`plan`] without more, of the envelope whose digest is all twos.
pub fn evidence() -> Evidence {
    let namespace = |kind: &str| Namespace { kind: kind.into(), inode: 7, own: true };
    Evidence {
        helper_version: "0".into(),
        mode: HelperMode::Unprivileged,
        policy_digest: Digest([1; 32]),
        envelope_digest: Digest([2; 32]),
        namespaces: ["user", "mnt", "pid", "ipc", "uts"].map(namespace).into(),
        owner_map: OwnerMap::Single,
        second_user_namespace: true,
        mounts: vec![mounted("/", "ext4", "ro,nosuid"), mounted("/p", "overlay", "rw")],
        mount_table_digest: Digest([4; 32]),
        mount_count: 2,
        propagation_private: true,
        caps: CapSets { effective: 0, permitted: 0, inheritable: 0, bounding: 0, ambient: 0 },
        no_new_privs: true,
        seccomp_mode: 2,
        seccomp_filters: 1,
        seccomp_profile: SeccompProfile::Base,
        landlock_abi: 6,
        network: NetworkKind::Host,
        network_boundary: None,
        layers: vec![LayerRecord { id: project(), backend: Backend::Kernel }],
    }
}
