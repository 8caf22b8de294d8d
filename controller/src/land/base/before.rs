//! What was the base of a path before the real content took its place in the layer. A checkpoint of that time holds what the
//! session made of that base, not of what its owner has written since.
//!
//! ```text
//! <session>/base/<layer>.before   a line a path: its base, and the newest checkpoint for which it was that
//! ```
//! What lands is the base from then on, also of what lay in a checkpoint: then a line without a base says so.

use super::Store;
use super::record::Record;
use crate::error::{Context, Result};
use crate::land::changeset::Base;
use crate::session::store::show;
use landbox_shared::id::LayerId;
use landbox_shared::path::RelPath;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    path: RelPath,
    base: Option<Base>,
    until: u32,
}

fn place(dir: &Path, layer: &LayerId) -> PathBuf {
    dir.join(format!("{layer}.before"))
}

/// What was the base at checkpoint `number`, of paths of which that was noted.
pub(crate) fn at(session_dir: &Path, layer: &LayerId, number: u32) -> BTreeMap<RelPath, Base> {
    let mut found = BTreeMap::new();
    // Of a line that was cut short nothing is known.
    let text = std::fs::read(place(&session_dir.join("base"), layer)).unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n').filter_map(|l| serde_json::from_slice(l).ok());
    for Line { path, base, until } in lines {
        match base {
            None => drop(found.remove(&path)),
            // The first one was the base when the checkpoint was taken.
            Some(base) if until >= number => drop(found.entry(path).or_insert(base)),
            Some(_) => {}
        }
    }
    found
}

impl Store {
    /// Notes, on the disk, what is the base of these paths, of which the layer is to hold the real content from now on; or of
    /// all. `until` is the newest checkpoint.
    pub(crate) fn note_before(
        &self,
        paths: Option<&mut dyn Iterator<Item = &RelPath>>,
        until: u32,
    ) -> Result<()> {
        let line = |(path, record): (&RelPath, &Record)| Line {
            path: path.clone(),
            base: Some(record.base.clone()),
            until,
        };
        // Where a layer is read as it was, what counts is what is known now.
        let looked = |path| self.kept.get(path).or_else(|| self.known.get(path));
        let now = |path| self.withheld.get(path).map_or_else(|| looked(path), Option::as_ref);
        let record = |path| Some((path, now(path)?));
        self.write(match paths {
            Some(paths) => paths.filter_map(record).map(line).collect(),
            None => self.known.iter().chain(&self.kept).map(line).collect(),
        })
    }

