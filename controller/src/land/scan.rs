//! Walks a layer and the base it hides, and says what changed. The walk costs what the layer holds, not what the
//! project holds.

use super::base::{Record, Stamp, Store};
use super::changeset::{Base, Change, Changeset, ImpliedFolder, Node};
use super::kind::{ChangeState, EntryType, Group};
use super::rules;
use super::tree::{self, Meta, Tree, is_absence};
use crate::overlay::marks::{self, FolderMarks, Mark};
use landbox_shared::path::RelPath;
use landbox_shared::policy::{Backend, LayerPolicy};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;

/// What a scan needs to know beside the two trees.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    /// The layer.
    pub layer: &'a LayerPolicy,
    /// Hidden paths, relative to the layer's target.
    pub masks: Vec<RelPath>,
    /// The time before which a real file is surely the one the session saw; `None` if nobody knows.
    pub epoch: Option<tree::Time>,
    /// Every path is git's own: the common folder of a linked worktree.
    pub all_git: bool,
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

/// A folder of the layer, opened.
struct UpperFolder {
    dir: OwnedFd,
    names: Vec<Vec<u8>>,
    found: FolderMarks,
}

/// A folder that is being looked at, opened on both sides.
#[derive(Clone, Copy)]
struct Place<'a> {
    folder: &'a Folder,
    /// Whether what the base holds here is hidden.
    hidden: bool,
    upper: Option<&'a OwnedFd>,
    real: Option<&'a OwnedFd>,
}

/// What the store or the real tree says of a path.
struct Evaluated {
    base: Base,
    state: ChangeState,
    real: Option<Meta>,
}

pub(crate) struct Scan<'a> {
    facts: &'a Facts<'a>,
    upper: &'a Tree,
    real: Option<&'a Tree>,
    store: &'a mut Store,
    todo: Vec<Folder>,
    changes: Vec<Change>,
    folders: Vec<ImpliedFolder>,
}

/// Scans a layer. The store must be saved by the caller.
pub(crate) fn scan(
    facts: &Facts<'_>,
    upper: &Tree,
    real: Option<&Tree>,
    store: &mut Store,
) -> io::Result<Changeset> {
    let trusted = real.is_some();
    let root_mode = tree::meta_of(upper.root())?.mode;
    let mut scan = Scan {
        facts,
        upper,
        real,
        store,
        todo: Vec::new(),
        changes: Vec::new(),
        folders: Vec::new(),
    };
    scan.todo.push(Folder {
        path: None,
        shows: Shows::Through,
        trusted,
        pending: None,
        old_mode: Some(root_mode),
        new_mode: Some(root_mode),
    });
    while let Some(folder) = scan.todo.pop() {
        scan.folder(&folder)?;
    }
    let Scan { mut changes, mut folders, .. } = scan;
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
    Ok(Changeset {
        layer: facts.layer.id.clone(),
        target: facts.layer.target.clone(),
        changes,
        folders,
    })
}

