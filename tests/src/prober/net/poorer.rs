//! Becoming a program on a kernel that lacks something.

use landbox_seccomp::Program;
use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};
use std::io;
use std::os::unix::process::CommandExt;

/// Becomes the command, for which the kernel has no netlink to netfilter.
pub(crate) fn without_nf_tables(command: &[&str]) -> io::Error {
    let Some((program, args)) = command.split_first() else {
        return io::Error::other("no command");
    };
    let filtered = rustix::thread::set_no_new_privs(true)
        .map_err(io::Error::from)
        .and_then(|()| landbox_seccomp::install(&[refuses_netfilter()]).map_err(io::Error::other));
    match filtered {
        Ok(()) => std::process::Command::new(program).args(args).exec(),
        Err(error) => error,
    }
}

/// `socket(AF_NETLINK, .., NETLINK_NETFILTER)` answers as where the module is not there; all else passes.
fn refuses_netfilter() -> Program {
    let socket = u32::try_from(libc::SYS_socket).unwrap_or_default();
    // The call's number is at 0 of seccomp_data, its arguments from 16 on.
    let load = |at| sock_filter { code: op(BPF_LD | BPF_W | BPF_ABS), jt: 0, jf: 0, k: at };
    let unless = |value, past| sock_filter {
        code: op(BPF_JMP | BPF_JEQ | BPF_K),
        jt: 0,
        jf: past,
        k: value,
    };
    let answer = |k| sock_filter { code: op(BPF_RET | BPF_K), jt: 0, jf: 0, k };
    vec![
        load(0),
        unless(socket, 5),
        load(16),
        unless(libc::AF_NETLINK.unsigned_abs(), 3),
        load(32),
        unless(libc::NETLINK_NETFILTER.unsigned_abs(), 1),
        answer(libc::SECCOMP_RET_ERRNO | libc::EPROTONOSUPPORT.unsigned_abs()),
        answer(libc::SECCOMP_RET_ALLOW),
    ]
}

fn op(code: u32) -> u16 {
    u16::try_from(code).unwrap_or_default()
}
