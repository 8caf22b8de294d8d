//! The base store: what was really there when the session first wrote a path.
//!
//! ```text
//! <session>/base/lock               flocked while a layer is scanned
//! <session>/base/<layer>.records    a header line, then one line a path
//! <session>/base/<layer>.bytes      content, appended; records point into it
//! ```
//! The watch of a running session, else the first scan that finds a path clean, records it; from then on kind, digest and patch come from the record,
//! whatever the owner does to the real file. Written beside and renamed, not synced: a store that a power cut has torn
//! reads as empty, and every path whose real file is still older than the session is then found clean again.

use super::captures::{Captured, Captures, Identity, Mark};
use super::changeset::{Base, Node};
use super::kind::EntryType;
use super::tree::{self, Meta, Time};
use crate::error::{Context, Result};
use crate::session::store::show;
use landbox_shared::id::LayerId;
use landbox_shared::path::RelPath;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const VERSION: u16 = 1;
/// How the names of files begin that are being written.
const BESIDE: &str = ".write-";
/// Largest file whose bytes are kept.
pub(crate) const KEEP_FILE: u64 = 1 << 20;
/// Most bytes kept for one layer.
const KEEP_ALL: u64 = 64 << 20;

/// What is known of one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// What was there.
    #[serde(rename = "b")]
    pub base: Base,
    /// The real file when it was seen to be the base: while it has this stamp, it need not be read again.
    #[serde(rename = "s")]
    pub stamp: Option<Box<Stamp>>,
    /// Where the bytes are kept.
    #[serde(rename = "x")]
    pub extent: Option<(u64, u64)>,
    /// Every name below it that was part of the base has a record of its own.
    #[serde(rename = "c")]
    pub complete: bool,
    /// It landed while the session ran, so the layer holds it too: where the layer does not, the session has deleted it.
    /// (Below what was no folder or file at the start, not every back end notes that.)
    #[serde(rename = "l", default, skip_serializing_if = "std::ops::Not::not")]
    pub in_layer: bool,
    /// The real name has left while the session may have seen it: where it is not there, nobody knows what was.
    #[serde(rename = "g", default, skip_serializing_if = "std::ops::Not::not")]
    pub left: bool,
}

impl Record {
    /// A record of a base and nothing more.
    pub(crate) fn of(base: Base) -> Self {
        Self { base, stamp: None, extent: None, complete: false, in_layer: false, left: false }
    }
}

/// Identity of a file's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    dev: (u32, u32),
    ino: u64,
    ctime: Time,
    size: u64,
    mode: u32,
}

impl Stamp {
    /// Whether `meta` was taken of the same object, whatever became of it.
    pub(crate) fn is_of(&self, meta: &Meta) -> bool {
        (self.dev, self.ino) == (meta.dev, meta.ino)
    }

    /// The stamp of what `meta` was taken of.
    pub(crate) fn of(meta: &Meta) -> Self {
        Self { dev: meta.dev, ino: meta.ino, ctime: meta.ctime, size: meta.size, mode: meta.mode }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    version: u16,
    layer: LayerId,
    scanned: u32,
    records: usize,
    /// How far what the watch captured has been taken over.
    #[serde(default)]
    live: Mark,
    /// The project's root when the newest launch began.
    #[serde(default)]
    root: Option<Identity>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(rename = "p")]
    path: RelPath,
    #[serde(flatten)]
    record: Record,
}

