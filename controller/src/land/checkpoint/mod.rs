//! Checkpoints: pictures of a session's layers, to land or to go back to.
//!
//! ```text
//! <session>/checkpoints/lock        flocked while one is taken or gone back to
//! <session>/checkpoints/<n>.json    what every layer held: names, attributes, marks, digests of content
//! <session>/checkpoints/objects/    content by its digest, once for all checkpoints
//! <session>/checkpoints/next        a picture that becomes a checkpoint if a turn begins now
//! <session>/checkpoints/<n>.gone     the newest was removed: its number is no other's
//! <session>/checkpoints/skipped     why the newest turn began without one
//! <session>/checkpoints/rewinding   the checkpoint that is being gone back to
//! ```
//! Content is shared or copied and never linked: a session that writes to a file in place would write to every picture
//! of it. What one look has read the next need not, as long as the file is the same by its stamp.

mod folder;
mod known;
mod lift;
mod lineage;
mod model;
mod moment;
mod rebuild;
mod restore;
mod running;
mod start;
mod take;
#[cfg(test)]
mod tests;
mod turn;

pub use folder::{bytes, list, skipped};
pub use model::Checkpoint;
pub use turn::{Skipped, Turns, before_launch};

use super::apply::{now, stop, stop_if_ended, try_stop};
use super::base::{self, Store};
use super::layer::LayerView;
use crate::error::{Context, Failure, Kind, Result};
use crate::session::scratch::Scratch;
use crate::session::store::{Session, StateDir};
use folder::Folder;
use landbox_shared::id::SessionId;
use landbox_shared::path::RelPath;
use landbox_shared::policy::LayerPolicy;
use model::{Head, Layers, Manifest, Reason};
use std::collections::{BTreeMap, BTreeSet};
use take::{Bounds, Obstacle};

/// Most checkpoints of one session that its owner asked for; the oldest makes room.
pub const MOST: usize = 50;
/// The same of those that are taken by themselves.
pub const MOST_TURNS: usize = 20;
/// Most bytes of content of one session's checkpoints.
pub const MOST_BYTES: u64 = 8 << 30;
/// The bounds of those that their owner asked for.
const ASKED: Bounds = Bounds { entries: 2_000_000, bytes: MOST_BYTES, spare: false, until: None };

/// Takes a checkpoint of a session, which may be running. Gives it, and the one that made room.
pub fn take(
    state: &StateDir,
    id: &SessionId,
    message: Option<String>,
) -> Result<(Checkpoint, Option<u32>)> {
    let session = state.load(id)?;
    super::check_present(&session)?;
    if !session.snapshot.isolated {
        return Err(Failure::new(Kind::Nothing, format!("session {id} ran without the sandbox")));
    }
    let folder = Folder::open(&session)?;
    finish_held(state, &session, &folder)?;
    let stopped = try_stop(&session)?;
    let layers = asked(&session, &folder, stopped.is_none())?;
    keep(&folder, layers, Reason::Asked(message), None)
}

/// The picture that the owner asked for.
fn asked(session: &Session, folder: &Folder, live: bool) -> Result<Layers> {
    within(session, folder, live, &ASKED)
}

fn within(session: &Session, folder: &Folder, live: bool, bounds: &Bounds) -> Result<Layers> {
    let newest = folder.newest();
    let earlier: Vec<&Layers> = newest.iter().map(|manifest| &manifest.layers).collect();
    match moment::picture(session, folder, &earlier, live, bounds) {
        // What looks that came to nothing have put away makes room.
        Err(Obstacle::Room(_)) => {
            folder.sweep()?;
            moment::picture(session, folder, &earlier, live, bounds)
        }
        other => other,
    }
    .map_err(Obstacle::failure)
}

/// Keeps a picture; the oldest of its sort makes room, other than the one that is needed still.
fn keep(
    folder: &Folder,
    layers: Layers,
    reason: Reason,
    needed: Option<u32>,
) -> Result<(Checkpoint, Option<u32>)> {
    let mut manifest = Manifest::new(now(), reason, layers);
    folder.write(&mut manifest)?;
    let goes = |head: &Head| head.turn.is_none() && Some(head.number) != needed;
    let gone = drop_oldest(folder, goes, MOST)?;
    folder.sweep()?;
    Ok((manifest.head.summary(), gone))
}

