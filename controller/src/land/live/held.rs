//! Whether a layer says of a path what is there.

use super::side::Side;
use crate::error::{Context, Result};
use crate::land::changeset::Node;
use crate::land::kind::EntryType;
use crate::land::tree::{self, Tree};
use crate::overlay::marks::{self, Mark};
use landbox_shared::path::RelPath;
use landbox_shared::policy::Backend;
use std::collections::BTreeMap;
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

/// What a running session sees at these paths, as far as its layer says nothing of them. In this order: what is in the layer
/// once it was looked at, the session may just have written.
pub(super) fn seen_only<'a>(
    side: &Side<'_>,
    upper: &Tree,
    backend: Backend,
    paths: impl IntoIterator<Item = &'a RelPath>,
) -> Result<BTreeMap<RelPath, Option<Node>>> {
    let mut seen = BTreeMap::new();
    for path in paths {
        let node = side.node(path).context(|| format!("can't look at {path}"))?;
        if !holds(upper, backend, path).unwrap_or(true) {
            seen.insert(path.clone(), node);
        }
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_a_session_has_written_is_not_taken_for_what_it_only_sees() {
        let dir = tempfile::tempdir().unwrap();
        let [merged, upper] = ["merged", "upper"].map(|name| dir.path().join(name));
        fs::create_dir(&merged).unwrap();
        fs::create_dir(&upper).unwrap();
        fs::write(merged.join("landed"), "landed").unwrap();
        // Made anew after the landing, before it is looked at.
        fs::write(merged.join("anew"), "the session's").unwrap();
        fs::write(upper.join("anew"), "the session's").unwrap();
        let merged = Tree::open(&merged).unwrap();
        let side = Side { tree: &merged, layer: None };
        let paths = ["anew", "landed"].map(|path| RelPath::new(path).unwrap());
        let upper = Tree::open(&upper).unwrap();
        let seen = seen_only(&side, &upper, Backend::Fuse, &paths).unwrap();
        assert_eq!(seen.keys().collect::<Vec<_>>(), [&paths[1]]);
    }
}
