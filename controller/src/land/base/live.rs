//! The store of a running session: what its watch captures, and how the next reader takes that over.

use super::file::{Stored, read};
use super::{Record, Store};
use crate::land::captures::{Captured, Captures, Identity, Watched};
use crate::land::changeset::{Base, Node};
use crate::land::content;
use crate::land::tree::{Meta, Time};
use landbox_shared::id::LayerId;
use landbox_shared::path::RelPath;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

impl Store {
    /// A store that collects what the watch of launch `launch` captures, over what is known already. It holds no lock
    /// and writes nothing but captures; `bytes` is where their content goes.
    pub(crate) fn collecting(
        session_dir: &Path,
        layer: &LayerId,
        bytes: File,
        watched: Watched,
    ) -> Self {
        let dir = session_dir.join("base");
        let Stored { scanned, live, root, own, known } = read(&dir, layer).unwrap_or_default();
        Self {
            dir,
            layer: layer.clone(),
            scanned,
            known,
            kept: BTreeMap::new(),
            withheld: BTreeMap::new(),
            bytes: BufWriter::with_capacity(256 << 10, bytes),
            bytes_len: 0,
            changed: false,
            any_in_layer: false,
            live,
            root,
            own,
            watched,
            fresh: Some(Vec::new()),
            _lock: None,
        }
    }

    /// The project's root when launch `launch` began, where that was noted.
    pub(crate) fn root_of(&self, launch: u32) -> Option<Identity> {
        self.root.filter(|_| self.live.launch == launch)
    }

    /// Whether launch `launch` was watched so that no name can have left a real folder, of which `meta` was taken, before its
    /// change at `changed` without being told.
    pub(crate) fn is_sure(
        &self,
        launch: u32,
        folder: Option<&RelPath>,
        meta: &Meta,
        changed: Time,
    ) -> bool {
        let is_it = self.fresh.is_some() || self.live.launch == launch;
        is_it && self.watched.is_sure(folder, changed, meta.btime)
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
    pub(super) fn take_over(&mut self) -> std::io::Result<()> {
        let Some(captured) = Captured::read(&self.dir, &self.layer, self.live) else {
            return Ok(());
        };
        self.changed |= captured.mark != self.live;
        (self.live, self.root) = (captured.mark, Some(captured.root));
        self.watched = captured.watched.clone();
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
                && content::digest_of(&bytes) == *digest
            {
                record.extent = self.keep(&bytes)?;
            }
            self.known.insert(path.clone(), record);
        }
        Ok(())
    }

    /// Notes that a real name has left while the session may have seen it: unless it is known what was there, nobody knows.
    pub(crate) fn note_left(&mut self, path: RelPath) {
        if !self.kept.contains_key(&path) && !self.known.contains_key(&path) {
            self.put(path, Record { left: true, ..Record::of(Base::Unknown) });
        }
    }
}
