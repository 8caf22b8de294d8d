//! Watching a running session write: the base of each path is taken as soon as the layer holds something there, so that
//! the owner's later edits of it can be told from what the session saw.
//!
//! Nobody waits for it. It starts beside the task, costs what the layer holds and not what the project holds, and where
//! it can't watch it looks from time to time. What it misses is judged by the scan at the end, more strictly.

mod leaving;
mod notice;

use super::base::{Store, own};
use super::captures::Captures;
use super::layer::{facts_of, project_of};
use super::scan::{Glimpsed, Inside, glance};
use super::tree::{self, Tree};
use crate::session::store::Session;
use landbox_shared::id::LayerId;
use landbox_shared::policy::{Backend, LayerPolicy};
use leaving::Leaving;
use notice::Notices;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::pipe::PipeFlags;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const STACK: usize = 1 << 20;
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// Pause between looks where not everything can be watched; and how many times as long as a look it is at least.
const SWEEP: Duration = Duration::from_millis(500);
const SHARE: u32 = 20;

/// How long a session must last to be watched. The scan at the end of a shorter one comes soon enough to take the bases
/// itself, and a thread would cost it more.
pub const SHORT: Duration = Duration::from_millis(200);

/// The watch of one launch, for later.
#[derive(Debug)]
pub struct Watcher<'a> {
    session: &'a Session,
    layer: &'a LayerPolicy,
    inside: Option<Inside>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    thread: JoinHandle<Option<OwnedFd>>,
    stop: OwnedFd,
}

impl<'a> Watcher<'a> {
    /// For the project's layer; `merged` are the merged roots of the layers. `None` where there is none.
    pub fn new(session: &'a Session, merged: &[(LayerId, OwnedFd)]) -> Option<Self> {
        let layer = project_of(session)?;
        let inside = match layer.backend {
            Backend::Kernel => merged.iter().find(|(id, _)| *id == layer.id),
            // What it shows as inode numbers is its own affair.
            Backend::Fuse => None,
        };
        let inside = inside.and_then(|(_, fd)| fd.try_clone().ok()).map(Inside);
        Some(Self { session, layer, inside, running: None })
    }

    /// Begins to watch, [`SHORT`] after the task's start. A session goes on as well where the machine has no room for it:
    /// its end looks at everything in any case.
    pub fn begin(&mut self) {
        let Ok((stopped, stop)) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC) else { return };
        let (session, layer) = (self.session.clone(), self.layer.clone());
        let inside = self.inside.take();
        let work = move || {
            session.write_out();
            let mut notices = Notices::new();
            let _ = Work::begin(&session, &layer, inside, (&notices, &stopped))
                .and_then(|mut work| work.run(&mut notices, &stopped));
            notices.end()
        };
        let thread = std::thread::Builder::new().name("base".into()).stack_size(STACK).spawn(work);
        self.running = thread.ok().map(|thread| Running { thread, stop });
    }

    /// Ends the watch, once what it has taken is written. Gives what is left to close, which takes the kernel some 16 ms.
    pub fn finish(self) -> Option<OwnedFd> {
        let Running { thread, stop } = self.running?;
        drop(stop);
        // A panic in there has been reported by then; the session's end must not depend on it.
        thread.join().ok().flatten()
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
    leaving: Leaving,
}

impl<'a> Work<'a> {
    fn begin(
        session: &'a Session,
        layer: &'a LayerPolicy,
        inside: Option<Inside>,
        (notices, stopped): (&Notices, &OwnedFd),
    ) -> io::Result<Self> {
        let upper = Tree::open(&session.upper(&layer.id))?;
        let real = Tree::open(layer.target.as_path())?;
        let dir = session.dir.join("base");
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let launch = session.state.launches.last().map_or(0, |launch| launch.number);
        let root = tree::meta_of(real.root())?;
        // The real folders first: what leaves them from here on is told before what the session makes of it.
        let mut leaving = Leaving::default();
        leaving.watch(notices.fd(), &real, None, &|| is_over(stopped));
        let epoch = session.state.launches.last().and_then(|launch| launch.epochs.get(&layer.id));
        let epoch = epoch.map(|epoch| (epoch.seconds, epoch.nanoseconds));
        let by_others = own::changed_by_others(&session.dir, &layer.id);
        let watched = leaving.watched(&real, epoch, by_others);
        let (captures, bytes) = Captures::begin(&dir, &layer.id, launch, &root, watched.clone())?;
        let store = Store::collecting(&session.dir, &layer.id, bytes, watched);
        Ok(Self { session, layer, upper, real, inside, store, captures, leaving })
    }

    fn run(&mut self, notices: &mut Notices, stopped: &OwnedFd) -> io::Result<()> {
        let over = || is_over(stopped);
        let mut found = notices.all(&self.upper, &over);
        let mut looked = Instant::now();
        loop {
            let began = Instant::now();
            // First: what had left before the session made something in its place was told before that.
            for path in self.leaving.take(notices.fd(), &self.real, &over) {
                self.store.note_left(path);
            }
            self.take(&found, &over)?;
            let took = began.elapsed();
            if over() {
                return Ok(());
            }
            let pause = (took * SHARE).max(SWEEP).saturating_sub(looked.elapsed());
            let limit = notices.is_blind().then(|| Timespec::try_from(pause).ok());
            let mut fds = vec![PollFd::new(stopped, PollFlags::IN)];
            fds.extend(notices.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            match rustix::event::poll(&mut fds, limit.flatten().as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            drop(fds);
            found = notices.take(&self.upper, &mut self.leaving, &over);
            if notices.is_blind() && looked.elapsed() >= pause {
                found = notices.all(&self.upper, &over);
                looked = Instant::now();
            }
        }
    }

    /// Takes the bases of what was noticed.
    fn take(&mut self, found: &Glimpsed, over: &dyn Fn() -> bool) -> io::Result<()> {
        if found.is_empty() {
            return self.store.hand_on(&mut self.captures);
        }
        self.store.hear_of_landings();
        let (upper, real, inside) = (&self.upper, Some(&self.real), self.inside.as_ref());
        let facts = facts_of(self.session, self.layer, &self.store, real);
        let taken = glance(&facts, upper, real, &mut self.store, inside, found, over);
        // Whatever went wrong with one of them: what was taken counts.
        self.store.hand_on(&mut self.captures)?;
        taken
    }
}

fn is_over(stopped: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(stopped, PollFlags::IN)];
    loop {
        match rustix::event::poll(&mut fds, Some(&NOW)) {
            Err(rustix::io::Errno::INTR) => {}
            polled => return !matches!(polled, Ok(0)),
        }
    }
}
