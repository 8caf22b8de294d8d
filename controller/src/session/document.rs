//! The session document of the contract: every key, always.

use super::egress::Ledger;
use super::model::{Boundary, Launch, LaunchFailure, Phase};
use super::store::Session;
use super::traffic;
use crate::document::{bytes_array_entry, bytes_entry};
use crate::land::checkpoint::{Checkpoint, Skipped};
use landbox_shared::bytes;
use landbox_shared::evidence::HelperMode;
use landbox_shared::path::{AbsPath, RelPath};
use landbox_shared::policy::{Backend, LayerKind, Network, SeccompProfile};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::os::unix::ffi::OsStrExt;

/// What is not in the session's folder and must be found out for the document.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Whether a controller or helper is alive.
    pub running: bool,
    /// Bytes of each layer, in policy order; empty where nobody counted.
    pub layer_bytes: Vec<u64>,
    /// Host sockets that the task can reach.
    pub reachable_sockets: Vec<AbsPath>,
    /// Changed paths that the owner has changed meanwhile, too.
    pub owner_edits: Vec<RelPath>,
    /// Where its traffic went.
    pub egress: Option<Ledger>,
    /// What of its landings can be undone.
    pub undo: Option<Undoable>,
    /// Its checkpoints, oldest first.
    pub checkpoints: Vec<Checkpoint>,
    /// What all of them take on the disk.
    pub checkpoint_bytes: u64,
    /// Why the newest turn began without one.
    pub skipped: Option<Skipped>,
    /// The receipts of its landings and undos.
    pub receipts: Vec<std::path::PathBuf>,
}

/// What of a session's landings can be undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Undoable {
    /// Number of landings, to be undone the last first.
    pub count: u64,
    /// Until when the last one is kept. RFC 3339, UTC.
    pub until: String,
    /// What the old files take.
    pub bytes: u64,
}

/// One session as a document.
#[derive(Clone, Debug)]
pub struct Document<'a> {
    session: &'a Session,
    findings: &'a Findings,
}

/// A session that ended without a word: whatever ran it was killed.
const INTERRUPTED: &str =
    "interrupted: landbox or its helper was ended from outside; the layers are kept";

impl<'a> Document<'a> {
    /// Puts what is stored and what was found together.
    pub fn new(session: &'a Session, findings: &'a Findings) -> Self {
        Self { session, findings }
    }

    /// Where the session is, knowing whether anything of it is alive.
    pub fn phase(&self) -> Phase {
        match self.session.state.state {
            Phase::Starting | Phase::Running if !self.findings.running => Phase::Failed,
            phase @ (Phase::Starting | Phase::Running | Phase::Exited | Phase::Failed) => phase,
        }
    }