impl Scan<'_> {
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
                (self.entries(dir, names, *found)?, folder.hides(*found))
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
        let (mut in_base, mut in_layer, mut too_deep) = (false, false, false);
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
        }
        if hidden && let Some(path) = path {
            self.store.mark_complete(path);
        }
        if too_deep && let Some(path) = path {
            self.broken(folder, path.clone(), rules::TOO_DEEP);
        } else if let (Some(pending), Some(path)) = (&folder.pending, path) {
            self.settle(path, pending, in_base, in_layer);
        }
        Ok(())
    }

    /// Opens a folder of the layer. One that cannot be read is a change that cannot land.
    fn open_upper(&mut self, folder: &Folder) -> io::Result<Option<UpperFolder>> {
        let path = folder.path.as_ref();
        let why = match self.upper.dir(path) {
            Ok(dir) => {
                let names = tree::names(&dir)?;
                let found = marks::folder_marks(self.facts.layer.backend, &dir, &names)?;
                if !found.redirected {
                    return Ok(Some(UpperFolder { dir, names, found }));
                }
                rules::FOREIGN_MARK
            }
            Err(e) if is_absence(&e) && path.is_some() => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => rules::UNREADABLE,
            Err(e) => return Err(e),
        };
        let Some(path) = path else { return Err(io::Error::other(why)) };
        self.broken(folder, path.clone(), why);
        Ok(None)
    }

    /// Says of a folder of the layer that it cannot land as it is. This replaces what was said of it before.
    fn broken(&mut self, folder: &Folder, path: RelPath, why: &'static str) {
        let new = Node::Unreadable { kind: EntryType::Dir, mode: folder.new_mode.unwrap_or(0) };
        let (base, state) = match (&folder.pending, folder.old_mode, folder.shows) {
            (Some(pending), _, _) => (pending.base.clone(), pending.state),
            (None, Some(mode), _) => (Base::Known(Node::Dir { mode }), ChangeState::Clean),
            (None, None, Shows::Nothing) => (Base::Absent, ChangeState::Clean),
            (None, None, Shows::Through | Shows::Hidden | Shows::Gone) => {
                (Base::Unknown, ChangeState::Drifted)
            }
        };
        self.emit(path, base, Some(new), state, Some(why));
    }

    /// The names of a folder of the layer: `Some` for an object, `None` for a deleted name.
    fn entries(
        &self,
        dir: &OwnedFd,
        names: &[Vec<u8>],
        found: FolderMarks,
    ) -> io::Result<BTreeMap<Vec<u8>, Option<Meta>>> {
        let backend = self.facts.layer.backend;
        let mut out = BTreeMap::new();
        for name in names {
            // Gone since it was listed: the session is running.
            let Some(meta) = tree::meta_at(dir, name)? else { continue };
            let null = meta.kind == EntryType::CharDevice && meta.rdev == (0, 0);
            match marks::name_mark(backend, name, null) {
                Mark::Note => {}
                Mark::Whiteout => {
                    out.insert(name.clone(), None);
                }
                Mark::WhiteoutOf(other) => {
                    out.entry(other).or_insert(None);
                }
                Mark::Object => {
                    let empty = meta.kind == EntryType::File && meta.size == 0;
                    let whiteout = found.xattr_whiteouts
                        && empty
                        && marks::is_xattr_whiteout(tree::file_at(dir, name)?)?;
                    out.insert(name.clone(), (!whiteout).then_some(meta));
                }
            }
        }
        Ok(out)
    }

    fn open_real(&self, path: Option<&RelPath>) -> io::Result<Option<OwnedFd>> {
        let Some(real) = &self.real else { return Ok(None) };
        match real.dir(path) {
            Ok(dir) => Ok(Some(dir)),
            // A folder that may be entered but not listed still tells what a known name is.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => match real.place(path) {
                Ok(dir) => Ok(Some(dir)),
                Err(_) => Ok(None),
            },
            Err(e)
                if is_absence(&e)
                    || rustix::io::Errno::from_io_error(&e) == Some(rustix::io::Errno::XDEV) =>
            {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    fn list_real(&mut self, folder: &Folder, dir: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
        match tree::names(dir) {
            Ok(names) => Ok(names),
            Err(e) => {
                // Only a folder opened as a mere place, for want of the right to list it.
                let Some(path) = &folder.path else { return Err(e) };
                let kind = EntryType::Dir;
                let base =
                    Base::Known(Node::Unreadable { kind, mode: folder.old_mode.unwrap_or(0) });
                self.emit(path.clone(), base, None, ChangeState::Clean, Some(rules::UNLISTED));
                Ok(Vec::new())
            }
        }
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

    /// Looks at one name. Returns whether the base and the layer have an object there.
    fn entry(
        &mut self,
        place: &Place<'_>,
        path: RelPath,
        name: &[u8],
        entry: Option<Meta>,
    ) -> io::Result<(bool, bool)> {
        let Place { folder, hidden, upper, real } = *place;
        if self.facts.masks.iter().any(|mask| path.is_within(mask)) {
            return Ok((false, self.masked(folder, path, name, entry, upper)?));
        }
        let (new, why) = match (entry, upper) {
            (Some(meta), Some(dir)) => match self.read_upper(dir, name, &meta)? {
                Some((node, why)) => (Some(node), why),
                None => return Ok((false, false)),
            },
            (Some(_) | None, _) => (None, None),
        };
        let Evaluated { base, state, real: real_meta } =
            self.evaluate(folder, &path, name, upper.filter(|_| new.is_some()), real)?;
        let mut new = new;
        if let (Some(new), Backend::Fuse) = (&mut new, self.facts.layer.backend) {
            rules::restore_set_id(new, &base, folder.new_mode);
        }
        let in_base = !matches!(base, Base::Absent);
        let in_layer = new.is_some();
        let why = why.or_else(|| rules::note(&base, new.as_ref(), real_meta.as_ref()));
        let folder_mode = |node: &Node| match node {
            Node::Dir { mode } => Some(*mode),
            Node::File { .. }
            | Node::Symlink { .. }
            | Node::Special { .. }
            | Node::Unreadable { .. } => None,
        };
        let old_dir = base.node().and_then(folder_mode);
        let new_dir = new.as_ref().and_then(folder_mode);
        let below = |shows, trusted, pending| Folder {
            path: Some(path.clone()),
            shows,
            trusted,
            pending,
            old_mode: old_dir,
            new_mode: new_dir,
        };
        let through = if hidden { Shows::Hidden } else { Shows::Through };
        match (old_dir, new_dir) {
            // Nothing deeper to look at.
            (None, None) => self.compare(path, base, new, state, why),
            (Some(old), Some(new_mode)) => {
                let trusted = folder.trusted && state == ChangeState::Clean;
                self.todo.push(below(through, trusted, None));
                if old != new_mode {
                    self.compare(path, base, new, state, why);
                }
            }
            (None, Some(mode)) if base == Base::Absent => {
                let matters = rules::mode_matters(mode, folder.new_mode);
                let pending = Pending { base, new, state, matters };
                self.todo.push(below(Shows::Nothing, false, Some(pending)));
            }
            (None, Some(mode)) if base == Base::Unknown => {
                // The owner has replaced the folder, or changed its mode: all below is uncertain.
                self.todo.push(below(through, false, None));
                if real_meta.is_none_or(|m| m.kind != EntryType::Dir || m.mode != mode) {
                    self.compare(path, base, new, state, why);
                }
            }
            (None, Some(_)) => {
                self.todo.push(below(Shows::Nothing, false, None));
                self.compare(path, base, new, state, why);
            }
            (Some(mode), None) => {
                let trusted = folder.trusted && state == ChangeState::Clean;
                if new.is_none() {
                    let matters = rules::mode_matters(mode, folder.old_mode);
                    let pending = Pending { base, new, state, matters };
                    self.todo.push(below(Shows::Gone, trusted, Some(pending)));
                } else {
                    self.todo.push(below(Shows::Gone, trusted, None));
                    self.compare(path, base, new, state, why);
                }
            }
        }
        Ok((in_base, in_layer))
    }

    /// A name below a mask: the session never saw the real thing, which is not looked at, and nothing of it lands.
    fn masked(
        &mut self,
        folder: &Folder,
        path: RelPath,
        name: &[u8],
        entry: Option<Meta>,
        upper: Option<&OwnedFd>,
    ) -> io::Result<bool> {
        let (Some(meta), Some(dir)) = (entry, upper) else { return Ok(false) };
        let Some((node, _)) = self.read_upper(dir, name, &meta)? else { return Ok(false) };
        if let Node::Dir { mode } = node {
            let pending = Pending {
                base: Base::Absent,
                new: Some(node),
                state: ChangeState::Clean,
                matters: false,
            };
            self.todo.push(Folder {
                path: Some(path),
                shows: Shows::Nothing,
                trusted: false,
                pending: Some(pending),
                old_mode: folder.old_mode,
                new_mode: Some(mode),
            });
        } else {
            self.emit(path, Base::Absent, Some(node), ChangeState::Clean, Some(rules::HIDDEN));
        }
        Ok(true)
    }

    /// Reads an object of the layer; what cannot be read is said to be so. `None` for one that is gone, or has become
    /// something else, since its folder was listed: the session is running.
    fn read_upper(
        &self,
        dir: &OwnedFd,
        name: &[u8],
        meta: &Meta,
    ) -> io::Result<Option<(Node, Option<&'static str>)>> {
        let unreadable = Node::Unreadable { kind: meta.kind, mode: meta.mode };
        let read = || -> io::Result<(Node, Option<&'static str>)> {
            if meta.kind != EntryType::File {
                return Ok((tree::node_at(dir, name, meta)?, None));
            }
            let file = tree::file_at(dir, name)?;
            if marks::is_without_content(self.facts.layer.backend, &file)? {
                return Ok((unreadable.clone(), Some(rules::FOREIGN_MARK)));
            }
            let (size, digest) = super::content::digest(&file)?;
            Ok((Node::File { mode: meta.mode, size, digest }, None))
        };
        match read() {
            Ok(node) => Ok(Some(node)),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                Ok(Some((unreadable, Some(rules::UNREADABLE))))
            }
            Err(e) => match tree::meta_at(dir, name)? {
                Some(now) if now.kind == meta.kind => Err(e),
                Some(_) | None => Ok(None),
            },
        }
    }

    /// The base of a path, and whether the real path still is it. What was not known is recorded.
    fn evaluate(
        &mut self,
        folder: &Folder,
        path: &RelPath,
        name: &[u8],
        upper: Option<&OwnedFd>,
        real: Option<&OwnedFd>,
    ) -> io::Result<Evaluated> {
        let meta = match real {
            Some(dir) => tree::meta_at(dir, name)?,
            None => None,
        };
        if let Some(record) = self.store.get(path) {
            let base = record.base.clone();
            let stamp = record.stamp;
            let clean = stands(&base, stamp.as_ref(), meta.as_ref(), real, name)?;
            let state = if clean { ChangeState::Clean } else { ChangeState::Drifted };
            return Ok(Evaluated { base, state, real: meta });
        }
        let complete =
            folder.path.as_ref().is_some_and(|p| self.store.kept(p).is_some_and(|r| r.complete));
        let known_absent = folder.shows == Shows::Nothing || complete;
        let (base, stamp, extent) = match (&meta, real) {
            (Some(_), _) | (None, _) if known_absent => (Base::Absent, None, None),
            (Some(meta), Some(dir)) => self.look(folder, path, dir, name, meta)?,
            // Nothing there. If the layer's object may be a copy of what was, and the owner has made or removed names
            // in the folder since, what was is gone.
            (Some(_) | None, _) => {
                let copied = match (upper, real) {
                    (Some(dir), Some(real)) => {
                        let touched = self.facts.epoch.is_none_or(|epoch| {
                            !tree::meta_of(real).is_ok_and(|m| m.ctime < epoch)
                        });
                        touched && self.may_be_copied(path, dir, name)?
                    }
                    (Some(_) | None, _) => false,
                };
                let base = if folder.trusted && !copied { Base::Absent } else { Base::Unknown };
                (base, None, None)
            }
        };
        let clean = match &base {
            Base::Absent => meta.is_none(),
            Base::Known(_) => true,
            Base::Unknown => false,
        };
        let record = Record { base: base.clone(), stamp, extent, complete: false };
        self.store.put(path.clone(), record);
        let state = if clean { ChangeState::Clean } else { ChangeState::Drifted };
        Ok(Evaluated { base, state, real: meta })
    }

    /// Takes the real object as the base, if it surely is what the session saw.
    #[expect(clippy::type_complexity, reason = "the three parts of a record, taken apart at once")]
    fn look(
        &mut self,
        folder: &Folder,
        path: &RelPath,
        dir: &OwnedFd,
        name: &[u8],
        meta: &Meta,
    ) -> io::Result<(Base, Option<Stamp>, Option<(u64, u64)>)> {
        let Some(epoch) = self.facts.epoch.filter(|_| folder.trusted) else {
            return Ok((Base::Unknown, None, None));
        };
        if meta.kind == EntryType::Dir {
            // The owner's making or removing of a name in a folder changes both of its times, and says nothing about
            // the folder itself. A rename of it, or a new mode, changes the one alone.
            let same = meta.ctime < epoch
                || (meta.btime.is_none_or(|b| b < epoch) && meta.ctime == meta.mtime);
            let base =
                if same { Base::Known(Node::Dir { mode: meta.mode }) } else { Base::Unknown };
            return Ok((base, None, None));
        }
        if meta.ctime >= epoch {
            return Ok((Base::Unknown, None, None));
        }
        let keep = self.group(path) != Group::Git;
        let (node, extent) = match self.store.capture(dir, name, meta, keep) {
            Ok(captured) => captured,
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                (Node::Unreadable { kind: meta.kind, mode: meta.mode }, None)
            }
            Err(_) => return Ok((Base::Unknown, None, None)),
        };
        // Unchanged while it was read?
        match tree::meta_at(dir, name)? {
            Some(after) if Stamp::of(&after) == Stamp::of(meta) => {
                Ok((Base::Known(node), Some(Stamp::of(meta)), extent))
            }
            Some(_) | None => Ok((Base::Unknown, None, None)),
        }
    }

    fn may_be_copied(&self, path: &RelPath, dir: &OwnedFd, name: &[u8]) -> io::Result<bool> {
        let Some(meta) = tree::meta_at(dir, name)? else { return Ok(false) };
        let backend = self.facts.layer.backend;
        let opened = match meta.kind {
            EntryType::File => tree::file_at(dir, name).map(OwnedFd::from),
            EntryType::Dir => {
                use rustix::fs::{Mode, OFlags, openat};
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                openat(dir, name, flags, Mode::empty()).map_err(Into::into)
            }
            EntryType::Symlink
            | EntryType::Fifo
            | EntryType::Socket
            | EntryType::CharDevice
            | EntryType::BlockDevice => return Ok(false),
        };
        match opened {
            Ok(fd) => marks::may_be_copied(backend, path.as_bytes(), fd),
            // It cannot be read; then it cannot land either.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(false),
            Err(e) => Err(e),
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

/// Whether the real object still is the base.
fn stands(
    base: &Base,
    stamp: Option<&Stamp>,
    meta: Option<&Meta>,
    dir: Option<&OwnedFd>,
    name: &[u8],
) -> io::Result<bool> {
    let node = match base {
        Base::Unknown => return Ok(false),
        Base::Absent => return Ok(meta.is_none()),
        Base::Known(node) => node,
    };
    let (Some(meta), Some(dir)) = (meta, dir) else { return Ok(false) };
    if stamp == Some(&Stamp::of(meta)) {
        return Ok(true);
    }
    if node.kind() != meta.kind || node.mode().is_some_and(|m| m != meta.mode) {
        return Ok(false);
    }
    if node.size().is_some_and(|s| s != meta.size) {
        return Ok(false);
    }
    match tree::node_at(dir, name, meta) {
        Ok(found) => Ok(found == *node),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied || is_absence(&e) => Ok(false),
        Err(e) => Err(e),
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
