//! Files of other owners in the project, which a session can't change.

use super::{Check, Status, quote, sudo};
use crate::host::Facts;
use crate::host::owners::Writer;
use crate::session::store::show;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the search may take; what it found by then is said.
const PATIENCE: Duration = Duration::from_secs(2);

const ID: &str = "owners";

/// Looks for files in the current folder that a session can't change because of their owner or group.
pub(super) fn foreign_owners(facts: &Facts) -> Check {
    match facts.cwd() {
        Ok(cwd) => judge(cwd.as_path(), facts.writer()),
        Err(failure) => {
            let fix = failure.hints.into_iter().next();
            Check::bad(ID, Status::Warning, failure.message, "no session can be run in it", fix)
        }
    }
}

fn judge(project: &Path, writer: Writer) -> Check {
    let Search { foreign, first, complete } = search(project, writer, Instant::now() + PATIENCE);
    let Writer { uid, gid, maps_everyone } = writer;
    let Some(first) = first else {
        return Check::ok(
            ID,
            if complete {
                format!("every file in {} is yours", show(project))
            } else {
                format!("no foreign file found in {} (too large to look at whole)", show(project))
            },
        );
    };
    let others = match foreign {
        1 => " belongs".to_owned(),
        n if complete => format!(" and {} more belong", n - 1),
        n => format!(" and at least {} more belong", n - 1),
    };
    Check::bad(
        ID,
        Status::Warning,
        format!("{}{others} to another user or group", show(&first)),
        if maps_everyone {
            "a session of root has no capabilities, so it can read them but not change them; run as their owner"
        } else {
            "they can be read but not changed inside (\"Value too large for defined data type\")"
        },
        // A folder that is somebody else's is not to be taken from them.
        std::fs::metadata(project)
            .is_ok_and(|meta| meta.uid() == uid)
            .then(|| format!("{}chown -R {uid}:{gid} {}", sudo(), quote(project))),
    )
}

struct Search {
    foreign: u64,
    first: Option<PathBuf>,
    complete: bool,
}

fn search(project: &Path, writer: Writer, until: Instant) -> Search {
    let mut found = Search { foreign: 0, first: None, complete: true };
    let Ok(device) = std::fs::symlink_metadata(project).map(|meta| meta.dev()) else {
        return found;
    };
    let mut folders = vec![project.to_path_buf()];
    while let Some(folder) = folders.pop() {
        if Instant::now() > until {
            found.complete = false;
            break;
        }
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if writer.is_barred(&meta) {
                found.foreign += 1;
                found.first.get_or_insert_with(|| entry.path());
            }
            if meta.is_dir() && meta.dev() == device {
                folders.push(entry.path());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_another_owner_or_group_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/file"), "x").unwrap();
        let meta = std::fs::metadata(dir.path()).unwrap();
        let far = Instant::now() + Duration::from_secs(60);
        let writer = Writer { uid: meta.uid(), gid: meta.gid(), maps_everyone: false };
        let own = search(dir.path(), writer, far);
        assert_eq!((own.foreign, own.complete), (0, true));
        let other = search(dir.path(), Writer { gid: meta.gid() + 1, ..writer }, far);
        assert_eq!(other.foreign, 2);
        let late = search(dir.path(), writer, Instant::now() - PATIENCE);
        assert!(!late.complete);
        let check = judge(dir.path(), Writer { gid: meta.gid() + 1, ..writer });
        assert_eq!(check.status, Status::Warning);
        assert!(check.fix.unwrap().contains("chown -R"));
        let check = judge(dir.path(), Writer { uid: meta.uid() + 1, ..writer });
        assert_eq!((check.status, check.fix), (Status::Warning, None));
    }
}
