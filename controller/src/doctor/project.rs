//! Files of other owners in the project: no unprivileged overlay can copy them up.

use super::{Check, Status, quote, sudo};
use crate::host::Facts;
use crate::session::store::show;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the search may take; what it found by then is said.
const PATIENCE: Duration = Duration::from_secs(2);

const ID: &str = "owners";

/// Looks for files in the current folder whose owner or group a session does not map.
pub(super) fn foreign_owners(facts: &Facts) -> Check {
    if facts.maps_everyone {
        return Check::ok(ID, "as root, every owner is known");
    }
    judge(facts.cwd.as_path(), facts.uid, facts.gid)
}

fn judge(project: &Path, uid: u32, gid: u32) -> Check {
    let Search { foreign, first, complete } = search(project, uid, gid, Instant::now() + PATIENCE);
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
        "they can be read but not changed inside (\"Value too large for defined data type\")",
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

fn search(project: &Path, uid: u32, gid: u32, until: Instant) -> Search {
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
            if meta.uid() != uid || meta.gid() != gid {
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
        let own = search(dir.path(), meta.uid(), meta.gid(), far);
        assert_eq!((own.foreign, own.complete), (0, true));
        let other = search(dir.path(), meta.uid(), meta.gid() + 1, far);
        assert_eq!(other.foreign, 2);
        let late = search(dir.path(), meta.uid(), meta.gid(), Instant::now() - PATIENCE);
        assert!(!late.complete);
        let check = judge(dir.path(), meta.uid(), meta.gid() + 1);
        assert_eq!(check.status, Status::Warning);
        assert!(check.fix.unwrap().contains("chown -R"));
        let check = judge(dir.path(), meta.uid() + 1, meta.gid());
        assert_eq!((check.status, check.fix), (Status::Warning, None));
    }
}
