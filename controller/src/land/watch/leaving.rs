//! Noticing what the owner takes away: inotify on the folders of the real project, from outside.
//!
//! A running session may go on seeing a file that its owner has deleted, and save it anew. No back end notes what that took
//! the place of, and the clock alone would call it an addition. So every name that leaves a real folder while the session
//! runs is noted: nobody knows what the session saw there, and what it makes there later is the owner's to decide on.

use crate::land::captures::Watched;
use crate::land::kind::EntryType;
use crate::land::tree::{self, Time, Tree};
use landbox_shared::path::RelPath;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use std::collections::{HashMap, VecDeque};

/// Folders watched at most, those near the root first: whatever the size of the project, it costs no more than that.
const MOST: usize = 1024;
/// Names in one folder among which its folders are looked for.
const WIDE: usize = 4096;

/// The real folders that are watched, by the watch of the layer: so what is told comes in the order in which it happened.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    folders: HashMap<i32, Option<RelPath>>,
    left: Vec<RelPath>,
    come: Vec<RelPath>,
}

impl Leaving {
    /// Takes an event that may be about one of them.
    pub(super) fn hear(&mut self, event: &inotify::Event<'_>) {
        let events = event.events();
        if events.contains(ReadFlags::IGNORED) {
            self.folders.remove(&event.wd());
            return;
        }
        let (Some(folder), Some(name)) = (self.folders.get(&event.wd()), event.file_name()) else {
            return;
        };
        let Ok(path) = join(folder.as_ref(), name.to_bytes()) else { return };
        if events.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            self.left.push(path);
        } else if events.contains(ReadFlags::ISDIR) {
            self.come.push(path);
        }
    }

    /// The names that have left since. Folders that came are watched from here on.
    pub(super) fn take(
        &mut self,
        watches: Option<BorrowedFd<'_>>,
        real: &Tree,
        over: &dyn Fn() -> bool,
    ) -> Vec<RelPath> {
        for folder in std::mem::take(&mut self.come) {
            self.watch(watches, real, Some(folder), over);
        }
        std::mem::take(&mut self.left)
    }

    /// What is watched from now on, of a project whose folders were last changed by others when `changed` says: `epoch` is
    /// the time before the session's start.
    pub(super) fn watched(
        &self,
        real: &Tree,
        epoch: Option<Time>,
        changed: impl Fn(Option<&RelPath>, Time) -> Time,
    ) -> Watched {
        // First: what changes while they are looked at is told.
        let since = tree::now();
        let quiet = |folder: &&Option<RelPath>| {
            let at = || tree::meta_of(real.place(folder.as_ref())?).map(|meta| meta.ctime);
            epoch.is_some_and(|epoch| at().is_ok_and(|at| changed(folder.as_ref(), at) < epoch))
        };
        let folders = self.folders.values().filter(quiet).cloned().collect();
        Watched { since, folders, later: self.folders.len() < MOST }
    }

    /// Watches a folder and those below it, breadth first, as far as the bound goes.
    pub(super) fn watch(
        &mut self,
        watches: Option<BorrowedFd<'_>>,
        real: &Tree,
        folder: Option<RelPath>,
        over: &dyn Fn() -> bool,
    ) {
        let Some(watches) = watches else { return };
        let flags = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR;
        let mut todo = VecDeque::from([folder]);
        while let Some(folder) = todo.pop_front() {
            if self.folders.len() >= MOST || over() {
                return;
            }
            // One that can't be opened is gone again, or not for us to read.
            let Ok(dir) = real.dir(folder.as_ref()) else { continue };
            // By descriptor: a name could lead elsewhere by now.
            let at = format!("/proc/self/fd/{}", dir.as_raw_fd());
            let Ok(watch) = inotify::add_watch(watches, at, flags) else { return };
            self.folders.insert(watch, folder.clone());
            let Ok(names) = tree::names(&dir) else { continue };
            for name in names.into_iter().take(WIDE) {
                // Git's own files never land, and their folders are many.
                if name.eq_ignore_ascii_case(b".git") {
                    continue;
                }
                let is_folder = tree::meta_at(&dir, &name)
                    .is_ok_and(|meta| meta.is_some_and(|meta| meta.kind == EntryType::Dir));
                if is_folder && todo.len() < MOST {
                    todo.extend(join(folder.as_ref(), &name).ok().map(Some));
                }
            }
        }
    }
}

fn join(folder: Option<&RelPath>, name: &[u8]) -> Result<RelPath, landbox_shared::path::PathError> {
    match folder {
        None => RelPath::new(name),
        Some(folder) => folder.join(name),
    }
}

#[cfg(test)]
mod tests {
    use super::super::notice::Notices;
    use super::*;
    use std::fs;

    #[test]
    fn names_that_leave_are_told_and_those_that_come_or_are_replaced_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["d/e", "gone", ".git"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["f", "d/e/f", "d/moved", "d/saved", ".git/index"] {
            fs::write(at(file), "").unwrap();
        }
        let tree = Tree::open(dir.path()).unwrap();
        let empty = tempfile::tempdir().unwrap();
        let upper = Tree::open(empty.path()).unwrap();
        let (mut notices, mut leaving) = (Notices::new(), Leaving::default());
        leaving.watch(notices.fd(), &tree, None, &|| false);
        notices.all(&upper, &|| false);
        let mut names = || {
            assert!(notices.take(&upper, &mut leaving, &|| false).is_empty());
            let all = leaving.take(notices.fd(), &tree, &|| false);
            let mut names: Vec<String> = all.iter().map(ToString::to_string).collect();
            names.sort();
            names
        };
        assert_eq!(names(), [""; 0]);
        fs::remove_file(at("f")).unwrap();
        fs::remove_file(at("d/e/f")).unwrap();
        fs::rename(at("d/moved"), at("d/e/moved")).unwrap();
        fs::remove_dir(at("gone")).unwrap();
        fs::remove_file(at(".git/index")).unwrap();
        fs::write(at("new"), "").unwrap();
        fs::rename(at("new"), at("d/saved")).unwrap();
        fs::create_dir(at("later")).unwrap();
        assert_eq!(names(), ["d/e/f", "d/moved", "f", "gone", "new"]);
        fs::write(at("later/f"), "").unwrap();
        fs::remove_file(at("later/f")).unwrap();
        assert_eq!(names(), ["later/f"]);
    }
}
