//! What a checkpoint says, and the folder in which they lie.

use crate::error::{Context, Failure, Kind, Result};
use crate::land::kind::EntryType;
use crate::session::store::{Session, show, write_json};
use landbox_shared::digest::Digest;
use landbox_shared::id::LayerId;
use landbox_shared::path::RelPath;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const VERSION: u16 = 1;
const FOLDER: &str = "checkpoints";
const REWINDING: &str = "rewinding";

/// A checkpoint, for people and documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checkpoint {
    /// From 1.
    pub number: u32,
    /// RFC 3339, UTC.
    pub at: String,
    /// What the owner said of it.
    pub message: Option<String>,
    /// Number of objects in its layers.
    pub entries: u64,
}

/// What every layer held.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    version: u16,
    pub(super) number: u32,
    at: String,
    message: Option<String>,
    pub(super) layers: Vec<Picture>,
}

/// What one layer held, folders before what is in them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Picture {
    pub(super) layer: LayerId,
    pub(super) entries: Vec<Entry>,
}

/// One object of a layer, as the overlay's back end wrote it: marks are objects like others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// `None` is the layer's root.
    #[serde(rename = "p")]
    pub(super) path: Option<RelPath>,
    #[serde(rename = "b")]
    pub(super) body: Body,
    #[serde(rename = "m")]
    pub(super) mode: u32,
    #[serde(rename = "o")]
    pub(super) owner: (u32, u32),
    #[serde(rename = "t")]
    pub(super) modified: (i64, u32),
    #[serde(rename = "x", default, skip_serializing_if = "Vec::is_empty")]
    pub(super) attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What an object is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Body {
    Dir,
    File {
        digest: Digest,
        size: u64,
    },
    Link(Vec<u8>),
    /// Another name of a file that came before.
    Same(RelPath),
    Special {
        kind: EntryType,
        device: (u32, u32),
    },
}

impl Manifest {
    pub(super) fn new(
        number: u32,
        at: String,
        message: Option<String>,
        layers: Vec<Picture>,
    ) -> Self {
        Self { version: VERSION, number, at, message, layers }
    }

    pub(super) fn summary(&self) -> Checkpoint {
        let entries = self.layers.iter().map(|layer| layer.entries.len().saturating_sub(1) as u64);
        Checkpoint {
            number: self.number,
            at: self.at.clone(),
            message: self.message.clone(),
            entries: entries.sum(),
        }
    }

    fn digests(&self) -> impl Iterator<Item = &Digest> {
        self.layers.iter().flat_map(|layer| &layer.entries).filter_map(|entry| match &entry.body {
            Body::File { digest, .. } => Some(digest),
            Body::Dir | Body::Link(_) | Body::Same(_) | Body::Special { .. } => None,
        })
    }
}

/// The folder of a session's checkpoints, held against others.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    _lock: File,
}

/// The checkpoints of a session, oldest first.
pub fn list(session: &Session) -> Vec<Checkpoint> {
    read_all(&session.dir.join(FOLDER)).iter().map(Manifest::summary).collect()
}

/// Whether going back was cut short.
pub(super) fn is_rewinding(session: &Session) -> bool {
    session.dir.join(FOLDER).join(REWINDING).exists()
}

/// One that a power cut has torn is none.
fn read_all(path: &Path) -> Vec<Manifest> {
    let mut found: Vec<Manifest> = std::fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|e| e == "json"))
        .filter_map(|entry| serde_json::from_slice(&std::fs::read(entry.path()).ok()?).ok())
        .filter(|manifest: &Manifest| manifest.version == VERSION)
        .collect();
    found.sort_by_key(|manifest| manifest.number);
    found
}

impl Folder {
    pub(super) fn open(session: &Session) -> Result<Self> {
        let path = session.dir.join(FOLDER);
        let what = || format!("can't use {}", show(&path));
        let mut make = std::fs::DirBuilder::new();
        make.recursive(true).mode(0o700).create(path.join("objects")).context(what)?;
        let mut options = File::options();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(path.join("lock")).context(what)?;
        flock(&lock, FlockOperation::LockExclusive).context(what)?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn manifests(&self) -> Vec<Manifest> {
        read_all(&self.path)
    }

    /// The checkpoint of that number, or the newest.
    pub(super) fn find(&self, session: &Session, number: Option<u32>) -> Result<Manifest> {
        let id = &session.snapshot.id;
        let mut all = self.manifests();
        let at = match number {
            Some(number) => all.iter().position(|manifest| manifest.number == number),
            None => all.len().checked_sub(1),
        };
        match at {
            Some(at) => Ok(all.swap_remove(at)),
            None => {
                let what = match number {
                    Some(number) => format!("session {id} has no checkpoint {number}"),
                    None => format!("session {id} has no checkpoint"),
                };
                let lists = format!("landbox show {id} lists them; ");
                let lists = if all.is_empty() { "" } else { &lists };
                let hint = format!("{lists}landbox checkpoint {id} takes one");
                Err(Failure::new(Kind::Usage, what).hint(hint))
            }
        }
    }

    pub(super) fn write(&self, manifest: &Manifest) -> Result<()> {
        write_json(&self.path.join(format!("{}.json", manifest.number)), manifest, 0o600)
    }

    pub(super) fn remove(&self, number: u32) -> Result<()> {
        let path = self.path.join(format!("{number}.json"));
        std::fs::remove_file(&path).context(|| format!("can't remove {}", show(&path)))
    }

    pub(super) fn marker(&self) -> PathBuf {
        self.path.join(REWINDING)
    }

    pub(super) fn rewinding(&self) -> Option<u32> {
        serde_json::from_slice(&std::fs::read(self.marker()).ok()?).ok()
    }

    fn objects(&self) -> PathBuf {
        self.path.join("objects")
    }

    /// Where content of that digest lies.
    pub(super) fn object(&self, digest: &Digest) -> PathBuf {
        self.objects().join(digest.to_string().trim_start_matches("sha256:"))
    }

    /// A file for content whose digest is not known yet.
    pub(super) fn fresh(&self) -> std::io::Result<tempfile::NamedTempFile> {
        tempfile::Builder::new().prefix(".new-").tempfile_in(self.objects())
    }

    /// Bytes that the content takes on disk.
    pub(super) fn bytes(&self) -> u64 {
        crate::overlay::remove::disk_usage(&self.objects())
    }

    /// Removes content that no checkpoint names.
    pub(super) fn sweep(&self) -> Result<()> {
        let manifests = self.manifests();
        let used: HashSet<PathBuf> = manifests
            .iter()
            .flat_map(Manifest::digests)
            .map(|digest| self.object(digest))
            .collect();
        let what = || format!("can't sweep {}", show(&self.path));
        for entry in std::fs::read_dir(self.objects()).context(what)? {
            let path = entry.context(what)?.path();
            if !used.contains(&path) {
                std::fs::remove_file(&path).context(what)?;
            }
        }
        Ok(())
    }
}
