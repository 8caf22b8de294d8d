//! The base store: what was really there when the session first wrote a path.
//!
//! ```text
//! <session>/base/lock               flocked while a layer is scanned
//! <session>/base/<layer>.records    a header line, then one line a path
//! <session>/base/<layer>.bytes      content, appended; records point into it
//! <session>/base/<layer>.before     what was the base of a path before the real content took its place
//! ```
//! The watch of a running session, else the first scan that finds a path clean, records it; from then on kind, digest and patch come from the record,
//! whatever the owner does to the real file. Written beside and renamed, not synced: a store that a power cut has torn
//! reads as empty, and every path whose real file is still older than the session is then found clean again.

pub(super) mod before;
mod file;
mod landed;
mod live;
pub(super) mod own;
pub(super) mod record;
#[cfg(test)]
mod tests;

pub(crate) use record::{Record, Stamp};

use super::captures::{Identity, Mark, Watched};
use super::changeset::Node;
use super::kind::EntryType;
use super::tree::{self, Meta};
use crate::error::{Context, Result};
use crate::session::store::show;
use file::{Header, Stored, VERSION, private, read, sweep};
use landbox_shared::id::LayerId;
use landbox_shared::path::RelPath;
use own::Own;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

/// Largest file whose bytes are kept.
pub(crate) const KEEP_FILE: u64 = 1 << 20;
/// Most bytes kept for one layer.
const KEEP_ALL: u64 = 64 << 20;

/// The store of one layer, held under its lock.
#[derive(Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    layer: LayerId,
    /// Every launch up to this one has ended and was scanned.
    pub scanned: u32,
    known: BTreeMap<RelPath, Record>,
    kept: BTreeMap<RelPath, Record>,
    /// Where a layer is read as it was: what is known now of paths that were made of another base.
    withheld: BTreeMap<RelPath, Option<Record>>,
    bytes: BufWriter<File>,
    bytes_len: u64,
    changed: bool,
    any_in_layer: bool,
    live: Mark,
    root: Option<Identity>,
    own: Vec<Own>,
    watched: Watched,
    /// Of a store that only collects: what is to be written as captures, and whether it is there or has left.
    fresh: Option<Vec<(RelPath, bool)>>,
    _lock: Option<File>,
}

impl Store {
    /// Opens a layer's store, waiting for whoever scans it.
    pub(crate) fn open(session_dir: &Path, layer: &LayerId) -> Result<Self> {
        let dir = session_dir.join("base");
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .context(|| format!("can't make {}", show(&dir)))?;
        let lock = private(&dir.join("lock"))?;
        flock(&lock, FlockOperation::LockExclusive)
            .context(|| format!("can't lock {}", show(&dir)))?;
        sweep(&dir);
        let Stored { scanned, live, root, own, known } = read(&dir, layer).unwrap_or_default();
        let mut bytes = private(&dir.join(format!("{layer}.bytes")))?;
        let what = || format!("can't use the base store {}", show(&dir));
        if known.values().all(|r| r.extent.is_none()) {
            bytes.set_len(0).context(what)?;
        }
        let any_in_layer = known.values().any(|record| record.in_layer);
        let bytes_len = bytes.seek(std::io::SeekFrom::End(0)).context(what)?;
        let bytes = BufWriter::with_capacity(256 << 10, bytes);
        let mut store = Self {
            dir: dir.clone(),
            layer: layer.clone(),
            scanned,
            known,
            kept: BTreeMap::new(),
            withheld: BTreeMap::new(),
            bytes,
            bytes_len,
            changed: false,
            any_in_layer,
            live,
            root,
            own,
            watched: Watched::default(),
            fresh: None,
            _lock: Some(lock),
        };
        store.take_over().context(what)?;
        Ok(store)
    }

    /// Keeps bytes, as long as the bounds allow it.
    fn keep(&mut self, bytes: &[u8]) -> std::io::Result<Option<(u64, u64)>> {
        let size = bytes.len() as u64;
        if size > KEEP_FILE || self.bytes_len + size > KEEP_ALL {
            return Ok(None);
        }
        self.bytes.write_all(bytes)?;
        let extent = (self.bytes_len, size);
        self.bytes_len += size;
        Ok(Some(extent))
    }

    /// Whether a layer has a store.
    pub(crate) fn exists(session_dir: &Path, layer: &LayerId) -> bool {
        session_dir.join("base").join(format!("{layer}.records")).exists()
    }

    /// What is known of a path. The record stays; one that no scan asks for is dropped by [`Store::save`], because the
    /// layer no longer says anything about its path.
    pub(crate) fn get(&mut self, path: &RelPath) -> Option<&Record> {
        if let Some(record) = self.known.remove(path) {
            self.kept.insert(path.clone(), record);
        }
        self.kept.get(path)
    }

