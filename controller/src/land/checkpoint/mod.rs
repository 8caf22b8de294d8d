//! Checkpoints: pictures of a session's layers, to land or to go back to.
//!
//! ```text
//! <session>/checkpoints/lock        flocked while one is taken or gone back to
//! <session>/checkpoints/<n>.json    what every layer held: names, attributes, marks, digests of content
//! <session>/checkpoints/objects/    content by its digest, once for all checkpoints
//! <session>/checkpoints/rewinding   the checkpoint that is being gone back to
//! ```
//! Content is copied and never linked: a session that writes to a file in place would write to every picture of it.

mod model;
mod rebuild;
mod take;

pub use model::{Checkpoint, list};

use super::apply::{now, stop, try_stop};
use super::layer::LayerView;
use super::live::{busy, frozen};
use crate::error::{Context, Failure, Kind, Result};
use crate::overlay::remove::remove_tree;
use crate::session::scratch::Scratch;
use crate::session::store::{Session, StateDir, show, write_json};
use landbox_shared::id::SessionId;
use landbox_shared::policy::LayerPolicy;
use model::{Folder, Manifest};

/// Most checkpoints of one session; the oldest makes room.
pub const MOST: usize = 50;
/// Most bytes of content of one session's checkpoints.
pub const MOST_BYTES: u64 = 8 << 30;
/// Looks that may differ from the one before until the session is held still.
const LOOKS: usize = 2;

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
    taken(&session, &folder, message, stopped.is_none())
}

/// The picture itself; the caller holds the folder.
fn taken(
    session: &Session,
    folder: &Folder,
    message: Option<String>,
    live: bool,
) -> Result<(Checkpoint, Option<u32>)> {
    let look = || take::look(session, folder);
    let mut layers = look()?;
    if live {
        let mut agreed = false;
        for _ in 0..LOOKS {
            let again = look()?;
            agreed = again == layers;
            layers = again;
            if agreed {
                break;
            }
        }
        if !agreed {
            layers = frozen(session, look)?.ok_or_else(|| busy(session))?;
        }
    }
    let all = folder.manifests();
    let number = all.last().map_or(1, |last| last.number.saturating_add(1));
    let manifest = Manifest::new(number, now(), message, layers);
    let gone = (all.len() >= MOST).then(|| all.first().map(|first| first.number)).flatten();
    if let Some(gone) = gone {
        folder.remove(gone)?;
    }
    folder.write(&manifest)?;
    folder.sweep()?;
    Ok((manifest.summary(), gone))
}

/// Fails where a session has no such checkpoint, or none at all.
pub fn look_up(session: &Session, number: Option<u32>) -> Result<()> {
    Folder::open(session)?.find(session, number).map(drop)
}

/// Why a running session is not brought back. Its command has files of the layer open, and what was taken away under it
/// would swallow what it writes from then on.
pub fn still_running(id: &SessionId, number: Option<u32>) -> Failure {
    let at = number.map(|number| format!(" {number}")).unwrap_or_default();
    let named = number.map_or_else(|| "N".to_owned(), |number| number.to_string());
    Failure::new(Kind::Refused, format!("session {id} is still running, and can't be brought back"))
        .hint(format!("end its command first, then: landbox rewind {id}{at}"))
        .hint(format!(
            "to land what it was then, also while it runs: landbox land {id} --checkpoint {named}"
        ))
}

/// Brings a stopped session's layers back to what they were at a checkpoint, the newest if none is named. What they hold
/// now becomes a checkpoint first. Gives both.
pub fn rewind(
    state: &StateDir,
    id: &SessionId,
    number: Option<u32>,
) -> Result<(Checkpoint, Checkpoint)> {
    let session = state.load(id)?;
    super::check_present(&session)?;
    let folder = Folder::open(&session)?;
    finish_held(state, &session, &folder)?;
    let _stopped = match stop(&session) {
        Err(failure) if failure.kind == Kind::Refused => return Err(still_running(id, number)),
        other => other?,
    };
    let manifest = folder.find(&session, number)?;
    let (before, _) =
        taken(&session, &folder, Some(format!("before going back to {}", manifest.number)), false)?;
    write_json(&folder.marker(), &manifest.number, 0o600)?;
    restore(state, &session, &folder, &manifest)?;
    Ok((manifest.summary(), before))
}

/// Goes on with going back to a checkpoint that was cut short. Gives a sentence.
pub fn finish(state: &StateDir, session: &Session) -> Result<Option<String>> {
    if !model::is_rewinding(session) {
        return Ok(None);
    }
    let folder = Folder::open(session)?;
    finish_held(state, session, &folder)
}

fn finish_held(state: &StateDir, session: &Session, folder: &Folder) -> Result<Option<String>> {
    let Some(number) = folder.rewinding() else { return Ok(None) };
    let _stopped = stop(session)?;
    let manifest = folder.find(session, Some(number))?;
    restore(state, session, folder, &manifest)?;
    let id = &session.snapshot.id;
    Ok(Some(format!("session {id} was on its way back to checkpoint {number}, and is there now")))
}

fn restore(
    state: &StateDir,
    session: &Session,
    folder: &Folder,
    manifest: &Manifest,
) -> Result<()> {
    for layer in &manifest.layers {
        let upper = session.upper(&layer.layer);
        let what = || format!("can't bring {} back", show(&upper));
        let beside = upper.with_file_name("rewound");
        remove_tree(&beside).context(what)?;
        rebuild::rebuild(&layer.entries, folder, &beside).context(what)?;
        rebuild::exchange(&upper, &beside).context(what)?;
        remove_tree(&beside).context(what)?;
    }
    std::fs::remove_file(folder.marker()).context(|| "can't end going back".into())?;
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
    let what = || format!("can't lay checkpoint {number} out");
    let dir = Scratch::new(&session.dir)?;
    let upper = dir.path().join("upper");
    let picture = manifest.layers.iter().find(|picture| picture.layer == layer.id);
    let picture = picture.ok_or_else(|| Failure::new(Kind::Failed, what()))?;
    rebuild::rebuild(&picture.entries, &folder, &upper).context(what)?;
    LayerView::read_from(session, layer, dir, &upper)
}
