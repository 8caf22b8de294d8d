//! Walks a layer and the base it hides, and says what changed. The walk costs what the layer holds, not what the
//! project holds.

mod absent;
mod ahead;
mod entry;
mod glance;
mod inside;
mod real;
mod seen;
mod upper;

use super::base::Store;
use super::captures::Identity;
use super::changeset::{Base, Change, Changeset, ImpliedFolder, Node};
use super::kind::{ChangeState, Group};
use super::live::Noted;
use super::rules;
use super::tree::{self, Meta, Tree};
use crate::overlay::marks::FolderMarks;
use ahead::Ahead;
use entry::Place;
pub(crate) use glance::{Glimpsed, glance};
pub(crate) use inside::Inside;
use landbox_shared::path::RelPath;
use landbox_shared::policy::LayerPolicy;
pub(crate) use seen::Seen;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::thread;
use upper::UpperFolder;

/// Changes, and folders that come and go with them, of one layer that are read at most: what a card takes is about
/// 900 bytes each.
pub(crate) const MOST: usize = 1 << 20;

/// There are more.
#[derive(Debug)]
pub(crate) struct TooMany;

impl std::fmt::Display for TooMany {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it holds more than {MOST} changes, which is more than can be reviewed")
    }
}

impl std::error::Error for TooMany {}

/// What a scan needs to know beside the two trees.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    /// The layer.
    pub layer: &'a LayerPolicy,
    /// Hidden paths, relative to the layer's target.
    pub masks: Vec<RelPath>,
    /// The time before which a real file is surely the one the session saw; `None` if nobody knows.
    pub epoch: Option<tree::Time>,
    /// The clock has gone back behind that time.
    pub behind: bool,
    /// Every path is git's own: the common folder of a linked worktree.
    pub all_git: bool,
    /// The real root that the session was started over, where that was noted.
    pub root: Option<Identity>,
    /// The newest launch.
    pub launch: u32,
    /// What a command has prepared in the layer, which is nobody's change.
    pub prepared: Noted,
}

/// How the base shows in a folder of the layer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shows {
    /// Where the layer has no entry, the base is seen. Whether the folder is opaque is read when it is opened.
    Through,
    /// A folder above is opaque: of the base nothing is seen, whatever marks this one has.
    Hidden,
    /// No folder of the layer is there any more: all that was below is deleted.
    Gone,
    /// The base has no folder here: all is new.
    Nothing,
}

/// A folder still to be looked at.
struct Folder {
    /// `None` is the layer's root.
    path: Option<RelPath>,
    shows: Shows,
    /// Whether the real folder is surely the one the session saw.
    trusted: bool,
    /// What is said of the folder itself, once it is known whether it is empty.
    pending: Option<Pending>,
    /// Modes of this folder, which decide whether a mode below matters.
    old_mode: Option<u32>,
    new_mode: Option<u32>,
}

impl Folder {
    /// Whether a base folder of this name is hidden by the layer's.
    fn hides(&self, found: FolderMarks) -> bool {
        match self.shows {
            Shows::Through => found.opaque,
            Shows::Hidden | Shows::Gone => true,
            Shows::Nothing => false,
        }
    }
}

/// An added or deleted folder: it is a change of its own only if it is empty or its mode matters.
struct Pending {
    base: Base,
    new: Option<Node>,
    state: ChangeState,
    matters: bool,
}

pub(crate) struct Scan<'a> {
    facts: &'a Facts<'a>,
    upper: &'a Tree,
    real: Option<&'a Tree>,
    store: &'a mut Store,
    todo: Vec<Folder>,
    changes: Vec<Change>,
    folders: Vec<ImpliedFolder>,
    /// Only bases are taken: the layer's content is not read, nor anything that has a record.
    glance: bool,
    /// What the running session sees.
    inside: Option<&'a Inside>,
    /// Whether of a name of the folder that is looked at nothing was recorded.
    unrecorded: bool,
    most: usize,
    /// What the layer's files held.
    seen: &'a Ahead<'a>,
    /// Files of the layer that were read.
    read: usize,
}

/// Scans a layer, of which `seen` was read before. The store must be saved by the caller.
pub(crate) fn scan(
    facts: &Facts<'_>,
    upper: &Tree,
    real: Option<&Tree>,
    store: &mut Store,
    seen: Seen,
) -> io::Result<(Changeset, Seen)> {
    let seen = Ahead::new(upper, facts.layer.backend, seen);
    let changeset = all(Scan::new(facts, upper, real, store, &seen))?;
    Ok((changeset, seen.into_seen()))
}

