//! Signals to the controller, as something a loop can wait for.

use crate::error::{Context, Result};
use rustix::process::Signal;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals that are the task's business.
const FORWARDED: [Signal; 6] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];
/// Signals about the terminal and job control.
const OURS: [Signal; 3] = [Signal::WINCH, Signal::TSTP, Signal::CONT];

/// Signals that end a process that does not catch them, and are no business of the task's: they end the session. (Those
/// that a fault of our own raises again at once are not among them.)
const ENDING: [Signal; 11] = [
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::XCPU,
    Signal::XFSZ,
    Signal::ABORT,
    Signal::TRAP,
    Signal::SYS,
    Signal::IO,
    Signal::POWER,
    Signal::STKFLT,
];

/// Caught signals.
#[derive(Debug)]
pub struct Signals {
    wake: UnixStream,
    flags: Vec<(Signal, Arc<AtomicBool>)>,
}

impl Signals {
    /// Catches them from now on. A signal that our caller had ignored (`nohup`, a background job of a script) stays
    /// ignored.
    pub fn install() -> Result<Self> {
        let what = || "can't catch signals".to_string();
        let (wake, write) = UnixStream::pair().context(what)?;
        wake.set_nonblocking(true).context(what)?;
        let ignored = ignored();
        let mut flags = Vec::new();
        for signal in FORWARDED.into_iter().chain(OURS).chain(ENDING) {
            let raw = signal.as_raw();
            if ignored & (1 << (raw - 1)) != 0 {
                continue;
            }
            let flag = Arc::new(AtomicBool::new(false));
            // Actions run in the order they were registered: the flag is up before the wake-up is sent.
            signal_hook::flag::register(raw, Arc::clone(&flag)).context(what)?;
            let end = write.try_clone().context(what)?;
            signal_hook::low_level::pipe::register(raw, end).context(what)?;
            flags.push((signal, flag));
        }
        Ok(Self { wake, flags })
    }

    /// The signals that came since the last call; several of one kind count once.
    pub fn take(&self) -> Vec<Signal> {
        let mut scratch = [0; 64];
        // Emptied before the flags are read: a signal between the two wakes the loop once more, none is lost.
        while rustix::io::read(&self.wake, &mut scratch).is_ok_and(|n| n > 0) {}
        let came = |(signal, flag): &(Signal, Arc<AtomicBool>)| {
            flag.swap(false, Ordering::SeqCst).then_some(*signal)
        };
        self.flags.iter().filter_map(came).collect()
    }

    /// Whether a signal is for the task rather than about the terminal.
    pub fn is_forwarded(signal: Signal) -> bool {
        FORWARDED.contains(&signal)
    }

    /// Whether a signal ends the session, whatever the task makes of it.
    pub fn is_ending(signal: Signal) -> bool {
        ENDING.contains(&signal)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
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

    #[test]
    fn a_caught_signal_wakes_the_loop_and_is_reported_once() {
        let signals = Signals::install().unwrap();
        rustix::process::kill_process(rustix::process::getpid(), Signal::WINCH).unwrap();
        let mut fds = [rustix::event::PollFd::new(&signals, rustix::event::PollFlags::IN)];
        let limit = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut fds, Some(&limit)).unwrap(), 1);
        assert!(signals.take().contains(&Signal::WINCH));
        assert!(!signals.take().contains(&Signal::WINCH));
    }
}
