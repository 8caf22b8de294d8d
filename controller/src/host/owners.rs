//! Whether the owner of a session can write in the project at all. No unprivileged overlay can copy up a file whose owner
//! or group the session does not map, and root's session has no capability to write what is another's.

use crate::error::{Failure, Kind, Result};
use crate::ui::text::counted;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// How many entries of the project's top are looked at: the rest is for `landbox doctor`.
const ENTRIES: usize = 256;

/// Who writes in a session.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Whether the session maps every id: root's does.
    pub maps_everyone: bool,
}

impl Writer {
    /// Whether a session can't change what has these owners and modes. Root's knows every owner, but has no capability to
    /// write what is another's.
    pub fn is_barred(self, meta: &std::fs::Metadata) -> bool {
        if self.maps_everyone {
            meta.uid() != self.uid && meta.mode() & 0o002 == 0 && !meta.is_symlink()
        } else {
            meta.uid() != self.uid || meta.gid() != self.gid
        }
    }

    /// A sentence for the start of a run, where the project's top already shows that parts of it can't be written.
    pub fn warning(self, project: &Path) -> Option<String> {
        let shown = crate::session::store::show(project);
        let meta = std::fs::metadata(project).ok()?;
        if accessat(CWD, project, Access::WRITE_OK, AtFlags::EACCESS).is_err() {
            return Some(format!(
                "you can't write in {shown}: changes to it can't be landed by you"
            ));
        }
        let top = std::fs::read_dir(project).ok()?.flatten().take(ENTRIES);
        let barred = |meta: &std::fs::Metadata| self.is_barred(meta);
        let count = usize::from(barred(&meta))
            + top.filter_map(|entry| entry.metadata().ok()).filter(barred).count();
        let why = if self.maps_everyone { "user" } else { "user or group" };
        (count > 0).then(|| {
            format!(
                "in {shown}, {} to another {why} and can't be changed inside; landbox doctor tells more",
                counted(count as u64, "top entry belongs", "top entries belong")
            )
        })
    }
}

/// Refuses a project that can't be listed and entered: nobody could review what a session did to it.
pub fn require_open(project: &Path) -> Result<()> {
    match accessat(CWD, project, Access::READ_OK | Access::EXEC_OK, AtFlags::EACCESS) {
        Ok(()) => Ok(()),
        Err(e) => {
            let shown = crate::session::store::show(project);
            Err(Failure::new(Kind::Usage, format!("you can't look into {shown}: {e}"))
                .hint("chmod u+rx opens a folder of your own; or work in another: --workdir DIR"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_of_ones_own_is_no_matter_and_a_shared_one_is_said() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "x").unwrap();
        let meta = std::fs::metadata(dir.path()).unwrap();
        let writer = Writer { uid: meta.uid(), gid: meta.gid(), maps_everyone: false };
        assert_eq!(writer.warning(dir.path()), None);
        let shared = Writer { gid: meta.gid() + 1, ..writer }.warning(dir.path()).unwrap();
        assert!(shared.contains(", 2 top entries belong to"), "{shared}");
        // Root knows every group, but another user's files stay another's.
        let root = Writer { gid: meta.gid() + 1, maps_everyone: true, ..writer };
        assert_eq!(root.warning(dir.path()), None);
        assert!(Writer { uid: meta.uid() + 1, ..root }.warning(dir.path()).is_some());
        assert!(require_open(dir.path()).is_ok());
        assert!(require_open(&dir.path().join("gone")).is_err());
    }
}
