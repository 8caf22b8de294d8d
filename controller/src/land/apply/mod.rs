//! Applying a changeset to the real project: all of it or nothing, also across a crash, and only what was shown.
//!
//! 1. Under the project's lock and the session's, the layer is scanned again and compared with what was shown.
//! 2. Every path must still be the base; else nothing happens.
//! 3. All new objects are prepared in the stage and synced, with the new base records, the entry by which the landing
//!    can be undone and its receipt; then the journal.
//! 4. Step by step, names are exchanged. A step that fails rolls back all before it.
//! 5. The new base records take their place: from here on the landing has happened.
//! 6. Entry and receipt count from now on. What has landed leaves the layer; what was displaced stays in the stage.

pub(super) mod commit;
pub(super) mod entry;
#[cfg(test)]
mod fault_tests;
pub(super) mod finish;
pub(super) mod journal;
#[cfg(test)]
mod journal_tests;
pub(super) mod parts;
pub(crate) mod place;
pub(super) mod plan;
mod prune;
#[cfg(test)]
mod prune_tests;
pub(super) mod stage;
#[cfg(test)]
pub(super) mod tests;
#[cfg(test)]
mod trace;

use super::changeset::{Base, Bodies, Change, Changeset, Node};
use super::kind::Group;
use super::layer::{LayerView, project_of};
use super::live::Picture;
use super::resolve::resolve;
use super::select::Selection;
use super::tree::{self, Tree};
use crate::error::{Context, Failure, Kind, Result};
use crate::overlay::remove::remove_tree;
use crate::seal::Key;
use crate::session::model::ChangeCounts;
use crate::session::store::{Attendance, Session, SessionLock, StateDir, show};
use entry::{Detail, Entry, Standing};
use journal::{Journal, ProjectLock, Work};
use landbox_shared::digest::Digest;
use landbox_shared::id::SessionId;
use landbox_shared::path::{AbsPath, RelPath};
use landbox_shared::policy::LayerPolicy;
use rustix::fs;
use stage::Stage;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Changes that land at most at once: what that takes of memory, and the journal of disk, is about 5 KB each.
pub const MOST: usize = 200_000;

