//! A session that runs while it is looked at: one consistent picture of its layer, and access to what it sees.

mod catch_up;
#[cfg(test)]
mod fault_tests;
mod freeze;
mod held;
mod merged;
mod prepared;
mod procs;
mod refresh;
mod restore;
mod side;
mod spool;

pub use catch_up::catch_up_inside;
pub(super) use catch_up::{News, catch_up};
pub use freeze::guard_main;
pub(super) use held::holds;
pub use merged::go_in;
pub(crate) use merged::{is_closed, open};
pub(crate) use prepared::Noted;
pub use prepared::clear;
pub use restore::Restored;
pub(super) use spool::Spool;

use super::base::Store;
use super::changeset::{Base, Bodies, Change, Changeset, Node};
use super::digest::digest;
use super::layer::LayerView;
use super::scan::Seen;
use super::select::Selection;
use super::tree::Tree;
use crate::error::{Context, Failure, Kind, Result};
use crate::session::scratch::Scratch;
use crate::session::store::Session;
use freeze::Frozen;
use landbox_shared::path::RelPath;
use landbox_shared::policy::{Backend, LayerPolicy};
use prepared::Prepared;
use restore::Source;
use side::Side;
use std::collections::HashMap;

/// Looks that may differ from the one before until the session is held still.
const LOOKS: usize = 2;

/// A picture of a layer that was true at one moment: two looks that agree, else one while the session is held still.
pub(super) fn picture(session: &Session, layer: &LayerPolicy) -> Result<LayerView> {
    let mut seen = LayerView::read(session, layer, true)?.changeset;
    for _ in 0..LOOKS {
        let mut view = LayerView::read(session, layer, true)?;
        if sum(&view.changeset) == sum(&seen) {
            view.spool = Some(Spool::new(session)?);
            return Ok(view);
        }
        seen = view.changeset;
    }
    let spool = Spool::new(session)?;
    let frozen = Frozen::hold(session).ok_or_else(|| busy(session))?;
    let still = still(session, layer, spool, &seen);
    if frozen.release() { still } else { Err(busy(session)) }
}

/// What of a running session was shown: it lands as it was, whatever is written meanwhile.
#[derive(Debug)]
pub struct Picture {
    changeset: Changeset,
    spool: Spool,
}

/// What was seen when something was shown, for landing it.
#[derive(Debug, Default)]
pub struct Sight {
    /// `None` for a session that did not run.
    pub(super) picture: Option<Picture>,
    /// What need not be read again as long as it is unchanged.
    pub(super) seen: Seen,
}

impl Sight {
    /// Of a view that was shown.
    pub(super) fn of(view: LayerView) -> Self {
        let LayerView { changeset, spool, seen, .. } = view;
        Self { picture: spool.map(|spool| Picture { changeset, spool }), seen }
    }
}

impl Picture {
    /// Puts what was shown in the place of what a layer holds by now. How the project stands to it is as it is now.
    pub(super) fn onto(self, view: &mut LayerView) {
        let Self { mut changeset, spool } = self;
        let now: HashMap<&RelPath, &Change> =
            view.changeset.changes.iter().map(|c| (&c.path, c)).collect();
        for change in &mut changeset.changes {
            if let Some(now) = now.get(&change.path).filter(|now| now.old == change.old) {
                change.state = now.state;
            }
        }
        view.changeset = changeset;
        view.spool = Some(spool);
    }
}

/// The picture of a session that is held still. What was written while it ran is likely to be written again as soon as it
/// goes on, so these files are copied now.
fn still(
    session: &Session,
    layer: &LayerPolicy,
    spool: Spool,
    seen: &Changeset,
) -> Result<LayerView> {
    let mut view = LayerView::read(session, layer, true)?;
    view.spool = Some(spool);
    let known: HashMap<&RelPath, &Change> = seen.changes.iter().map(|c| (&c.path, c)).collect();
    let moved = |c: &&Change| known.get(&c.path).is_none_or(|known| known.new != c.new);
    for change in view.changeset.changes.iter().filter(moved) {
        if let Some(Node::File { .. }) = change.new {
            view.new_bytes(change)?;
        }
    }
    Ok(view)
}

