//! `landbox undo`.

use super::{Invocation, elsewhere, select};
use crate::document::bytes_entry;
use crate::error::{Failure, Kind, Result};
use crate::host;
use crate::land::undo::Undone;
use crate::land::{apply, checkpoint, live, undo};
use crate::seal::Key;
use crate::session::store::{StateDir, show};
use crate::ui::text::{counted, visible};
use clap::Args;
use landbox_shared::id::SessionId;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::os::unix::ffi::OsStrExt;

#[derive(Debug, Args)]
pub(super) struct UndoArgs {
    /// Session; the last landing in this directory when left out
    #[arg(value_name = "ID")]
    id: Option<String>,
}

pub(super) fn undo(call: &Invocation, args: UndoArgs) -> Result<u8> {
    let home = host::home()?;
    let state = StateDir::open(&StateDir::locate(&home))?;
    // A folder that is gone is no obstacle to naming a session.
    let here = match &args.id {
        Some(_) => None,
        None => select::here()?,
    };
    let mut notes = Vec::new();
    if let Some(here) = &here {
        notes.extend(apply::recover(&state, here)?);
    }
    let target = undo::find(&state, args.id.as_deref(), here.as_ref());
    if let Ok(target) = &target {
        notes.extend(apply::recover(&state, target.project())?);
        if let Ok(session) = state.load(target.session()) {
            let cleared = live::clear(&session)?;
            cleared.into_iter().for_each(|note| call.ui.warning(note));
        }
    }
    for note in &notes {
        call.ui.warning(note);
    }
    // What was just finished may have been this very undo.
    let target = if notes.is_empty() {
        target?
    } else {
        undo::find(&state, args.id.as_deref(), here.as_ref())?
    };
    let key = Key::load(&host::key_dir(&home)?)?;
    let undone = undo::undo(&state, &target, &key)?;
    let id = &undone.session;
    if call.ui.json {
        call.ui.document(&Face(&undone))?;
    } else {
        let changes = counted(undone.changes, "change", "changes");
        call.ui.status(format!(
            "Undid the landing of {} of {id}: {changes} in {}.",
            undone.landed_at, undone.project
        ));
        if undone.pending {
            call.ui.status(format!("They wait in the session again: landbox land {id}"));
        }
    }
    if let Some(commit) = &undone.commit {
        let short = elsewhere::short(&commit.id);
        let back = match &commit.parent {
            Some(parent) => format!(
                "git reset {} takes it off the branch, as long as it is the last",
                elsewhere::short(parent)
            ),
            None => format!("git revert {short} takes it back"),
        };
        call.ui.warning(format!("its commit {short} stays in the repository; {back}"));
    }
    if let Some(kept) = &undone.kept {
        call.ui.warning(format!(
            "session {id} does not hold all of it any more; what had landed is kept in {} for {} days",
            show(kept),
            undo::KEPT_DAYS
        ));
        if let Some(line) = from_checkpoint(&state, id) {
            call.ui.status(line);
        }
    }
    match &undone.disturbed {
        None => Ok(0),
        Some(path) => Err(Failure::new(
            Kind::Failed,
            format!(
                "all of it was undone, but {} was changed again right afterwards",
                visible(path.as_bytes())
            ),
        )
        .hint("look at that file: it is no longer what it was before the landing")),
    }
}

/// What lands a checkpoint again, where the session has any: after that the session itself holds nothing of it.
fn from_checkpoint(state: &StateDir, id: &SessionId) -> Option<String> {
    let session = state.load(id).ok().filter(|s| s.state.landing.discarded_at.is_none())?;
    let all = checkpoint::list(&session);
    let one = match all.as_slice() {
        [] => return None,
        [one] => one.number.to_string(),
        [_, ..] => "N".to_owned(),
    };
    Some(format!(
        "Where a checkpoint had landed, landbox land {id} --checkpoint {one} offers it again; landbox show {id} lists what there is."
    ))
}

/// What was undone, as a document.
struct Face<'a>(&'a Undone);

impl Serialize for Face<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let undone = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("session", &undone.session)?;
        bytes_entry(&mut map, "project", Some(undone.project.as_bytes()))?;
        map.serialize_entry("landing", &undone.number)?;
        map.serialize_entry("landed_at", &undone.landed_at)?;
        map.serialize_entry("changes", &undone.changes)?;
        map.serialize_entry("pending", &undone.pending)?;
        map.serialize_entry("commit", &undone.commit.as_ref().map(|commit| &commit.id))?;
        let kept = undone.kept.as_ref().map(|path| path.as_os_str().as_bytes());
        bytes_entry(&mut map, "kept", kept)?;
        bytes_entry(&mut map, "receipt", Some(undone.receipt.as_os_str().as_bytes()))?;
        map.end()
    }
}
