//! What landings, and undoing them, make of the store.

use super::file::{Stored, read_file};
use super::{Record, Stamp, Store};
use crate::error::{Context, Result};
use crate::land::changeset::{Base, Node};
use crate::land::content;
use crate::land::tree::{self, Tree};
use crate::session::store::show;
use landbox_shared::path::RelPath;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;

impl Store {
    /// Makes what was landed the base of a path. The real file's stamp is left out: within the clock's grain an edit
    /// after the landing would leave it as it is.
    pub(crate) fn rebase(&mut self, path: RelPath, base: Base) {
        let complete = self.kept.get(&path).is_some_and(|r| r.complete);
        self.put(path, Record { complete, ..Record::of(base) });
    }

    /// Forgets a path of which the layer says nothing any more, and nothing is to be known.
    pub(crate) fn drop_record(&mut self, path: &RelPath) {
        self.withheld.remove(path);
        self.changed |= self.known.remove(path).is_some() | self.kept.remove(path).is_some();
    }

    /// Keeps the bytes of a path's base, if they are these and there is room.
    pub(crate) fn keep_for(&mut self, path: &RelPath, bytes: &[u8]) {
        let digest = content::digest_of(bytes);
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

    /// Writes the records to a file of their own. The caller sees to it that it comes to disk.
    pub(crate) fn copy_to(&self, path: &Path) -> Result<()> {
        self.write_beside()?.persist(path).context(|| format!("can't write {}", show(path)))?;
        Ok(())
    }

    /// Takes over, from such a copy, the records of `paths`, and of whatever has none now; their bytes, as far as they
    /// are kept, from the real files. The rest stays as it is.
    pub(crate) fn restore(
        &mut self,
        copy: &Path,
        paths: &BTreeSet<RelPath>,
        real: &Tree,
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
            // What has left the layer since was not deleted by the session.
            record.in_layer &= paths.contains(&path);
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
        let file = self.write_beside()?;
        file.as_file().sync_all().context(what)?;
        file.persist(&path).context(what)?;
        self.changed = false;
        File::open(&self.dir).and_then(|dir| dir.sync_all()).context(what)
    }

    /// Notes how the real file is known again that was just read, and found to be the base.
    pub(crate) fn stamp(&mut self, path: &RelPath, stamp: Stamp) {
        if let Some(record) = self.kept.get_mut(path) {
            record.stamp = Some(Box::new(stamp));
            self.changed = true;
        }
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

    /// Takes that back for paths that are about to leave the layer. Whether it was said of one.
    pub(crate) fn leaves_layer<'a>(&mut self, paths: impl Iterator<Item = &'a RelPath>) -> bool {
        let mut any = false;
        for path in paths {
            if let Some(record) = self.kept.get_mut(path).filter(|record| record.in_layer) {
                record.in_layer = false;
                (any, self.changed) = (true, true);
            }
        }
        any
    }

    /// Whether the layer holds a path that has landed, or the session has deleted it.
    pub(crate) fn is_in_layer(&self, path: &RelPath) -> bool {
        self.known.get(path).or_else(|| self.kept.get(path)).is_some_and(|record| record.in_layer)
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
}
