//! What pid 1 does while the task runs: reaps whatever ends, and passes signals from outside on to the task.

use crate::channel::{Channel, Message};
use crate::failure::{Context, refused};
use crate::sys::process;
use landbox_shared::event::{Event, Failure, Stage, Status};
use landbox_shared::wire::EventAssembler;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use std::os::fd::AsFd;

const STAGE: Stage = Stage::Watch;
/// Signals that the controller passes on through init's pidfd.
const FORWARDED: [Signal; 8] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCONT,
];

/// The signals init reads instead of being interrupted by them.
#[derive(Debug)]
pub(crate) struct Signals(SignalFd);

impl Signals {
    /// Blocks them and opens the descriptor that brings them.
    pub(crate) fn catch() -> nix::Result<Self> {
        let mut set = SigSet::from_iter(FORWARDED);
        set.add(Signal::SIGCHLD);
        set.thread_block()?;
        SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map(Self)
    }
}

/// Waits until the first task has ended, or could not be executed.
pub(crate) fn keep(
    signals: &Signals,
    monitor: &Channel,
    channel: &Channel,
    task: Pid,
) -> Result<Event, Failure> {
    // Open until the task's program is executed; it brings the reason if it can't be.
    let mut executing = Some(channel);
    loop {
        let mut fds = vec![
            PollFd::new(signals.0.as_fd(), PollFlags::POLLIN),
            PollFd::new(monitor.as_fd(), PollFlags::POLLIN),
        ];
        fds.extend(executing.map(|channel| PollFd::new(channel.as_fd(), PollFlags::POLLIN)));
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno).stage(STAGE, "waiting"),
        }
        let ready = |n: usize| fds.get(n).is_some_and(|fd| fd.any().unwrap_or(true));
        if ready(2) {
            if let Some(failed) = failed_exec(channel)? {
                return Ok(failed);
            }
            executing = None;
        }
        if ready(1) {
            return Err(refused(STAGE, "the monitor is gone"));
        }
        if ready(0) {
            forward(signals, task)?;
            if let Some(status) = reap(task)? {
                return Ok(Event::Exited(status));
            }
        }
    }
}

/// The task's word that its program can't be executed. `None`: the channel was closed by the execve.
fn failed_exec(channel: &Channel) -> Result<Option<Event>, Failure> {
    match channel.receive().stage(STAGE, "hearing from the task")? {
        Some((Message::Event(packet), _)) => {
            let event = EventAssembler::default().push(&packet);
            event.map_err(|e| refused(STAGE, e))
        }
        Some(_) => Err(refused(STAGE, "the task spoke out of turn")),
        None => Ok(None),
    }
}

fn forward(signals: &Signals, task: Pid) -> Result<(), Failure> {
    while let Some(caught) = signals.0.read_signal().stage(STAGE, "reading a signal")? {
        let signal =
            FORWARDED.into_iter().find(|s| u32::try_from(*s as i32) == Ok(caught.ssi_signo));
        // Number 0: sent from outside this pid namespace. The task itself needs no go-between.
        if let Some(signal) = signal.filter(|_| caught.ssi_pid == 0) {
            match kill(task, signal) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(errno) => return Err(errno).stage(STAGE, "passing a signal on"),
            }
        }
    }
    Ok(())
}

/// Reaps all that ended; says how the task did, if it is among them.
fn reap(task: Pid) -> Result<Option<Status>, Failure> {
    loop {
        match process::reap_any() {
            Ok(Some((pid, status))) if pid == task => return Ok(Some(status)),
            Ok(None) => return Ok(None),
            Ok(Some(_)) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno).stage(STAGE, "reaping"),
        }
    }
}
