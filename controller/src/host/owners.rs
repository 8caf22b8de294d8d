//! Whether the owner of a session can write in the project at all. No unprivileged overlay can copy up a file whose owner
//! or group the session does not map.

use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// How many entries of the project's top are looked at: the rest is for `landbox doctor`.
const ENTRIES: usize = 256;

/// A sentence for the start of a run, where the project's top already shows that parts of it can't be written.
pub fn warning(project: &Path, uid: u32, gid: u32) -> Option<String> {
    let shown = crate::session::store::show(project);
    let foreign = |meta: &std::fs::Metadata| meta.uid() != uid || meta.gid() != gid;
    let meta = std::fs::metadata(project).ok()?;
    if accessat(CWD, project, Access::WRITE_OK, AtFlags::EACCESS).is_err() {
        return Some(format!("you can't write in {shown}: changes to it can't be landed by you"));
    }
    let top = std::fs::read_dir(project).ok()?.flatten().take(ENTRIES);
    let count = usize::from(foreign(&meta))
        + top.filter_map(|entry| entry.metadata().ok()).filter(foreign).count();
    (count > 0).then(|| {
        format!(
            "{count} of the top entries of {shown} belong to another user or group and can't be changed inside; \
             landbox doctor tells more"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_of_ones_own_is_no_matter_and_a_shared_one_is_said() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "x").unwrap();
        let meta = std::fs::metadata(dir.path()).unwrap();
        assert_eq!(warning(dir.path(), meta.uid(), meta.gid()), None);
        let shared = warning(dir.path(), meta.uid(), meta.gid() + 1).unwrap();
        assert!(shared.starts_with("2 of the top entries"), "{shared}");
    }
}
