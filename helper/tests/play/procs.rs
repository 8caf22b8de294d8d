//! Processes of the helper, seen from outside.

use std::fs;
use std::time::{Duration, Instant};

/// All children, and theirs, each before its own.
pub(crate) fn descendants(of: i32) -> Vec<i32> {
    let path = format!("/proc/{of}/task/{of}/children");
    let children = fs::read_to_string(path).unwrap_or_default();
    children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .flat_map(|pid| [vec![pid], descendants(pid)].concat())
        .collect()
}

/// The name of a process.
pub(crate) fn name(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// Whether it runs: what only waits to be reaped does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

/// Waits for the end of all of them.
#[track_caller]
pub(crate) fn gone(pids: &[i32], seconds: u64) {
    let since = Instant::now();
    while pids.iter().any(|pid| is_alive(*pid)) {
        assert!(since.elapsed() < Duration::from_secs(seconds), "{pids:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
