//! Keeping credential files in step: a token refreshed inside reaches the real disk, one refreshed on the host is seen
//! inside, and everything else in the same folders stays isolated.

mod courier;
mod file;
mod pair;
mod within;

pub use within::hand_in;

use crate::error::{Context, Result};
use crate::session::store::{Session, write_json};
use landbox_shared::digest::Digest;
use landbox_shared::id::LayerId;
use landbox_shared::path::AbsPath;
use pair::Pair;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::pipe::PipeFlags;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::thread::JoinHandle;

/// How long a change may go unnoticed where no watch sees it. (The kernel's overlay opens its own files unwatched, and a
/// folder may appear after the start.)
const SWEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 400_000_000 };
/// How long a file must stay as it is before it counts as complete.
const SETTLE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
const STACK: usize = 128 << 10;

/// Keeps the credential files of a running session in step.
#[derive(Debug)]
pub struct Keeper {
    thread: JoinHandle<Option<OwnedFd>>,
    stop: OwnedFd,
}

/// Contents that both sides agreed on, by declared path: kept over launches, so that a resumed session knows who moved.
type Agreed = BTreeMap<AbsPath, Option<Digest>>;

impl Keeper {
    /// Brings both sides together once, before the task starts, and goes on in a thread. `None` where the policy names no
    /// credential file.
    pub fn start(session: &Session, merged: Vec<(LayerId, OwnedFd)>) -> Result<Option<Self>> {
        if session.snapshot.policy.credentials.is_empty() {
            return Ok(None);
        }
        let mut work = Work::new(session, merged);
        if work.pairs.is_empty() {
            return Ok(None);
        }
        work.check(false);
        work.check(false);
        let what = || "can't watch the credential files".to_string();
        let (stopped, stop) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).context(what)?;
        let thread = std::thread::Builder::new()
            .name("credentials".into())
            .stack_size(STACK)
            .spawn(move || work.run(&stopped))
            .context(what)?;
        Ok(Some(Self { thread, stop }))
    }

    /// After the task's end: what was changed inside last reaches the real disk, then the thread ends. Gives the watch, which
    /// takes the kernel a while to close.
    pub fn finish(self) -> Option<OwnedFd> {
        drop(self.stop);
        // A panic in there has been reported by then; the session's end must not depend on it.
        self.thread.join().ok().flatten()
    }
}

#[derive(Debug)]
struct Work {
    pairs: Vec<Pair>,
    record: PathBuf,
    recorded: Agreed,
}

impl Work {
    fn new(session: &Session, merged: Vec<(LayerId, OwnedFd)>) -> Self {
        let record = session.dir.join("credentials.json");
        let recorded: Agreed = std::fs::read(&record)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let merged = merged.into_iter().collect();
        let pairs = pair::pairs(session, &merged, &recorded);
        Self { pairs, record, recorded }
    }

    fn run(mut self, stopped: &OwnedFd) -> Option<OwnedFd> {
        let watches = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        if let Some(watches) = &watches {
            let flags = WatchFlags::CLOSE_WRITE
                | WatchFlags::MOVED_TO
                | WatchFlags::CREATE
                | WatchFlags::DELETE_SELF
                | WatchFlags::ONLYDIR;
            for folder in self.pairs.iter().flat_map(Pair::folders) {
                // A watch that can't be had (none left, no such folder) costs promptness, nothing else.
                let _ = inotify::add_watch(watches, &folder, flags);
            }
        }
        let mut unsettled = false;
        loop {
            let mut fds = vec![PollFd::new(stopped, PollFlags::IN)];
            // While something settles, more events change nothing: the clock decides.
            if let Some(watches) = watches.as_ref().filter(|_| !unsettled) {
                fds.push(PollFd::from_borrowed_fd(watches.as_fd(), PollFlags::IN));
            }
            let limit = if unsettled { SETTLE } else { SWEEP };
            match rustix::event::poll(&mut fds, Some(&limit)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
            if fds.first().is_some_and(|fd| !fd.revents().is_empty()) {
                break;
            }
            if let Some(watches) = &watches {
                forget_events(watches);
            }
            unsettled = self.check(false);
        }
        self.check(true);
        watches
    }

    /// Looks at every pair once; true where one has changed but not settled. At the end nothing can change any more, and
    /// only the inside counts.
    fn check(&mut self, last: bool) -> bool {
        let mut unsettled = false;
        for pair in &mut self.pairs {
            unsettled |= pair.check(last);
        }
        let agreed: Agreed = self.pairs.iter().map(|p| (p.declared.clone(), p.agreed)).collect();
        if agreed != self.recorded && write_json(&self.record, &agreed, 0o600).is_ok() {
            self.recorded = agreed;
        }
        unsettled
    }
}

fn forget_events(watches: &OwnedFd) {
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(watches, &mut space);
    while reader.next().is_ok_and(|event| event.events() != ReadFlags::empty()) {}
}