    fn last(&self) -> Option<&'a Launch> {
        self.session.state.launches.last()
    }

    /// What failed, if anything did.
    pub fn failure(&self) -> Option<LaunchFailure> {
        let stored = self.last().and_then(|launch| launch.failure.clone());
        stored.or_else(|| {
            (self.phase() == Phase::Failed).then(|| LaunchFailure {
                stage: None,
                path: None,
                message: INTERRUPTED.into(),
            })
        })
    }

    /// Every real file or folder the task can write.
    pub fn real_writes(&self) -> Vec<&'a AbsPath> {
        let policy = &self.session.snapshot.policy;
        let mut paths: Vec<&AbsPath> = policy.auth.iter().chain(&policy.credentials).collect();
        paths.sort();
        paths.dedup();
        paths
    }

    /// Whether there is something to land. Unknown counts as no.
    pub fn is_pending(&self) -> bool {
        let state = &self.session.state;
        state.landing.discarded_at.is_none() && state.changes.is_some_and(|c| c.files > 0)
    }
}

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Session { snapshot, state, .. } = self.session;
        let policy = &snapshot.policy;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &snapshot.id)?;
        map.serialize_entry("name", &snapshot.name)?;
        map.serialize_entry("bot", &snapshot.bot)?;
        bytes_array_entry(&mut map, "command", &raw(&snapshot.command))?;
        bytes_entry(&mut map, "workdir", Some(policy.project.as_bytes()))?;
        bytes_entry(&mut map, "home", Some(policy.home.as_bytes()))?;
        map.serialize_entry("created_at", &snapshot.created_at)?;
        let last = self.last();
        map.serialize_entry("ended_at", &last.and_then(|l| l.ended_at.as_ref()))?;
        map.serialize_entry("state", &self.phase())?;
        map.serialize_entry("exit", &last.and_then(|l| l.exit))?;
        map.serialize_entry("failure", &self.failure().map(FailureFace))?;
        map.serialize_entry("isolated", &snapshot.isolated)?;
        map.serialize_entry("boundary", &snapshot.isolated.then_some(BoundaryFace(self)))?;
        let layers: Vec<LayerFace<'_>> = if snapshot.isolated {
            (0..policy.layers.len()).map(|index| LayerFace { document: self, index }).collect()
        } else {
            Vec::new()
        };
        map.serialize_entry("layers", &layers)?;
        bytes_array_entry(&mut map, "real_writes", &raw_paths(&self.real_writes()))?;
        let hidden: Vec<&AbsPath> = policy.masks.iter().map(|mask| &mask.path).collect();
        bytes_array_entry(&mut map, "hidden", &raw_paths(&hidden))?;
        let read_only: Vec<&AbsPath> = policy.read_only.iter().collect();
        bytes_array_entry(&mut map, "read_only", &raw_paths(&read_only))?;
        let sockets: Vec<&AbsPath> = self.findings.reachable_sockets.iter().collect();
        bytes_array_entry(&mut map, "reachable_sockets", &raw_paths(&sockets))?;
        map.serialize_entry("changes", &state.changes)?;
        let edits = &self.findings.owner_edits;
        let edits: Vec<&[u8]> = edits.iter().map(RelPath::as_bytes).collect();
        bytes_array_entry(&mut map, "owner_edits", &edits)?;
        map.serialize_entry("landing", &LandingFace(self))?;
        map.serialize_entry("checkpoints", &self.findings.checkpoints)?;
        map.serialize_entry("checkpoint_bytes", &self.findings.checkpoint_bytes)?;
        map.serialize_entry("turns", &state.turns)?;
        map.serialize_entry("checkpoint_skipped", &self.findings.skipped)?;
        let egress = match (&policy.network, &self.findings.egress) {
            (Network::Policy(network), Some(ledger)) => Some(traffic::Face::new(network, ledger)),
            (Network::Host | Network::None | Network::Policy(_), _) => None,
        };
        map.serialize_entry("egress", &egress)?;
        map.end()
    }
}

fn raw(texts: &[String]) -> Vec<Vec<u8>> {
    texts.iter().map(|t| bytes::unescape(t).unwrap_or_else(|| t.clone().into_bytes())).collect()
}

fn raw_paths<'a>(paths: &[&'a AbsPath]) -> Vec<&'a [u8]> {
    paths.iter().map(|path| path.as_bytes()).collect()
}

struct FailureFace(LaunchFailure);

impl Serialize for FailureFace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("stage", &self.0.stage)?;
        let path = self.0.path.as_ref().and_then(|text| bytes::unescape(text));
        bytes_entry(&mut map, "path", path.as_deref())?;
        map.serialize_entry("message", &self.0.message)?;
        map.end()
    }
}

struct LandingFace<'a>(&'a Document<'a>);

impl Serialize for LandingFace<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Document { session, findings } = self.0;
        let landing = &session.state.landing;
        let receipts = findings.receipts.iter().map(|path| path.as_os_str().as_bytes());
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("pending", &self.0.is_pending())?;
        map.serialize_entry("count", &landing.count)?;
        map.serialize_entry("last_at", &landing.last_at)?;
        map.serialize_entry("discarded_at", &landing.discarded_at)?;
        map.serialize_entry("undone", &landing.undone.len())?;
        map.serialize_entry("undo", &findings.undo)?;
        bytes_array_entry(&mut map, "receipts", &receipts.collect::<Vec<_>>())?;
        map.end()
    }
}

struct BoundaryFace<'a>(&'a Document<'a>);

