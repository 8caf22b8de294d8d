//! What a session's folder says about it.
//!
//! ```text
//! sessions/<id>/                0700
//!   snapshot.json               0400, written once: the frozen policy, its digest, and one of all the rest
//!   state.json                  replaced atomically; there before the first task is
//!   lock                        flocked by the helper while the session runs: the proof of life
//!   controller                  flocked by the controller from before the session can be seen until it has ended
//!   layers/<layer>/upper        what the task wrote
//!   layers/<layer>/work.<n>     overlay work folder of launch n
//!   launches/<n>/               envelope, evidence
//!   base/                       base records and bytes of changed paths
//!   tmp/ vartmp/ outbox/ shim/ files/
//!   log
//! ```

use crate::config::Checkpoints;
use landbox_shared::digest::Digest;
use landbox_shared::event::{Stage, Status};
use landbox_shared::evidence::{HelperMode, OwnerMap};
use landbox_shared::id::{LayerId, SessionId};
use landbox_shared::path::AbsPath;
use landbox_shared::policy::Policy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of [`Snapshot`] and [`State`].
pub const MODEL_VERSION: u16 = 1;

/// The frozen half: written once, mode 0400, never changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// [`MODEL_VERSION`].
    pub version: u16,
    /// The session.
    pub id: SessionId,
    /// The name the owner gave it.
    pub name: Option<String>,
    /// The bot it was started as.
    pub bot: Option<String>,
    /// The configuration file that named the bot, canonical. Unless a mask covers it, the session can read it.
    pub config_file: Option<AbsPath>,
    /// The command, each argument in the text form of [`landbox_shared::bytes`].
    pub command: Vec<String>,
    /// RFC 3339, UTC.
    pub created_at: String,
    /// False for `sandbox: false`: the command ran bare and there are no layers.
    pub isolated: bool,
    /// Whether the bot wants the packaged helper and no other.
    #[serde(default)]
    pub packaged_helper: bool,
    /// When checkpoints are taken.
    #[serde(default)]
    pub checkpoints: Checkpoints,
    /// What the session may do.
    pub policy: Policy,
    /// [`landbox_shared::wire::policy_digest`] of `policy`.
    pub policy_digest: Digest,
    /// Of everything else that is said here. Sessions of before there was one have none.
    #[serde(default)]
    pub digest: Option<Digest>,
}

impl Snapshot {
    /// What [`Snapshot::digest`] is, if nothing was changed.
    pub fn own_digest(&self) -> Option<Digest> {
        #[rustfmt::skip]
        let Self {
            version, id, name, bot, config_file, command, created_at, isolated, packaged_helper, checkpoints,
            // Said by its own.
            policy: _, policy_digest,
            digest: _,
        } = self;
        let who = (version, id, name, bot, config_file, command, created_at);
        let how = (isolated, packaged_helper, checkpoints, policy_digest);
        let bytes = serde_json::to_vec(&(who, how)).ok()?;
        Some(Digest::of("snapshot", &[&bytes]))
    }
}

/// The changing half.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// [`MODEL_VERSION`].
    pub version: u16,
    /// Where the newest launch is.
    pub state: Phase,
    /// Every launch, oldest first.
    pub launches: Vec<Launch>,
    /// Turns that have begun: launches, and lines for a command that rested.
    #[serde(default)]
    pub turns: u32,
    /// What became of the changes.
    pub landing: Landing,
    /// Cached figures of the newest scan: null while running or never scanned.
    pub changes: Option<ChangeCounts>,
}

/// Where a launch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The helper was started.
    Starting,
    /// The task runs.
    Running,
    /// The task ended.
    Exited,
    /// The boundary could not be made or was lost.
    Failed,
}

/// One launch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// From 1.
    pub number: u32,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// RFC 3339, UTC.
    pub ended_at: Option<String>,
    /// How the task ended.
    pub exit: Option<Status>,
    /// What failed.
    pub failure: Option<LaunchFailure>,
    /// What the helper reported, once it did.
    pub boundary: Option<Boundary>,
    /// Per layer, the time just before it was mounted; absent where it could not be taken.
    pub epochs: BTreeMap<LayerId, Epoch>,
}

/// A time on the clock of a layer's lower file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Epoch {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds.
    pub nanoseconds: u32,
}

/// What failed in a launch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaunchFailure {
    /// Which step; null where the helper never spoke.
    pub stage: Option<Stage>,
    /// The path concerned, in text form.
    pub path: Option<String>,
    /// One sentence.
    pub message: String,
}

/// The boundary as the evidence showed it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Boundary {
    /// With what rights the helper ran.
    pub mode: HelperMode,
    /// Which ids are mapped.
    pub owner_map: OwnerMap,
    /// Kinds of the namespaces that differ from the caller's.
    pub namespaces: Vec<String>,
    /// Digest of the evidence, which lies in `launches/<n>/evidence`.
    pub evidence_digest: Digest,
    /// 0 where the kernel has none.
    pub landlock_abi: u32,
}

/// What became of the changes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Landing {
    /// Number of landings, those that were undone included.
    pub count: u32,
    /// The numbers of those that were undone.
    #[serde(default)]
    pub undone: Vec<u32>,
    /// RFC 3339, UTC.
    pub last_at: Option<String>,
    /// RFC 3339, UTC.
    pub discarded_at: Option<String>,
    /// Whether everything written so far is known to be on disk.
    pub synced: bool,
}

/// Figures of a changeset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeCounts {
    /// Changed paths of the project group.
    pub files: u64,
    /// Added lines.
    pub added: u64,
    /// Deleted lines.
    pub deleted: u64,
}
