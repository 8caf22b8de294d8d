//! The loop of a running session: keys, input, the terminal's output, signals and events. What goes to a pipe or a file
//! has a thread of its own, since those descriptors are the caller's and may block.

use super::copy::Copy;
use super::feed::{Feed, Side};
use super::pace::{Keys, Pace, Rhythm};
use super::signals::{Caught, Signals};
use super::stdio::Ours;
use super::terminal::{Restore, Terminal};
use super::{Stdio, terminal};
use crate::error::Result;
use crate::launch::{EventSocket, Launched, Leaving, Received};
use landbox_shared::event::Event;
use landbox_shared::network::egress::Egress;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::Signal;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a terminal that is shared with other programs of a pipeline, or in another job's hands, is asked whose turn
/// it is.
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
    /// A signal ended it, of this number.
    Signal(i32),
}

struct Loop<'a> {
    terminal: Option<&'a Terminal>,
    master: Option<Arc<OwnedFd>>,
    keys: Option<Feed>,
    screen: Option<Feed>,
    stdin: Option<Feed>,
    copies: Vec<Copy>,
    signals: &'a Signals,
    init: OwnedFd,
    forward_keys: bool,
    lost: Option<Errno>,
    commanded: bool,
}

/// How a session went.
#[derive(Debug)]
pub struct Relayed {
    /// How it ended.
    pub end: End,
    /// Why output of the task's could not be written, where that is not just a reader that was gone.
    pub lost: Option<Errno>,
    /// The helper, without a process of the session.
    pub leaving: Leaving,
}

/// What goes on beside.
pub struct Beside<'a> {
    /// Gets what the helper says of the session's traffic.
    pub note: &'a mut dyn FnMut(&Egress),
    /// Called once, where the session lasts so long.
    pub later: (Duration, &'a mut dyn FnMut()),
    /// Gets told of turns, where there is a terminal.
    pub pace: Option<&'a mut dyn Pace>,
}

impl fmt::Debug for Beside<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Beside").field("after", &self.later.0).finish_non_exhaustive()
    }
}

/// Carries everything between the caller and the task until the task has ended, its output is drained and no
/// process of the session is left. The task is released by this, when all is in place: an error means that it never started.
pub fn relay(
    terminal: Option<&Terminal>,
    stdio: Stdio,
    launched: Launched,
    signals: &Signals,
    beside: Beside<'_>,
) -> Result<Relayed> {
    let Launched { child, mut events, init, .. } = launched;
    let restore = Restore;
    let (mut state, slave) = match Loop::new(terminal, stdio, signals, init) {
        Ok(ready) => ready,
        Err(failure) => {
            Leaving::new(child, events).wait();
            return Err(failure);
        }
    };
    state.take_turn();
    // A helper that can't be told any more has said why, or is gone: the loop finds out.
    let _ = events.release();
    let end = state.run(&mut events, beside);
    let mut leaving = Leaving::new(child, events);
    match &end {
        // Said when no process of the session is left: nobody need wait until its mounts are undone, too. Whoever takes
        // the session up next waits for its lock.
        End::Event(Event::Exited(_)) => {}
        End::Event(
            Event::Challenge(_)
            | Event::Ready(_)
            | Event::ExecFailed { .. }
            | Event::Failed(_)
            | Event::BoundaryLost { .. }
            | Event::LinkLost
            | Event::Egress(_),
        )
        | End::Silent
        | End::Signal(_) => leaving.wait(),
    }
    drop(slave);
    state.drain();
    if let Some(terminal) = terminal.filter(|_| state.commanded) {
        terminal.calm();
    }
    drop(restore);
    Ok(Relayed { end, lost: state.lost, leaving })
}

