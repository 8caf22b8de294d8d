//! What the watch of a running session has captured: beside the store of [`super::base`], written by the session's own
//! controller alone and never locked, so that no reader keeps a capture waiting.
//!
//! ```text
//! <session>/base/<layer>.live         a header line, then one line a capture, appended
//! <session>/base/<layer>.live.bytes   content, appended; captures point into it
//! ```
//! A line is either a record or says that a path, and all below it, has left the layer again. Whoever opens the store
//! takes over what was captured since it was last written: an end that comes too early costs the last lines and nothing
//! else.

use super::base::record::Record;
use super::tree::{Meta, Time};
use landbox_shared::id::LayerId;
use landbox_shared::path::RelPath;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const VERSION: u16 = 1;

/// Device and inode.
pub(crate) type Identity = ((u32, u32), u64);

/// How far the captures have been taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mark {
    /// The launch whose captures they are.
    pub launch: u32,
    /// Bytes of the file.
    pub read: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    version: u16,
    layer: LayerId,
    launch: u32,
    root: Identity,
    #[serde(default)]
    watched: Watched,
}

/// Which folders of the project are watched for names that leave them. A session that has no watch yet may go on seeing what
/// leaves a folder, and save it anew, with nobody to tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Watched {
    /// When all of them were.
    pub since: Time,
    /// Those in which nothing had come or gone by then; `None` is the root.
    pub folders: BTreeSet<Option<RelPath>>,
    /// Whether what came later was watched, too.
    pub later: bool,
}

impl Watched {
    /// Whether no name can have left a folder without being told, but for its last change at `changed`, or before it.
    pub(crate) fn is_sure(
        &self,
        folder: Option<&RelPath>,
        changed: Time,
        born: Option<Time>,
    ) -> bool {
        let new = || self.later && born.is_some_and(|born| born >= self.since);
        // Files are stamped by a clock that ticks behind: what seems older may be younger, and never the other way.
        changed >= self.since && (self.folders.contains(&folder.cloned()) || new())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(rename = "p")]
    path: RelPath,
    #[serde(rename = "r")]
    record: Option<Record>,
}

fn names(dir: &Path, layer: &LayerId) -> (PathBuf, PathBuf) {
    (dir.join(format!("{layer}.live")), dir.join(format!("{layer}.live.bytes")))
}

/// The writing end.
#[derive(Debug)]
pub(crate) struct Captures {
    lines: File,
    buffer: Vec<u8>,
}

impl Captures {
    /// Begins the captures of a launch, in place of those of earlier ones. Gives the file for the bytes, too.
    pub(crate) fn begin(
        dir: &Path,
        layer: &LayerId,
        launch: u32,
        root: &Meta,
        watched: Watched,
    ) -> io::Result<(Self, File)> {
        let (lines, bytes) = names(dir, layer);
        let make = |path: &Path| -> io::Result<File> {
            let mut file = tempfile::Builder::new();
            let file = file.prefix(".live-").tempfile_in(dir)?;
            file.persist(path)?;
            std::fs::File::options().read(true).write(true).mode(0o600).open(path)
        };
        // The lines first: without them no bytes are meant.
        let mut this = Self { lines: make(&lines)?, buffer: Vec::new() };
        let (layer, root) = (layer.clone(), (root.dev, root.ino));
        let header = Header { version: VERSION, layer, launch, root, watched };
        serde_json::to_writer(&mut this.buffer, &header)?;
        this.buffer.push(b'\n');
        this.flush()?;
        Ok((this, make(&bytes)?))
    }

    /// Adds a line. It counts once it is flushed.
    pub(crate) fn add(&mut self, path: &RelPath, record: Option<Record>) -> io::Result<()> {
        serde_json::to_writer(&mut self.buffer, &Line { path: path.clone(), record })?;
        self.buffer.push(b'\n');
        Ok(())
    }

    /// Writes what was added.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let written = self.lines.write_all(&self.buffer);
        self.buffer.clear();
        written
    }
}

/// What was captured since it was last taken over.
#[derive(Debug)]
pub(crate) struct Captured {
    /// How far it goes.
    pub mark: Mark,
    /// The project's root when the launch began.
    pub root: Identity,
    /// What was watched.
    pub watched: Watched,
    /// In order: a record, or that there is nothing to record any more.
    pub lines: Vec<(RelPath, Option<Record>)>,
    bytes: Option<File>,
}