/// Takes back what `selection` holds of a layer: the real contents take the place of what the session wrote. `live` says
/// that it runs; then that happens by way of what it sees, and a path it has written meanwhile is left to it.
pub(super) fn take_back(
    session: &Session,
    layer: &LayerPolicy,
    selection: &Selection,
    live: bool,
) -> Result<Restored> {
    let mut view = LayerView::read(session, layer, live)?;
    let picked = selection.pick(&view.changeset, &session.snapshot.id)?;
    let project = Tree::open(layer.target.as_path())
        .context(|| format!("can't open the project {}", layer.target))?;
    let hidden = |c: &Change| {
        super::digest::paths(c).any(|p| view.masks.iter().any(|mask| p.is_within(mask)))
    };
    let (kept, chosen): (Vec<&Change>, Vec<&Change>) =
        view.changeset.changes.iter().filter(|c| picked.holds(c)).partition(|c| hidden(c));
    let blocked = restore::blocked(&view.changeset, &chosen);
    let chosen: Vec<&Change> = chosen
        .into_iter()
        .filter(|c| !super::digest::paths(c).any(|p| blocked.contains(p)))
        .collect();
    let jobs = restore::jobs(&view.changeset, &chosen);
    let scanned = view.store.scanned;
    note_before(session, &view.store, &mut jobs.iter().map(restore::Job::path))?;
    let mut restored = if live {
        let merged = merged::open(session, layer)?;
        put_back(session, layer, &merged, &Source::real(&project), &jobs)
    } else {
        // First: cut short after it, what has left the layer would seem to be deleted by the session.
        if view.store.leaves_layer(jobs.iter().map(restore::Job::path)) {
            view.store.save(scanned)?;
        }
        let side = Side { tree: &view.upper, layer: Some(layer.backend) };
        let noted = Prepared::new(session, layer);
        restore::put_back(&side, &Source::real(&project), &jobs, None, noted)
    };
    for change in kept {
        restored.left.insert(change.path.clone(), super::rules::HIDDEN.to_owned());
    }
    for path in blocked {
        let why = "the session has put a file in the place of a folder above it";
        restored.left.insert(path, why.to_owned());
    }
    for (path, base) in &restored.done {
        match base {
            // It just left the layer.
            Base::Unknown => view.store.drop_record(path),
            Base::Absent | Base::Known(_) => view.store.rebase(path.clone(), base.clone()),
        }
    }
    match view.store.save(scanned) {
        // Without that, what is there again is compared with what the session saw first, and is no change of the session's.
        Err(failure) if failure.is_for_room() => {}
        saved => saved?,
    }
    Ok(restored)
}

/// Notes, where there are checkpoints, of what these paths were made, of which the layer is to hold the real content.
fn note_before(
    session: &Session,
    store: &Store,
    paths: &mut dyn Iterator<Item = &RelPath>,
) -> Result<()> {
    let Some(newest) = super::checkpoint::list(session).last().map(|head| head.number) else {
        return Ok(());
    };
    match store.note_before(Some(paths), newest) {
        // A discard is what makes room.
        Err(failure) if failure.is_for_room() => Ok(()),
        noted => noted,
    }
}

/// Puts these paths back by way of what a running session sees. What was renamed over the mark of a deleted name is not
/// known to hide a real one to fuse-overlayfs 1.10 before it has read its folder again: taken away before that, the real
/// one would show.
fn put_back(
    session: &Session,
    layer: &LayerPolicy,
    merged: &Tree,
    source: &Source<'_>,
    jobs: &[restore::Job],
) -> Restored {
    let look = || {
        if layer.backend == Backend::Fuse {
            let noted = Prepared::new(session, layer);
            refresh::look_again(merged, jobs.iter().map(restore::Job::path), noted);
        }
    };
    look();
    let (side, noted) = (Side { tree: merged, layer: None }, Prepared::new(session, layer));
    let restored = restore::put_back(&side, source, jobs, Some(session), noted);
    look();
    restored
}

/// Has a running session on fuse-overlayfs look again at what lies below these paths.
pub(super) fn look_again<'a>(
    session: &Session,
    layer: &LayerPolicy,
    paths: impl Iterator<Item = &'a RelPath> + Clone,
) -> Result<()> {
    if layer.backend == Backend::Fuse {
        let noted = Prepared::new(session, layer);
        refresh::look_again(&merged::open(session, layer)?, paths, noted);
    }
    Ok(())
}