/// Removes checkpoints for good, and the content that only they hold. Where one of them is none, nothing is removed.
pub fn remove(session: &Session, numbers: &[u32]) -> Result<()> {
    look_up_all(session, numbers)?;
    let folder = Folder::open(session)?;
    let all = folder.heads();
    let numbers: BTreeSet<u32> = numbers.iter().copied().collect();
    numbers.iter().try_for_each(|number| folder::check(&session.snapshot.id, &all, *number))?;
    numbers.iter().try_for_each(|number| folder.drop_for_good(*number))?;
    folder.sweep()
}

/// Fails where one of these numbers is no checkpoint that can be removed.
pub fn look_up_all(session: &Session, numbers: &[u32]) -> Result<()> {
    let id = &session.snapshot.id;
    if numbers.contains(&0) {
        let what = format!("checkpoint 0 of session {id} is its beginning, which takes no room");
        return Err(Failure::new(Kind::Usage, what)
            .hint(format!("landbox discard {id} throws the whole session away")));
    }
    super::check_present(session)?;
    let folder = Folder::open(session)?;
    numbers.iter().try_for_each(|number| folder.find(session, Some(*number)).map(drop))
}

/// Removes the oldest of a sort, so that `most` are left; gives the newest of those that went.
fn drop_oldest(folder: &Folder, is_of: impl Fn(&Head) -> bool, most: usize) -> Result<Option<u32>> {
    let mut all = folder.heads();
    all.retain(is_of);
    let gone = all.len().saturating_sub(most);
    for head in &all[..gone] {
        folder.remove(head.number)?;
    }
    Ok(all[..gone].last().map(|head| head.number))
}

/// Removes what commands that were killed have left of checkpoints, or of going back to one. Whoever can't be sure that
/// they were leaves it.
pub fn sweep(session: &Session) {
    let Some(folder) = Folder::try_open(session) else { return };
    if !folder::is_rewinding(session) {
        restore::give_up(session);
        // What can't go now goes later.
        let _ = folder.sweep();
    }
}

/// Fails where a session has no such checkpoint. Gives the one that is meant: without a number the newest that the session
/// came by and that is not what it is now, or else its beginning, which is 0.
pub fn look_up(state: &StateDir, id: &SessionId, number: Option<u32>) -> Result<Checkpoint> {
    let session = state.load(id)?;
    super::check_present(&session)?;
    let folder = Folder::open(&session)?;
    let manifest = match number {
        Some(_) => folder.find(&session, number)?,
        None => {
            finish_held(state, &session, &folder)?;
            let stopped = stop_if_ended(&session)?;
            if stopped.is_some() {
                super::forget_landed(state, &session);
            }
            let running = stopped.is_none();
            let present = asked(&session, &folder, running)?;
            lineage::choose(&session, &folder, &present, running)?
        }
    };
    Ok(manifest.head.summary())
}

/// What going back has come to.
#[derive(Debug)]
pub struct Rewound {
    /// Where the session is.
    pub back: Checkpoint,
    /// What it was before; `None` where that was the same.
    pub before: Option<Checkpoint>,
    /// Of a session that runs, paths that were left as they are, and why.
    pub left: BTreeMap<RelPath, String>,
    /// Whether any path was brought back.
    pub moved: bool,
    /// Whether the home of a session that runs was left as it is, which differs.
    pub home_stays: bool,
}

impl Rewound {
    /// It is there already.
    fn nothing(back: Checkpoint) -> Self {
        Self { back, before: None, left: BTreeMap::new(), moved: false, home_stays: false }
    }
}

/// Brings a session's layers back to what they were at a checkpoint, 0 for the beginning. What they hold now becomes a checkpoint first. While it runs all but its home is brought back.
pub fn rewind(state: &StateDir, id: &SessionId, number: u32) -> Result<Rewound> {
    let session = state.load(id)?;
    super::check_present(&session)?;
    let folder = Folder::open(&session)?;
    finish_held(state, &session, &folder)?;
    let stopped = stop_if_ended(&session)?;
    let manifest = folder.find(&session, Some(number))?;
    if stopped.is_none() {
        return running::rewind(&session, &folder, &manifest);
    }
    // What landed while it ran lies in the layer still; where it does not lie there later, the session would have
    // deleted it.
    super::forget_landed(state, &session);
    let present = asked(&session, &folder, false)?;
    let back = manifest.head.summary();
    if present.holds_same(&manifest.layers) {
        return Ok(Rewound::nothing(back));
    }
    // First: what is kept now may take the room of the one that is gone back to.
    restore::make_ready(&session, &folder, &manifest)?;
    let kept = keep_present(&folder, present, &back);
    let (before, _) = kept.inspect_err(|_| restore::give_up(&session))?;
    note_bases(&session, before.number).inspect_err(|_| restore::give_up(&session))?;
    restore::begin(&session, &folder, &manifest)?;
    complete(state, &session, &folder)?;
    let (left, before) = (BTreeMap::new(), Some(before));
    Ok(Rewound { back, before, left, moved: true, home_stays: false })
}

