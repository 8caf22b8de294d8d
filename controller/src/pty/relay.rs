//! The loop of a running session: input, signals and events here, output in threads of its own.

use super::copy::Copy;
use super::feed::Feed;
use super::signals::Signals;
use super::stdio::Ours;
use super::terminal::{Restore, Terminal};
use super::{Stdio, terminal};
use crate::error::{Context, Result};
use crate::launch::{EventSocket, Launched, Received, reap};
use landbox_shared::event::Event;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::Signal;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a terminal that is shared with other programs of a pipeline is asked whose turn it is.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How long silence may last once the session is over, before its output counts as drained. Needed only where the task
/// handed its own descriptor to a process outside: everything else ends with an end of file.
const SILENCE: Duration = Duration::from_millis(500);

/// How a session ended.
#[derive(Debug)]
pub enum End {
    /// The helper's last word.
    Event(Event),
    /// The helper ended without one.
    Silent,
}

struct Loop<'a> {
    terminal: Option<&'a Terminal>,
    master: Option<Arc<OwnedFd>>,
    keys: Option<Feed>,
    stdin: Option<Feed>,
    copies: Vec<Copy>,
    signals: &'a Signals,
    init: OwnedFd,
    forward_keys: bool,
}

/// Carries everything between the caller and the task until the task has ended, its output is drained and nothing of
/// the helper is left. The task is released by this, when all is in place.
pub fn relay(
    terminal: Option<&Terminal>,
    stdio: Stdio,
    launched: Launched,
    signals: &Signals,
) -> Result<End> {
    let Launched { mut child, mut events, init, .. } = launched;
    let Stdio { ours: Ours { pty, stdin, outputs }, .. } = stdio;
    let restore = Restore;
    let mut copies = Vec::new();
    let outside = [rustix::stdio::stdout(), rustix::stdio::stderr()];
    for (read, write) in outputs.into_iter().zip(outside) {
        if let Some(read) = read {
            copies.push(Copy::start(Arc::new(read), write)?);
        }
    }
    let (master, slave) = match pty {
        Some(pty) => (Some(Arc::new(pty.master)), Some(pty.slave)),
        None => (None, None),
    };
    let mut keys = None;
    if let (Some(master), Some(terminal)) = (&master, terminal) {
        copies.push(Copy::start(Arc::clone(master), terminal.screen())?);
        keys = Some(Feed::new(terminal.fd(), Arc::clone(master)));
    }
    let stdin = stdin.map(|fd| Feed::new(rustix::stdio::stdin(), Arc::new(fd)));
    let mut state =
        Loop { terminal, master, keys, stdin, copies, signals, init, forward_keys: false };
    state.take_turn();
    events.release()?;
    let end = state.run(&mut events)?;
    // Everything inside is gone with its pid namespace; the end of the channel ends whatever of the helper remains.
    drop(events);
    reap(&mut child);
    drop(slave);
    state.drain();
    drop(restore);
    Ok(end)
}

