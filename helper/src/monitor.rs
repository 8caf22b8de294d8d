//! The monitor: starts what init asks for, shows the evidence, passes the release on, and watches until the end. It has
//! no rights left by the time the task runs.

use crate::channel::{Channel, Events, Message};
use crate::evidence::Watch;
use crate::failure::{Context, Failure, Stage, refused, require};
use crate::fuse::{self, Daemon};
use crate::net::{Link, Recorder};
use crate::ns::{self, Isolated};
use crate::sys::process::Child;
use crate::{caps, confine};
use landbox_shared::event::Event;
use landbox_shared::evidence::Evidence;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::prctl;
use std::ops::ControlFlow::{self, Break, Continue};
use std::os::fd::{AsFd, OwnedFd};

/// How often the mounts and the link are looked at, in milliseconds. The kernel says at once that one has gone, but not that one has
/// moved: where the host renames what a mount lies on, or a folder above, the mount goes along, and at the old place the
/// host's next file would show.
const LOOK_AGAIN: u8 = 50;

/// How long the controller may take to go, and to hand over what it would wait for when it closed it, in milliseconds.
const LINGER: u16 = 1000;

/// Whether a session goes on. It breaks with what is to be told, or with nothing where there is nobody to tell, or what
/// they said was out of order.
type Turn = ControlFlow<Option<Event>>;

struct Monitor<'a> {
    events: &'a Events,
    init: Child,
    channel: Channel,
    daemons: Vec<Daemon>,
    link: Option<Link>,
    /// Init waits for the link.
    awaited: bool,
    recorder: Option<Recorder>,
    /// How many children are not ready yet.
    due: usize,
    phase: Phase,
    /// Since the evidence is shown.
    watch: Option<Watch>,
}

/// How far the session is.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Phase {
    /// Init has children to ask for yet.
    Preparing,
    /// The monitor has no rights left; init mounts and confines.
    Confined,
    /// The evidence is shown; the controller has not answered.
    Shown,
    /// The task runs.
    Running,
}

/// Stays until the session is over, tells how it ended, and comes back when nothing of it is left.
pub(crate) fn stay(isolated: Isolated, events: &Events) {
    let Isolated { init, channel, lock, children } = isolated;
    let mut monitor = Monitor {
        events,
        init,
        channel,
        daemons: Vec::new(),
        link: None,
        awaited: false,
        recorder: None,
        due: children,
        phase: Phase::Preparing,
        watch: None,
    };
    let end = loop {
        match monitor.confine().and_then(|()| monitor.turn()) {
            Ok(Continue(())) => {}
            Ok(Break(end)) => break end,
            Err(failure) => break Some(Event::Failed(failure)),
        }
    };
    // The task's own end: the controller, and so the caller, waits for nothing then that can be left to itself.
    let own = matches!(end, Some(Event::Exited(_) | Event::ExecFailed { .. }));
    // Init says so only when it is the last process: all is written, unless a daemon holds it back, and all was counted,
    // unless the link carries what the task's sockets still send. The kernel takes a millisecond to undo the mounts; the
    // controller may go meanwhile.
    let early = own
        && monitor.daemons.is_empty()
        && monitor.link.is_none()
        && prctl::set_pdeathsig(None).is_ok()
        && monitor.tell(end.as_ref());
    // The list of mounts holds the task's, which take a while to undo: begin while init is on its way.
    monitor.watch = None;
    ns::end(&monitor.init);
    // The layers' last user is gone, and the kernel has handed the daemons every write when the file was closed.
    monitor.daemons.iter().for_each(|daemon| daemon.running.end());
    // After the task, so that nothing ever left another way; with the recorder the rules go.
    let link = monitor.link.take().map(Link::close);
    if early {
        // What the controller hands over before it goes is closed here: it need not wait for that. Until then the
        // session is not over, as its lock says.
        let _ = poll(&mut [PollFd::new(events.as_fd(), PollFlags::empty())], LINGER);
        let _ = events.is_release();
    }
    drop(lock);
    if !early {
        monitor.tell(end.as_ref());
    }
    // Kept waiting for nothing but the interface.
    link.iter().filter(|_| !own).for_each(|link| link.end());
}

