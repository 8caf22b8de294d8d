//! Applying a changeset to the real project: all of it or nothing, also across a crash, and only what was shown.
//!
//! 1. Under the project's lock and the session's, the layer is scanned again and compared with what was shown.
//! 2. Every path must still be the base; else nothing happens.
//! 3. All new objects are prepared in the stage and synced, with the new base records, the entry by which the landing
//!    can be undone and its receipt; then the journal.
//! 4. Step by step, names are exchanged. A step that fails rolls back all before it.
//! 5. The new base records take their place: from here on the landing has happened.
//! 6. Entry and receipt count from now on. What has landed leaves the layer; what was displaced stays in the stage.

pub(super) mod alive;
pub(super) mod back;
pub(super) mod commit;
pub(super) mod entry;
mod exchange;
#[cfg(test)]
mod fault_tests;
pub(super) mod finish;
pub(super) mod journal;
#[cfg(test)]
mod journal_tests;
pub(super) mod landing;
mod leave;
pub(super) mod parts;
pub(crate) mod place;
pub(super) mod plan;
mod prune;
#[cfg(test)]
mod prune_tests;
#[cfg(test)]
mod reader_tests;
pub(super) mod stage;
#[cfg(test)]
pub(super) mod tests;
#[cfg(test)]
pub(in crate::land) mod trace;

use super::changeset::{Base, Node};
use super::layer::LayerView;
use super::live::Sight;
use super::select::Selection;
use super::tree::Tree;
use crate::error::{Context, Failure, Kind, Result};
use crate::overlay::marks;
use crate::overlay::remove::remove_tree;
use crate::seal::Key;
use crate::session::store::{Attendance, Session, SessionLock, StateDir, show};
use entry::Standing;
use journal::ProjectLock;
use landbox_shared::digest::Digest;
use landbox_shared::id::SessionId;
use landbox_shared::path::{AbsPath, RelPath};
use landbox_shared::policy::LayerPolicy;
use landing::{Landing, Site};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Changes that land at most at once: what that takes of memory, and the journal of disk, is about 5 KB each.
pub const MOST: usize = 200_000;

/// Refuses a selection of more changes than land at once.
pub fn refuse_too_many(id: &SessionId, count: usize) -> Result<()> {
    refuse_more_than(MOST, id, count)
}

fn refuse_more_than(most: usize, id: &SessionId, count: usize) -> Result<()> {
    if count <= most {
        return Ok(());
    }
    Err(Failure::new(
        Kind::Refused,
        format!("nothing was changed: {count} changes are more than land at once ({most})"),
    )
    .hint(format!("land them in parts: landbox land {id} --apply -- PATH.."))
    .hint("or write them as a patch: --patch FILE"))
}

/// How long a lock that others hold for a moment is waited for.
const PATIENCE: Duration = Duration::from_millis(200);

/// How the folder is called, in the session's, for what leaves the layer for good.
const EQUAL: &str = "equal";

/// What a landing did.
#[derive(Debug)]
pub struct Landed {
    /// Number of changes that landed.
    pub changes: usize,
    /// Number of the session's changes that were turned down.
    pub dropped: usize,
    /// Whether all of it is known to be on disk.
    pub synced: bool,
    /// Deleted folders that stay, because they hold something that does not land.
    pub staying: Vec<RelPath>,
    /// A path that somebody changed again right after it landed.
    pub disturbed: Option<RelPath>,
    /// Where the remains of an earlier landing went that lay in the way, and of which no journal tells.
    pub aside: Option<PathBuf>,
    /// The receipt.
    pub receipt: PathBuf,
}

/// What is to be landed, and by whom.
#[derive(Debug)]
pub struct Order<'a> {
    /// Which changes.
    pub selection: &'a Selection,
    /// The digest under which they were shown.
    pub shown: &'a Digest,
    /// Signs the receipt.
    pub key: &'a Key,
}

