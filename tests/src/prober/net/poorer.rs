//! Becoming a program on a kernel that lacks something.

use landbox_seccomp::Program;
use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};
use std::io;
use std::os::unix::process::CommandExt;

/// Becomes `command`, on a kernel that lacks a part by its answers; `None` for a part that is not known.
pub(crate) fn without(part: &str, command: &[&str]) -> Option<io::Error> {
    let filter = match part {
        "nf-tables" => refuses_netfilter(),
        "landlock" => refuses_landlock(),
        _ => return None,
    };
    let Some((program, args)) = command.split_first() else {
        return Some(io::Error::other("no command"));
    };
    let filtered = rustix::thread::set_no_new_privs(true)
        .map_err(io::Error::from)
        .and_then(|()| landbox_seccomp::install(&[filter]).map_err(io::Error::other));
    Some(match filtered {
        Ok(()) => std::process::Command::new(program).args(args).exec(),
        Err(error) => error,
    })
}

/// `socket(AF_NETLINK, .., NETLINK_NETFILTER)` answers as where the module is not there; all else passes.
fn refuses_netfilter() -> Program {
    // The call's number is at 0 of seccomp_data, its arguments from 16 on.
    vec![
        load(0),
        unless(libc::SYS_socket, 5),
        load(16),
        unless(libc::AF_NETLINK, 3),
        load(32),
        unless(libc::NETLINK_NETFILTER, 1),
        answer(libc::SECCOMP_RET_ERRNO | libc::EPROTONOSUPPORT.unsigned_abs()),
        answer(libc::SECCOMP_RET_ALLOW),
    ]
}

/// `landlock_create_ruleset` answers as where it was left out of the list of security modules.
fn refuses_landlock() -> Program {
    vec![
        load(0),
        unless(libc::SYS_landlock_create_ruleset, 1),
        answer(libc::SECCOMP_RET_ERRNO | libc::EOPNOTSUPP.unsigned_abs()),
        answer(libc::SECCOMP_RET_ALLOW),
    ]
}

fn load(at: u32) -> sock_filter {
    sock_filter { code: op(BPF_LD | BPF_W | BPF_ABS), jt: 0, jf: 0, k: at }
}

/// Goes on where the loaded value is this one, else `past` further.
fn unless(value: impl Into<i64>, past: u8) -> sock_filter {
    let k = u32::try_from(value.into()).unwrap_or_default();
    sock_filter { code: op(BPF_JMP | BPF_JEQ | BPF_K), jt: 0, jf: past, k }
}

fn answer(k: u32) -> sock_filter {
    sock_filter { code: op(BPF_RET | BPF_K), jt: 0, jf: 0, k }
}

fn op(code: u32) -> u16 {
    u16::try_from(code).unwrap_or_default()
}
