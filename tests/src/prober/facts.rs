//! What a process can read about itself.

use crate::sys::{Arg, call, n};
use landbox_tests::probe::{Facts, Mount, Stdio};
use rustix::{process, system, termios};
use std::fs;
use std::io::{stderr, stdin, stdout};
use std::os::fd::{AsFd, AsRawFd};

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn names(dir: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn link(path: &str) -> String {
    fs::read_link(path).map(|p| p.to_string_lossy().into_owned()).unwrap_or_default()
}

fn stdio(fd: impl AsFd + AsRawFd) -> Stdio {
    // By number: a group of the host shows as 0 in here, which libraries refuse to believe.
    let mine = call(libc::SYS_getpgid, vec![n(0)]).ok();
    let mut group = [0; 4];
    let asked = call(libc::SYS_ioctl, vec![n(fd.as_raw_fd()), n(0x540f), Arg::M(&mut group)]);
    let group = asked.ok().map(|_| i64::from(i32::from_ne_bytes(group)));
    Stdio {
        tty: termios::isatty(&fd),
        size: termios::tcgetwinsize(&fd).ok().map(|w| (w.ws_col, w.ws_row)),
        foreground: group.is_some() && group == mine,
    }
}

pub(crate) fn facts() -> Facts {
    let status: std::collections::BTreeMap<_, _> = read("/proc/self/status")
        .lines()
        .filter_map(|l| l.split_once(':'))
        .map(|(k, v)| (k.to_owned(), v.trim().to_owned()))
        .collect();
    let ids = |key: &str| {
        let field = status.get(key).map(String::as_str).unwrap_or_default();
        field.split_whitespace().filter_map(|n| n.parse().ok()).collect()
    };
    let uid_map = read("/proc/self/uid_map");
    Facts {
        uids: ids("Uid"),
        gids: ids("Gid"),
        pid: std::process::id(),
        ppid: process::getppid().map_or(0, |p| p.as_raw_nonzero().get()),
        cwd: std::env::current_dir().map(|p| p.to_string_lossy().into_owned()).unwrap_or_default(),
        hostname: system::uname().nodename().to_string_lossy().into_owned(),
        namespaces: names("/proc/self/ns")
            .into_iter()
            .map(|n| (n.clone(), link(&format!("/proc/self/ns/{n}"))))
            .collect(),
        uid_map: uid_map.split_whitespace().collect::<Vec<_>>().join(" "),
        mounts: read("/proc/self/mountinfo").lines().filter_map(Mount::parse).collect(),
        fds: names("/proc/self/fd")
            .into_iter()
            // The descriptor that lists the folder is gone by now.
            .filter_map(|n| Some((n.parse().ok()?, link(&format!("/proc/self/fd/{n}")))))
            .filter(|(_, target)| !target.is_empty())
            .collect(),
        env: std::env::vars_os()
            .map(|(k, v)| (k.to_string_lossy().into_owned(), v.to_string_lossy().into_owned()))
            .collect(),
        pids: names("/proc").iter().filter_map(|n| n.parse().ok()).collect(),
        dev: names("/dev"),
        stdio: vec![stdio(stdin()), stdio(stdout()), stdio(stderr())],
        status,
    }
}
