//! Moving out of a layer what was judged to go: as few renames as do it. A folder of which all goes is moved as one.

use super::parts::Parts;
use crate::land::tree::Tree;
use landbox_shared::path::RelPath;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// An earlier landing that can still be undone: what it landed waits with it, though it leaves the layer only now.
pub(super) struct Earlier {
    /// The paths that it landed.
    pub rebased: BTreeSet<RelPath>,
    pub parts: Parts,
}

/// What goes, and where it waits.
pub(super) struct Leaving {
    parts: Parts,
    earlier: Vec<Earlier>,
    /// By their place in the layer, each with the earlier landing to which it belongs, if to one.
    going: BTreeMap<RelPath, Option<usize>>,
    gone: BTreeSet<RelPath>,
}

impl Leaving {
    pub(super) fn new(parts: Parts, earlier: Vec<Earlier>) -> Self {
        Self { parts, earlier, going: BTreeMap::new(), gone: BTreeSet::new() }
    }

    /// Lets go what says something of `path`: an object, a mark, or, by the name `at`, a note.
    pub(super) fn add(&mut self, path: &RelPath, at: &RelPath) {
        self.going.insert(at.clone(), self.owner(path));
    }

    /// Lets a folder with these names go, if all of them go, and to one place.
    pub(super) fn add_folder(&mut self, path: &RelPath, names: &[Vec<u8>]) {
        let to = |name: &Vec<u8>| self.going.get(&path.join(name).ok()?).copied();
        let mut all = names.iter().map(to);
        let owner = all.next().unwrap_or_else(|| Some(self.owner(path)));
        if let Some(owner) = owner
            && all.all(|other| other == Some(owner))
        {
            self.going.insert(path.clone(), owner);
        }
    }

    /// The earlier landing that landed something at `path` or below it.
    fn owner(&self, path: &RelPath) -> Option<usize> {
        let below = |p: &&RelPath| p.as_bytes().starts_with(path.as_bytes());
        let landed = |all: &BTreeSet<RelPath>| {
            all.range(path..).take_while(below).any(|landed| landed.is_within(path))
        };
        self.earlier.iter().position(|earlier| landed(&earlier.rebased))
    }

    /// Moves out all that goes, the outermost first. What can't be moved stays.
    pub(super) fn go(&mut self, upper: &Tree) {
        for (at, owner) in std::mem::take(&mut self.going) {
            let above = std::iter::successors(at.parent(), RelPath::parent);
            if !above.into_iter().any(|folder| self.gone.contains(&folder)) {
                let _ = self.move_out(upper, &at, owner);
            }
        }
    }

    /// Moves out one thing more.
    pub(super) fn take(&mut self, upper: &Tree, path: &RelPath, at: &RelPath) -> io::Result<()> {
        self.move_out(upper, at, self.owner(path))
    }

    fn move_out(&mut self, upper: &Tree, at: &RelPath, owner: Option<usize>) -> io::Result<()> {
        let place = upper.place(at.parent().as_ref())?;
        match owner.and_then(|owner| self.earlier.get_mut(owner)) {
            Some(earlier) => earlier.parts.take(&place, at)?,
            None => self.parts.take(&place, at)?,
        }
        self.gone.insert(at.clone());
        Ok(())
    }

    /// Whether what lay there has moved out.
    pub(super) fn has(&self, at: &RelPath) -> bool {
        let mut all = std::iter::successors(Some(at.clone()), RelPath::parent);
        all.any(|path| self.gone.contains(&path))
    }

    /// Writes the names of what has moved to disk.
    pub(super) fn sync(&self) {
        let _ = self.parts.sync();
        for earlier in &self.earlier {
            let _ = earlier.parts.sync();
        }
    }
}
