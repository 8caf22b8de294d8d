//! What left a session's layer because it landed, kept beside the layer until the landing can't be undone any more.
//!
//! ```text
//! <session>/landed/<n>/names      the paths in the layer, each ended by NUL, in the order in which they left
//! <session>/landed/<n>/<i>        what was at the i-th
//! <session>/landed/<n>/records    the base store as it was before the landing
//! ```

use crate::land::tree::Tree;
use landbox_shared::id::SessionId;
use landbox_shared::path::RelPath;
use rustix::fs;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How the folder is called in the session's.
pub(in crate::land) const LANDED: &str = "landed";

const NAMES: &str = "names";
const RECORDS: &str = "records";

/// The folder of one landing's parts.
pub(in crate::land) fn parts_of(sessions: &Path, session: &SessionId, number: u32) -> PathBuf {
    sessions.join(session.as_str()).join(LANDED).join(number.to_string())
}

/// The base store as it was before the landing.
pub(in crate::land) fn records_of(parts: &Path) -> PathBuf {
    parts.join(RECORDS)
}

/// The parts of a landing that is being made.
#[derive(Debug)]
pub(super) struct Parts {
    dir: Tree,
    names: File,
    next: usize,
}

impl Parts {
    /// Makes the folder; what an earlier landing of that number left there was never landed.
    pub(super) fn make(path: &Path) -> io::Result<Self> {
        crate::overlay::remove::remove_tree(path)?;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let names =
            File::options().write(true).create_new(true).mode(0o600).open(path.join(NAMES))?;
        Ok(Self { dir: Tree::open(path)?, names, next: 0 })
    }

    /// Opens what an earlier landing has put away, to add to it. `None` where it has left nothing to add to.
    pub(super) fn reopen(path: &Path) -> io::Result<Option<Self>> {
        let open = || -> io::Result<Self> {
            let mut names = File::options().read(true).append(true).open(path.join(NAMES))?;
            let mut bytes = Vec::new();
            names.read_to_end(&mut bytes)?;
            // What was cut short named nothing that moved.
            let whole = bytes.iter().rposition(|b| *b == 0).map_or(0, |end| end + 1);
            names.set_len(whole as u64)?;
            names.seek(SeekFrom::Start(whole as u64))?;
            let next = bytes[..whole].iter().filter(|b| **b == 0).count();
            Ok(Self { dir: Tree::open(path)?, names, next })
        };
        match open() {
            Ok(parts) => Ok(Some(parts)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Moves the object at `path` of the layer, of which `place` is the folder, here. Its name is written down first.
    pub(super) fn take(&mut self, place: &OwnedFd, path: &RelPath) -> io::Result<()> {
        let mut line = path.as_bytes().to_vec();
        line.push(0);
        let whole = self.names.stream_position()?;
        if let Err(e) = self.names.write_all(&line) {
            // A full disk has taken a part of it: the next name must not be read as its end.
            self.names.set_len(whole)?;
            self.names.seek(SeekFrom::Start(whole))?;
            return Err(e);
        }
        let slot = self.next.to_string();
        self.next += 1;
        Ok(fs::renameat(place, path.file_name(), self.dir.root(), slot.as_str())?)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.names.sync_all()?;
        Ok(fs::fsync(self.dir.root())?)
    }
}

/// What a landing has put away: the paths in the layer, each with the name of what was there, the last that left first.
pub(super) fn read(path: &Path) -> io::Result<Vec<(String, RelPath)>> {
    let names = match std::fs::read(path.join(NAMES)) {
        Ok(names) => names,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    // What follows the last NUL was cut short, before its object moved.
    let whole = names.iter().rposition(|b| *b == 0).map_or(0, |end| end + 1);
    let lines = names[..whole].split(|b| *b == 0).enumerate();
    let named = lines.filter_map(|(slot, line)| Some((slot.to_string(), RelPath::new(line).ok()?)));
    let mut all: Vec<_> = named.collect();
    all.reverse();
    Ok(all)
}
