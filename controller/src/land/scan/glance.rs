//! A scan of single names, for whoever watches a running session: it takes the bases of what has just been written, and
//! reads nothing of the layer.

use super::ahead::Ahead;
use super::entry::Place;
use super::{Facts, Folder, Inside, Scan, Seen};
use crate::land::base::Store;
use crate::land::kind::EntryType;
use crate::land::tree::{self, Tree, is_absence};
use crate::overlay::marks;
use landbox_shared::path::RelPath;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;

/// Names in which something has happened, by their folder.
pub(crate) type Glimpsed = BTreeMap<Option<RelPath>, BTreeSet<Vec<u8>>>;

/// Takes the bases of `names` into `store`, until `stop` says that there is no time for more.
pub(crate) fn glance(
    facts: &Facts<'_>,
    upper: &Tree,
    real: Option<&Tree>,
    store: &mut Store,
    inside: Option<&Inside>,
    names: &Glimpsed,
    stop: &dyn Fn() -> bool,
) -> io::Result<()> {
    let seen = Ahead::new(upper, facts.layer.backend, Seen::default());
    let mut scan = Scan { glance: true, inside, ..Scan::new(facts, upper, real, store, &seen) };
    for (folder, names) in names {
        // What is there no more, or can't be read, is left to the scan at the end.
        match scan.names(folder.as_ref(), names, stop) {
            Ok(()) => {}
            Err(e) if is_absence(&e) || e.kind() == io::ErrorKind::PermissionDenied => {}
            Err(e) => return Err(e),
        }
        if stop() {
            break;
        }
    }
    Ok(())
}

impl Scan<'_> {
    fn names(
        &mut self,
        path: Option<&RelPath>,
        names: &BTreeSet<Vec<u8>>,
        stop: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let Some(folder) = self.way(path)? else { return Ok(()) };
        let Some(dir) = self.upper_dir(path)? else { return Ok(()) };
        let real = self.open_real(path)?;
        let (entries, hidden) = self.given(&folder, &dir, names)?;
        for (name, entry) in entries {
            let child = match path {
                None => RelPath::new(name.as_slice()),
                Some(parent) => parent.join(&name),
            };
            let Ok(child) = child else { continue };
            match entry {
                Given::Nothing if hidden => {}
                Given::Nothing => {
                    self.store.forget(&child);
                    continue;
                }
                Given::Object(meta) if meta.kind != EntryType::Dir && self.store.knows(&child) => {
                    continue;
                }
                Given::Object(_) | Given::Whiteout => {}
            }
            let entry = if let Given::Object(meta) = entry { Some(meta) } else { None };
            let place = Place { folder: &folder, hidden, upper: Some(&dir), real: real.as_ref() };
            self.entry(&place, child, &name, entry)?;
            while let Some(below) = self.todo.pop() {
                if stop() {
                    self.todo.clear();
                    return Ok(());
                }
                self.folder(&below)?;
            }
            self.changes.clear();
            self.folders.clear();
        }
        Ok(())
    }

    /// The folder at `path` as a scan from the root would come to it; `None` if it would not.
    fn way(&mut self, path: Option<&RelPath>) -> io::Result<Option<Folder>> {
        let mut folder = self.root()?;
        let Some(path) = path else { return Ok(Some(folder)) };
        let mut steps: Vec<RelPath> =
            std::iter::successors(Some(path.clone()), RelPath::parent).collect();
        steps.reverse();
        for step in steps {
            let above = folder.path.clone();
            let Some(dir) = self.upper_dir(above.as_ref())? else { return Ok(None) };
            let real = self.open_real(above.as_ref())?;
            let name = step.file_name().to_vec();
            let (entries, hidden) = self.given(&folder, &dir, &BTreeSet::from([name.clone()]))?;
            let Some(Given::Object(meta)) = entries.get(&name).copied() else { return Ok(None) };
            let place = Place { folder: &folder, hidden, upper: Some(&dir), real: real.as_ref() };
            self.entry(&place, step, &name, Some(meta))?;
            match self.todo.pop() {
                Some(below) => folder = below,
                None => return Ok(None),
            }
            self.todo.clear();
        }
        Ok(Some(folder))
    }

    fn upper_dir(&self, path: Option<&RelPath>) -> io::Result<Option<OwnedFd>> {
        match self.upper.dir(path) {
            Ok(dir) => Ok(Some(dir)),
            Err(e) if is_absence(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// What `names` are in an open folder of the layer, and whether it hides the real one.
    fn given(
        &self,
        folder: &Folder,
        dir: &OwnedFd,
        names: &BTreeSet<Vec<u8>>,
    ) -> io::Result<(BTreeMap<Vec<u8>, Given>, bool)> {
        // fuse-overlayfs notes beside a name that it is deleted.
        let plain = |name: &[u8]| name.strip_prefix(b".wh.").unwrap_or(name).to_vec();
        let mut asked: BTreeSet<Vec<u8>> = names.clone();
        if self.facts.layer.backend == landbox_shared::policy::Backend::Fuse {
            asked.extend(names.iter().map(|name| plain(name)));
            asked.extend(names.iter().map(|name| [b".wh.", plain(name).as_slice()].concat()));
            asked.insert(b".wh..wh..opq".to_vec());
        }
        let mut there = Vec::new();
        for name in &asked {
            if !name.is_empty() && tree::meta_at(dir, name)?.is_some() {
                there.push(name.clone());
            }
        }
        let found = marks::folder_marks(self.facts.layer.backend, dir, &there)?;
        let mut out: BTreeMap<Vec<u8>, Given> = names
            .iter()
            .filter(|name| !name.starts_with(b".wh."))
            .map(|name| (name.clone(), Given::Nothing))
            .collect();
        for (name, entry) in self.entries(folder.path.as_ref(), dir, &there, found)? {
            out.insert(name, entry.map_or(Given::Whiteout, Given::Object));
        }
        Ok((out, folder.hides(found)))
    }
}

/// What the layer says of a name.
#[derive(Clone, Copy)]
enum Given {
    /// Nothing.
    Nothing,
    /// It is deleted.
    Whiteout,
    /// There is this.
    Object(tree::Meta),
}