fn all(mut scan: Scan<'_>) -> io::Result<Changeset> {
    let (facts, seen) = (scan.facts, scan.seen);
    let root = scan.root()?;
    scan.todo.push(root);
    let done = thread::scope(|scope| {
        let mut alone = true;
        let mut go = || -> io::Result<()> {
            while let Some(folder) = scan.todo.pop() {
                if alone && scan.read >= ahead::FEW {
                    seen.begin(scope);
                    alone = false;
                }
                scan.folder(&folder)?;
            }
            Ok(())
        };
        let done = go();
        seen.end();
        done
    });
    let Scan { mut changes, mut folders, .. } = scan;
    done?;
    // Stable: what was said last of a path (that its folder cannot be read, say) counts.
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    changes.dedup_by(|later, earlier| {
        let same = later.path == earlier.path;
        if same {
            std::mem::swap(later, earlier);
        }
        same
    });
    block_below_unlandable(&mut changes);
    folders.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    let (layer, target) = (facts.layer.id.clone(), facts.layer.target.clone());
    Ok(Changeset { layer, target, changes, folders })
}

impl<'a> Scan<'a> {
    fn new(
        facts: &'a Facts<'a>,
        upper: &'a Tree,
        real: Option<&'a Tree>,
        store: &'a mut Store,
        seen: &'a Ahead<'a>,
    ) -> Self {
        let (todo, changes, folders) = (Vec::new(), Vec::new(), Vec::new());
        let (glance, inside, unrecorded) = (false, None, false);
        let (most, read) = (MOST, 0);
        Self {
            facts,
            upper,
            real,
            store,
            todo,
            changes,
            folders,
            glance,
            inside,
            unrecorded,
            most,
            seen,
            read,
        }
    }
}

impl Scan<'_> {
    /// The layer's root.
    fn root(&self) -> io::Result<Folder> {
        let mode = tree::meta_of(self.upper.root())?.mode;
        let is_same = |real: &Tree| -> io::Result<bool> {
            let meta = tree::meta_of(real.root())?;
            Ok(self.facts.root.is_none_or(|root| root == (meta.dev, meta.ino)))
        };
        Ok(Folder {
            path: None,
            shows: Shows::Through,
            trusted: self.real.map_or(Ok(false), is_same)?,
            pending: None,
            old_mode: Some(mode),
            new_mode: Some(mode),
        })
    }

    fn folder(&mut self, folder: &Folder) -> io::Result<()> {
        let path = folder.path.as_ref();
        let upper = match folder.shows {
            Shows::Gone => None,
            Shows::Through | Shows::Hidden | Shows::Nothing => match self.open_upper(folder)? {
                Some(opened) => Some(opened),
                None => return Ok(()),
            },
        };
        let (entries, hidden) = match &upper {
            None => (BTreeMap::new(), true),
            Some(UpperFolder { dir, names, found }) => {
                (self.entries(path, dir, names, *found)?, folder.hides(*found))
            }
        };
        let real = self.open_real(path)?;
        let mut names: BTreeMap<Vec<u8>, Option<Meta>> = entries;
        if hidden {
            // What the base holds here and the layer does not is deleted. What has a record is part of the base also
            // where the owner has removed it meanwhile.
            let complete = path.is_some_and(|p| self.store.get(p).is_some_and(|r| r.complete));
            let listed = match &real {
                Some(dir) if !complete => self.list_real(folder, dir)?,
                Some(_) | None => Vec::new(),
            };
            for name in listed.into_iter().chain(self.store.children(path)) {
                names.entry(name).or_insert(None);
            }
        }
        for name in self.store.landed_below(path) {
            names.entry(name).or_insert(None);
        }
        let (mut in_base, mut in_layer, mut too_deep) = (false, false, false);
        self.unrecorded = false;
        for (name, entry) in names {
            let joined = match path {
                None => RelPath::new(name.as_slice()),
                Some(parent) => parent.join(&name),
            };
            let Ok(child) = joined else {
                too_deep = true;
                continue;
            };
            let dir = upper.as_ref().map(|u| &u.dir);
            let place = Place { folder, hidden, upper: dir, real: real.as_ref() };
            let (base, layer) = self.entry(&place, child, &name, entry)?;
            in_base |= base;
            in_layer |= layer;
            if self.changes.len() + self.folders.len() > self.most {
                return Err(io::Error::other(TooMany));
            }
        }
        if hidden
            && !self.unrecorded
            && let Some(path) = path
        {
            self.store.mark_complete(path);
        }
        if too_deep && let Some(path) = path {
            self.broken(folder, path.clone(), rules::TOO_DEEP);
        } else if let (Some(pending), Some(path)) = (&folder.pending, path) {
            self.settle(path, pending, in_base, in_layer);
        }
        Ok(())
    }

    /// Says of an added or deleted folder what is to be said now that its content is known.
    fn settle(&mut self, path: &RelPath, pending: &Pending, in_base: bool, in_layer: bool) {
        let (make, empty) = match &pending.new {
            Some(node) => (node.mode(), !in_layer),
            None => (None, !in_base),
        };
        if pending.matters || empty {
            self.emit(path.clone(), pending.base.clone(), pending.new.clone(), pending.state, None);
        } else {
            let state = pending.state;
            self.folders.push(ImpliedFolder { path: path.clone(), make, state });
        }
    }

    /// Emits a path if layer and base differ.
    fn compare(
        &mut self,
        path: RelPath,
        base: Base,
        new: Option<Node>,
        state: ChangeState,
        why: Option<&'static str>,
    ) {
        let same = match (&base, &new) {
            (Base::Absent, None) => true,
            (Base::Known(old), Some(new)) => old == new,
            (Base::Absent | Base::Known(_) | Base::Unknown, _) => false,
        };
        if !same {
            self.emit(path, base, new, state, why);
        }
    }

    fn emit(
        &mut self,
        path: RelPath,
        old: Base,
        new: Option<Node>,
        state: ChangeState,
        why: Option<&'static str>,
    ) {
        let group = self.group(&path);
        let hidden = self.facts.masks.iter().any(|mask| path.is_within(mask));
        let (landable, reason) = rules::landable(&old, new.as_ref(), group, hidden, why);
        self.changes.push(Change {
            layer: self.facts.layer.id.clone(),
            kind: rules::kind(&old, new.as_ref()),
            path,
            old_path: None,
            old,
            new,
            group,
            state,
            landable,
            reason: reason.map(str::to_owned),
        });
    }

    fn group(&self, path: &RelPath) -> Group {
        if self.facts.all_git || rules::is_git(path) { Group::Git } else { Group::Project }
    }
}