impl Serialize for BoundaryFace<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let snapshot = &self.0.session.snapshot;
        let known: Option<&Boundary> = self.0.last().and_then(|launch| launch.boundary.as_ref());
        let network = match &snapshot.policy.network {
            Network::Host => "host",
            Network::None => "none",
            Network::Policy(_) => "policy",
        };
        let seccomp = match snapshot.policy.seccomp {
            SeccompProfile::Base => "base",
            SeccompProfile::Restricted => "restricted",
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("network", network)?;
        map.serialize_entry("seccomp", seccomp)?;
        map.serialize_entry("owner_map", &known.map(|b| b.owner_map))?;
        map.serialize_entry("namespaces", &known.map(|b| &b.namespaces))?;
        map.serialize_entry("policy_digest", &snapshot.policy_digest)?;
        map.serialize_entry("evidence_digest", &known.map(|b| b.evidence_digest))?;
        map.serialize_entry("landlock_abi", &known.map(|b| b.landlock_abi))?;
        map.serialize_entry("helper", &known.map(|b| b.mode))?;
        map.end()
    }
}

struct LayerFace<'a> {
    document: &'a Document<'a>,
    index: usize,
}

impl Serialize for LayerFace<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(layer) = self.document.session.snapshot.policy.layers.get(self.index) else {
            return serializer.serialize_none();
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &layer.id)?;
        map.serialize_entry("kind", layer_kind(layer.kind))?;
        bytes_entry(&mut map, "target", Some(layer.target.as_bytes()))?;
        map.serialize_entry("overlay", overlay(self.document.session, layer.backend))?;
        map.serialize_entry("bytes", &self.document.findings.layer_bytes.get(self.index))?;
        map.end()
    }
}

/// The word of the contract for a kind of layer.
pub fn layer_kind(kind: LayerKind) -> &'static str {
    match kind {
        LayerKind::Home => "home",
        LayerKind::Project => "project",
        LayerKind::Mount => "mount",
        LayerKind::Worktree => "worktree",
    }
}

/// The word of the contract for a layer's back end.
pub fn overlay(session: &Session, backend: Backend) -> &'static str {
    let root = session
        .state
        .launches
        .last()
        .and_then(|launch| launch.boundary.as_ref())
        .map_or(session.snapshot.policy.uid == 0, |b| b.mode == HelperMode::Root);
    match backend {
        Backend::Fuse => "fuse",
        Backend::Kernel if root => "kernel-root",
        Backend::Kernel => "kernel-user",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::store::StateDir;
    use crate::session::testing::snapshot;

    #[test]
    fn every_key_is_there_from_the_first_moment_and_absent_is_null() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(&dir.path().join("state")).unwrap();
        let session = state.create(snapshot("aaaaaaaaaa", None)).unwrap();
        let findings = Findings { running: true, ..Findings::default() };
        let value = serde_json::to_value(Document::new(&session, &findings)).unwrap();
        let keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        let mut wanted = vec![
            "id",
            "name",
            "bot",
            "command",
            "command_b64",
            "workdir",
            "home",
            "created_at",
            "ended_at",
            "state",
            "exit",
            "failure",
            "isolated",
            "boundary",
            "layers",
            "real_writes",
            "hidden",
            "read_only",
            "reachable_sockets",
            "changes",
            "owner_edits",
            "landing",
            "checkpoints",
            "checkpoint_bytes",
            "turns",
            "checkpoint_skipped",
            "egress",
        ];
        wanted.sort_unstable();
        let mut found = keys.clone();
        found.sort_unstable();
        assert_eq!(found, wanted);
        assert_eq!(value["state"], "starting");
        for key in ["name", "ended_at", "exit", "failure", "changes", "egress"] {
            assert!(value[key].is_null(), "{key}");
        }
        assert_eq!(value["boundary"]["network"], "none");
        assert!(value["boundary"]["evidence_digest"].is_null());
        assert_eq!(value["layers"][1]["overlay"], "kernel-user");
        assert!(value["layers"][1]["bytes"].is_null());
        assert_eq!(value["real_writes"].as_array().unwrap().len(), 2);
        assert_eq!(value["landing"]["pending"], false);
        assert_eq!(value["command"][1], "a\\xff");
    }

    #[test]
    fn a_session_whose_helper_died_without_a_word_has_failed() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(&dir.path().join("state")).unwrap();
        let mut session = state.create(snapshot("aaaaaaaaaa", None)).unwrap();
        session.state.state = Phase::Running;
        let dead = Findings::default();
        let value = serde_json::to_value(Document::new(&session, &dead)).unwrap();
        assert_eq!(value["state"], "failed");
        assert!(value["failure"]["message"].as_str().unwrap().starts_with("interrupted"));
    }
}
