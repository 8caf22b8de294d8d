//! Watching a running session write: the base of each path is taken as soon as the layer holds something there, so that
//! the owner's later edits of it can be told from what the session saw.
//!
//! Nobody waits for it. It starts beside the task, costs what the layer holds and not what the project holds, and where
//! it can't watch it looks from time to time. What it misses is judged by the scan at the end, more strictly.

mod notice;

use super::base::Store;
use super::captures::Captures;
use super::layer::{facts_of, project_of};
use super::scan::{Glimpsed, Inside, glance};
use super::tree::{self, Tree};
use crate::session::store::Session;
use landbox_shared::id::LayerId;
use landbox_shared::policy::{Backend, LayerPolicy};
use notice::Notices;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::pipe::PipeFlags;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const STACK: usize = 1 << 20;
/// Pause between looks where not everything can be watched; and how many times as long as a look it is at least.
const SWEEP: Duration = Duration::from_millis(500);
const SHARE: u32 = 20;

/// How long a session must last to be watched. Closing a watch takes the kernel some 16 ms, three times as long as a whole
/// short session, and the scan at its end comes soon enough to take the bases itself.
const SHORT: Duration = Duration::from_millis(200);

/// The watch of one launch.
#[derive(Debug)]
pub struct Watcher {
    thread: JoinHandle<()>,
    stop: OwnedFd,
}

impl Watcher {
    /// Begins to watch the project's layer; `merged` are the merged roots of the layers. `None` where there is none, or
    /// the machine has no room for a watch: a session starts in any case.
    pub fn start(session: &Session, merged: &[(LayerId, OwnedFd)]) -> Option<Self> {
        let layer = project_of(session).cloned()?;
        let inside = match layer.backend {
            Backend::Kernel => merged.iter().find(|(id, _)| *id == layer.id),
            // What it shows as inode numbers is its own affair.
            Backend::Fuse => None,
        };
        let inside = inside.and_then(|(_, fd)| fd.try_clone().ok()).map(Inside);
        let (stopped, stop) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).ok()?;
        let session = session.clone();
        let work = move || {
            if ends_within(&stopped, SHORT) {
                return;
            }
            // A session runs as well without; its end looks at everything in any case.
            let _ = Work::begin(&session, &layer, inside).and_then(|mut work| work.run(&stopped));
        };
        let thread = std::thread::Builder::new().name("base".into()).stack_size(STACK).spawn(work);
        Some(Self { thread: thread.ok()?, stop })
    }

    /// Ends the watch, once what it has taken is written.
    pub fn finish(self) {
        drop(self.stop);
        // A panic in there has been reported by then; the session's end must not depend on it.
        let _ = self.thread.join();
    }
}

struct Work<'a> {
    session: &'a Session,
    layer: &'a LayerPolicy,
    upper: Tree,
    real: Tree,
    inside: Option<Inside>,
    store: Store,
    captures: Captures,
}

impl<'a> Work<'a> {
    fn begin(
        session: &'a Session,
        layer: &'a LayerPolicy,
        inside: Option<Inside>,
    ) -> io::Result<Self> {
        let upper = Tree::open(&session.upper(&layer.id))?;
        let real = Tree::open(layer.target.as_path())?;
        let dir = session.dir.join("base");
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let launch = session.state.launches.last().map_or(0, |launch| launch.number);
        let root = tree::meta_of(real.root())?;
        let (captures, bytes) = Captures::begin(&dir, &layer.id, launch, &root)?;
        let store = Store::collecting(&session.dir, &layer.id, bytes);
        Ok(Self { session, layer, upper, real, inside, store, captures })
    }

    fn run(&mut self, stopped: &OwnedFd) -> io::Result<()> {
        let over = || is_over(stopped);
        let mut notices = Notices::new();
        let mut found = notices.all(&self.upper, &over);
        let mut looked = Instant::now();
        loop {
            let began = Instant::now();
            self.take(&found, &over)?;
            let took = began.elapsed();
            if over() {
                return Ok(());
            }
            let pause = (took * SHARE).max(SWEEP).saturating_sub(looked.elapsed());
            let limit = notices.is_blind().then(|| rustix::event::Timespec::try_from(pause).ok());
            let mut fds = vec![PollFd::new(stopped, PollFlags::IN)];
            fds.extend(notices.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            match rustix::event::poll(&mut fds, limit.flatten().as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            drop(fds);
            found = notices.take(&self.upper, &over);
            if notices.is_blind() && looked.elapsed() >= pause {
                found = notices.all(&self.upper, &over);
                looked = Instant::now();
            }
        }
    }

    /// Takes the bases of what was noticed.
    fn take(&mut self, found: &Glimpsed, over: &dyn Fn() -> bool) -> io::Result<()> {
        if found.is_empty() {
            return Ok(());
        }
        let facts = facts_of(self.session, self.layer, &self.store);
        let (upper, real, inside) = (&self.upper, Some(&self.real), self.inside.as_ref());
        let taken = glance(&facts, upper, real, &mut self.store, inside, found, over);
        // Whatever went wrong with one of them: what was taken counts.
        self.store.hand_on(&mut self.captures)?;
        taken
    }
}

fn is_over(stopped: &OwnedFd) -> bool {
    ends_within(stopped, Duration::ZERO)
}

fn ends_within(stopped: &OwnedFd, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    let mut fds = [PollFd::new(stopped, PollFlags::IN)];
    loop {
        let left =
            rustix::event::Timespec::try_from(until.saturating_duration_since(Instant::now()));
        match rustix::event::poll(&mut fds, left.ok().as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            polled => return !matches!(polled, Ok(0)),
        }
    }
}