    /// Records a path.
    pub(crate) fn put(&mut self, path: RelPath, record: Record) {
        self.changed = true;
        self.known.remove(&path);
        self.withheld.remove(&path);
        if let Some(fresh) = &mut self.fresh {
            fresh.push((path.clone(), true));
        }
        self.kept.insert(path, record);
    }

    /// Says that every name of the base below `path` has a record.
    pub(crate) fn mark_complete(&mut self, path: &RelPath) {
        if let Some(record) = self.kept.get_mut(path)
            && !record.complete
        {
            record.complete = true;
            self.changed = true;
            if let Some(fresh) = &mut self.fresh {
                fresh.push((path.clone(), true));
            }
        }
    }

    /// Names directly below `path` of which it is recorded what they were.
    pub(crate) fn children(&self, path: Option<&RelPath>) -> Vec<Vec<u8>> {
        let below = |map: &BTreeMap<RelPath, Record>, out: &mut Vec<Vec<u8>>| {
            let Some(path) = path else {
                let top = map.iter().filter(|(p, record)| p.parent().is_none() && !record.left);
                out.extend(top.map(|(p, _)| p.as_bytes().to_vec()));
                return;
            };
            // Everything below sorts after `path/`; names such as `path-x` sort before that and are not in the range.
            let Ok(first) = path.join(b"\x01") else { return };
            for (found, record) in map.range(first..).take_while(|(p, _)| p.is_within(path)) {
                if found.parent().as_ref() == Some(path) && !record.left {
                    out.push(found.file_name().to_vec());
                }
            }
        };
        let mut out = Vec::new();
        below(&self.known, &mut out);
        below(&self.kept, &mut out);
        out
    }

    /// Reads the real object at `name`, of which `meta` was just taken, as a base: with its bytes kept where `keep` and
    /// the bounds allow it.
    pub(crate) fn capture(
        &mut self,
        dir: impl AsFd,
        name: &[u8],
        meta: &Meta,
        keep: bool,
    ) -> std::io::Result<(Node, Option<(u64, u64)>)> {
        if meta.kind != EntryType::File || !keep || meta.size > KEEP_FILE {
            return Ok((tree::node_at(dir, name, meta)?, None));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(meta.size).unwrap_or(0) + 1);
        tree::file_at(dir, name)?.take(KEEP_FILE + 1).read_to_end(&mut bytes)?;
        let size = bytes.len() as u64;
        let node = Node::File { mode: meta.mode, size, digest: super::content::digest_of(&bytes) };
        let extent = self.keep(&bytes)?;
        Ok((node, extent))
    }

    /// Writes what changed. `scanned` is the newest launch whose every write this scan has seen.
    pub(crate) fn save(&mut self, scanned: u32) -> Result<()> {
        if !self.changed && self.known.is_empty() && scanned == self.scanned {
            return Ok(());
        }
        self.known.clear();
        self.scanned = scanned;
        let (path, what) = (self.path(), || "can't write the base store".to_owned());
        self.bytes.flush().context(what)?;
        self.write_beside()?.persist(&path).context(what)?;
        self.changed = false;
        Ok(())
    }

    /// Where the records are.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join(format!("{}.records", self.layer))
    }

    /// Writes the records to a file beside their place, for the caller to put there.
    pub(crate) fn write_beside(&self) -> Result<tempfile::NamedTempFile> {
        let records = if self.withheld.is_empty() { None } else { Some(self.records_now()) };
        let kept = records.as_ref().unwrap_or(&self.kept);
        let header = Header {
            version: VERSION,
            layer: self.layer.clone(),
            scanned: self.scanned,
            records: kept.len(),
            live: self.live,
            root: self.root,
            own: self.own.clone(),
        };
        file::write(&self.dir, &header, kept).context(|| "can't write the base store".into())
    }

    /// The kept bytes of a path. Bytes that a power cut has damaged are no bytes.
    pub(crate) fn bytes(&self, path: &RelPath) -> Option<Vec<u8>> {
        let record = self.kept.get(path)?;
        let (Some((at, len)), Some(Node::File { digest, .. })) =
            (record.extent, record.base.node())
        else {
            return None;
        };
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        if self.bytes.get_ref().read_exact_at(&mut bytes, at).is_err()
            || super::content::digest_of(&bytes) != *digest
        {
            return None;
        }
        Some(bytes)
    }

    /// Keeps also what this scan did not ask for: a running session may write it again.
    pub(crate) fn keep_rest(&mut self) {
        self.kept.append(&mut self.known);
    }

    /// Every record that a scan has kept.
    pub(crate) fn records(&self) -> impl Iterator<Item = (&RelPath, &Record)> {
        self.kept.iter()
    }

    /// The record that a scan has kept.
    pub(crate) fn kept(&self, path: &RelPath) -> Option<&Record> {
        self.kept.get(path)
    }
}