/// Keeps what going back to a checkpoint replaces.
fn keep_present(
    folder: &Folder,
    present: Layers,
    back: &Checkpoint,
) -> Result<(Checkpoint, Option<u32>)> {
    let message = lineage::message(back.number);
    // What is not the present any more begins no turn.
    folder.forget_next();
    keep(folder, present, Reason::Asked(Some(message)), Some(back.number))
}

/// Goes on with going back to a checkpoint that was cut short. Gives a sentence.
pub fn finish(state: &StateDir, session: &Session) -> Result<Option<String>> {
    if folder::is_lifting(session) {
        // Waits for a look that is at it, and closes what one that was cut short has left open.
        drop(Folder::open(session)?);
    }
    if !folder::is_rewinding(session) {
        return Ok(None);
    }
    let folder = Folder::open(session)?;
    finish_held(state, session, &folder)
}

fn finish_held(state: &StateDir, session: &Session, folder: &Folder) -> Result<Option<String>> {
    if !folder::is_rewinding(session) {
        return Ok(None);
    }
    // A power cut may have left the marker without its number: what was made ready takes its place all the same.
    let to = folder
        .rewinding()
        .map_or_else(|| "a checkpoint".to_owned(), |number| format!("checkpoint {number}"));
    let _stopped = stop(session)?;
    complete(state, session, folder)?;
    let id = &session.snapshot.id;
    Ok(Some(format!("session {id} was on its way back to {to}, and is there now")))
}

/// Goes back to what was made ready. Who is cut short before all is written down is gone on with; where that can't be
/// written, the session is back all the same.
fn complete(state: &StateDir, session: &Session, folder: &Folder) -> Result<()> {
    let to = folder.rewinding();
    restore::exchange(session, folder)?;
    let settled =
        to.map_or(Ok(()), |to| take_bases(session, to)).and_then(|()| settle(state, session));
    restore::end(folder)?;
    settled
}

/// Notes what its layers were made of, for whoever goes on to where it is now.
fn note_bases(session: &Session, number: u32) -> Result<()> {
    session
        .snapshot
        .policy
        .layers
        .iter()
        .filter(|layer| Store::exists(&session.dir, &layer.id))
        .try_for_each(|layer| Store::open(&session.dir, &layer.id)?.note_before(None, number))
}

/// Takes over what its layers were made of at a checkpoint.
fn take_bases(session: &Session, number: u32) -> Result<()> {
    for layer in &session.snapshot.policy.layers {
        let before = base::before::at(&session.dir, &layer.id, number);
        if !before.is_empty() {
            let mut store = Store::open(&session.dir, &layer.id)?;
            store.go_back(before);
            let scanned = store.scanned;
            store.save(scanned)?;
        }
    }
    Ok(())
}

/// Writes down what a session holds that went back.
fn settle(state: &StateDir, session: &Session) -> Result<()> {
    let mut session = state.load(&session.snapshot.id)?;
    let changes = super::counts(&session, false).ok();
    session.amend(|state| {
        state.changes = changes;
        state.landing.synced = false;
    })
}

/// A layer as it was at a checkpoint, ready to be reviewed and landed.
pub(super) fn view(session: &Session, layer: &LayerPolicy, number: u32) -> Result<LayerView> {
    let folder = Folder::open(session)?;
    let manifest = folder.find(session, Some(number))?;
    laid_out(session, layer, &folder, &manifest)
}

fn laid_out(
    session: &Session,
    layer: &LayerPolicy,
    folder: &Folder,
    manifest: &Manifest,
) -> Result<LayerView> {
    let what = || format!("can't lay checkpoint {} out", manifest.head.number);
    let dir = Scratch::new(&session.dir)?;
    let upper = dir.path().join("upper");
    let mut pictures = manifest.layers.pictures.iter();
    let picture = pictures.find(|picture| picture.layer == layer.id);
    let picture = picture.ok_or_else(|| Failure::new(Kind::Failed, what()))?;
    rebuild::rebuild(&picture.entries, folder, &upper).context(what)?;
    LayerView::read_from(session, layer, dir, (&upper, manifest.head.number))
}