impl Captured {
    /// Reads on from `mark`; `None` where there is nothing, or nothing that can be understood.
    pub(crate) fn read(dir: &Path, layer: &LayerId, mark: Mark) -> Option<Self> {
        let (path, bytes) = names(dir, layer);
        let mut file = BufReader::with_capacity(256 << 10, File::open(path).ok()?);
        let mut line = Vec::new();
        let mut next = |file: &mut BufReader<File>| -> Option<(usize, Vec<u8>)> {
            line.clear();
            let read = file.read_until(b'\n', &mut line).ok()?;
            // The last line may be on its way.
            line.ends_with(b"\n").then(|| (read, line.clone()))
        };
        let (begin, header) = next(&mut file)?;
        let header: Header = serde_json::from_slice(&header).ok()?;
        if header.version != VERSION || header.layer != *layer {
            return None;
        }
        let mut at = begin as u64;
        if mark.launch == header.launch && mark.read > at {
            at = mark.read;
            file.seek(io::SeekFrom::Start(at)).ok()?;
        }
        let mut lines = Vec::new();
        while let Some((read, text)) = next(&mut file) {
            let Ok(Line { path, record }) = serde_json::from_slice(&text) else { break };
            lines.push((path, record));
            at += read as u64;
        }
        let mark = Mark { launch: header.launch, read: at };
        let Header { root, watched, .. } = header;
        Some(Self { mark, root, watched, lines, bytes: File::open(bytes).ok() })
    }

    /// The bytes that a record points to.
    pub(crate) fn bytes(&self, (at, len): (u64, u64)) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        self.bytes.as_ref()?.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::land::base::Store;
    use crate::land::changeset::{Base, Node};

    fn rel(path: &str) -> RelPath {
        RelPath::new(path).unwrap()
    }

    fn record(base: Base, extent: Option<(u64, u64)>) -> Record {
        Record { extent, ..Record::of(base) }
    }

    fn begin(dir: &Path, launch: u32) -> (Captures, File, Store) {
        std::fs::create_dir_all(dir.join("base")).unwrap();
        let layer = LayerId::new("project").unwrap();
        let root = super::super::tree::meta_of(File::open(dir).unwrap()).unwrap();
        let (captures, bytes) =
            Captures::begin(&dir.join("base"), &layer, launch, &root, Watched::default()).unwrap();
        let store = Store::collecting(dir, &layer, bytes.try_clone().unwrap(), Watched::default());
        (captures, bytes, store)
    }

    fn open(dir: &Path) -> Store {
        Store::open(dir, &LayerId::new("project").unwrap()).unwrap()
    }

    #[test]
    fn what_was_captured_is_taken_over_once_with_its_bytes_and_what_left_again_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (mut captures, mut bytes, mut store) = begin(dir.path(), 1);
        bytes.write_all(b"text").unwrap();
        let digest = super::super::content::digest_of(b"text");
        let node = Node::File { mode: 0o644, size: 4, digest };
        store.put(rel("f"), record(Base::Known(node), Some((0, 4))));
        store.put(rel("d/gone"), record(Base::Absent, None));
        store.forget(&rel("d"));
        store.hand_on(&mut captures).unwrap();
        let mut read = open(dir.path());
        assert!(read.get(&rel("f")).is_some() && read.get(&rel("d/gone")).is_none());
        read.save(0).unwrap();
        assert_eq!(read.bytes(&rel("f")).unwrap(), b"text");
        drop(read);
        // Taken over and dropped since: it does not come back.
        open(dir.path()).save(0).unwrap();
        let mut read = open(dir.path());
        assert!(read.get(&rel("f")).is_none());
    }

    #[test]
    fn a_record_that_is_there_is_older_and_counts_until_the_path_has_left_the_layer() {
        let dir = tempfile::tempdir().unwrap();
        let mut read = open(dir.path());
        read.put(rel("f"), record(Base::Unknown, None));
        read.save(0).unwrap();
        drop(read);
        let (mut captures, _bytes, mut store) = begin(dir.path(), 1);
        store.put(rel("f"), record(Base::Absent, None));
        store.hand_on(&mut captures).unwrap();
        assert_eq!(open(dir.path()).get(&rel("f")).unwrap().base, Base::Unknown);
        store.forget(&rel("f"));
        store.put(rel("f"), record(Base::Absent, None));
        store.hand_on(&mut captures).unwrap();
        assert_eq!(open(dir.path()).get(&rel("f")).unwrap().base, Base::Absent);
    }

    #[test]
    fn a_line_that_was_cut_off_ends_what_is_read_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (mut captures, _bytes, mut store) = begin(dir.path(), 1);
        store.put(rel("a"), record(Base::Absent, None));
        store.hand_on(&mut captures).unwrap();
        captures.lines.write_all(b"{\"p\":\"b\",\"r\":{\"b\":\"abs").unwrap();
        let mut read = open(dir.path());
        assert!(read.get(&rel("a")).is_some() && read.get(&rel("b")).is_none());
    }
}