impl Monitor<'_> {
    /// Waits once and deals with what came. Init's words come first: they explain the rest.
    fn turn(&mut self) -> Result<Turn, Failure> {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut fds = vec![readable(self.channel.as_fd()), readable(self.events.as_fd())];
        fds.extend(self.daemons.iter().map(|daemon| readable(daemon.running.child.pidfd.as_fd())));
        fds.extend(self.link.iter().flat_map(Link::watched).map(readable));
        // An ordinary file is always readable: only the urgent bit says that the list of mounts has changed.
        let tables = self.watch.iter().map(|watch| watch.table.as_fd());
        fds.extend(tables.map(|table| PollFd::new(table, PollFlags::POLLPRI)));
        match poll(&mut fds, LOOK_AGAIN) {
            Err(Errno::EINTR) => return Ok(Continue(())),
            polled => polled.stage(Stage::Watch, "waiting")?,
        };
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        let mut ready = ready.into_iter();
        let [init, controller] = [(); 2].map(|()| ready.next() == Some(true));
        // But for a word of the controller's before it was asked: that ends the session, whatever init says.
        if init && !(controller && self.phase < Phase::Shown) {
            return self.hear_init();
        }
        if controller {
            return self.hear_controller();
        }
        if let Some((dead, _)) = self.daemons.iter().zip(&mut ready).find(|(_, ended)| *ended) {
            let early = self.phase < Phase::Shown;
            return Err(dead.ended(if early { Stage::Layer } else { Stage::Watch }));
        }
        if let Some(lost) = self.look_at_link()? {
            return Ok(Break(Some(lost)));
        }
        if let Some(recorder) = self.recorder.as_mut().filter(|_| self.phase == Phase::Running) {
            recorder.tell_in_time(self.events)?;
        }
        let lost = self.watch.as_mut().map_or(Ok(None), Watch::lost)?;
        Ok(lost.map_or(Continue(()), |path| Break(Some(Event::BoundaryLost { path }))))
    }

    /// Notices that the link is ready, and what is to be told where it has ended.
    fn look_at_link(&mut self) -> Result<Option<Event>, Failure> {
        let preparing = self.phase < Phase::Shown;
        let Some(link) = &mut self.link else { return Ok(None) };
        if link.has_ended() {
            return if preparing { Err(link.ended()) } else { Ok(Some(Event::LinkLost)) };
        }
        if link.is_ready()? && self.awaited {
            self.awaited = false;
            self.due = self.due.saturating_sub(1);
            self.channel.send(Stage::Network, &Message::LinkReady, &[])?;
        }
        Ok(None)
    }

    fn hear_init(&mut self) -> Result<Turn, Failure> {
        let (preparing, confined) = (self.phase == Phase::Preparing, self.phase == Phase::Confined);
        match self.channel.receive(Stage::Watch)? {
            Some((Message::Fuse(layer), fds)) if preparing => {
                self.daemons.push(fuse::start(&self.init, layer, &fds)?);
                self.due = self.due.saturating_sub(1);
                self.channel.send(Stage::Layer, &Message::FuseStarted, &[]).map(Continue)
            }
            Some((Message::Link(sandboxed), fds)) if preparing && self.link.is_none() => {
                self.link = Some(Link::start(&self.init, sandboxed)?);
                self.recorder = fds.into_iter().next().map(Recorder::new);
                Ok(Continue(()))
            }
            Some((Message::AwaitLink, _)) if preparing => {
                self.awaited = true;
                self.look_at_link().map(|lost| lost.map_or(Continue(()), |lost| Break(Some(lost))))
            }
            Some((Message::Ready(evidence, ids), beside)) if confined => {
                self.show(evidence, &ids, beside).map(Continue)
            }
            Some((Message::End(Event::Failed(failure)), _)) => Err(self.explain(failure)),
            Some((Message::End(event), _)) => Ok(Break(Some(event))),
            Some(_) => Err(refused(Stage::Watch, "init spoke out of turn")),
            None => Err(refused(Stage::Watch, "init was killed")),
        }
    }

    /// Tells what the task did last, once it is gone, and the end. Says whether that was heard.
    fn tell(&mut self, end: Option<&Event>) -> bool {
        if let Some(recorder) = self.recorder.as_mut().filter(|_| self.phase == Phase::Running) {
            // The session is over whether or not this can be told.
            let _ = recorder.tell_last(self.events);
        }
        // A controller that is gone can't be told.
        end.is_some_and(|event| self.events.send(Stage::Watch, event, &[]).is_ok())
    }

    /// Where a layer failed because its daemon ended, the daemon's own words say more.
    fn explain(&self, failure: Failure) -> Failure {
        // Init notices when the daemon's files are closed, a little before it has ended.
        let ended = |daemon: &&Daemon| daemon.running.child.ends_within(50);
        let last = self.daemons.last().filter(|_| failure.stage == Stage::Layer);
        last.filter(ended).map_or(failure, |daemon| daemon.ended(Stage::Layer))
    }

    /// Gives up every right, once, as soon as there is nothing more to start: while init mounts.
    fn confine(&mut self) -> Result<(), Failure> {
        const STAGE: Stage = Stage::Release;
        if self.phase != Phase::Preparing || self.due > 0 {
            return Ok(());
        }
        prctl::set_dumpable(false).stage(STAGE, "closing the monitor's memory")?;
        caps::drop_all().stage(STAGE, "dropping the monitor's capabilities")?;
        let filters = match self.recorder.as_ref().map(Recorder::number) {
            None => confine::filters(landbox_seccomp::monitor)?,
            Some(socket) => confine::filters(|arch| landbox_seccomp::recorder(arch, socket))?,
        };
        confine::install(&filters)?;
        self.phase = Phase::Confined;
        Ok(())
    }

    /// Shows the evidence.
    fn show(
        &mut self,
        evidence: Box<Evidence>,
        ids: &[u32],
        beside: Vec<OwnedFd>,
    ) -> Result<(), Failure> {
        const STAGE: Stage = Stage::Release;
        let mut beside = beside.into_iter();
        let table = beside.next().ok_or_else(|| refused(STAGE, "there is no list of mounts"))?;
        let roots: Vec<OwnedFd> = beside.collect();
        let all = roots.len() == evidence.layers.len();
        require(all, STAGE, "there is not one root for each layer")?;
        require(ids.len() == evidence.mounts.len(), STAGE, "there is not one number a mount")?;
        self.watch = Some(Watch::new(table, ids, &evidence.mounts));
        let mut shown = vec![self.init.pidfd.as_fd()];
        shown.extend(roots.iter().map(AsFd::as_fd));
        self.events.send(STAGE, &Event::Ready(evidence), &shown)?;
        self.phase = Phase::Shown;
        Ok(())
    }

    fn hear_controller(&mut self) -> Result<Turn, Failure> {
        // Nothing may be said before or after, and the end of the socket is the controller's death.
        if self.phase != Phase::Shown || !self.events.is_release() {
            return Ok(Break(None));
        }
        self.phase = Phase::Running;
        self.channel.send(Stage::Release, &Message::Release, &[]).map(Continue)
    }
}

#[cfg(test)]
mod tests;
