//! The file of the records: a header line, then one line a path.

use super::Record;
use super::own::Own;
use crate::error::{Context, Result};
use crate::land::captures::{Identity, Mark};
use crate::land::many;
use crate::session::store::show;
use landbox_shared::id::LayerId;
use landbox_shared::path::RelPath;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub(super) const VERSION: u16 = 1;
/// How the names of files begin that are being written.
const BESIDE: &str = ".write-";
/// Lines that are read and written at a time.
const PIECE: usize = 4096;

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub version: u16,
    pub layer: LayerId,
    pub scanned: u32,
    pub records: usize,
    /// How far what the watch captured has been taken over.
    #[serde(default)]
    pub live: Mark,
    /// The project's root when the newest launch began.
    #[serde(default)]
    pub root: Option<Identity>,
    /// The last changes of folders that were landings of the running session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<Own>,
}

#[derive(Serialize, Deserialize)]
struct Line<P, R> {
    #[serde(rename = "p")]
    path: P,
    #[serde(flatten)]
    record: R,
}

/// Removes what writers that were killed have left over: they wrote under the lock, which is ours now.
pub(super) fn sweep(dir: &Path) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.filter_map(|entry| entry.ok()) {
        if entry.file_name().as_encoded_bytes().starts_with(BESIDE.as_bytes()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Opens a file of the owner's alone, and makes it if it is missing.
pub(super) fn private(path: &Path) -> Result<File> {
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .context(|| format!("can't open {}", show(path)))
}

/// A store that was read.
#[derive(Default)]
pub(super) struct Stored {
    pub scanned: u32,
    pub live: Mark,
    pub root: Option<Identity>,
    pub own: Vec<Own>,
    pub known: BTreeMap<RelPath, Record>,
}

/// Reads a layer's store; `None` if there is none or it is torn.
pub(super) fn read(dir: &Path, layer: &LayerId) -> Option<Stored> {
    read_file(&dir.join(format!("{layer}.records")), layer)
}

/// What the first line of a layer's store says of folders.
pub(super) fn read_own(dir: &Path, layer: &LayerId) -> Option<Vec<Own>> {
    let mut line = Vec::new();
    let file = File::open(dir.join(format!("{layer}.records"))).ok()?;
    BufReader::new(file).read_until(b'\n', &mut line).ok()?;
    let header: Header = serde_json::from_slice(&line).ok()?;
    (header.version == VERSION).then_some(header.own)
}

/// The same of a copy.
pub(super) fn read_file(path: &Path, layer: &LayerId) -> Option<Stored> {
    let file = File::open(path).ok()?;
    let mut lines = BufReader::with_capacity(256 << 10, file).split(b'\n');
    let header: Header = serde_json::from_slice(&lines.next()?.ok()?).ok()?;
    if header.version != VERSION || header.layer != *layer {
        return None;
    }
    let parse = |line: &Vec<u8>| -> Result<Line<RelPath, Record>> {
        serde_json::from_slice(line).context(|| "can't understand the base store".into())
    };
    let mut known = BTreeMap::new();
    loop {
        let piece = lines.by_ref().take(PIECE).collect::<std::io::Result<Vec<_>>>().ok()?;
        if piece.is_empty() {
            break;
        }
        let parsed = many::map(&piece, parse).ok()?;
        known.extend(parsed.into_iter().map(|line| (line.path, line.record)));
    }
    let Header { records, scanned, live, root, own, .. } = header;
    (known.len() == records).then_some(Stored { scanned, live, root, own, known })
}

/// Writes records to a file beside their place, for the caller to put there.
pub(super) fn write(
    dir: &Path,
    header: &Header,
    records: &BTreeMap<RelPath, Record>,
) -> std::io::Result<tempfile::NamedTempFile> {
    let file = tempfile::Builder::new().prefix(BESIDE).tempfile_in(dir)?;
    let mut out = BufWriter::with_capacity(256 << 10, file);
    serde_json::to_writer(&mut out, header)?;
    out.write_all(b"\n")?;
    let line = |(path, record): &(&RelPath, &Record)| -> Result<Vec<u8>> {
        let mut line = serde_json::to_vec(&Line { path, record })
            .context(|| "can't write the base store".into())?;
        line.push(b'\n');
        Ok(line)
    };
    let mut records = records.iter();
    loop {
        let piece: Vec<_> = records.by_ref().take(PIECE).collect();
        if piece.is_empty() {
            break;
        }
        for line in many::map(&piece, line).map_err(std::io::Error::other)? {
            out.write_all(&line)?;
        }
    }
    out.into_inner().map_err(std::io::IntoInnerError::into_error)
}
