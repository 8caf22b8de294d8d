//! How long, and how much of it, is kept so that landings can be undone.

use crate::error::Result;
use crate::land::apply::entry::{self, Entry, Standing};
use crate::land::apply::journal::ProjectLock;
use crate::land::tree::Time;
use crate::session::document::Undoable;
use crate::session::store::StateDir;
use jiff::{SignedDuration, Timestamp};
use landbox_shared::id::SessionId;
use landbox_shared::path::AbsPath;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Days for which a landing can be undone.
pub const KEPT_DAYS: i64 = 30;
/// Bytes of old files that are kept for one project. The last landing is kept whatever it takes.
pub const KEPT_BYTES: u64 = 1 << 30;

/// Undo data that was, or would be, removed.
#[derive(Clone, Debug)]
pub struct Swept {
    /// Whose landing.
    pub session: SessionId,
    /// Which.
    pub number: u32,
    /// Where.
    pub project: AbsPath,
    /// When.
    pub at: String,
    /// What its old files took.
    pub bytes: u64,
}

/// Time of the last change of a file's attributes or name.
pub(super) fn changed_at(path: &Path) -> Option<Time> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    Some((meta.ctime(), u32::try_from(meta.ctime_nsec()).ok()?))
}

/// When an entry was written, or undone.
fn written(state: &StateDir, entry: &Entry, standing: Standing) -> Option<Timestamp> {
    let meta = std::fs::symlink_metadata(entry.path(state, standing)).ok()?;
    Timestamp::try_from(meta.modified().ok()?).ok()
}

/// What of a session's landings can be undone.
pub fn summary(state: &StateDir, session: &SessionId) -> Option<Undoable> {
    let mut entries = entry::all(state, Standing::Kept);
    entries.retain(|entry| entry.session == *session);
    let last = entries.iter().max_by_key(|entry| entry.number)?;
    let until = written(state, last, Standing::Kept)?
        .checked_add(SignedDuration::from_hours(24 * KEPT_DAYS))
        .ok()?;
    Some(Undoable {
        count: entries.len() as u64,
        until: until.round(jiff::Unit::Second).unwrap_or(until).to_string(),
        bytes: entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.bytes)),
    })
}

/// Removes the undo data that is too old, and the oldest where a project's is too much. With `dry_run` only says which.
pub fn sweep(state: &StateDir, dry_run: bool) -> Result<Vec<Swept>> {
    let mut projects: BTreeMap<AbsPath, Vec<(Entry, Standing)>> = BTreeMap::new();
    for standing in [Standing::Kept, Standing::Undone] {
        for entry in entry::all(state, standing) {
            projects.entry(entry.project.clone()).or_default().push((entry, standing));
        }
    }
    let mut swept = Vec::new();
    for (project, mut entries) in projects {
        // Who lands or undoes there now may need it.
        let Some(lock) = ProjectLock::take(state, &project, false)? else { continue };
        if lock.is_pending() {
            continue;
        }
        // The newest first.
        entries.sort_by_key(|(entry, _)| std::cmp::Reverse(entry.sequence));
        let (mut bytes, mut any) = (0u64, false);
        for (entry, standing) in entries {
            bytes = bytes.saturating_add(entry.bytes);
            let old = written(state, &entry, standing).is_some_and(|at| {
                Timestamp::now().duration_since(at) > SignedDuration::from_hours(24 * KEPT_DAYS)
            });
            if !old && (bytes <= KEPT_BYTES || !any) {
                any = true;
                continue;
            }
            if !dry_run {
                entry.remove(state)?;
            }
            let Entry { session, number, project, at, bytes, .. } = entry;
            swept.push(Swept { session, number, project, at, bytes });
        }
    }
    Ok(swept)
}
