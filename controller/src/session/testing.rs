//! Sessions for unit tests.

use super::model::{MODEL_VERSION, Snapshot};
use crate::config::Checkpoints;
use landbox_shared::id::{LayerId, SessionId};
use landbox_shared::path::AbsPath;
use landbox_shared::policy::{
    Backend, LayerKind, LayerPolicy, Network, POLICY_VERSION, Policy, SeccompProfile,
};
use landbox_shared::wire;

/// A snapshot with a home and a project layer.
pub(crate) fn snapshot(id: &str, name: Option<&str>) -> Snapshot {
    let abs = |path: &str| AbsPath::new(path).unwrap();
    let layer = |id: &str, kind, target| LayerPolicy {
        id: LayerId::new(id).unwrap(),
        kind,
        target: abs(target),
        backend: Backend::Kernel,
    };
    let policy = Policy {
        version: POLICY_VERSION,
        uid: 1000,
        gid: 1000,
        home: abs("/home/u"),
        project: abs("/home/u/p"),
        layers: vec![
            layer("home", LayerKind::Home, "/home/u"),
            layer("project", LayerKind::Project, "/home/u/p"),
        ],
        masks: Vec::new(),
        read_only: Vec::new(),
        auth: vec![abs("/home/u/auth")],
        credentials: vec![abs("/home/u/.cli/token.json"), abs("/home/u/auth")],
        run_folders: Vec::new(),
        network: Network::None,
        seccomp: SeccompProfile::Base,
        env: Vec::new(),
        env_removed: Vec::new(),
    };
    Snapshot {
        version: MODEL_VERSION,
        id: SessionId::new(id).unwrap(),
        name: name.map(str::to_owned),
        bot: None,
        config_file: None,
        command: vec!["true".into(), "a\\xff".into()],
        created_at: "2026-01-01T00:00:00Z".into(),
        isolated: true,
        packaged_helper: false,
        checkpoints: Checkpoints::Manual,
        policy_digest: wire::policy_digest(&policy).unwrap(),
        policy,
        digest: None,
    }
}
