//! Looking at processes from the host: who descends from whom, who is still there.

use std::fs;
use std::time::{Duration, Instant};

/// One process, told from a later one of the same number by its start time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proc {
    /// Its number on the host.
    pub pid: i32,
    /// Its parent's.
    pub parent: i32,
    /// Its name.
    pub name: String,
    /// State letter.
    pub state: char,
    /// Its start, in ticks since boot.
    pub start: u64,
}

impl Proc {
    /// Reads one process; `None` if there is none.
    pub fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name is in brackets and may hold anything.
        let (head, tail) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = tail.split(' ').collect();
        Some(Self {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            name: head.split_once('(')?.1.to_owned(),
            state: fields.first()?.chars().next()?,
            start: fields.get(19)?.parse().ok()?,
        })
    }

    /// Whether it still runs: not gone, not a zombie.
    pub fn alive(&self) -> bool {
        Self::read(self.pid).is_some_and(|now| now.start == self.start && now.state != 'Z')
    }
}

/// The time by the kernel's clock that never jumps: the same for every process.
pub fn now() -> Duration {
    let rustix::time::Timespec { tv_sec, tv_nsec } =
        rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(tv_sec.unsigned_abs(), u32::try_from(tv_nsec).unwrap_or(0))
}

/// Every process there is.
pub fn all() -> Vec<Proc> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).filter_map(Proc::read).collect()
}

/// The children of `pid`, their children, and so on.
pub fn descendants(pid: i32) -> Vec<Proc> {
    let all = all();
    let mut found: Vec<Proc> = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for child in all.iter().filter(|p| p.parent == parent) {
            parents.push(child.pid);
            found.push(child.clone());
        }
    }
    found
}

/// Waits until `until` gives something; fails the test after `seconds`.
#[track_caller]
pub fn wait_for<T>(what: &str, seconds: u64, mut until: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(found) = until() {
            return found;
        }
        assert!(Instant::now() < end, "waited {seconds} s for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Fails the test unless all of them are gone in time.
#[track_caller]
pub fn gone(procs: &[Proc], seconds: u64) {
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        let left: Vec<&Proc> = procs.iter().filter(|p| p.alive()).collect();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "still there after {seconds} s: {left:#?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends processes of a test that failed.
pub fn kill_all(procs: &[Proc]) {
    for one in procs.iter().filter(|p| p.alive()) {
        kill(one.pid, rustix::process::Signal::KILL);
    }
}

/// Sends a signal; it doesn't matter if the process is gone.
pub fn kill(pid: i32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Mount points on the host that lie below `path`.
pub fn mounts_below(path: &std::path::Path) -> Vec<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = text.lines().filter_map(crate::probe::Mount::parse).map(|m| m.point);
    points.filter(|point| std::path::Path::new(point).starts_with(path)).collect()
}
