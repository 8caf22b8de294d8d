//! Takes out of the layer what has landed, so that a resumed session sees the project as it is, with whatever its owner
//! makes of it from then on.
//!
//! What lies in the layer is the real thing's twin by now, so each removal changes nothing of what the session sees, and
//! one that is refused or never done costs nothing but the view of later edits. A folder that hides the real one is the
//! exception: emptied name by name it would say that all of it was deleted. It goes as a whole, by one rename, or stays.
//! The base records of what is gone are dropped by the next scan, which does not ask for them any more.
//!
//! Nothing is deleted: as long as the landing can be undone, all of it waits beside the layer to be put back.

use super::leave::{Earlier, Leaving};
use super::parts::Parts;
use super::plan::{Action, Step};
use crate::land::changeset::{Base, Node};
use crate::land::kind::EntryType;
use crate::land::layer::LayerView;
use crate::land::tree::{self, Meta, Near, Tree};
use crate::overlay::marks::{self, Mark};
use landbox_shared::path::RelPath;
use landbox_shared::policy::Backend;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// How the real folder shows through a folder of the layer.
#[derive(Clone)]
enum Way {
    /// Wherever the layer holds nothing.
    Open,
    /// Not at all, from this folder on.
    Opaque(RelPath),
    /// There is no such folder on one of the two sides, or nobody can say.
    Closed,
}

struct Pruner<'a> {
    view: &'a LayerView,
    backend: Backend,
    project: &'a Tree,
    near: Near<'a>,
    near_upper: Near<'a>,
    landed: &'a BTreeMap<RelPath, Option<Node>>,
    staged: HashMap<&'a RelPath, ((u32, u32), u64)>,
    ways: HashMap<RelPath, Way>,
    /// Folders through which the real one shows everywhere, and which have its mode.
    same: HashSet<RelPath>,
    settled: &'a BTreeMap<RelPath, Option<Node>>,
    leaving: Leaving,
}

/// Moves out of the layer what of `landed` is really there now, and what of `settled` the layer still holds: that has
/// landed in another form, or was turned down. What can't be moved stays.
pub(super) fn prune(
    view: &LayerView,
    backend: Backend,
    project: &Tree,
    (parts, earlier): (Parts, Vec<Earlier>),
    landed: &BTreeMap<RelPath, Option<Node>>,
    steps: &[Step],
    settled: &BTreeMap<RelPath, Option<Node>>,
) {
    let staged = |s: &'_ Step| match s.action {
        Action::Put { .. } | Action::Swap { .. } => s.staged,
        Action::Take { .. } | Action::Mode { .. } => None,
    };
    let staged = steps.iter().filter_map(|s| Some((&s.path, staged(s)?))).collect();
    let (ways, same, leaving) = (HashMap::new(), HashSet::new(), Leaving::new(parts, earlier));
    let (near, near_upper) = (Near::of(project), Near::of(&view.upper));
    let mut pruner = Pruner {
        view,
        backend,
        project,
        near,
        near_upper,
        landed,
        staged,
        ways,
        same,
        settled,
        leaving,
    };
    let all: BTreeMap<&RelPath, &Option<Node>> = landed.iter().chain(settled).collect();
    let (mut folders, mut whole) = (BTreeSet::new(), BTreeSet::new());
    // The deepest first.
    for (path, node) in all.into_iter().rev() {
        if view.masks.iter().any(|mask| path.is_within(mask)) {
            continue;
        }
        let parent = path.parent();
        match pruner.way(parent.as_ref()) {
            Way::Closed => continue,
            Way::Opaque(top) => {
                whole.insert(top);
                continue;
            }
            Way::Open => {}
        }
        let gone = match node {
            None => pruner.whiteout(path),
            Some(Node::Dir { .. }) => {
                match pruner.way(Some(path)) {
                    Way::Opaque(top) => drop(whole.insert(top)),
                    Way::Open => drop(folders.insert(path.clone())),
                    Way::Closed => {}
                }
                continue;
            }
            Some(node) => pruner.object(path, node),
        };
        if gone.unwrap_or(false) {
            folders.extend(crate::land::digest::ancestors(std::iter::once(path)));
        }
    }
    for top in pruner.whole(&whole) {
        folders.extend(crate::land::digest::ancestors(std::iter::once(&top)));
    }
    // All is judged before anything moves, so that a folder of which all goes moves as one.
    for folder in folders.iter().rev() {
        let _ = pruner.folder(folder);
    }
    pruner.leaving.go(&view.upper);
    for folder in folders.iter().rev() {
        let _ = pruner.emptied(folder);
    }
    pruner.leaving.sync();
}

