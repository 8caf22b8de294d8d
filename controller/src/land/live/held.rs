//! Whether a layer says of a path what is there.

use crate::land::kind::EntryType;
use crate::land::tree::{self, Tree};
use crate::overlay::marks::{self, Mark};
use landbox_shared::path::RelPath;
use landbox_shared::policy::Backend;
use std::io;

/// Whether the layer itself says what is at a path: an object, or that it is deleted.
pub(in crate::land) fn holds(upper: &Tree, backend: Backend, path: &RelPath) -> io::Result<bool> {
    if upper.meta(path)?.is_some() {
        return Ok(true);
    }
    let mut above = std::iter::successors(path.parent(), RelPath::parent);
    let is_folder = |folder: &RelPath| {
        let meta = upper.meta(folder);
        !meta.is_ok_and(|meta| meta.is_some_and(|meta| meta.kind != EntryType::Dir))
    };
    // A folder that the session has deleted, or put a file in the place of, says it for all that was below.
    if !above.all(|folder| is_folder(&folder)) {
        return Ok(true);
    }
    match upper.dir(path.parent().as_ref()) {
        Ok(dir) => {
            let gone = Mark::WhiteoutOf(path.file_name().to_vec());
            let names = tree::names(&dir)?;
            Ok(names.iter().any(|name| marks::name_mark(backend, name, false) == gone))
        }
        Err(e) if tree::is_absence(&e) => Ok(false),
        Err(e) => Err(e),
    }
}
