//! The processes of a running session, found from outside by the pid namespace its evidence names.

use crate::session::store::Session;
use landbox_shared::evidence::Evidence;
use landbox_shared::wire;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// A process, held so that its number cannot become another's.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) fd: OwnedFd,
    /// Ticks since boot at which it started: with the number, its identity.
    pub(super) started: u64,
    /// How many of its ancestors belong to the session.
    pub(super) depth: usize,
    /// As `/proc` writes it.
    pub(super) state: u8,
}

/// What `/proc/PID/stat` says.
struct Stat {
    parent: i32,
    started: u64,
    state: u8,
}

/// What the helper read back at the newest launch.
pub(super) fn evidence(session: &Session) -> Option<Evidence> {
    let number = session.state.launches.last()?.number;
    let path = session.dir.join("launches").join(number.to_string()).join("evidence");
    wire::open_evidence(&std::fs::read(path).ok()?).ok().map(|(evidence, _)| evidence)
}

/// The inode number of a namespace of the newest launch.
fn namespace(session: &Session, kind: &str) -> Option<u64> {
    evidence(session)?
        .namespaces
        .into_iter()
        .find(|ns| ns.kind == kind && ns.own)
        .map(|ns| ns.inode)
}

/// Every process inside but the session's init, which writes nothing; parents before their children.
pub(super) fn inside(session: &Session) -> Vec<Process> {
    let Some(inode) = namespace(session, "pid") else { return Vec::new() };
    let mut found = Vec::new();
    let mut parents = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let Some(pid) = Pid::from_raw(number) else { continue };
        if inode_of(number, "pid") != Some(inode) {
            continue;
        }
        let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        // Looked at again behind the descriptor: from here on the number means this process or none.
        let (Some(again), Some(stat)) = (inode_of(number, "pid"), stat(number)) else { continue };
        if again != inode || is_init(number) {
            continue;
        }
        parents.insert(number, stat.parent);
        found.push(Process { pid, fd, started: stat.started, depth: 0, state: stat.state });
    }
    for process in &mut found {
        let mut at = process.pid.as_raw_nonzero().get();
        while let Some(parent) = parents.get(&at)
            && process.depth < parents.len()
        {
            process.depth += 1;
            at = *parent;
        }
    }
    found.sort_by_key(|process| (process.depth, process.pid.as_raw_nonzero()));
    found
}

/// A process in the task's own mount namespace, by whose root its files are reached.
pub(super) fn root_of(session: &Session) -> Option<PathBuf> {
    let inode = namespace(session, "mnt")?;
    let processes = inside(session);
    let own =
        processes.iter().find(|p| inode_of(p.pid.as_raw_nonzero().get(), "mnt") == Some(inode))?;
    Some(PathBuf::from(format!("/proc/{}/root", own.pid.as_raw_nonzero())))
}

fn inode_of(pid: i32, kind: &str) -> Option<u64> {
    std::fs::metadata(format!("/proc/{pid}/ns/{kind}")).ok().map(|meta| meta.ino())
}

/// Whether it is process 1 of its own pid namespace.
fn is_init(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.is_some_and(|line| line.split_whitespace().next_back() == Some("1"))
}

fn stat(pid: i32) -> Option<Stat> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, brackets and spaces too; what follows its last bracket is ours to trust.
    let at = text.iter().rposition(|b| *b == b')')? + 1;
    let rest = std::str::from_utf8(text.get(at..)?).ok()?;
    let mut words = rest.split_whitespace();
    let state = *words.next()?.as_bytes().first()?;
    let parent = words.next()?.parse().ok()?;
    let started = words.nth(17)?.parse().ok()?;
    Some(Stat { parent, started, state })
}

/// Whether a process neither runs nor will by itself.
pub(super) fn is_still(process: &Process) -> bool {
    stat(process.pid.as_raw_nonzero().get()).is_none_or(|s| {
        s.started != process.started || matches!(s.state, b'T' | b't' | b'Z' | b'X')
    })
}

/// When a process started.
#[cfg(test)]
pub(super) fn started(pid: i32) -> Option<u64> {
    stat(pid).map(|stat| stat.started)
}

/// Whether a number still means the process that started then.
pub(super) fn is_same(pid: i32, started: u64) -> bool {
    stat(pid).is_some_and(|stat| stat.started == started)
}
