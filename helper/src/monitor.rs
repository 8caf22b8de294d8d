//! The monitor: starts what init asks for, shows the evidence, passes the release on, and watches until the end. It has
//! no rights left by the time the task runs.

use crate::channel::{Channel, Message};
use crate::events::Events;
use crate::failure::{Context, refused};
use crate::fuse::{self, Daemon};
use crate::lock::Held;
use crate::ns::{self, Isolated};
use crate::sys::process::{self, Child};
use crate::watch::Watch;
use crate::{caps, filter};
use landbox_shared::event::{Event, Failure, Stage};
use landbox_shared::wire::EventAssembler;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use std::os::fd::{AsFd, OwnedFd};

/// Why a session is over.
enum End {
    /// This is to be told.
    Told(Event),
    /// There is nobody to tell, or what they said was out of order.
    Alone,
}

struct Monitor<'a> {
    events: &'a Events,
    init: Child,
    channel: Channel,
    daemons: Vec<Daemon>,
    assembler: EventAssembler,
    /// Descriptors that came beside the event that is being put together.
    beside: Vec<OwnedFd>,
    /// The numbers of the mounts to watch.
    mounts: Vec<u32>,
    phase: Phase,
}

/// How far the session is.
enum Phase {
    /// Init mounts and confines.
    Preparing,
    /// The evidence is shown; the controller has not answered.
    Shown(Watch),
    /// The task runs.
    Running(Watch),
}

/// Stays until the session is over and nothing of it is left, then tells how it ended.
pub(crate) fn stay(isolated: Isolated, events: &Events) {
    let Isolated { init, channel, locked } = isolated;
    let lock = locked.held();
    let mut monitor = Monitor {
        events,
        init,
        channel,
        daemons: Vec::new(),
        assembler: EventAssembler::default(),
        beside: Vec::new(),
        mounts: Vec::new(),
        phase: Phase::Preparing,
    };
    let end = loop {
        match monitor.turn() {
            Ok(None) => {}
            Ok(Some(end)) => break end,
            Err(failure) => break End::Told(Event::Failed(failure)),
        }
    };
    monitor.end(end, lock);
}

