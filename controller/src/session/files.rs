//! The documents in a session's folder, read and written.

use super::json::to_bytes;
use super::model::{Landing, MODEL_VERSION, Phase, Snapshot, State};
use super::recover;
use super::store::show;
use crate::error::{Context, Result};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The state of a session that has none yet.
pub(super) fn starting() -> State {
    State {
        version: MODEL_VERSION,
        state: Phase::Starting,
        launches: Vec::new(),
        turns: 0,
        landing: Landing::default(),
        changes: None,
    }
}

/// What the folder of a session's layers is called while they are thrown away on a disk that has no room to write that
/// down: the name says it.
pub(crate) const DISCARDED: &str = "layers.gone";

/// Reads the state of a session.
pub(super) fn read_state(dir: &Path, snapshot: &Snapshot) -> Result<State> {
    let mut state = written_state(dir, snapshot)?;
    if let Ok(meta) = std::fs::symlink_metadata(dir.join(DISCARDED))
        && state.landing.discarded_at.is_none()
    {
        let at = meta.modified().ok().and_then(|at| jiff::Timestamp::try_from(at).ok());
        let at = at.and_then(|at| at.round(jiff::Unit::Second).ok());
        state.landing.discarded_at = Some(at.unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string());
        state.changes = None;
    }
    Ok(state)
}

/// Reads `state.json`. It is written before the first task is released, and after that task's evidence: a session with
/// neither has never started. One whose bytes never reached the disk is told from the rest of the folder.
fn written_state(dir: &Path, snapshot: &Snapshot) -> Result<State> {
    let path = dir.join("state.json");
    let evidence = || has_file(dir, "launches/1/evidence");
    match std::fs::read(&path) {
        Ok(bytes) if recover::is_lost(&bytes) => Ok(recover::state_of(dir, snapshot)),
        Ok(bytes) => {
            serde_json::from_slice(&bytes).context(|| format!("can't understand {}", show(&path)))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && !evidence() => Ok(starting()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(recover::state_of(dir, snapshot)),
        Err(e) => Err(e).context(|| format!("can't read {}", show(&path))),
    }
}

/// Whether there is something of that name.
pub(super) fn has_file(dir: &Path, name: &str) -> bool {
    std::fs::symlink_metadata(dir.join(name)).is_ok()
}

/// Reads a document.
pub(super) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let bytes = std::fs::read(path).context(|| format!("can't read {}", show(path)))?;
    serde_json::from_slice(&bytes).context(|| format!("can't understand {}", show(path)))
}

/// Writes a document where nobody looks yet: in a folder that only this process knows.
pub fn write_new(path: &Path, value: &impl serde::Serialize, mode: u32) -> Result<()> {
    let what = || format!("can't write {}", show(path));
    let bytes = to_bytes(value).context(what)?;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(mode);
    options.open(path).and_then(|mut file| file.write_all(&bytes)).context(what)
}

/// Writes a document beside its place and renames it over.
pub fn write_json(path: &Path, value: &impl serde::Serialize, mode: u32) -> Result<()> {
    let what = || format!("can't write {}", show(path));
    let bytes = to_bytes(value).context(what)?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::Builder::new()
        .prefix(".write-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))
        .tempfile_in(dir)
        .context(what)?;
    file.write_all(&bytes).context(what)?;
    file.persist(path).context(what)?;
    Ok(())
}
