//! Receipts: what a landing or an undo did, by whom and to what, signed with the owner's key. One JSON document a file;
//! the signature is over the receipt's canonical text, and the file is that text and nothing else, so that not one byte
//! of it can be changed without being found.

mod verify;

pub use verify::{Verdict, verify};

use super::apply::entry::{forget, sync_folder};
use super::changeset::{Change, Node};
use super::kind::EntryType;
use crate::error::{Context, Result};
use crate::seal::Key;
use crate::session::model::Snapshot;
use crate::session::store::{StateDir, show};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ed25519_dalek::Signer;
use landbox_shared::bytes;
use landbox_shared::digest::Digest;
use landbox_shared::id::SessionId;
use landbox_shared::path::{AbsPath, RelPath};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Version of [`Receipt`].
pub const VERSION: u16 = 1;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Changes were applied to the project.
    Landing,
    /// A landing was taken back.
    Undo,
}

/// What became of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is what the session made of it.
    Landed,
    /// It is the session's and the owner's edits together.
    Merged,
    /// A deleted folder that stays, because it holds something that does not land.
    Stays,
    /// It stays as its owner has it, and counts as dealt with.
    Mine,
    /// It stays as its owner has it, and the session keeps its change.
    Skipped,
    /// It is again what it was before the landing.
    Restored,
}

/// A landing or an undo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// [`VERSION`].
    pub version: u16,
    /// What was done.
    pub kind: Event,
    /// RFC 3339, UTC.
    pub at: String,
    /// Who did it.
    pub uid: u32,
    /// Their name on this machine.
    pub user: Option<String>,
    /// The machine.
    pub host: Option<String>,
    /// Whose changes.
    pub session: SessionId,
    /// The session's name.
    pub name: Option<String>,
    /// The bot it ran.
    pub bot: Option<String>,
    /// Where, in the text form of documents.
    pub project: String,
    /// The bytes, where the text form differs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub project_b64: Option<String>,
    /// Which landing of the session, from one.
    pub number: u32,
    /// What the session was allowed.
    pub policy_digest: Digest,
    /// What was shown, and agreed to.
    pub changeset_digest: Digest,
    /// Path by path.
    pub changes: Vec<Line>,
}

/// One path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Below the project, in the text form of documents.
    pub path: String,
    /// The bytes, where the text form differs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path_b64: Option<String>,
    /// What was there before.
    pub old: Option<Object>,
    /// What is there after.
    pub new: Option<Object>,
    /// What became of it.
    pub result: Outcome,
}

/// What lies, or lay, at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Object {
    /// What it is.
    #[serde(rename = "type")]
    pub kind: EntryType,
    /// Octal; none for a link.
    pub mode: Option<String>,
    /// Bytes of a file.
    pub size: Option<u64>,
    /// Digest of a file's content.
    pub digest: Option<Digest>,
    /// Where a link points.
    pub target: Option<String>,
    /// The bytes, where the text form differs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub target_b64: Option<String>,
}

/// A receipt as it lies on disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signed {
    receipt: Receipt,
    /// The public key, 64 hex digits.
    key: String,
    /// Ed25519, 128 hex digits.
    signature: String,
}

fn text(raw: &[u8]) -> (String, Option<String>) {
    let b64 = bytes::needs_escape(raw).then(|| BASE64_STANDARD.encode(raw));
    (bytes::escape(raw), b64)
}

impl Object {
    fn of(node: &Node) -> Self {
        let digest = match node {
            Node::File { digest, .. } => Some(*digest),
            Node::Dir { .. }
            | Node::Symlink { .. }
            | Node::Special { .. }
            | Node::Unreadable { .. } => None,
        };
        let (target, target_b64) = node.target().map(text).unzip();
        Self {
            kind: node.kind(),
            mode: node.mode().map(super::card::octal),
            size: node.size(),
            digest,
            target,
            target_b64: target_b64.flatten(),
        }
    }
}

impl Line {
    /// The line of a path.
    pub fn new(path: &RelPath, old: Option<&Node>, new: Option<&Node>, result: Outcome) -> Self {
        let (path, path_b64) = text(path.as_bytes());
        let of = |node: Option<&Node>| node.map(Object::of);
        Self { path, path_b64, old: of(old), new: of(new), result }
    }

    /// The lines of a change: two for a rename.
    pub fn of(change: &Change, result: Outcome) -> Vec<Self> {
        let Some(from) = &change.old_path else {
            return vec![Self::new(&change.path, change.old_node(), change.new.as_ref(), result)];
        };
        vec![
            Self::new(from, change.old_node(), None, result),
            Self::new(&change.path, None, change.new.as_ref(), result),
        ]
    }
}

impl Receipt {
    /// The receipt of a landing that is about to be made.
    pub fn landing(
        snapshot: &Snapshot,
        number: u32,
        changeset_digest: Digest,
        changes: Vec<Line>,
    ) -> Self {
        let (project, project_b64) = text(snapshot.policy.project.as_bytes());
        let uid = rustix::process::geteuid().as_raw();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self {
            version: VERSION,
            kind: Event::Landing,
            at: super::apply::now(),
            uid,
            user: user_name(uid),
            host: Some(host).filter(|host| !host.is_empty()),
            session: snapshot.id.clone(),
            name: snapshot.name.clone(),
            bot: snapshot.bot.clone(),
            project,
            project_b64,
            number,
            policy_digest: snapshot.policy_digest,
            changeset_digest,
            changes,
        }
    }