impl Monitor<'_> {
    /// Waits once and deals with what came. Init's words come first: they explain the rest.
    fn turn(&mut self) -> Result<Option<End>, Failure> {
        let mut fds = vec![
            PollFd::new(self.channel.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.events.as_fd(), PollFlags::POLLIN),
        ];
        fds.extend(
            self.daemons.iter().map(|d| PollFd::new(d.child.pidfd.as_fd(), PollFlags::POLLIN)),
        );
        match &self.phase {
            Phase::Preparing => {}
            // An ordinary file is always readable: only the urgent bit says that the list of mounts has changed.
            Phase::Shown(watch) | Phase::Running(watch) => {
                fds.push(PollFd::new(watch.as_fd(), PollFlags::POLLPRI));
            }
        }
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(None),
            Err(errno) => return Err(errno).stage(Stage::Watch, "waiting"),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        drop(fds);
        let is_ready = |n: usize| ready.get(n).copied().unwrap_or(false);
        if is_ready(0) {
            return self.hear_init();
        }
        if is_ready(1) {
            return self.hear_controller();
        }
        if let Some(dead) = self.daemons.iter().enumerate().find(|(n, _)| is_ready(n + 2)) {
            return Err(dead.1.ended(self.stage()));
        }
        match &mut self.phase {
            Phase::Preparing => Ok(None),
            Phase::Shown(watch) | Phase::Running(watch) => {
                let lost = if is_ready(self.daemons.len() + 2) { watch.lost()? } else { None };
                Ok(lost.map(|path| End::Told(Event::BoundaryLost { path })))
            }
        }
    }

    /// The stage of a daemon's death.
    fn stage(&self) -> Stage {
        match self.phase {
            Phase::Preparing => Stage::Layer,
            Phase::Shown(_) | Phase::Running(_) => Stage::Watch,
        }
    }

    fn hear_init(&mut self) -> Result<Option<End>, Failure> {
        let received = self.channel.receive().stage(Stage::Watch, "hearing from init")?;
        match received {
            Some((Message::Fuse(layer), fds)) if matches!(self.phase, Phase::Preparing) => {
                let errno = match fuse::start(&self.init, layer, &fds) {
                    Ok(daemon) => {
                        self.daemons.push(daemon);
                        0
                    }
                    Err(failure) if failure.errno == 0 => return Err(failure),
                    Err(failure) => failure.errno,
                };
                let answer = self.channel.send(&Message::FuseStarted(errno));
                answer.stage(Stage::Layer, "talking to init").map(|()| None)
            }
            Some((Message::Mounts(ids), _)) if matches!(self.phase, Phase::Preparing) => {
                self.mounts = ids;
                Ok(None)
            }
            Some((Message::Event(packet), beside)) => {
                self.beside.extend(beside);
                let event = self.assembler.push(&packet).map_err(|e| refused(Stage::Watch, e))?;
                match event {
                    None => Ok(None),
                    Some(Event::Ready(evidence)) => {
                        self.show(Event::Ready(evidence)).map(|()| None)
                    }
                    Some(Event::Failed(failure)) => Err(self.explain(failure)),
                    Some(end) => Ok(Some(End::Told(end))),
                }
            }
            Some(_) => Err(refused(Stage::Watch, "init spoke out of turn")),
            None => Err(refused(Stage::Watch, "init was killed")),
        }
    }

    /// Where a layer failed because its daemon ended, the daemon's own words say more.
    fn explain(&self, failure: Failure) -> Failure {
        if failure.stage != Stage::Layer {
            return failure;
        }
        let ended = |daemon: &&Daemon| {
            let pidfd = daemon.child.pidfd.as_fd();
            // Init notices when the daemon's files are closed, a little before it has ended.
            poll(&mut [PollFd::new(pidfd, PollFlags::POLLIN)], 50u8) == Ok(1)
        };
        let dead = self.daemons.last().filter(ended);
        dead.map_or(failure, |daemon| daemon.ended(Stage::Layer))
    }

    /// Gives up every right, then shows the evidence.
    fn show(&mut self, ready: Event) -> Result<(), Failure> {
        const STAGE: Stage = Stage::Release;
        let mut beside = std::mem::take(&mut self.beside).into_iter();
        let (Phase::Preparing, Event::Ready(evidence), Some(table)) =
            (&self.phase, &ready, beside.next())
        else {
            return Err(refused(STAGE, "init showed its evidence out of turn"));
        };
        let roots: Vec<OwnedFd> = beside.collect();
        if roots.len() != evidence.layers.len() {
            return Err(refused(STAGE, "there is not one root for each layer"));
        }
        let watch = Watch::new(table, &std::mem::take(&mut self.mounts), &evidence.mounts)
            .ok_or_else(|| refused(STAGE, "there is not one number for each mount"))?;
        prctl::set_dumpable(false).stage(STAGE, "closing the monitor's memory")?;
        caps::drop_all().stage(STAGE, "dropping the monitor's capabilities")?;
        filter::install()?;
        let mut shown = vec![self.init.pidfd.as_fd()];
        shown.extend(roots.iter().map(AsFd::as_fd));
        self.events.send(&ready, &shown)?;
        self.phase = Phase::Shown(watch);
        Ok(())
    }

    fn hear_controller(&mut self) -> Result<Option<End>, Failure> {
        match std::mem::replace(&mut self.phase, Phase::Preparing) {
            Phase::Shown(watch) if self.events.is_release() => {
                self.phase = Phase::Running(watch);
                // The task first: it need not wait for our tidying up.
                let go = self.channel.send(&Message::Release);
                process::trim_memory();
                go.stage(Stage::Release, "releasing the task").map(|()| None)
            }
            // Nothing may be said before or after, and the end of the socket is the controller's death.
            Phase::Preparing | Phase::Shown(_) | Phase::Running(_) => Ok(Some(End::Alone)),
        }
    }

    /// Ends everything, and only when nothing is left tells how it came.
    fn end(mut self, end: End, lock: Held) {
        // The list of mounts holds the task's, which take a while to undo: begin while init is on its way.
        self.phase = Phase::Preparing;
        match &end {
            // Init is on its way: this is the last it says.
            End::Told(Event::Exited(_) | Event::ExecFailed { .. }) => ns::reap(&self.init),
            End::Told(
                Event::Challenge(_)
                | Event::Ready(_)
                | Event::Failed(_)
                | Event::BoundaryLost { .. }
                | Event::LinkLost,
            )
            | End::Alone => ns::end(&self.init),
        }
        self.daemons.iter().for_each(Daemon::end);
        drop(lock);
        if let End::Told(event) = end {
            // A controller that is gone can't be told.
            let _ = self.events.send(&event, &[]);
        }
    }
}
