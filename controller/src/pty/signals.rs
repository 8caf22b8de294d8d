//! Signals to the controller, as something a loop can wait for.

use crate::error::{Context, Result};
use nix::sys::signal::{SigSet, Signal as Kind};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::process::Signal;
use std::os::fd::{AsFd, BorrowedFd};

/// Signals that are the task's business.
const FORWARDED: [Signal; 6] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];
/// Signals about the terminal and job control.
const OURS: [Signal; 3] = [Signal::WINCH, Signal::TSTP, Signal::CONT];

/// Signals that go on doing what they do: two that mean nothing to us, and two that stop who uses a terminal out of turn,
/// which a process that blocks them would be let do.
const LEFT: [Kind; 4] = [Kind::SIGCHLD, Kind::SIGURG, Kind::SIGTTIN, Kind::SIGTTOU];

/// A signal that came, by whose business it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caught {
    /// The task's.
    Task(Signal),
    /// Ours: about the terminal and job control.
    Terminal(Signal),
    /// Any other, by its number, which real-time signals have alone: such ends a process that does not expect it, and so
    /// it ends the session, whatever the task makes of it.
    End(i32),
}

/// Caught signals: all there are but `KILL` and `STOP`, so that none ends this process with the terminal raw. They are
/// blocked, and read. A fault of our own ends it all the same, as the kernel has it.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Catches them from now on, in this thread and those it starts; there must be no other yet. A signal that our caller
    /// had ignored (`nohup`, a background job of a script) stays ignored.
    pub fn install() -> Result<Self> {
        let what = || "can't catch signals".to_string();
        let ignored = ignored();
        let mut set = SigSet::all();
        let is_ignored = |kind: &Kind| ignored & (1 << (*kind as i32 - 1)) != 0;
        Kind::iterator().filter(is_ignored).chain(LEFT).for_each(|kind| set.remove(kind));
        set.thread_block().context(what)?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        SignalFd::with_flags(&set, flags).map(Self).context(what)
    }

    /// Lets them do again what they do, also those that wait. For who has nothing left to lose.
    pub fn let_go(&self) {
        // Refused only for a set that is none.
        let _ = SigSet::all().thread_unblock();
    }

    /// The signals that came since the last call.
    pub fn take(&self) -> Vec<Caught> {
        let mut came = Vec::new();
        while let Ok(Some(caught)) = self.0.read_signal() {
            came.extend(i32::try_from(caught.ssi_signo).map(Caught::of));
        }
        came
    }
}

impl Caught {
    fn of(number: i32) -> Self {
        match Signal::from_named_raw(number) {
            Some(signal) if FORWARDED.contains(&signal) => Self::Task(signal),
            Some(signal) if OURS.contains(&signal) => Self::Terminal(signal),
            Some(_) | None => Self::End(number),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The signals ignored by this process, as the kernel lists them.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::pthread::{pthread_kill, pthread_self};

    #[test]
    fn a_caught_signal_wakes_the_loop_and_is_reported_once() {
        let signals = Signals::install().unwrap();
        // To this thread: the others of a test do not block it.
        for (kind, caught) in [
            (Kind::SIGWINCH, Caught::Terminal(Signal::WINCH)),
            (Kind::SIGTERM, Caught::Task(Signal::TERM)),
            (Kind::SIGSEGV, Caught::End(11)),
        ] {
            pthread_kill(pthread_self(), kind).unwrap();
            let mut fds = [rustix::event::PollFd::new(&signals, rustix::event::PollFlags::IN)];
            let limit = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
            assert_eq!(rustix::event::poll(&mut fds, Some(&limit)).unwrap(), 1);
            assert_eq!(signals.take(), [caught]);
            assert_eq!(signals.take(), []);
        }
    }

    #[test]
    fn what_has_no_name_ends_the_session_too() {
        assert_eq!(Caught::of(64), Caught::End(64));
    }
}
