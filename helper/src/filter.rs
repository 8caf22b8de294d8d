//! The monitor's own filter: what it still needs while it watches, and nothing else. Its memory held the environment of
//! the task, and it lives as long as the session.

use crate::failure::refused;
use landbox_seccomp::Program;
use landbox_shared::event::{Failure, Stage};
use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// Number and reason.
const NEEDED: &[(i64, &str)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_poll, "waiting"),
    (libc::SYS_ppoll, "waiting"),
    (libc::SYS_restart_syscall, "waiting on after it was stopped and continued"),
    (libc::SYS_recvmsg, "hearing from init and the controller"),
    (libc::SYS_sendmsg, "talking to both"),
    (libc::SYS_read, "the list of mounts, and what a daemon complained about"),
    (libc::SYS_lseek, "the list of mounts, again"),
    (libc::SYS_statx, "the standard library asks for a file's size before it reads it"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_fstat, "the same, in older versions"),
    (libc::SYS_pidfd_send_signal, "ending init and the daemons"),
    (libc::SYS_wait4, "reaping them"),
    (libc::SYS_close, "letting go of what was passed on"),
    #[cfg(debug_assertions)]
    (libc::SYS_fcntl, "the standard library checks a descriptor before it closes it"),
    (libc::SYS_brk, "memory"),
    (libc::SYS_mmap, "memory"),
    (libc::SYS_munmap, "memory"),
    (libc::SYS_mremap, "memory"),
    (libc::SYS_madvise, "memory"),
    (libc::SYS_getrandom, "seeds of hash tables"),
    (libc::SYS_rt_sigreturn, "coming back from a handler"),
    (libc::SYS_rt_sigprocmask, "ending after a defect"),
    (libc::SYS_gettid, "ending after a defect"),
    (libc::SYS_getpid, "ending after a defect"),
    (libc::SYS_tgkill, "ending after a defect"),
    (libc::SYS_exit_group, "ending"),
];

/// Installs it on this process. Everything else ends the process, and with it the session.
pub(crate) fn install() -> Result<(), Failure> {
    const STAGE: Stage = Stage::Confine;
    let program =
        program().ok_or_else(|| refused(STAGE, "the monitor's filter does not compile"))?;
    landbox_seccomp::install(&[program]).map_err(|e| refused(STAGE, e))
}

fn program() -> Option<Program> {
    let op = |code: u32| u16::try_from(code).ok();
    let statement = |code, k| Some(sock_filter { code: op(code)?, jt: 0, jf: 0, k });
    let equal = |k, jt, jf| Some(sock_filter { code: op(BPF_JMP | BPF_JEQ | BPF_K)?, jt, jf, k });
    let load = |offset| statement(BPF_LD | BPF_W | BPF_ABS, offset);
    let kill = || statement(BPF_RET | BPF_K, libc::SECCOMP_RET_KILL_PROCESS);
    // Offsets in seccomp_data: 4 the architecture, 0 the number.
    let mut program = vec![load(4)?, equal(ARCH, 1, 0)?, kill()?, load(0)?];
    for (left, (number, _)) in (0..NEEDED.len()).rev().zip(NEEDED) {
        // To the last instruction, over the remaining comparisons and the kill.
        program.push(equal(u32::try_from(*number).ok()?, u8::try_from(left + 1).ok()?, 0)?);
    }
    program.push(kill()?);
    program.push(statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW)?);
    Some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_needed_call_jumps_to_the_last_instruction_and_has_a_reason() {
        let program = program().unwrap();
        let last = program.len() - 1;
        assert_eq!(program[last].k, libc::SECCOMP_RET_ALLOW);
        for (at, (number, why)) in (4..).zip(NEEDED) {
            assert_eq!(i64::from(program[at].k), *number);
            assert_eq!(at + 1 + usize::from(program[at].jt), last);
            assert!(!why.is_empty());
        }
    }
}