/// Finishes or rolls back a landing on `project`, or an undo, that broke off, if there is one and nobody is landing there now. Gives a sentence.
pub fn recover(state: &StateDir, project: &AbsPath) -> Result<Option<String>> {
    let until = Instant::now() + PATIENCE;
    if !ProjectLock::is_marked(state, project) {
        return Ok(None);
    }
    loop {
        if let Some(lock) = ProjectLock::take(state, project, false)? {
            return lock.recover();
        }
        if Instant::now() > until {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The same for every project, without waiting for who is landing there now.
pub fn recover_all(state: &StateDir) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    for project in ProjectLock::pending(state)? {
        if let Some(lock) = ProjectLock::take(state, &project, false)? {
            notes.extend(lock.recover()?);
        }
    }
    Ok(notes)
}

/// What rolled-back work could not put back: the owner's own files.
pub fn kept(state: &StateDir, project: &AbsPath) -> Vec<PathBuf> {
    journal::kept(state, project)
}

/// Lands what `order` says of the session's project layer, if its digest is the one shown.
pub fn apply(state: &StateDir, id: &SessionId, order: &Order<'_>) -> Result<Landed> {
    apply_with(state, id, order, &mut |_| Ok(()))
}

/// Like [`apply`], with what the one who ordered it has seen: of a session that ran when it was shown, what was shown lands,
/// whatever it has written since.
pub fn apply_shown(
    state: &StateDir,
    id: &SessionId,
    order: &Order<'_>,
    sight: Sight,
) -> Result<Landed> {
    apply_seen(state, id, order, sight, &mut |_| Ok(()))
}

/// Holds a session stopped: no controller and no helper takes it up.
#[derive(Debug)]
pub(crate) struct Stopped {
    _attendance: Attendance,
    _lock: SessionLock,
}

/// Holds the session stopped, or gives `None` where it runs.
pub(crate) fn try_stop(session: &Session) -> Result<Option<Stopped>> {
    // The controller's lock first: while a controller lives, nobody may touch the lock its helper is about to take.
    let Some(attendance) = session.attend()? else { return Ok(None) };
    Ok(session.try_lock()?.map(|lock| Stopped { _attendance: attendance, _lock: lock }))
}

/// Holds the session stopped. A command that only looks holds its locks for a moment, so one look is not enough.
pub(super) fn stop(session: &Session) -> Result<Stopped> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(stopped) = try_stop(session)? {
            return Ok(stopped);
        }
        if Instant::now() > until {
            let id = &session.snapshot.id;
            return Err(Failure::new(Kind::Refused, format!("session {id} is still running"))
                .hint(format!(
                    "end it first; landbox diff {id} already shows what it has changed"
                )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Holds the session stopped, or gives `None` where it goes on running.
pub(super) fn stop_if_ended(session: &Session) -> Result<Option<Stopped>> {
    let until = Instant::now() + PATIENCE;
    loop {
        let stopped = try_stop(session)?;
        if stopped.is_some() || Instant::now() > until {
            return Ok(stopped);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `before` is called with the number of each step before it is done.
fn apply_with(
    state: &StateDir,
    id: &SessionId,
    order: &Order<'_>,
    before: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Landed> {
    apply_seen(state, id, order, Sight::default(), before)
}

/// The landing, stage by stage.
fn apply_seen(
    state: &StateDir,
    id: &SessionId,
    order: &Order<'_>,
    sight: Sight,
    before: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Landed> {
    let mut site = Site::take(state, id)?;
    let view = site.look(order.selection, sight)?;
    let mut landing = Landing::plan(state, &mut site, order, view)?;
    let (stage, parts) = landing.prepare(order.key)?;
    landing.exchange(&stage, before)?;
    landing.happen(before)?;
    landing.record()?;
    landing.clear_layer(parts);
    landing.end()
}

/// Before anything that is no change leaves the layer of a stopped session: what landed while it ran need not be there any
/// more. Of the `waiting` deletions those that the records alone know are marked in the layer, which must say so itself.
fn let_leave<'a>(view: &mut LayerView, waiting: impl Iterator<Item = &'a RelPath>) {
    for path in waiting {
        // Where that fails, the name shows again at the next launch; nothing of the owner's depends on it.
        let _ = note_deletion(view, path);
    }
    view.store.not_in_layer();
}

/// Marks a path as deleted in the layer, if the records alone say so.
fn note_deletion(view: &LayerView, path: &RelPath) -> io::Result<()> {
    let held = |path: &RelPath| view.store.kept(path).is_some_and(|record| record.in_layer);
    let is_missing = |path: &RelPath| view.upper.meta(path).is_ok_and(|meta| meta.is_none());
    let all = std::iter::successors(Some(path.clone()), RelPath::parent);
    let Some(top) = all.take_while(|path| held(path) && is_missing(path)).last() else {
        return Ok(());
    };
    let place = view.upper.place(top.parent().as_ref())?;
    marks::make_whiteout(&place, top.file_name())
}

/// Removes from a stopped session's layer what is no change, so that the session sees the real thing from now on.
/// What a landing has landed that can still be undone waits with that landing.
pub(super) fn prune_equal(state: &StateDir, session: &Session, layer: &LayerPolicy) -> Result<()> {
    let mut view = LayerView::read(session, layer, false)?;
    let project = Tree::open(layer.target.as_path())
        .context(|| format!("can't open the project {}", layer.target))?;
    let changed: HashSet<&RelPath> =
        view.changeset.changes.iter().flat_map(super::digest::paths).collect();
    let node = |base: &Base| match base {
        Base::Absent => Some(None),
        Base::Known(node) => Some(Some(node.clone())),
        Base::Unknown => None,
    };
    let equal: BTreeMap<RelPath, Option<Node>> = view
        .store
        .records()
        .filter(|(path, _)| !changed.contains(path))
        .filter_map(|(path, record)| Some((path.clone(), node(&record.base)?)))
        .collect();
    let deletions = view.changeset.changes.iter().filter(|c| c.new.is_none());
    let waiting: Vec<RelPath> = deletions.map(|c| c.path.clone()).collect();
    let_leave(&mut view, waiting.iter());
    let scanned = view.store.scanned;
    view.store.save(scanned)?;
    let path = session.dir.join(EQUAL);
    let what = || format!("can't make {}", show(&path));
    let parts = parts::Parts::make(&path).context(what)?;
    let earlier = if equal.is_empty() { Vec::new() } else { earlier(state, session, layer)? };
    let into = (parts, earlier);
    prune::prune(&view, layer.backend, &project, into, &BTreeMap::new(), &[], &equal);
    remove_tree(&path).context(|| format!("can't remove all of {}", show(&path)))
}

/// The landings of a session that can still be undone, the newest first.
fn earlier(
    state: &StateDir,
    session: &Session,
    layer: &LayerPolicy,
) -> Result<Vec<leave::Earlier>> {
    let id = &session.snapshot.id;
    let mut found = Vec::new();
    for entry in entry::of(state, &layer.target, Standing::Kept).iter().rev() {
        if entry.session != *id {
            continue;
        }
        let path = parts::parts_of(&state.sessions_dir(), id, entry.number);
        let what = || format!("can't open {}", show(&path));
        if let Some(parts) = parts::Parts::reopen(&path).context(what)? {
            found.push(leave::Earlier { rebased: entry.detail(state)?.rebased, parts });
        }
    }
    Ok(found)
}

/// RFC 3339, UTC, whole seconds.
pub(super) fn now() -> String {
    let at = jiff::Timestamp::now();
    at.round(jiff::Unit::Second).unwrap_or(at).to_string()
}

fn nothing(id: &SessionId) -> Failure {
    Failure::new(Kind::Nothing, format!("session {id} has nothing to land"))
        .hint(format!("landbox show {id} says what it holds and what has landed of it"))
}