impl<'a> Loop<'a> {
    /// Sets everything up; gives the terminal's slave, too, which must be let go of at the end.
    fn new(
        terminal: Option<&'a Terminal>,
        stdio: Stdio,
        signals: &'a Signals,
        init: OwnedFd,
    ) -> Result<(Self, Option<OwnedFd>)> {
        let Stdio { ours: Ours { pty, stdin, outputs }, .. } = stdio;
        let mut copies = Vec::new();
        let outside = [rustix::stdio::stdout(), rustix::stdio::stderr()];
        for (read, write) in outputs.into_iter().zip(outside) {
            if let Some(read) = read {
                copies.push(Copy::new(read, write));
            }
        }
        let (master, slave) = match pty {
            Some(pty) => (Some(Arc::new(pty.master)), Some(pty.slave)),
            None => (None, None),
        };
        let (mut keys, mut screen) = (None, None);
        if let (Some(master), Some(terminal)) = (&master, terminal) {
            let master = Side::Ours(Arc::clone(master));
            keys = Some(Feed::of_keys(Side::Caller(terminal.fd()), master.clone()));
            screen = Some(Feed::new(master, terminal.screen()));
        }
        let input = Side::Caller(rustix::stdio::stdin());
        let stdin = stdin.map(|fd| Feed::new(input, Side::Ours(Arc::new(fd))));
        let (forward_keys, lost, commanded) = (false, None, false);
        let this = Self {
            terminal,
            master,
            keys,
            screen,
            stdin,
            copies,
            signals,
            init,
            forward_keys,
            lost,
            commanded,
        };
        Ok((this, slave))
    }
}

impl Loop<'_> {
    fn run(&mut self, events: &mut EventSocket, beside: Beside<'_>) -> End {
        let Beside { note, later: (after, later), pace } = beside;
        let mut later = Some((Instant::now() + after, later));
        let pace = pace.filter(|_| self.screen.is_some());
        let mut turns = pace.map(|pace| Turns { rhythm: Rhythm::new(Instant::now()), pace });
        loop {
            // A shell that brings a running job to the foreground says so to nobody.
            let asks = |t: &&Terminal| t.is_shared() || !self.forward_keys;
            let turn = self.terminal.filter(asks).map(|_| TURN);
            let rest = turns.as_ref().and_then(|turns| turns.rhythm.due());
            let next = later.as_ref().map(|(at, _)| *at).into_iter().chain(rest).min();
            let left = next.map(|at| at.saturating_duration_since(Instant::now()));
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let limit = left.into_iter().chain(turn).min();
            let mut fds = vec![
                PollFd::new(&*events, PollFlags::IN),
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            ];
            let keys = self.keys.as_ref().filter(|_| self.forward_keys);
            let [keys_at, screen_at, stdin_at] = [keys, self.screen.as_ref(), self.stdin.as_ref()]
                .map(|feed| feed.and_then(Feed::interest).map(|i| push(&mut fds, i)));
            let copies_at = fds.len();
            watch(&mut fds, &self.copies);
            match rustix::event::poll(&mut fds, limit.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                // Whoever can't wait can't watch over a session either: it ends.
                Err(_) => return End::Silent,
            }
            let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
            let heard = ready(0);
            let signalled = ready(1);
            let [keys_ready, screen_ready, stdin_ready] =
                [keys_at, screen_at, stdin_at].map(|at| at.is_some_and(ready));
            let came = revents(&fds, copies_at);
            drop(fds);
            advance(&mut self.keys, keys_ready);
            self.advance_screen(screen_ready);
            advance(&mut self.stdin, stdin_ready);
            if let Some(turns) = &mut turns {
                let typed = self.keys.as_mut().filter(|_| keys_ready).map(Feed::take_keys);
                turns.follow(typed, screen_ready);
            }
            if signalled && let Some(signal) = self.handle_signals() {
                return End::Signal(signal);
            }
            if turn.is_some() {
                self.take_turn();
            }
            if let Some((_, later)) = later.take_if(|(at, _)| *at <= Instant::now()) {
                later();
            }
            self.advance_copies(&came);
            self.notice_hangup();
            if heard {
                match events.receive() {
                    Ok(Received::Event(Event::Egress(egress), _)) => note(&egress),
                    Ok(Received::Event(event, _)) => return End::Event(event),
                    Ok(Received::Pending) => {}
                    Ok(Received::Closed) | Err(_) => return End::Silent,
                }
            }
        }
    }

    fn advance_screen(&mut self, ready: bool) {
        advance(&mut self.screen, ready);
        self.commanded |= self.screen.as_ref().is_some_and(Feed::has_commanded);
    }

    /// Goes on with the copies, of which `came` holds what was seen of each; forgets those that have ended.
    fn advance_copies(&mut self, came: &[[PollFlags; 2]]) {
        let mut came = came.iter();
        let ends = |copy: &mut Copy| came.next().is_some_and(|seen| copy.advance(*seen));
        for copy in self.copies.extract_if(.., ends) {
            self.lost = self.lost.or(copy.lost());
        }
    }

    /// When the caller's terminal is gone, letting go of the master hangs the task's terminal up too.
    fn notice_hangup(&mut self) {
        let mut gone = self.screen.as_ref().is_some_and(Feed::is_over);
        if self.keys.as_ref().is_some_and(Feed::is_over) {
            self.keys = None;
            match (&self.master, self.terminal.is_some_and(Terminal::is_shared)) {
                // A terminal that was left as it is for others turns the end-of-file key into an end of file.
                (Some(master), true) => {
                    let _ = rustix::io::write(&**master, b"\x04");
                }
                (Some(_), false) => gone = true,
                (None, _) => {}
            }
        }
        if gone {
            (self.screen, self.keys, self.master) = (None, None, None);
        }
    }

    fn take_turn(&mut self) {
        if let (Some(terminal), Some(master)) = (self.terminal, &self.master) {
            self.forward_keys = terminal.turn(&**master);
        }
    }

    /// Does what the signals that came ask for; gives one that ends the session.
    fn handle_signals(&mut self) -> Option<i32> {
        for caught in self.signals.take() {
            let signal = match caught {
                Caught::End(number) => return Some(number),
                Caught::Task(signal) => {
                    let _ = rustix::process::pidfd_send_signal(&self.init, signal);
                    continue;
                }
                Caught::Terminal(signal) => signal,
            };
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
        None
    }

    /// Waits until the output has reached the caller: for as long as a slow reader takes, but not for a task's
    /// descriptor that lives on outside the session.
    fn drain(&mut self) {
        (self.keys, self.stdin, self.master) = (None, None, None);
        let mut seen = Vec::new();
        let mut since = Instant::now();
        while self.screen.is_some() || !self.copies.is_empty() {
            let mut fds = vec![PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN)];
            let screen = self.screen.as_ref().and_then(Feed::interest);
            let screen_at = screen.map(|interest| push(&mut fds, interest));
            let copies_at = fds.len();
            watch(&mut fds, &self.copies);
            if rustix::event::poll(&mut fds, Some(&TURN)).is_err_and(|e| e != Errno::INTR) {
                return;
            }
            let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
            let screen_ready = screen_at.is_some_and(ready);
            let came = revents(&fds, copies_at);
            drop(fds);
            self.advance_screen(screen_ready);
            self.screen = self.screen.take().filter(|screen| !screen.is_over());
            self.advance_copies(&came);
            let hurries = |caught| matches!(caught, Caught::Task(_) | Caught::End(_));
            if self.signals.take().into_iter().any(hurries) {
                return;
            }
            let copies = self.copies.iter().map(Copy::progress);
            let now: Vec<(u64, bool)> =
                copies.chain(self.screen.iter().map(Feed::progress)).collect();
            if now != seen || now.iter().any(|(_, waiting)| *waiting) {
                seen = now;
                since = Instant::now();
            } else if since.elapsed() > SILENCE {
                return;
            }
        }
    }
}