/// Has a running session see its layer as `past` gives it, each path as long as it is what it is now.
pub(super) fn go_back(
    session: &Session,
    layer: &LayerPolicy,
    past: impl FnOnce() -> Result<LayerView>,
) -> Result<Restored> {
    let merged = merged::open(session, layer)?;
    let side = Side { tree: &merged, layer: None };
    let project = Tree::open(layer.target.as_path())
        .context(|| format!("can't open the project {}", layer.target))?;
    let has = LayerView::read(session, layer, true)?.changeset;
    let mut past = past()?;
    let seen = |path: &RelPath| side.node(path);
    let jobs = restore::jobs_between(&has, &past.changeset, seen);
    let (mut jobs, paths) = jobs.context(|| "can't look at what the session sees".into())?;
    let hidden = |path: &RelPath| past.masks.iter().any(|mask| path.is_within(mask));
    jobs.retain(|job| !hidden(job.path()));
    let then = Side { tree: &past.upper, layer: Some(layer.backend) };
    let source = Source { real: &project, past: Some((&then, &paths)) };
    let mut real = jobs.iter().map(restore::Job::path).filter(|path| !paths.contains(path));
    note_before(session, &past.store, &mut real)?;
    let restored = put_back(session, layer, &merged, &source, &jobs);
    for (path, base) in &restored.done {
        if paths.contains(path) {
            past.store.adopt(path);
        } else {
            past.store.rebase(path.clone(), base.clone());
        }
    }
    let scanned = past.store.scanned;
    past.store.save(scanned)?;
    Ok(restored)
}

/// Has the layer of a running session hold what it sees at these paths, sorted, as it sees it.
pub(super) fn copy_up<'a>(
    session: &Session,
    layer: &LayerPolicy,
    paths: impl IntoIterator<Item = &'a RelPath>,
) -> Result<()> {
    let merged = merged::open(session, layer)?;
    for path in paths {
        // What it has deleted since is not seen; whatever else fails, the path is missed later.
        if let Ok(Some(meta)) = merged.meta(path) {
            let _ = side::touch(&merged, path, &meta);
        }
    }
    Ok(())
}

/// Takes these paths away for a running session, as if it had deleted them, each as long as it is what it is now. What
/// its layer holds is its own and stays.
pub(super) fn take_away<'a>(
    session: &Session,
    layer: &LayerPolicy,
    paths: impl IntoIterator<Item = &'a RelPath>,
) -> Result<()> {
    let merged = merged::open(session, layer)?;
    let side = Side { tree: &merged, layer: None };
    let nothing = Scratch::new(&session.dir)?;
    let nothing = Tree::open(nothing.path()).context(|| "can't make room".into())?;
    let upper = Tree::open(&session.upper(&layer.id)).context(|| "can't read the layer".into())?;
    let seen = held::seen_only(&side, &upper, layer.backend, paths)?;
    put_back(session, layer, &merged, &Source::real(&nothing), &restore::jobs_of(&seen));
    Ok(())
}

/// Does what `look` does while the session is held still; `None` where that can't be had in time.
pub(super) fn frozen<T>(session: &Session, look: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
    let Some(frozen) = Frozen::hold(session) else { return Ok(None) };
    let seen = look();
    if frozen.release() { seen.map(Some) } else { Ok(None) }
}

fn sum(set: &Changeset) -> landbox_shared::digest::Digest {
    digest(&[set], |_| true)
}

/// A path of a running session that was written after the picture was taken.
pub(super) fn moved(path: &RelPath) -> Failure {
    let message = format!("the session is busy: it wrote {path} while it was looked at");
    Failure::new(Kind::Refused, message).hint("try again when it has come to rest, or end it first")
}

/// A session that writes faster than it can be looked at.
pub(super) fn busy(session: &Session) -> Failure {
    let id = &session.snapshot.id;
    Failure::new(Kind::Refused, format!("session {id} is busy: it writes while it is looked at"))
        .hint("try again when it has come to rest, or end it first")
}
