//! Holding a running session still for a moment.
//!
//! Parents are stopped before their children and go on after them: in any other order a shell would see its foreground
//! program stop, and take the terminal back. (A cgroup's freezer would need no order; but a
//! session is in its caller's cgroup, with whatever else runs in that terminal. One of its own can be made only where the
//! caller's parent cgroup is the caller's to write, which systemd grants below `user@.service` alone and no login shell
//! is in; and where there are two ways the second is the one that is not tried.) What the owner has stopped already stays stopped. A second process wakes the
//! session should this one be killed meanwhile.

use super::procs::{self, Process};
use crate::session::store::Session;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a session may be held still.
const LIMIT: Duration = Duration::from_millis(200);
/// The word by which the second process is told that all is well.
const DONE: &str = "done";

/// Whether the session is held, and for whom the clock waits.
type Held = Arc<(Mutex<State>, Condvar)>;

#[derive(Debug, Default)]
struct State {
    stopped: Vec<Process>,
    over: bool,
    expired: bool,
}

impl State {
    /// Lets all of them go on, children first.
    fn wake(&mut self) {
        self.stopped.sort_by_key(|process| process.depth);
        while let Some(process) = self.stopped.pop() {
            let _ = pidfd_send_signal(&process.fd, Signal::CONT);
        }
    }
}

/// A session that is held still, until this is dropped or the limit has passed.
#[derive(Debug)]
pub(super) struct Frozen {
    held: Held,
    clock: Option<JoinHandle<()>>,
    guard: Option<Child>,
    until: Instant,
}

impl Frozen {
    /// Stops every process of the session; `None` where that can't be had in time.
    pub(super) fn hold(session: &Session) -> Option<Self> {
        let guard = guard()?;
        let until = Instant::now() + LIMIT;
        let held: Held = Arc::default();
        let shared = Arc::clone(&held);
        let clock = std::thread::Builder::new().name("thaw".into());
        let clock = clock.spawn(move || watch(&shared, until)).ok();
        let mut frozen = Self { held, clock, guard: Some(guard), until };
        (frozen.clock.is_some() && frozen.stop(session)).then_some(frozen)
    }

    fn stop(&mut self, session: &Session) -> bool {
        // What is born while we stop the others is found by the next look. No more than two are needed where nothing
        // makes processes without end.
        while Instant::now() < self.until {
            let all = procs::inside(session);
            if all.is_empty() {
                return false;
            }
            let fresh: Vec<Process> =
                all.into_iter().filter(|p| !matches!(p.state, b'T' | b't' | b'Z' | b'X')).collect();
            if fresh.is_empty() {
                return true;
            }
            // A parent must be still before its child stops, or it would hear of that.
            let mut rest = fresh.into_iter().peekable();
            while let Some(depth) = rest.peek().map(|process| process.depth) {
                while let Some(process) = rest.next_if(|process| process.depth == depth) {
                    if !self.halt(process) {
                        return false;
                    }
                }
                self.settle();
            }
        }
        false
    }

    fn halt(&mut self, process: Process) -> bool {
        // The guard first: whoever kills us must not leave it stopped.
        if !self.tell(&process) {
            return false;
        }
        let Ok(mut state) = self.held.0.lock() else { return false };
        if state.expired {
            return false;
        }
        if pidfd_send_signal(&process.fd, Signal::STOP).is_ok() {
            state.stopped.push(process);
        }
        true
    }

    /// Waits until all that were told have stopped.
    fn settle(&self) {
        while Instant::now() < self.until
            && !self.held.0.lock().is_ok_and(|state| state.stopped.iter().all(procs::is_still))
        {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn tell(&mut self, process: &Process) -> bool {
        let line = format!("{} {}\n", process.pid.as_raw_nonzero(), process.started);
        let pipe = self.guard.as_mut().and_then(|guard| guard.stdin.as_mut());
        pipe.is_some_and(|pipe| pipe.write_all(line.as_bytes()).is_ok())
    }

    /// Time that is left.
    pub(super) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Lets the session go on; says whether it was still all the time.
    pub(super) fn release(mut self) -> bool {
        self.end()
    }

    fn end(&mut self) -> bool {
        let held = self.held.0.lock().is_ok_and(|mut state| {
            state.wake();
            state.over = true;
            !state.expired
        });
        self.held.1.notify_all();
        if let Some(clock) = self.clock.take() {
            let _ = clock.join();
        }
        if let Some(mut guard) = self.guard.take() {
            let told = guard.stdin.take().is_some_and(|mut pipe| writeln!(pipe, "{DONE}").is_ok());
            if told {
                let _ = guard.wait();
            }
        }
        held
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if self.clock.is_some() || self.guard.is_some() {
            self.end();
        }
    }
}

/// Wakes the session when the time is over.
fn watch(held: &Held, until: Instant) {
    let Ok(mut state) = held.0.lock() else { return };
    while !state.over {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            state.expired = true;
            state.wake();
            return;
        }
        match held.1.wait_timeout(state, left) {
            Ok((back, _)) => state = back,
            Err(_) => return,
        }
    }
}

/// This program again, in a process group of its own, which no key of the terminal reaches.
fn guard() -> Option<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["util", "thaw"]).stdin(Stdio::piped()).stdout(Stdio::null());
    command.stderr(Stdio::null()).process_group(0).current_dir("/").spawn().ok()
}

/// The second process: reads who was stopped, and wakes them if the first one ends without a word.
pub fn guard_main(from: impl BufRead) {
    let mut stopped = Vec::new();
    for line in from.lines().map_while(Result::ok) {
        if line == DONE {
            return;
        }
        let mut words = line.split(' ');
        let number = words.next().and_then(|word| word.parse::<i32>().ok());
        let started = words.next().and_then(|word| word.parse::<u64>().ok());
        stopped.extend(number.zip(started));
    }
    // They came parents first.
    for (number, started) in stopped.into_iter().rev() {
        let Some(pid) = Pid::from_raw(number) else { continue };
        let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        if procs::is_same(number, started) {
            let _ = pidfd_send_signal(&fd, Signal::CONT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stopped() -> (Child, Process) {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let fd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let started = procs::started(pid.as_raw_nonzero().get()).unwrap();
        let process = Process { pid, fd, started, depth: 0, state: b'S' };
        pidfd_send_signal(&process.fd, Signal::STOP).unwrap();
        until(|| procs::is_still(&process));
        (child, process)
    }

    fn until(holds: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !holds() {
            assert!(Instant::now() < end);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Another hold on the same process.
    fn again(process: &Process) -> Process {
        let fd = pidfd_open(process.pid, PidfdFlags::empty()).unwrap();
        Process { fd, ..*process }
    }

    #[test]
    fn when_the_time_is_over_the_session_goes_on_whatever_its_reader_does() {
        let (mut child, process) = stopped();
        let held: Held = Arc::default();
        held.0.lock().unwrap().stopped.push(again(&process));
        watch(&held, Instant::now());
        until(|| !procs::is_still(&process));
        let state = held.0.lock().unwrap();
        assert!(state.expired && state.stopped.is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn the_second_process_wakes_whom_the_first_one_stopped_unless_it_says_that_all_is_well() {
        let (mut child, process) = stopped();
        let line = format!("{} {}\n", process.pid.as_raw_nonzero(), process.started);
        guard_main(format!("{line}{DONE}\n").as_bytes());
        // Another process of that number, and words that mean nothing.
        guard_main(format!("{} {}\n0 0\nx\n", child.id(), process.started + 1).as_bytes());
        assert!(procs::is_still(&process));
        guard_main(line.as_bytes());
        until(|| !procs::is_still(&process));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
