//! What pid 1 does while the task runs: reaps whatever ends, and passes signals from outside on to the task.

use crate::channel::{Channel, Message};
use crate::failure::{Context, Failure, Stage, refused, require};
use crate::sys::process;
use landbox_shared::event::{Event, Status};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal::{
    self, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2,
    SIGWINCH,
};
use nix::sys::signal::{SigSet, kill, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::fs::File;
use std::os::fd::AsFd;

const STAGE: Stage = Stage::Watch;
/// Signals that the controller passes on through init's pidfd.
const FORWARDED: [Signal; 9] =
    [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT];

/// What keys send, they send to the whole job: a shell that waits for its child would leave that running. A group without
/// a parent in its session can be stopped by SIGSTOP alone.
const KEYS: [(Signal, Signal); 4] =
    [(SIGINT, SIGINT), (SIGQUIT, SIGQUIT), (SIGTSTP, SIGSTOP), (SIGCONT, SIGCONT)];

/// The signals init reads instead of being interrupted by them.
#[derive(Debug)]
pub(crate) struct Signals(SignalFd);

impl Signals {
    /// Blocks them and opens the descriptor that brings them.
    pub(crate) fn catch() -> nix::Result<Self> {
        let mut set = SigSet::from_iter(FORWARDED);
        set.add(SIGCHLD);
        set.thread_block()?;
        SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map(Self)
    }
}

/// What init keeps until the end.
#[derive(Debug)]
pub(crate) struct Crew {
    pub(crate) lock: File,
    pub(crate) task: Pid,
    /// To the task.
    pub(crate) channel: Channel,
    pub(crate) signals: Signals,
}

impl Crew {
    /// Waits until the first task has ended, or could not be executed.
    pub(crate) fn keep(&self, monitor: &Channel) -> Result<Event, Failure> {
        let Self { lock: _lock, task, channel, signals } = self;
        // Open until the task's program is executed; it brings the reason if it can't be.
        let mut executing = Some(channel);
        loop {
            let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
            let mut fds = vec![readable(signals.0.as_fd()), readable(monitor.as_fd())];
            fds.extend(executing.map(|channel| readable(channel.as_fd())));
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno).stage(STAGE, "waiting"),
            }
            let ready = |n: usize| fds.get(n).is_some_and(|fd| fd.any().unwrap_or(true));
            if ready(2) {
                match channel.receive(STAGE)? {
                    Some((Message::End(failed), _)) => return Ok(failed),
                    Some(_) => return Err(refused(STAGE, "the task spoke out of turn")),
                    // Closed by the execve.
                    None => executing = None,
                }
            }
            require(!ready(1), STAGE, "the monitor is gone")?;
            if ready(0) {
                forward(signals, *task).stage(STAGE, "passing a signal on")?;
                if let Some(status) = reap(*task).stage(STAGE, "reaping")? {
                    clear();
                    return Ok(Event::Exited(status));
                }
            }
        }
    }
}

fn forward(signals: &Signals, task: Pid) -> nix::Result<()> {
    while let Some(caught) = signals.0.read_signal()? {
        let same = |signal: &Signal| u32::try_from(*signal as i32) == Ok(caught.ssi_signo);
        // Number 0: sent from outside this pid namespace. The task itself needs no go-between.
        let signal = FORWARDED.into_iter().find(|signal| same(signal) && caught.ssi_pid == 0);
        match signal.map_or(Ok(()), |signal| pass_on(signal, task)) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn pass_on(signal: Signal, task: Pid) -> nix::Result<()> {
    let key = KEYS.iter().find(|(key, _)| *key == signal);
    // The task may not lead its group yet.
    if key.is_some_and(|(_, sent)| killpg(task, *sent).is_ok()) {
        return Ok(());
    }
    kill(task, signal)
}

/// Reaps all that ended; says how the task did, if it is among them.
fn reap(task: Pid) -> nix::Result<Option<Status>> {
    loop {
        match process::reap_any() {
            Ok(Some((pid, status))) if pid == task => return Ok(Some(status)),
            Ok(None) => return Ok(None),
            Ok(Some(_)) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Kills whatever the task has left and waits until it is gone, with all it wrote handed to its files. Every process of the
/// session descends from this one, so the proof is that it has no child.
fn clear() {
    while waitpid(None, Some(WaitPidFlag::WNOHANG)) != Err(Errno::ECHILD) {
        // One that is just ending takes its signal along.
        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        // nix's form fails for real-time signals: all the same.
        let _ = waitpid(None, None);
    }
}