/// The turns of what runs on the terminal, and who wants to know of them.
struct Turns<'a> {
    rhythm: Rhythm,
    pace: &'a mut dyn Pace,
}

impl Turns<'_> {
    /// Goes on with keys that came, and output.
    fn follow(&mut self, keys: Option<Keys>, output: bool) {
        let now = Instant::now();
        let meaning = keys.map(|keys| self.rhythm.keys(keys, now)).unwrap_or_default();
        if meaning.typing {
            self.pace.typing();
        }
        if meaning.turn {
            self.pace.turn();
        }
        if output {
            self.rhythm.output(now);
        }
        if self.rhythm.comes_to_rest(now) {
            self.pace.rest();
        }
    }
}

fn advance(feed: &mut Option<Feed>, ready: bool) {
    if let Some(feed) = feed.as_mut().filter(|_| ready) {
        feed.advance();
    }
}

/// Watches the copies, after everything else that is watched.
fn watch<'fd>(fds: &mut Vec<PollFd<'fd>>, copies: &'fd [Copy]) {
    let watched = copies.iter().flat_map(Copy::watched);
    fds.extend(watched.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
}

/// What was seen of the copies, which are watched from `first` on.
fn revents(fds: &[PollFd<'_>], first: usize) -> Vec<[PollFlags; 2]> {
    let pairs = fds.get(first..).unwrap_or_default().as_chunks::<2>().0;
    pairs.iter().map(|pair| pair.each_ref().map(PollFd::revents)).collect()
}

fn push<'fd>(
    fds: &mut Vec<PollFd<'fd>>,
    (fd, flags): (rustix::fd::BorrowedFd<'fd>, PollFlags),
) -> usize {
    fds.push(PollFd::from_borrowed_fd(fd, flags));
    fds.len() - 1
}