impl Pruner<'_> {
    fn upper(&self) -> &Tree {
        &self.view.upper
    }

    fn way(&mut self, path: Option<&RelPath>) -> Way {
        let Some(path) = path else {
            let shows = |dir: OwnedFd| self.marks(&dir).is_ok_and(|m| !m.opaque && !m.redirected);
            let open = self.upper().dir(None).is_ok_and(shows);
            return if open { Way::Open } else { Way::Closed };
        };
        if let Some(way) = self.ways.get(path) {
            return way.clone();
        }
        let way = match self.way(path.parent().as_ref()) {
            Way::Open => self.look(path).unwrap_or(Way::Closed),
            other @ (Way::Opaque(_) | Way::Closed) => other,
        };
        self.ways.insert(path.clone(), way.clone());
        way
    }

    fn look(&mut self, path: &RelPath) -> io::Result<Way> {
        let dir = self.upper().dir(Some(path))?;
        let found = self.marks(&dir)?;
        let Some(real) = self.near.meta(path)?.filter(|m| m.kind == EntryType::Dir) else {
            return Ok(Way::Closed);
        };
        if found.redirected || has_note(self.backend, self.near_upper.parent(path)?, path)? {
            return Ok(Way::Closed);
        }
        if found.opaque {
            return Ok(Way::Opaque(path.clone()));
        }
        if self.are_alike(&tree::meta_of(&dir)?, &real) {
            self.same.insert(path.clone());
        }
        Ok(Way::Open)
    }

    fn marks(&self, dir: &OwnedFd) -> io::Result<marks::FolderMarks> {
        let names = match self.backend {
            // Its marks are attributes alone.
            Backend::Kernel => Vec::new(),
            // Listed by a descriptor of its own: reading moves the offset.
            Backend::Fuse => tree::names(dir)?,
        };
        marks::folder_marks(self.backend, dir, &names)
    }

    /// Lets the mark of a deleted name go.
    fn whiteout(&mut self, path: &RelPath) -> io::Result<bool> {
        if !self.settled.contains_key(path) && self.near.meta(path)?.is_some() {
            return Ok(false);
        }
        let place = self.near_upper.parent(path)?;
        let null = |m: &Meta| m.kind == EntryType::CharDevice && m.rdev == (0, 0);
        let mut gone = false;
        match tree::meta_at(place, path.file_name())? {
            Some(meta) if null(&meta) => {
                self.leaving.add(path, path);
                gone = true;
            }
            Some(_) => return Ok(false),
            None => {}
        }
        let note = note_of(path);
        let kind = tree::meta_at(place, &note)?.map(|m| m.kind);
        if self.backend == Backend::Fuse
            && kind.is_some_and(|kind| kind != EntryType::Dir)
            && marks::name_mark(self.backend, &note, false)
                == Mark::WhiteoutOf(path.file_name().to_vec())
            && let Ok(note) =
                path.parent().map_or_else(|| RelPath::new(&note[..]), |p| p.join(&note))
        {
            self.leaving.add(path, &note);
            gone = true;
        }
        Ok(gone)
    }

    /// Lets a file or link go.
    fn object(&mut self, path: &RelPath, node: &Node) -> io::Result<bool> {
        if self.view.parts.contains_key(path) {
            // There is more in the layer than has landed.
            return Ok(false);
        }
        let place = self.near_upper.parent(path)?;
        let Some(meta) = tree::meta_at(place, path.file_name())? else { return Ok(false) };
        if meta.kind != node.kind() || has_note(self.backend, place, path)? {
            return Ok(false);
        }
        let dealt_with = match self.settled.get(path) {
            // Nobody writes to a stopped session's layer, but this is the only copy.
            Some(Some(node)) => tree::node_at(place, path.file_name(), &meta)? == *node,
            Some(None) => false,
            None => self.is_real(path, node)?,
        };
        if dealt_with {
            self.leaving.add(path, path);
        }
        Ok(dealt_with)
    }

    /// Whether what is really there is this.
    fn is_real(&mut self, path: &RelPath, node: &Node) -> io::Result<bool> {
        let Ok(place) = self.near.parent(path) else { return Ok(false) };
        let Some(meta) = tree::meta_at(place, path.file_name())? else { return Ok(false) };
        if meta.kind != node.kind()
            || node.mode().is_some_and(|mode| meta.mode != mode)
            || node.size().is_some_and(|size| meta.size != size)
        {
            return Ok(false);
        }
        // What the landing itself has put there was compared with the layer moments ago, byte by byte.
        if self.staged.get(path) == Some(&(meta.dev, meta.ino)) && meta.kind == EntryType::File {
            return Ok(true);
        }
        Ok(tree::node_at(place, path.file_name(), &meta)? == *node)
    }

    /// Lets each folder go that hides the real one although both hold the same. Gives those.
    fn whole(&mut self, tops: &BTreeSet<RelPath>) -> Vec<RelPath> {
        let mut gone = Vec::new();
        for top in tops {
            let holds_mask = self.view.masks.iter().any(|mask| mask.is_within(top));
            if !holds_mask && self.is_twin(top).unwrap_or(false) {
                self.leaving.add(top, top);
                gone.push(top.clone());
            }
        }
        gone
    }

    /// Whether a folder of the layer and the real one hold the same, and nothing in them is left to land.
    fn is_twin(&mut self, top: &RelPath) -> io::Result<bool> {
        let mut todo = vec![top.clone()];
        while let Some(folder) = todo.pop() {
            if !self.same_mode(&folder)? {
                return Ok(false);
            }
            let dir = self.upper().dir(Some(&folder))?;
            let mut real: BTreeSet<Vec<u8>> =
                tree::names(self.project.dir(Some(&folder))?)?.into_iter().collect();
            for name in tree::names(&dir)? {
                let Some(meta) = tree::meta_at(&dir, &name)? else { return Ok(false) };
                let null = meta.kind == EntryType::CharDevice && meta.rdev == (0, 0);
                match marks::name_mark(self.backend, &name, null) {
                    Mark::Object => {}
                    Mark::Note => continue,
                    // In a folder that hides all it says nothing; a real object of that name is found below.
                    Mark::Whiteout | Mark::WhiteoutOf(_) => continue,
                }
                let Ok(path) = folder.join(&name) else { return Ok(false) };
                if !real.remove(&name) {
                    return Ok(false);
                }
                if meta.kind == EntryType::Dir {
                    todo.push(path);
                } else if !self.is_known(&dir, &path, &meta)? {
                    return Ok(false);
                }
            }
            if !real.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether an object of the layer has landed, or is what was there from the first, and is really there.
    fn is_known(&mut self, dir: &OwnedFd, path: &RelPath, meta: &Meta) -> io::Result<bool> {
        if self.view.parts.contains_key(path) {
            return Ok(false);
        }
        if let Some(Some(node)) = self.landed.get(path) {
            return Ok(meta.kind == node.kind() && self.is_real(path, node)?);
        }
        let Some(Base::Known(node)) = self.view.store.kept(path).map(|record| &record.base) else {
            return Ok(false);
        };
        let same = meta.kind == node.kind() && meta.size == node.size().unwrap_or(meta.size);
        Ok(same
            && tree::node_at(dir, path.file_name(), meta)? == *node
            && self.is_real(path, node)?)
    }

    fn same_mode(&self, path: &RelPath) -> io::Result<bool> {
        let (Some(ours), Some(real)) = (self.upper().meta(path)?, self.project.meta(path)?) else {
            return Ok(false);
        };
        Ok(self.are_alike(&ours, &real))
    }

    fn are_alike(&self, ours: &Meta, real: &Meta) -> bool {
        // fuse-overlayfs loses set-id bits; a landing has put them back.
        let bits = match self.backend {
            Backend::Kernel => 0o7777,
            Backend::Fuse => 0o1777,
        };
        let is_dir = |m: &Meta| m.kind == EntryType::Dir;
        is_dir(ours) && is_dir(real) && (ours.mode ^ real.mode) & bits == 0
    }

    /// The names in a folder through which the real one shows everywhere; `None` where it does not.
    fn open_folder(&mut self, path: &RelPath) -> io::Result<Option<Vec<Vec<u8>>>> {
        if !matches!(self.way(Some(path)), Way::Open) || !self.same.contains(path) {
            return Ok(None);
        }
        tree::list(&self.upper().dir(Some(path))?).map(Some)
    }

    /// Lets a folder go of which all goes.
    fn folder(&mut self, path: &RelPath) -> io::Result<()> {
        if let Some(names) = self.open_folder(path)? {
            self.leaving.add_folder(path, &names);
        }
        Ok(())
    }

    /// Moves out a folder that has become empty.
    fn emptied(&mut self, path: &RelPath) -> io::Result<()> {
        if !self.leaving.has(path) && self.open_folder(path)?.is_some_and(|names| names.is_empty())
        {
            self.leaving.take(&self.view.upper, path, path)?;
        }
        Ok(())
    }
}

/// Whether fuse-overlayfs has also noted, beside the object, that the name is deleted.
fn has_note(backend: Backend, place: impl AsFd, path: &RelPath) -> io::Result<bool> {
    Ok(match backend {
        Backend::Kernel => false,
        Backend::Fuse => tree::meta_at(place, &note_of(path))?.is_some(),
    })
}

/// The name by which fuse-overlayfs may note that `path` is deleted.
fn note_of(path: &RelPath) -> Vec<u8> {
    [b".wh.", path.file_name()].concat()
}