/// Refuses a selection of more changes than land at once.
pub fn refuse_too_many(id: &SessionId, count: usize) -> Result<()> {
    if count <= MOST {
        return Ok(());
    }
    Err(Failure::new(
        Kind::Refused,
        format!("nothing was changed: {count} changes are more than land at once ({MOST})"),
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

/// The same for every project.
pub fn recover_all(state: &StateDir) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    for project in ProjectLock::pending(state)? {
        notes.extend(recover(state, &project)?);
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

/// Like [`apply`], for a session that ran when it was shown: what was shown lands, whatever it has written since.
pub fn apply_picture(
    state: &StateDir,
    id: &SessionId,
    order: &Order<'_>,
    picture: Option<Picture>,
) -> Result<Landed> {
    apply_seen(state, id, order, picture, &mut |_| Ok(()))
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
                .hint("end it first; landbox diff already shows what it has changed"));
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
    apply_seen(state, id, order, None, before)
}

fn apply_seen(
    state: &StateDir,
    id: &SessionId,
    order: &Order<'_>,
    picture: Option<Picture>,
    before: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Landed> {
    let Order { selection, shown, key } = *order;
    let mut session = state.load(id)?;
    let layer = project_of(&session).cloned().ok_or_else(|| nothing(id))?;
    let lock = ProjectLock::take(state, &layer.target, true)?
        .ok_or_else(|| Failure::new(Kind::Failed, "can't lock the project"))?;
    lock.recover()?;
    let stopped = stop_if_ended(&session)?;
    // Anything may have happened while we waited: another landing of this very session, say.
    session = state.load(id)?;
    super::check_present(&session)?;
    let live = stopped.is_none();
    let past = selection.checkpoint.is_some();
    let mut view = match (selection.checkpoint, live, picture) {
        (Some(number), ..) => super::checkpoint::view(&session, &layer, number)?,
        (None, true, None) => super::live::picture(&session, &layer)?,
        (None, _, picture) => {
            let mut view = LayerView::read(&session, &layer, live)?;
            if let Some(picture) = picture.filter(|_| live) {
                picture.onto(&mut view);
            }
            view
        }
    };
    view.narrow(selection);
    let set = view.changeset.clone();
    let picked = selection.pick(&set)?;
    let holds = |c: &Change| picked.holds(c);
    let found = super::digest::digest(&[&set], holds);
    let chosen: Vec<&Change> = set.changes.iter().filter(|c| holds(c) && c.landable).collect();
    if chosen.is_empty() {
        return Err(nothing(id));
    }
    refuse_too_many(id, chosen.len())?;
    if found != *shown {
        return Err(Failure::new(
            Kind::Refused,
            format!("the changes are not the ones that were shown: their digest is {found} now"),
        )
        .hint(format!("landbox land {id} shows them as they are")));
    }
    let resolution = resolve(&session, &view, &chosen, &selection.choices)?;
    resolution.check()?;
    if resolution.landed() == 0 {
        return Err(nothing(id));
    }
    let project = Tree::open(layer.target.as_path())
        .context(|| format!("can't open the project {}", layer.target))?;
    let effective = resolution.effective();
    let put: Vec<&Change> = effective.iter().collect();
    let planned = resolution.planned(set.clone());
    let mut plan = plan::plan(&planned, &put, &view.masks, &project)?;
    let root = tree::meta_of(project.root()).context(|| "can't read the project".into())?.ino;
    let number = session.state.landing.count.saturating_add(1);
    let path = place::make(state, &layer.target, &project)?.join(entry::name(id, number));
    let aside = stage::clear(&path, id)?;
    let store =
        AbsPath::from_path(&path).context(|| format!("can't use the path {}", show(&path)))?;
    let sequence = entry::next_sequence(state, &layer.target);
    let mut entry = Entry::new(id.clone(), number, sequence, layer.target.clone(), root, store);
    entry.changes = resolution.landed() as u64;
    let by_path: HashMap<&RelPath, &Change> = put.iter().map(|c| (&c.path, *c)).collect();
    let receipt = finish::receipt(&session, number, found, &resolution, &plan.staying);
    let mut bases = resolution.bases();
    bases.retain(|(path, _)| !plan.staying.contains(path));
    bases.extend(plan.owners.iter().map(|path| (path.clone(), None)));
    let mut settled = resolution.settled(&view);
    settled.extend(plan.owners.iter().map(|path| (path.clone(), None)));
    let records = view.store.path().with_extension("landing");
    let receipt_path = receipt.path(state);
    let mut journal = Journal::new(Work::Landing, entry, Some(&records), &receipt_path)?;
    let mut prepare = || -> Result<(Stage, parts::Parts)> {
        // From here on there is something to be cleared away. It names no step yet, so there is nothing to roll back.
        lock.begin(&journal)?;
        let stage = Stage::make(path.clone())?;
        stage.fill(&mut plan.steps, &project, &by_path, &resolution.bodies(&view))?;
        let path = parts::parts_of(&state.sessions_dir(), id, number);
        let parts = parts::Parts::make(&path).context(|| format!("can't make {}", show(&path)))?;
        view.store.copy_to(&parts::records_of(&path))?;
        let new = |node: &Option<Node>| node.clone().map_or(Base::Absent, Base::Known);
        let landed = plan.landed.iter().chain(bases.iter().map(|(path, node)| (path, node)));
        for (path, node) in landed.clone() {
            view.store.rebase(path.clone(), new(node));
        }
        // What stays in the layer may be edited there again, and then meet the owner's edits.
        let stays = |c: &Change| live || settled.contains_key(&c.path);
        for change in set.changes.iter().filter(|c| stays(c) && picked.holds(c)) {
            if let Some(bytes) = small(&view, change) {
                view.store.keep_for(&change.path, &bytes);
            }
        }
        if live && !past {
            view.store.in_layer(plan.landed.keys().chain(bases.iter().map(|(path, _)| path)));
        }
        view.store.copy_to(&records)?;
        journal.entry.bytes = plan::displaced(&plan.steps);
        let times = finish::times(&plan.steps, &project);
        let rebased = landed.map(|(path, _)| path.clone()).collect();
        let detail = Detail::new(plan.steps.clone(), rebased, times, receipt.clone());
        journal.entry.write(state, &detail)?;
        receipt.prepare(state, key)?;
        journal.steps = plan.steps.clone();
        journal.ready = true;
        lock.begin(&journal)?;
        Ok((stage, parts))
    };
    let (stage, parts) = match prepare() {
        Ok(prepared) => prepared,
        Err(failure) => {
            // Nothing in the project was touched. What can't be cleared away now, the next command clears away.
            if journal.discard(state).is_ok() {
                let _ = lock.end();
            }
            return Err(failure);
        }
    };
    let done = plan.steps.iter().enumerate().try_for_each(|(index, step)| {
        before(index)?;
        commit::perform(step, &project, &stage)
    });
    if let Err(mut failure) = done {
        if let Some(note) = journal.roll_back(state, &project)? {
            failure.hints.push(note);
        }
        lock.end()?;
        return Err(failure);
    }
    let mut synced = journal::sync_parents(&plan.steps, &project);
    synced &= super::sync::folder(&stage.path);
    let disturbed = commit::changed(&plan.steps, &project).into_iter().next();
    before(plan.steps.len())?;
    view.store.replace(&records)?;
    synced &= journal::sync(&view.store.path()).is_ok();
    let mut record = || -> Result<()> {
        let changes = if live || past { None } else { Some(left(&set, &bases, &view)?) };
        finish::count(&mut session, &journal.entry, |state| {
            state.changes = changes;
            state.landing.synced &= synced;
        })?;
        journal.entry.stand(state, Standing::New, Standing::Kept)?;
        super::receipt::publish(journal.receipt.as_path())
    };
    record().map_err(|failure| {
        failure.hint("all of it has landed; the next landbox command records that")
    })?;
    let (landed, steps) = (&plan.landed, &plan.steps);
    if past {
        // The layer is not what landed.
        drop(parts);
    } else if live {
        // What is removed from under a live mount takes later writes along. Equal copies go at the next resume; what has
        // landed in another form is put in its place by way of the merged view.
        super::live::catch_up(&session, &layer, &project, &settled);
    } else {
        prune::prune(&view, layer.backend, &project, (parts, Vec::new()), landed, steps, &settled);
    }
    lock.end()?;
    Ok(Landed {
        changes: resolution.landed(),
        synced,
        staying: plan.staying,
        disturbed,
        aside,
        receipt: journal.receipt.to_path_buf(),
    })
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
    let (kind, mode) = (fs::FileType::CharacterDevice, fs::Mode::empty());
    Ok(fs::mknodat(&place, top.file_name(), kind, mode, 0)?)
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
    for change in view.changeset.changes.iter().filter(|c| c.new.is_none()) {
        // What landed and was deleted while it ran is not always noted by the back end; the next launch must not see it.
        let _ = note_deletion(&view, &change.path);
    }
    view.store.not_in_layer();
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
) -> Result<Vec<prune::Earlier>> {
    let id = &session.snapshot.id;
    let mut found = Vec::new();
    for entry in entry::of(state, &layer.target, Standing::Kept).iter().rev() {
        if entry.session != *id {
            continue;
        }
        let path = parts::parts_of(&state.sessions_dir(), id, entry.number);
        let what = || format!("can't open {}", show(&path));
        if let Some(parts) = parts::Parts::reopen(&path).context(what)? {
            found.push(prune::Earlier { rebased: entry.detail(state)?.rebased, parts });
        }
    }
    Ok(found)
}

/// RFC 3339, UTC, whole seconds.
pub(super) fn now() -> String {
    let at = jiff::Timestamp::now();
    at.round(jiff::Unit::Second).unwrap_or(at).to_string()
}

/// The bytes of a change's file, if they are few enough to be kept.
fn small(view: &LayerView, change: &Change) -> Option<Vec<u8>> {
    let size = change.new.as_ref().and_then(Node::size)?;
    if size > super::base::KEEP_FILE {
        return None;
    }
    let mut bytes = Vec::new();
    view.new_bytes(change).ok()?.take(size + 1).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Figures of what a landing leaves: changes that cannot land or were not chosen.
fn left(
    set: &Changeset,
    bases: &[(RelPath, Option<Node>)],
    view: &LayerView,
) -> Result<ChangeCounts> {
    let landed: HashSet<&RelPath> = bases.iter().map(|(path, _)| path).collect();
    let rest =
        set.changes.iter().filter(|c| c.group == Group::Project && !landed.contains(&c.path));
    let mut out = ChangeCounts { files: 0, added: 0, deleted: 0 };
    for change in rest {
        let figures = super::patch::figures(change, view)?;
        out.files += 1;
        out.added += figures.added.unwrap_or(0);
        out.deleted += figures.deleted.unwrap_or(0);
    }
    for (path, part) in view.parts.iter().filter(|(path, _)| landed.contains(path)) {
        let (added, deleted) = view.beyond(path, part)?;
        out.files += 1;
        out.added += added;
        out.deleted += deleted;
    }
    Ok(out)
}

fn nothing(id: &SessionId) -> Failure {
    Failure::new(Kind::Nothing, format!("session {id} has nothing to land"))
}
