//! What to do about a disk that takes nothing, or a limit that is met: said of whatever command met it.

use crate::error::Failure;
use crate::host;
use crate::launch;
use crate::session::store::{StateDir, show};
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::io::ErrorKind;

/// What of Landbox's own makes room.
const ROOM: &str = "landbox gc removes sessions that were landed or discarded, landbox discard ID throws one away, \
                    with --checkpoint N one of its checkpoints";

/// Adds to a failure what can be done about its cause, where that is the disk or a limit.
pub(super) fn explain(failure: Failure) -> Failure {
    let hint = match failure.cause {
        Some(ErrorKind::ReadOnlyFilesystem) => read_only(),
        Some(ErrorKind::StorageFull) => format!("make room there and try again: {ROOM}"),
        Some(ErrorKind::QuotaExceeded) => {
            format!("have your quota there raised, or make room, and try again: {ROOM}")
        }
        Some(ErrorKind::FileTooLarge) => {
            "files may not become that large here: ulimit -f unlimited lifts that, as far as ulimit -Hf lets it".to_owned()
        }
        Some(_) | None => match failure.errno.and_then(launch::limit_met) {
            Some(hint) => hint.to_owned(),
            None => return failure,
        },
    };
    failure.hint(hint)
}

fn read_only() -> String {
    let state = host::home().map(|home| StateDir::locate(&home)).ok();
    let is_it = |state: &std::path::PathBuf| {
        statvfs(state).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
    };
    match state.filter(is_it) {
        Some(state) => format!(
            "the state folder {} lies on a file system that is mounted read-only: mount it for writing, or set \
             LANDBOX_STATE_DIR to another folder (these sessions stay in this one)",
            show(&state)
        ),
        None => "mount that file system for writing, and try again".to_owned(),
    }
}