    /// The receipt of taking this landing back.
    #[must_use]
    pub fn undone(&self) -> Self {
        let back = |line: &Line| Line {
            old: line.new.clone(),
            new: line.old.clone(),
            result: Outcome::Restored,
            ..line.clone()
        };
        let uid = rustix::process::geteuid().as_raw();
        let moved = |line: &&Line| match line.result {
            Outcome::Landed | Outcome::Merged => true,
            Outcome::Stays | Outcome::Mine | Outcome::Skipped | Outcome::Restored => false,
        };
        Self {
            kind: Event::Undo,
            at: super::apply::now(),
            uid,
            user: user_name(uid),
            changes: self.changes.iter().filter(moved).map(back).collect(),
            ..self.clone()
        }
    }

    /// Where it will be.
    pub(super) fn path(&self, state: &StateDir) -> PathBuf {
        folder(state).join(self.file_name())
    }

    /// What its file is called.
    pub fn file_name(&self) -> String {
        let kind = match self.kind {
            Event::Landing => "landing",
            Event::Undo => "undo",
        };
        format!("{}-{}-{kind}.json", self.session, self.number)
    }

    /// What is signed.
    fn message(&self) -> Result<Vec<u8>> {
        let mut message = format!("landbox receipt {VERSION}\0").into_bytes();
        serde_json::to_writer(&mut message, self).context(|| "can't write the receipt".into())?;
        Ok(message)
    }

    /// The file's text.
    pub fn sign(&self, key: &Key) -> Result<Vec<u8>> {
        let signature = key.signing().sign(&self.message()?);
        let signed = Signed {
            receipt: self.clone(),
            key: hex(key.signing().verifying_key().as_bytes()),
            signature: hex(&signature.to_bytes()),
        };
        signed.text()
    }

    /// Signs it and keeps it, to be published once what it says has happened. Gives its place.
    pub(super) fn prepare(&self, state: &StateDir, key: &Key) -> Result<PathBuf> {
        let (file, pending) = self.write(state, key)?;
        file.sync_all().context(|| format!("can't write {}", show(&pending)))?;
        sync_folder(&folder(state))?;
        Ok(self.path(state))
    }

    /// The same without bringing it to disk. Gives the file, and where it is until it is published.
    pub(super) fn write(&self, state: &StateDir, key: &Key) -> Result<(File, PathBuf)> {
        let dir = folder(state);
        let what = || format!("can't write the receipt into {}", show(&dir));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).context(what)?;
        let path = pending(&self.path(state));
        // Its name is its own, and nobody reads it before it is published.
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .context(what)?;
        file.write_all(&self.sign(key)?).context(what)?;
        Ok((file, path))
    }
}

impl Signed {
    fn text(&self) -> Result<Vec<u8>> {
        let mut text =
            serde_json::to_vec_pretty(self).context(|| "can't write the receipt".into())?;
        text.push(b'\n');
        Ok(text)
    }
}

/// The folder of the receipts.
pub fn folder(state: &StateDir) -> PathBuf {
    state.root().join("receipts")
}

/// The receipts of a session, the oldest first.
pub fn of(state: &StateDir, session: &SessionId) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder(state)) else { return Vec::new() };
    let number = |path: &Path| -> Option<(u32, bool)> {
        let name = path.file_name()?.to_str()?.strip_suffix(".json")?;
        let (number, kind) =
            name.strip_prefix(session.as_str())?.strip_prefix('-')?.split_once('-')?;
        Some((number.parse().ok()?, kind == "undo"))
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<_> = paths.filter_map(|path| Some((number(&path)?, path))).collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

fn pending(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// Puts a prepared receipt in its place, once.
pub(super) fn publish(path: &Path) -> Result<()> {
    match std::fs::rename(pending(path), path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && path.exists() => {}
        other => other.context(|| format!("can't keep the receipt {}", show(path)))?,
    }
    sync_folder(path.parent().unwrap_or(Path::new("/")))
}

/// Removes a prepared receipt of something that did not happen.
pub(super) fn withdraw(path: &Path) -> Result<()> {
    forget(&pending(path))
}

fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
    }
    out
}

/// A user's name as `/etc/passwd` has it.
fn user_name(uid: u32) -> Option<String> {
    let passwd = std::fs::read("/etc/passwd").ok()?;
    let uid = uid.to_string();
    passwd.split(|b| *b == b'\n').find_map(|line| {
        let mut fields = line.split(|b| *b == b':');
        let name = fields.next()?;
        (fields.nth(1) == Some(uid.as_bytes())).then(|| bytes::escape(name))
    })
}

/// The folder a project lies in, as a receipt names it.
pub fn project(receipt: &Receipt) -> Option<AbsPath> {
    AbsPath::new(bytes::unescape(&receipt.project)?).ok()
}