    /// Says that these have landed. Where it can't be said, they are conflicts in a checkpoint.
    pub(crate) fn note_landed<'a>(&self, paths: impl Iterator<Item = &'a RelPath>) {
        if self.place().exists() {
            let line = |path: &RelPath| Line { path: path.clone(), base: None, until: 0 };
            let _ = self.write(paths.map(line).collect());
        }
    }

    fn write(&self, lines: Vec<Line>) -> Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let what = || format!("can't write {}", show(&self.place()));
        // What a write that was cut short has left ends where a line begins.
        let mut text = vec![b'\n'];
        for line in lines {
            serde_json::to_writer(&mut text, &line).context(what)?;
            text.push(b'\n');
        }
        let mut options = std::fs::File::options();
        let mut file =
            options.append(true).create(true).mode(0o600).open(self.place()).context(what)?;
        file.write_all(&text).and_then(|()| file.sync_all()).context(what)
    }

    fn place(&self) -> PathBuf {
        place(&self.dir, &self.layer)
    }

    /// Reads a layer as it was at another time: what it does not hold had not come, or was deleted as any other path; and
    /// these paths were made of another base. What is known of them now is kept, unless it is changed.
    pub(crate) fn look_past(&mut self, before: BTreeMap<RelPath, Base>) {
        self.any_in_layer = false;
        for (path, base) in before {
            let now = self.known.remove(&path);
            if let Some(now) = now.as_ref().filter(|now| now.base == base) {
                self.known.insert(path, now.clone());
                continue;
            }
            let complete = now.as_ref().is_some_and(|now| now.complete);
            self.known.insert(path.clone(), Record { complete, ..Record::of(base) });
            self.withheld.insert(path, now);
        }
    }

    /// Takes what a path was made of for what is known of it from now on: the layer holds that again.
    pub(crate) fn adopt(&mut self, path: &RelPath) {
        self.changed |= self.withheld.remove(path).is_some();
    }

    /// The same of these paths, in a store that nobody has looked at.
    pub(crate) fn go_back(&mut self, before: BTreeMap<RelPath, Base>) {
        for (path, base) in before {
            if self.get(&path).is_none_or(|record| record.base != base) {
                self.rebase(path, base);
            }
        }
        self.keep_rest();
    }

    /// The records to be written.
    pub(super) fn records_now(&self) -> BTreeMap<RelPath, Record> {
        let mut records = self.kept.clone();
        for (path, record) in &self.withheld {
            match record {
                Some(record) => drop(records.insert(path.clone(), record.clone())),
                None => drop(records.remove(path)),
            }
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::land::changeset::Node;

    #[test]
    fn a_checkpoint_has_the_first_base_that_held_for_it_until_the_path_lands() {
        let session = tempfile::tempdir().unwrap();
        let layer = LayerId::new("project").unwrap();
        let path = |name: &str| RelPath::new(name.as_bytes()).unwrap();
        let mode = |mode| Base::Known(Node::Dir { mode });
        let note = |bases: &[(&str, Base)], until| {
            let mut store = Store::open(session.path(), &layer).unwrap();
            bases.iter().for_each(|(name, base)| store.put(path(name), Record::of(base.clone())));
            store.note_before(None, until).unwrap();
        };
        let at = |number| {
            let found = at(session.path(), &layer, number);
            found.into_iter().map(|(p, base)| (p.to_string(), base)).collect::<Vec<_>>()
        };
        note(&[("a", mode(1)), ("b", Base::Absent)], 1);
        // Cut short by a full disk.
        let torn = session.path().join("base/project.before");
        std::fs::File::options().append(true).open(torn).unwrap().write_all(b"{\"path\":").unwrap();
        note(&[("a", mode(2)), ("c", mode(3))], 2);
        assert_eq!(
            at(1),
            [("a".into(), mode(1)), ("b".into(), Base::Absent), ("c".into(), mode(3))]
        );
        assert_eq!(at(2), [("a".into(), mode(2)), ("c".into(), mode(3))]);
        assert_eq!(at(3), []);
        let store = Store::open(session.path(), &layer).unwrap();
        store.note_landed([path("a")].iter());
        assert_eq!(at(1), [("b".into(), Base::Absent), ("c".into(), mode(3))]);
    }

    #[test]
    fn looking_at_the_past_changes_nothing_of_the_present_but_what_is_adopted() {
        let session = tempfile::tempdir().unwrap();
        let layer = LayerId::new("project").unwrap();
        let [a, b] = ["a", "b"].map(|name| RelPath::new(name.as_bytes()).unwrap());
        let base = |mode| Base::Known(Node::Dir { mode });
        let mut store = Store::open(session.path(), &layer).unwrap();
        store.put(a.clone(), Record::of(base(1)));
        store.save(1).unwrap();
        drop(store);
        let look = |adopts: bool| {
            let mut store = Store::open(session.path(), &layer).unwrap();
            store.look_past([(a.clone(), base(2)), (b.clone(), base(3))].into());
            let seen = [&a, &b].map(|path| store.get(path).map(|record| record.base.clone()));
            assert_eq!(seen, [Some(base(2)), Some(base(3))]);
            store.note_before(Some(&mut [&a, &b].into_iter()), 7).unwrap();
            if adopts {
                store.adopt(&a);
            }
            store.keep_rest();
            store.save(2).unwrap();
        };
        let now = || {
            let mut store = Store::open(session.path(), &layer).unwrap();
            [&a, &b].map(|path| store.get(path).map(|record| record.base.clone()))
        };
        look(false);
        assert_eq!(now(), [Some(base(1)), None]);
        // Nor does it note, as what was the base until now, what was it then.
        assert_eq!(at(session.path(), &layer, 7), [(a.clone(), base(1))].into());
        look(true);
        assert_eq!(now(), [Some(base(2)), None]);
    }
}