/// What cannot land takes everything below it along: below a pipe there is no folder to put a file into.
fn block_below_unlandable(changes: &mut [Change]) {
    let blocked: HashSet<RelPath> =
        changes.iter().filter(|c| !c.landable).map(|c| c.path.clone()).collect();
    if blocked.is_empty() {
        return;
    }
    for change in changes.iter_mut().filter(|c| c.landable) {
        let mut above = change.path.parent();
        while let Some(path) = above {
            if blocked.contains(&path) {
                change.landable = false;
                change.reason = Some(rules::BELOW.to_owned());
                break;
            }
            above = path.parent();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::land::layer::{LayerView, facts_of, project_of};
    use crate::land::testing::{Fixture, World};

    #[test]
    fn a_layer_of_more_than_can_be_read_is_refused_and_one_of_just_as_many_is_not() {
        let fixture = Fixture::new(World::UserKernel, "mkdir d; echo 1 > d/f");
        fixture.run("rm -r d; mkdir -p new/deep; for i in 1 2 3; do echo > new/deep/$i; done");
        let session = fixture.session();
        let layer = project_of(&session).unwrap();
        let upper = Tree::open(&session.upper(&layer.id)).unwrap();
        let real = Tree::open(&fixture.project).unwrap();
        let with = |most| {
            let mut store = Store::open(&session.dir, &layer.id).unwrap();
            let facts = facts_of(&session, layer, &store, Some(&real));
            let seen = Ahead::new(&upper, layer.backend, Seen::default());
            all(Scan { most, ..Scan::new(&facts, &upper, Some(&real), &mut store, &seen) })
        };
        // Three files come and one goes, and as many folders with them.
        let found = with(7).unwrap();
        assert_eq!((found.changes.len(), found.folders.len()), (4, 3));
        let refused = with(4).unwrap_err();
        assert!(refused.get_ref().unwrap().is::<TooMany>(), "{refused}");
    }

    #[test]
    fn where_the_clock_has_gone_back_no_time_says_that_a_file_is_what_the_session_saw() {
        for ahead in [0, 3600] {
            let fixture = Fixture::new(World::UserKernel, "echo 1 > f; echo 1 > g");
            fixture.run("echo 2 > f; echo 2 > new");
            let mut session = fixture.session();
            let epochs = &mut session.state.launches.last_mut().unwrap().epochs;
            epochs.values_mut().for_each(|epoch| epoch.seconds += ahead);
            let layer = project_of(&session).unwrap();
            let view = LayerView::read(&session, layer, false).unwrap();
            let states: Vec<_> = view.changeset.changes.iter().map(|c| c.state).collect();
            let clean = ahead == 0;
            let state = if clean { ChangeState::Clean } else { ChangeState::Drifted };
            assert_eq!(states, [state, state]);
            assert_eq!(view.note.is_some_and(|note| note.contains("clock")), !clean);
        }
    }
}
