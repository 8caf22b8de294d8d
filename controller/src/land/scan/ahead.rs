//! Reading the files of a large layer beside its scan: from the other end, until the two meet. The scan judges; it finds
//! here what it would have read itself.

use super::seen::Seen;
use crate::land::base::Stamp;
use crate::land::content;
use crate::land::kind::EntryType;
use crate::land::tree::{self, Meta, Tree};
use crate::overlay::marks;
use landbox_shared::path::RelPath;
use landbox_shared::policy::Backend;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};

/// Files that a scan reads alone: below that a thread costs more than it brings.
pub(super) const FEW: usize = 64;
/// Files in a row that the scan has read already, which tell that the two have met.
const MET: usize = 64;
/// Bytes of the thread's stack.
const STACK: usize = 1 << 20;

/// What both of them have read.
pub(super) struct Ahead<'a> {
    upper: &'a Tree,
    backend: Backend,
    seen: Mutex<Seen>,
    over: AtomicBool,
}

impl<'a> Ahead<'a> {
    pub(super) fn new(upper: &'a Tree, backend: Backend, seen: Seen) -> Self {
        Self { upper, backend, seen: Mutex::new(seen), over: AtomicBool::new(false) }
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins, where there is a processor for it.
    pub(super) fn begin<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        if thread::available_parallelism().is_ok_and(|count| count.get() > 1) {
            // What can't be read, or if there is no thread, is left to the scan.
            let run = || drop(self.run());
            let _ = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run);
        }
    }

    /// Ends it, and what it is reading.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(super) fn into_seen(self) -> Seen {
        self.seen.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn run(&self) -> io::Result<()> {
        let (mut todo, mut met) = (vec![None], 0);
        while let Some(path) = todo.pop() {
            let Ok(dir) = self.upper.dir(path.as_ref()) else { continue };
            let mut names = tree::list(&dir)?;
            names.sort_unstable();
            let mut folders = Vec::new();
            for name in names {
                if self.is_over() || met > MET {
                    return Ok(());
                }
                let Some(meta) = tree::meta_at(&dir, &name)? else { continue };
                match meta.kind {
                    EntryType::Dir => {
                        let child = match &path {
                            None => RelPath::new(name),
                            Some(parent) => RelPath::join(parent, &name),
                        };
                        folders.extend(child.ok().map(Some));
                    }
                    EntryType::File if self.seen().get(&meta).is_some() => met += 1,
                    EntryType::File => {
                        met = 0;
                        // The scan comes to the same, and says so.
                        let _ = self.read(&dir, &name, &meta);
                    }
                    EntryType::Symlink
                    | EntryType::Fifo
                    | EntryType::Socket
                    | EntryType::CharDevice
                    | EntryType::BlockDevice => {}
                }
            }
            // The scan begins with the last.
            todo.extend(folders.into_iter().rev());
        }
        Ok(())
    }

    fn read(&self, dir: &OwnedFd, name: &[u8], meta: &Meta) -> io::Result<()> {
        if !self.seen().is_settled(meta) {
            return Ok(());
        }
        if self.seen().is_full() {
            self.end();
            return Ok(());
        }
        let file = tree::file_at(dir, name)?;
        if marks::is_without_content(self.backend, &file)? {
            return Ok(());
        }
        let (size, digest) = content::digest_while(&file, |read| {
            let goes_on = !self.is_over() && read <= meta.size;
            if goes_on { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
        })?;
        // Unchanged while it was read?
        if size == meta.size && Stamp::of(&tree::meta_of(&file)?) == Stamp::of(meta) {
            self.seen().put(meta, digest);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_read_beside_a_scan_is_what_it_would_read_and_only_what_rests() {
        let dir = tempfile::tempdir().unwrap();
        for at in 0..2 * MET {
            let folder = dir.path().join(format!("d{}", at % 5));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(at.to_string()), at.to_string()).unwrap();
        }
        std::thread::sleep(Duration::from_millis(150));
        let seen = Seen::default();
        std::fs::write(dir.path().join("d0/late"), "").unwrap();
        let upper = Tree::open(dir.path()).unwrap();
        let ahead = Ahead::new(&upper, Backend::Kernel, seen);
        ahead.run().unwrap();
        let meta = |path: &str| upper.meta(&RelPath::new(path).unwrap()).unwrap().unwrap();
        for at in 0..2 * MET {
            let found = ahead.seen().get(&meta(&format!("d{}/{at}", at % 5)));
            assert_eq!(found, Some(content::digest_of(at.to_string().as_bytes())), "{at}");
        }
        assert_eq!(ahead.seen().get(&meta("d0/late")), None);
        let over = Ahead::new(&upper, Backend::Kernel, Seen::default());
        over.end();
        over.run().unwrap();
        assert_eq!(over.seen().get(&meta("d0/0")), None);
    }
}
