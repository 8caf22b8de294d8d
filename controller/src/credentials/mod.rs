//! Keeping credential files in step: a token refreshed inside reaches the real disk, one refreshed on the host is seen
//! inside, and everything else in the same folders stays isolated.

mod courier;
mod file;
mod pair;
mod within;
mod writers;

pub use within::hand_in;

use crate::error::{Context, Result};
use crate::session::store::{Session, write_json};
use landbox_shared::digest::Digest;
use landbox_shared::id::LayerId;
use landbox_shared::path::AbsPath;
use pair::{Maker, Pair};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::pipe::PipeFlags;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a change may go unnoticed where no watch sees it. (The kernel's overlay opens its own files unwatched, and a
/// folder may appear after the start.)
const SWEEP: Duration = Duration::from_millis(400);
/// How long a file must stay as it is before it counts as complete, where nobody is seen to be writing it.
const SETTLE: Duration = Duration::from_millis(50);
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
        work.discover();
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
    maker: Maker,
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
        let maker = Maker::new(session, &merged);
        let pairs = maker.declared(&recorded);
        Self { maker, pairs, record, recorded }
    }

    fn run(mut self, stopped: &OwnedFd) -> Option<OwnedFd> {
        let watches = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        self.watch(watches.as_ref());
        let mut unsettled = false;
        let mut sweep = Instant::now() + SWEEP;
        loop {
            let mut fds = vec![PollFd::new(stopped, PollFlags::IN)];
            // While something settles, more events change nothing: the clock decides.
            if let Some(watches) = watches.as_ref().filter(|_| !unsettled) {
                fds.push(PollFd::from_borrowed_fd(watches.as_fd(), PollFlags::IN));
            }
            let left = sweep.saturating_duration_since(Instant::now());
            let limit = if unsettled { SETTLE } else { left };
            match rustix::event::poll(&mut fds, Timespec::try_from(limit).ok().as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
            if fds.first().is_some_and(|fd| !fd.revents().is_empty()) {
                break;
            }
            let concerned = watches.as_ref().is_some_and(|watches| self.listen(watches));
            if concerned || unsettled || Instant::now() >= sweep {
                // A folder that was not there at the start may be now.
                if self.discover() || self.pairs.iter().any(Pair::is_unwatched) {
                    self.watch(watches.as_ref());
                }
                unsettled = self.check(false);
                sweep = Instant::now() + SWEEP;
            }
        }
        self.discover();
        self.check(true);
        watches
    }

    /// Takes up what has appeared in folders of login files; true where there is something.
    fn discover(&mut self) -> bool {
        let found = self.maker.found(&self.pairs, &self.recorded);
        let any = !found.is_empty();
        self.pairs.extend(found);
        any
    }

    fn watch(&mut self, watches: Option<&OwnedFd>) {
        let flags = WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::CREATE
            | WatchFlags::DELETE_SELF
            | WatchFlags::ONLYDIR;
        for pair in &mut self.pairs {
            // A watch that can't be had (none left, no such folder) costs promptness, and that who still writes is seen.
            pair.watch(|folder| inotify::add_watch(watches?, folder, flags).ok());
        }
    }

    /// Takes what the watches have noticed; whether it concerns a pair. A CLI writes its history, too, in these folders.
    fn listen(&mut self, watches: &OwnedFd) -> bool {
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(watches, &mut space);
        let mut concerned = false;
        while let Ok(event) = reader.next() {
            let name = event.file_name().map(CStr::to_bytes).unwrap_or_default();
            let lost = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            for pair in &mut self.pairs {
                if lost {
                    pair.forget_writers();
                } else {
                    pair.notice(event.wd(), name, event.events());
                }
            }
            concerned |= event.events() != ReadFlags::MODIFY
                || self.pairs.iter().any(|pair| pair.is_watched_as(event.wd(), name));
        }
        concerned
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
