//! Where, on a project's own file system, landings prepare what comes and keep what went: only there a rename reaches.
//!
//! The first that serves: the state folder; the repository's `.git`, where git looks at nothing it does not know; a
//! folder of ours beside the project; and, where its owner may write nowhere else, a folder in the project that tells
//! git to ignore it. All are the owner's alone, and masked in sessions.

use crate::error::{Context, Failure, Kind, Result};
use crate::host::places;
use crate::land::tree::Tree;
use crate::session::store::{StateDir, show};
use landbox_shared::digest::Digest;
use landbox_shared::path::AbsPath;
use rustix::fs::{self, AtFlags};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What the folder is called in the state, and what lies in it: one folder a project.
pub(in crate::land) const UNDO: &str = "undo";

/// The name by which a project goes in the state.
pub(in crate::land) fn key(project: &AbsPath) -> String {
    Digest::of("project", &[project.as_bytes()]).to_string().replace("sha256:", "")
}

/// The places outside the state, in the order in which they are tried.
pub(super) fn outside(project: &AbsPath) -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    places::outside(project, uid).iter().map(AbsPath::to_path_buf).collect()
}

/// Device and mount: what a rename must not cross.
pub(super) fn mount_of(fd: impl AsFd) -> io::Result<((u32, u32), u64)> {
    let mask = fs::StatxFlags::BASIC_STATS | fs::StatxFlags::MNT_ID;
    let stat = fs::statx(fd.as_fd(), c"", AtFlags::EMPTY_PATH, mask)?;
    Ok(((stat.stx_dev_major, stat.stx_dev_minor), stat.stx_mnt_id))
}

/// The folder of a project's landings on the project's own mount, made if it is missing.
pub(super) fn make(state: &StateDir, project: &AbsPath, tree: &Tree) -> Result<PathBuf> {
    let what = || "can't make the folder in which the landing is prepared".to_owned();
    let mount = mount_of(tree.root()).context(what)?;
    let root = project.to_path_buf();
    let mut last = None;
    let places = std::iter::once(state.root().join(UNDO)).chain(outside(project));
    for place in places {
        let Some(Ok(parent)) = place.parent().map(Tree::open) else { continue };
        if mount_of(parent.root()).context(what)? != mount {
            continue;
        }
        match folder(&place).and_then(|()| {
            if place.starts_with(&root) && !place.starts_with(root.join(".git")) {
                ignore_self(&place)?;
            }
            let own = place.join(key(project));
            folder(&own)?;
            Ok(own)
        }) {
            Ok(own) => return Ok(own),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                ) =>
            {
                return Err(e).context(what);
            }
            // Not the owner's to write in, read-only, or somebody else's: the next one may do.
            Err(e) => last = Some(e),
        }
    }
    let why = last.map(|e| format!(": {e}")).unwrap_or_default();
    Err(Failure::new(
        Kind::Failed,
        format!("there is no place on the project's file system to prepare the landing in{why}"),
    )
    .hint(format!("make {} writable for yourself", show(&root))))
}

/// Makes a folder of the caller's alone, or finds it to be one.
fn folder(path: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        Ok(()) | Err(_) => {}
    }
    let meta = std::fs::symlink_metadata(path)?;
    let own = meta.is_dir()
        && meta.uid() == rustix::process::geteuid().as_raw()
        && meta.mode() & 0o077 == 0;
    if own { Ok(()) } else { Err(io::Error::other(format!("{} is not yours alone", show(path)))) }
}

/// Tells git to look at nothing in a folder.
fn ignore_self(place: &Path) -> io::Result<()> {
    let path = place.join(".gitignore");
    if path.exists() { Ok(()) } else { std::fs::write(path, "*\n") }
}

/// Removes the folders around a store that is gone, as far as they hold nothing.
pub(super) fn tidy(store: &Path, state: &StateDir) {
    let Some(own) = store.parent() else { return };
    // Each of these is refused for a folder that still holds something.
    let _ = std::fs::remove_dir(own);
    if let Some(place) = own.parent()
        && !place.starts_with(state.root())
    {
        let only_ours = std::fs::read_dir(place)
            .is_ok_and(|mut names| names.all(|n| n.is_ok_and(|n| n.file_name() == ".gitignore")));
        if only_ours {
            let _ = std::fs::remove_file(place.join(".gitignore"));
            let _ = std::fs::remove_dir(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_can_write_is_no_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        folder(&path).unwrap();
        folder(&path).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o770))
            .unwrap();
        assert!(folder(&path).is_err());
        std::os::unix::fs::symlink(dir.path(), dir.path().join("l")).unwrap();
        assert!(folder(&dir.path().join("l")).is_err());
    }

    #[test]
    fn a_folder_in_the_project_hides_itself_from_git_and_goes_when_it_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(&dir.path().join("state")).unwrap();
        let place = dir.path().join("place");
        let store = place.join("key/store");
        std::fs::create_dir_all(store.parent().unwrap()).unwrap();
        ignore_self(&place).unwrap();
        tidy(&store, &state);
        assert!(!place.exists());
    }
}
