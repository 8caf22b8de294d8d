//! The state of a session whose record a power cut has emptied.
//!
//! `state.json` is not synced while a session runs: until the disk has its first bytes, some seconds after the start, a
//! power cut can leave the name without content. What the session wrote must still be the owner's to land.

use super::model::{Landing, Launch, LaunchFailure, MODEL_VERSION, Phase, Snapshot, State};
use std::collections::BTreeMap;
use std::path::Path;

/// Whether these are the bytes of a document that never reached the disk: none, or the zeros that some file systems
/// leave in their place. Anything else was written by somebody, and is never guessed at.
pub(super) fn is_lost(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// What the rest of the session's folder still tells: each launch that got a folder, ended nobody knows how. No launch
/// has a time before it (an epoch), so nothing of the base is trusted: what the owner's tree has too is a conflict, and
/// never overwritten unasked.
pub(super) fn state_of(dir: &Path, snapshot: &Snapshot) -> State {
    let launch = |number| Launch {
        number,
        started_at: snapshot.created_at.clone(),
        ended_at: None,
        exit: None,
        failure: None,
        boundary: None,
        epochs: BTreeMap::new(),
    };
    let mut launches: Vec<Launch> = numbers(&dir.join("launches"), "").map(launch).collect();
    launches.sort_by_key(|launch| launch.number);
    if let Some(last) = launches.last_mut() {
        last.failure = Some(LaunchFailure {
            stage: None,
            path: None,
            message:
                "how it ended was lost with its record, which the disk has only as an empty file"
                    .into(),
        });
    }
    let receipts = dir.ancestors().nth(2).map(|root| root.join("receipts")).unwrap_or_default();
    let prefix = format!("{}-", snapshot.id);
    // What landings moved out of the layer lies below their numbers, too.
    let landed = dir.join("landed");
    let count = numbers(&receipts, &prefix).chain(numbers(&landed, "")).max().unwrap_or(0);
    State {
        version: MODEL_VERSION,
        state: Phase::Failed,
        turns: launches.last().map_or(0, |launch| launch.number),
        launches,
        landing: Landing { count, ..Landing::default() },
        changes: None,
    }
}

/// The numbers that follow `prefix` in the names of what lies in `dir`, up to a dash.
fn numbers(dir: &Path, prefix: &str) -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(move |entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.strip_prefix(prefix)?.split('-').next()?.parse().ok()
    })
}
