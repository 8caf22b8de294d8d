//! Copies of a running session's files, as they were in the picture: what is shown is what lands, whatever is written
//! meanwhile.

use crate::error::Result;
use crate::land::changeset::{Change, Node};
use crate::land::content;
use crate::land::tree::is_absence;
use crate::session::scratch::Scratch;
use crate::session::store::Session;
use landbox_shared::path::RelPath;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Seek as _};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Files by their path in the layer; gone with this.
#[derive(Debug)]
pub(crate) struct Spool {
    dir: Scratch,
    held: Mutex<HashMap<RelPath, PathBuf>>,
}

impl Spool {
    pub(super) fn new(session: &Session) -> Result<Self> {
        Ok(Self { dir: Scratch::new(&session.dir)?, held: Mutex::default() })
    }

    /// The file of a change as it was in the picture; copied from `from` where it was not yet. `None` where it has been
    /// written since.
    pub(crate) fn file(
        &self,
        change: &Change,
        from: impl FnOnce() -> io::Result<File>,
    ) -> io::Result<Option<File>> {
        // Held while one is copied: each name is given once.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = held.get(&change.path) {
            return File::open(path).map(Some);
        }
        let Some(Node::File { size, digest, .. }) = &change.new else { return Ok(None) };
        let mut from = match from() {
            Ok(from) => from,
            // What was a file that could be read is gone, a mark of the overlay's, or something else.
            Err(e) if is_absence(&e) || e.kind() == ErrorKind::PermissionDenied => return Ok(None),
            Err(e) if e.raw_os_error().is_none() => return Ok(None),
            Err(e) => return Err(e),
        };
        let path = self.dir.path().join(held.len().to_string());
        // One that grows without end is not copied without end.
        if tree_size(&from)? != *size {
            return Ok(None);
        }
        let copied = File::create_new(&path).and_then(|to| content::copy(&from, &to));
        match copied {
            Ok(found) if found == (*size, *digest) => {
                held.insert(change.path.clone(), path.clone());
                File::open(path).map(Some)
            }
            Ok(_) => std::fs::remove_file(&path).map(|()| None),
            // A full disk is when its owner wants to look: the file itself will do, as long as it is the one.
            Err(e) if matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                let _ = std::fs::remove_file(&path);
                from.rewind()?;
                let same = content::digest(&from)? == (*size, *digest);
                from.rewind()?;
                Ok(same.then_some(from))
            }
            Err(e) => Err(e),
        }
    }
}

fn tree_size(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.len())
}