/// The store of one layer, held under its lock.
#[derive(Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    layer: LayerId,
    /// Every launch up to this one has ended and was scanned.
    pub scanned: u32,
    known: BTreeMap<RelPath, Record>,
    kept: BTreeMap<RelPath, Record>,
    bytes: BufWriter<File>,
    bytes_len: u64,
    changed: bool,
    any_in_layer: bool,
    live: Mark,
    root: Option<Identity>,
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
        let Stored { scanned, live, root, known } = read(&dir, layer).unwrap_or_default();
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
            bytes,
            bytes_len,
            changed: false,
            any_in_layer,
            live,
            root,
            fresh: None,
            _lock: Some(lock),
        };
        store.take_over().context(what)?;
        Ok(store)
    }

    /// A store that collects what the watch of launch `launch` captures, over what is known already. It holds no lock
    /// and writes nothing but captures; `bytes` is where their content goes.
    pub(crate) fn collecting(session_dir: &Path, layer: &LayerId, bytes: File) -> Self {
        let dir = session_dir.join("base");
        let Stored { scanned, live, root, known } = read(&dir, layer).unwrap_or_default();
        Self {
            dir,
            layer: layer.clone(),
            scanned,
            known,
            kept: BTreeMap::new(),
            bytes: BufWriter::with_capacity(256 << 10, bytes),
            bytes_len: 0,
            changed: false,
            any_in_layer: false,
            live,
            root,
            fresh: Some(Vec::new()),
            _lock: None,
        }
    }

    /// The project's root when launch `launch` began, where that was noted.
    pub(crate) fn root_of(&self, launch: u32) -> Option<Identity> {
        self.root.filter(|_| self.live.launch == launch)
    }

    /// Whether it is recorded what a path was, or that nobody knows.
    pub(crate) fn knows(&self, path: &RelPath) -> bool {
        self.kept.get(path).or_else(|| self.known.get(path)).is_some_and(|record| !record.left)
    }

    /// Hands what was collected on to `captures`.
    pub(crate) fn hand_on(&mut self, captures: &mut Captures) -> std::io::Result<()> {
        // The bytes first, so that no line points at nothing.
        self.bytes.flush()?;
        for (path, there) in self.fresh.as_mut().map(std::mem::take).unwrap_or_default() {
            match self.kept.get(&path).filter(|_| there) {
                Some(record) => captures.add(&path, Some(record.clone()))?,
                // What came and has left again since needs no line but the one that says so.
                None if there => {}
                None => captures.add(&path, None)?,
            }
        }
        captures.flush()
    }

    /// Forgets a path that has left the layer again, with all below it; but not what says that the session deletes it by
    /// leaving.
    pub(crate) fn forget(&mut self, path: &RelPath) {
        let within = |map: &BTreeMap<RelPath, Record>| -> Vec<RelPath> {
            map.range(path.clone()..)
                .take_while(|(p, _)| p.as_bytes().starts_with(path.as_bytes()))
                .filter(|(p, record)| p.is_within(path) && !record.in_layer)
                .map(|(p, _)| p.clone())
                .collect()
        };
        let gone = [within(&self.known), within(&self.kept)].concat();
        for path in &gone {
            self.known.remove(path);
            self.kept.remove(path);
        }
        if let (Some(fresh), false) = (&mut self.fresh, gone.is_empty()) {
            fresh.push((path.clone(), false));
        }
        self.changed |= !gone.is_empty();
    }

    /// Takes over what a watch has captured since the records were written. A record that is there already is older, and
    /// counts.
    fn take_over(&mut self) -> std::io::Result<()> {
        let Some(captured) = Captured::read(&self.dir, &self.layer, self.live) else {
            return Ok(());
        };
        self.changed |= captured.mark != self.live;
        (self.live, self.root) = (captured.mark, Some(captured.root));
        let mut ours = HashSet::new();
        for (path, record) in &captured.lines {
            let Some(record) = record else {
                self.forget(path);
                continue;
            };
            if !ours.contains(path) && self.known.contains_key(path) {
                continue;
            }
            ours.insert(path.clone());
            let mut record = record.clone();
            let bytes = record.extent.take().and_then(|extent| captured.bytes(extent));
            if let (Some(bytes), Some(Node::File { digest, .. })) = (bytes, record.base.node())
                && super::content::digest_of(&bytes) == *digest
            {
                record.extent = self.keep(&bytes)?;
            }
            self.known.insert(path.clone(), record);
        }
        Ok(())
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
        if let Some(fresh) = &mut self.fresh {
            fresh.push((path.clone(), true));
        }
        self.kept.insert(path, record);
    }

    /// Notes that a real name has left while the session may have seen it: unless it is known what was there, nobody knows.
    pub(crate) fn note_left(&mut self, path: RelPath) {
        if !self.kept.contains_key(&path) && !self.known.contains_key(&path) {
            self.put(path, Record { left: true, ..Record::of(Base::Unknown) });
        }
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
        let what = || "can't write the base store".to_owned();
        let file = tempfile::Builder::new().prefix(BESIDE).tempfile_in(&self.dir).context(what)?;
        let mut out = BufWriter::with_capacity(256 << 10, file);
        let header = Header {
            version: VERSION,
            layer: self.layer.clone(),
            scanned: self.scanned,
            records: self.kept.len(),
            live: self.live,
            root: self.root,
        };
        serde_json::to_writer(&mut out, &header).context(what)?;
        for (path, record) in &self.kept {
            out.write_all(b"\n").context(what)?;
            let line = Line { path: path.clone(), record: record.clone() };
            serde_json::to_writer(&mut out, &line).context(what)?;
        }
        out.write_all(b"\n").context(what)?;
        out.into_inner().map_err(std::io::IntoInnerError::into_error).context(what)
    }

    /// Makes what was landed the base of a path. The real file's stamp is left out: within the clock's grain an edit
    /// after the landing would leave it as it is.
    pub(crate) fn rebase(&mut self, path: RelPath, base: Base) {
        let complete = self.kept.get(&path).is_some_and(|r| r.complete);
        self.put(path, Record { complete, ..Record::of(base) });
    }

    /// Keeps the bytes of a path's base, if they are these and there is room.
    pub(crate) fn keep_for(&mut self, path: &RelPath, bytes: &[u8]) {
        let digest = super::content::digest_of(bytes);
        let fits = |record: &Record| {
            record.extent.is_none()
                && matches!(record.base.node(), Some(Node::File { digest: d, .. }) if *d == digest)
        };
        if !self.kept.get(path).is_some_and(fits) {
            return;
        }
        if let Ok(Some(extent)) = self.keep(bytes)
            && let Some(record) = self.kept.get_mut(path)
        {
            record.extent = Some(extent);
        }
    }

    /// Puts records that were written beside their place there.
    pub(crate) fn replace(&mut self, beside: &Path) -> Result<()> {
        let what = || "can't write the base store".to_owned();
        self.bytes.flush().context(what)?;
        std::fs::rename(beside, self.path()).context(what)?;
        self.changed = false;
        Ok(())
    }

    /// Writes the records to a file of their own, and to disk.
    pub(crate) fn copy_to(&self, path: &Path) -> Result<()> {
        let what = || format!("can't write {}", show(path));
        let file = self.write_beside()?;
        file.as_file().sync_all().context(what)?;
        file.persist(path).context(what)?;
        let dir = path.parent().unwrap_or(Path::new("/"));
        File::open(dir).and_then(|dir| dir.sync_all()).context(what)
    }

    /// Takes over, from such a copy, the records of `paths`, and of whatever has none now; their bytes, as far as they
    /// are kept, from the real files. The rest stays as it is.
    pub(crate) fn restore(
        &mut self,
        copy: &Path,
        paths: &BTreeSet<RelPath>,
        real: &super::tree::Tree,
    ) -> Result<()> {
        let Some(Stored { known: old, .. }) = read_file(copy, &self.layer) else { return Ok(()) };
        self.kept.append(&mut self.known);
        for path in paths.iter().filter(|path| !old.contains_key(path)) {
            self.kept.remove(path);
        }
        for (path, mut record) in old {
            if !paths.contains(&path) && self.kept.contains_key(&path) {
                continue;
            }
            record.stamp = None;
            let place = real.place(path.parent().as_ref());
            if let (Ok(place), Some(Node::File { .. })) = (place, record.base.node())
                && let Ok(Some(meta)) = tree::meta_at(&place, path.file_name())
                && let Ok((node, extent)) = self.capture(&place, path.file_name(), &meta, true)
                && record.base.node() == Some(&node)
            {
                record.extent = extent;
            }
            self.put(path, record);
        }
        let (path, what) = (self.path(), || "can't write the base store".to_owned());
        self.bytes.flush().context(what)?;
        self.copy_to(&path)?;
        self.changed = false;
        Ok(())
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

    /// Says of what was just landed that the layer of the running session holds it too.
    pub(crate) fn in_layer<'a>(&mut self, paths: impl Iterator<Item = &'a RelPath>) {
        for path in paths {
            if let Some(record) = self.kept.get_mut(path).filter(|r| r.base != Base::Absent) {
                record.in_layer = true;
                self.changed = true;
            }
        }
    }

    /// Forgets that: what is no change leaves the layer.
    pub(crate) fn not_in_layer(&mut self) {
        for record in self.kept.values_mut().filter(|record| record.in_layer) {
            record.in_layer = false;
            self.changed = true;
        }
    }

    /// Names directly below `path` that the layer must hold, or the session has deleted them.
    pub(crate) fn landed_below(&self, path: Option<&RelPath>) -> Vec<Vec<u8>> {
        if !self.any_in_layer {
            return Vec::new();
        }
        let held = |name: &Vec<u8>| {
            let path = match path {
                None => RelPath::new(name.as_slice()),
                Some(path) => path.join(name),
            };
            let Ok(path) = path else { return false };
            let record = self.known.get(&path).or_else(|| self.kept.get(&path));
            record.is_some_and(|record| record.in_layer)
        };
        let mut names = self.children(path);
        names.retain(held);
        names
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

/// Removes what writers that were killed have left over: they wrote under the lock, which is ours now.
fn sweep(dir: &Path) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.filter_map(|entry| entry.ok()) {
        if entry.file_name().as_encoded_bytes().starts_with(BESIDE.as_bytes()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn private(path: &Path) -> Result<File> {
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .context(|| format!("can't open {}", show(path)))
}

/// Reads a store; `None` if there is none or it is torn.
#[derive(Default)]
struct Stored {
    scanned: u32,
    live: Mark,
    root: Option<Identity>,
    known: BTreeMap<RelPath, Record>,
}

fn read(dir: &Path, layer: &LayerId) -> Option<Stored> {
    read_file(&dir.join(format!("{layer}.records")), layer)
}

fn read_file(path: &Path, layer: &LayerId) -> Option<Stored> {
    let file = File::open(path).ok()?;
    let mut lines = BufReader::with_capacity(256 << 10, file).split(b'\n');
    let header: Header = serde_json::from_slice(&lines.next()?.ok()?).ok()?;
    if header.version != VERSION || header.layer != *layer {
        return None;
    }
    let mut known = BTreeMap::new();
    for line in lines {
        let line: Line = serde_json::from_slice(&line.ok()?).ok()?;
        known.insert(line.path, line.record);
    }
    let Header { records, scanned, live, root, .. } = header;
    (known.len() == records).then_some(Stored { scanned, live, root, known })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rel(path: &[u8]) -> RelPath {
        RelPath::new(path).unwrap()
    }

    fn record(base: Base) -> Record {
        Record::of(base)
    }

    #[test]
    fn records_survive_and_those_nobody_asks_for_go() {
        let dir = tempfile::tempdir().unwrap();
        let layer = LayerId::new("project").unwrap();
        let mut store = Store::open(dir.path(), &layer).unwrap();
        let link = Base::Known(Node::Symlink { target: b"\xff\n".to_vec() });
        store.put(rel(b"d/\xff\nx"), record(link.clone()));
        store.put(rel(b"gone"), record(Base::Absent));
        store.save(3).unwrap();
        drop(store);
        let mut store = Store::open(dir.path(), &layer).unwrap();
        assert_eq!(store.scanned, 3);
        assert_eq!(store.get(&rel(b"d/\xff\nx")).unwrap().base, link);
        store.save(3).unwrap();
        drop(store);
        let mut store = Store::open(dir.path(), &layer).unwrap();
        assert!(store.get(&rel(b"gone")).is_none());
        assert!(store.get(&rel(b"d/\xff\nx")).is_some());
    }

    #[test]
    fn children_are_the_direct_ones() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path(), &LayerId::new("project").unwrap()).unwrap();
        for path in ["a", "a/b", "a/b/c", "a-x", "a/z", "ab"] {
            store.put(rel(path.as_bytes()), record(Base::Absent));
        }
        let mut found = store.children(Some(&rel(b"a")));
        found.sort();
        assert_eq!(found, [b"b", b"z"]);
        assert_eq!(store.children(None).len(), 3);
    }

    #[test]
    fn a_torn_store_reads_as_empty() {
        let dir = tempfile::tempdir().unwrap();
        let layer = LayerId::new("project").unwrap();
        let mut store = Store::open(dir.path(), &layer).unwrap();
        store.put(rel(b"a"), record(Base::Absent));
        store.put(rel(b"b"), record(Base::Absent));
        store.save(1).unwrap();
        let path = store.path();
        drop(store);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 9]).unwrap();
        let mut store = Store::open(dir.path(), &layer).unwrap();
        assert_eq!(store.scanned, 0);
        assert!(store.get(&rel(b"a")).is_none());
    }
}