impl Loop<'_> {
    fn run(&mut self, events: &mut EventSocket) -> Result<End> {
        loop {
            let limit = self.terminal.filter(|t| t.is_shared()).map(|_| TURN);
            let mut fds = vec![
                PollFd::new(&*events, PollFlags::IN),
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            ];
            let keys = self.keys.as_ref().filter(|_| self.forward_keys);
            let keys_at = keys.and_then(Feed::interest).map(|i| push(&mut fds, i));
            let stdin_at = self.stdin.as_ref().and_then(Feed::interest).map(|i| push(&mut fds, i));
            let copies_at = fds.len();
            for copy in &self.copies {
                fds.push(PollFd::from_borrowed_fd(copy.done(), PollFlags::IN));
            }
            match rustix::event::poll(&mut fds, limit.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e).context(|| "can't wait for the session".into()),
            }
            let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
            let heard = ready(0);
            let signalled = ready(1);
            let (keys_ready, stdin_ready) =
                (keys_at.is_some_and(ready), stdin_at.is_some_and(ready));
            let ended: Vec<bool> = (copies_at..fds.len()).map(ready).collect();
            drop(fds);
            if keys_ready && let Some(keys) = &mut self.keys {
                keys.advance();
            }
            if stdin_ready && let Some(stdin) = &mut self.stdin {
                stdin.advance();
            }
            if signalled {
                self.handle_signals();
            }
            if limit.is_some() {
                self.take_turn();
            }
            self.forget_ended(&ended);
            if heard {
                match events.receive() {
                    Ok(Received::Event(event, _)) => return Ok(End::Event(event)),
                    Ok(Received::Pending) => {}
                    Ok(Received::Closed) | Err(_) => return Ok(End::Silent),
                }
            }
        }
    }

    /// Drops the copies that ended. When the terminal's own is among them, the terminal is gone: letting go of the
    /// master hangs the task's terminal up too.
    fn forget_ended(&mut self, ended: &[bool]) {
        if !ended.contains(&true) {
            return;
        }
        let terminal_gone = self.master.is_some() && ended.last() == Some(&true);
        let mut flags = ended.iter();
        self.copies.retain(|_| flags.next() != Some(&true));
        if terminal_gone {
            self.master = None;
            if let Some(keys) = &mut self.keys {
                keys.close();
            }
        }
    }

    fn take_turn(&mut self) {
        if let (Some(terminal), Some(master)) = (self.terminal, &self.master) {
            self.forward_keys = terminal.turn(&**master);
        }
    }

    fn handle_signals(&mut self) {
        for signal in self.signals.take() {
            if Signals::is_forwarded(signal) {
                let _ = rustix::process::pidfd_send_signal(&self.init, signal);
                continue;
            }
            if signal == Signal::TSTP {
                let _ = rustix::process::pidfd_send_signal(&self.init, Signal::TSTP);
                match self.terminal {
                    Some(terminal) => terminal.suspend(),
                    None => terminal::stop(),
                }
            }
            if signal == Signal::CONT {
                let _ = rustix::process::pidfd_send_signal(&self.init, Signal::CONT);
                // Whoever had the terminal meanwhile may have changed it, and the window too.
                terminal::forget();
            }
            self.take_turn();
            if let (Some(terminal), Some(master)) = (self.terminal, &self.master) {
                let _ = terminal.resize(&**master);
            }
        }
    }

    /// Waits until the output has reached the caller: for as long as a slow reader takes, but not for a task's
    /// descriptor that lives on outside the session.
    fn drain(&mut self) {
        if let Some(keys) = &mut self.keys {
            keys.close();
        }
        if let Some(stdin) = &mut self.stdin {
            stdin.close();
        }
        self.master = None;
        let mut seen = Vec::new();
        let mut since = Instant::now();
        while !self.copies.is_empty() {
            let mut fds = vec![PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN)];
            fds.extend(
                self.copies.iter().map(|c| PollFd::from_borrowed_fd(c.done(), PollFlags::IN)),
            );
            if rustix::event::poll(&mut fds, Some(&TURN)).is_err_and(|e| e != Errno::INTR) {
                return;
            }
            let ended: Vec<bool> = fds.iter().skip(1).map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            let mut flags = ended.iter();
            self.copies.retain(|_| flags.next() != Some(&true));
            if self.signals.take().into_iter().any(Signals::is_forwarded) {
                return;
            }
            let now: Vec<(u64, bool)> = self.copies.iter().map(Copy::progress).collect();
            if now != seen || now.iter().any(|(_, writing)| *writing) {
                seen = now;
                since = Instant::now();
            } else if since.elapsed() > SILENCE {
                return;
            }
        }
    }
}

fn push<'fd>(
    fds: &mut Vec<PollFd<'fd>>,
    (fd, flags): (rustix::fd::BorrowedFd<'fd>, PollFlags),
) -> usize {
    fds.push(PollFd::from_borrowed_fd(fd, flags));
    fds.len() - 1
}
