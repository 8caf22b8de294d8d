//! Noticing names: inotify on every folder of the layer, from outside. A folder that appears is watched first and listed
//! then, so that nothing falls between; where events were lost or no watches are left, all of it is listed anew.

use super::leaving::Leaving;
use crate::land::scan::Glimpsed;
use crate::land::tree::{self, Tree};
use landbox_shared::path::RelPath;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Dir, FileType};
use rustix::io::Errno;
use std::collections::HashMap;
use std::mem::MaybeUninit;

/// Folders watched at most: the owner's editor needs watches, too.
const MOST: usize = 8192;
/// Names that are taken up at once at most; the rest waits its turn in the kernel's queue.
const BATCH: usize = 4096;

/// What has appeared in the layer, or left it.
#[derive(Debug)]
pub(super) struct Notices {
    watches: Option<OwnedFd>,
    folders: HashMap<i32, Option<RelPath>>,
    blind: bool,
    most: usize,
}

impl Notices {
    pub(super) fn new() -> Self {
        Self::of(MOST)
    }

    /// With at most that many folders watched.
    fn of(most: usize) -> Self {
        let watches = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        Self { blind: watches.is_none(), watches, folders: HashMap::new(), most }
    }

    /// Whether there may be changes of which nothing is heard.
    pub(super) fn is_blind(&self) -> bool {
        self.blind
    }

    /// Ends it; gives what is left to close.
    pub(super) fn end(self) -> Option<OwnedFd> {
        self.watches
    }

    /// Where to wait for more.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.watches.as_ref().map(AsFd::as_fd)
    }

    /// Every name there is. Folders are watched from here on.
    pub(super) fn all(&mut self, upper: &Tree, over: &dyn Fn() -> bool) -> Glimpsed {
        let mut found = Glimpsed::new();
        self.list(upper, None, &mut found, over);
        found
    }

    /// The names of which something was heard. What was heard of the real project goes to `leaving`.
    pub(super) fn take(
        &mut self,
        upper: &Tree,
        leaving: &mut Leaving,
        over: &dyn Fn() -> bool,
    ) -> Glimpsed {
        let mut found = Glimpsed::new();
        let (mut appeared, mut lost, mut count) = (Vec::new(), false, 0);
        let Some(watches) = &self.watches else { return found };
        let mut space = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(watches, &mut space);
        // What has been read must be used.
        while (count < BATCH || !reader.is_buffer_empty())
            && let Ok(event) = reader.next()
        {
            count += 1;
            let events = event.events();
            if events.contains(ReadFlags::QUEUE_OVERFLOW) {
                lost = true;
                continue;
            }
            if !self.folders.contains_key(&event.wd()) {
                leaving.hear(&event);
                continue;
            }
            if events.contains(ReadFlags::IGNORED) {
                self.folders.remove(&event.wd());
                continue;
            }
            let (Some(folder), Some(name)) = (self.folders.get(&event.wd()), event.file_name())
            else {
                continue;
            };
            let name = name.to_bytes().to_vec();
            if events.contains(ReadFlags::ISDIR)
                && events.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO)
            {
                let child = match folder {
                    None => RelPath::new(name.as_slice()),
                    Some(folder) => folder.join(&name),
                };
                appeared.extend(child.ok());
            }
            found.entry(folder.clone()).or_default().insert(name);
        }
        if lost {
            return self.all(upper, over);
        }
        for folder in appeared {
            self.list(upper, Some(folder), &mut found, over);
        }
        found
    }

    /// Watches a folder and all below it, and lists their names.
    fn list(
        &mut self,
        upper: &Tree,
        folder: Option<RelPath>,
        found: &mut Glimpsed,
        over: &dyn Fn() -> bool,
    ) {
        let mut todo = vec![folder];
        while let Some(folder) = todo.pop() {
            // One that can't be opened is gone again, or not for us to read.
            let Ok(dir) = upper.dir(folder.as_ref()) else { continue };
            if over() {
                return;
            }
            self.watch(&dir, folder.as_ref());
            let Ok(entries) = Dir::read_from(&dir) else { continue };
            for entry in entries.map_while(Result::ok) {
                let name = entry.file_name().to_bytes();
                if name == b"." || name == b".." {
                    continue;
                }
                if is_folder(&dir, name, entry.file_type()) {
                    let child = match &folder {
                        None => RelPath::new(name),
                        Some(folder) => folder.join(name),
                    };
                    todo.extend(child.ok().map(Some));
                }
                found.entry(folder.clone()).or_default().insert(name.to_vec());
            }
        }
    }

    fn watch(&mut self, dir: &OwnedFd, folder: Option<&RelPath>) {
        let Some(watches) = &self.watches else { return };
        if self.folders.len() >= self.most {
            self.blind = true;
            return;
        }
        let flags = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR;
        // By descriptor: a name could lead elsewhere by now.
        match inotify::add_watch(watches, format!("/proc/self/fd/{}", dir.as_raw_fd()), flags) {
            Ok(watch) => drop(self.folders.insert(watch, folder.cloned())),
            Err(Errno::NOENT) => {}
            Err(_) => self.blind = true,
        }
    }
}

fn is_folder(dir: &OwnedFd, name: &[u8], kind: FileType) -> bool {
    match kind {
        FileType::Directory => true,
        FileType::Unknown => tree::meta_at(dir, name)
            .ok()
            .flatten()
            .is_some_and(|m| m.kind == crate::land::kind::EntryType::Dir),
        FileType::RegularFile
        | FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(found: &Glimpsed) -> Vec<String> {
        let line = |(folder, name): (&Option<RelPath>, &Vec<u8>)| {
            let folder = folder.as_ref().map(|f| format!("{f}/")).unwrap_or_default();
            format!("{folder}{}", String::from_utf8_lossy(name))
        };
        let all = found.iter().flat_map(|(f, names)| names.iter().map(move |name| (f, name)));
        all.map(line).collect()
    }

    #[test]
    fn what_can_not_be_watched_any_more_is_listed_and_said_to_be_unheard_of() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["a", "b", "c/d"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        let tree = Tree::open(dir.path()).unwrap();
        let mut notices = Notices::of(2);
        assert!(!notices.is_blind());
        assert_eq!(names(&notices.all(&tree, &|| false)), ["a", "b", "c", "c/d"]);
        assert!(notices.is_blind());
        // The root is watched, and the next look finds the rest.
        std::fs::write(dir.path().join("new"), "").unwrap();
        std::fs::write(dir.path().join("c/d/deep"), "").unwrap();
        assert!(
            names(&notices.take(&tree, &mut Leaving::default(), &|| false))
                .contains(&"new".to_owned())
        );
        assert!(names(&notices.all(&tree, &|| false)).contains(&"c/d/deep".to_owned()));
        let mut all = Notices::new();
        all.all(&tree, &|| false);
        assert!(!all.is_blind());
    }

    #[test]
    fn nothing_is_missed_where_more_happens_than_is_taken_up_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::open(dir.path()).unwrap();
        let mut notices = Notices::new();
        notices.all(&tree, &|| false);
        let count = 2 * BATCH + 100;
        for at in 0..count {
            std::fs::write(dir.path().join(format!("f{at}")), "").unwrap();
        }
        let mut found = std::collections::BTreeSet::new();
        loop {
            let more = names(&notices.take(&tree, &mut Leaving::default(), &|| false));
            if more.is_empty() {
                break;
            }
            found.extend(more);
        }
        assert_eq!(found.len(), count);
    }
}
