//! The base profile and those of our own processes, run by an interpreter.

use super::*;
use crate::table::{BASE, Number, TIOCLINUX, TIOCSTI, X32_BIT};

type Profile = fn(Arch) -> Result<Vec<Program>, Error>;

pub(super) const X86_64: u32 = 0xc000_003e;
pub(super) const I386: u32 = 0x4000_0003;
pub(super) const AARCH64: u32 = 0xc000_00b7;
pub(super) const ARM: u32 = 0x4000_0028;
pub(super) const EPERM: u32 = libc::SECCOMP_RET_ERRNO | 1;
pub(super) const ENOSYS: u32 = libc::SECCOMP_RET_ERRNO | 38;

/// Runs a program the way the kernel does, so that a filter for another machine can be tried on this one.
pub(super) fn run(program: &[sock_filter], arch: u32, nr: u32, args: [u64; 6]) -> u32 {
    let mut data = Vec::new();
    data.extend(nr.to_le_bytes());
    data.extend(arch.to_le_bytes());
    data.extend([0; 8]);
    args.iter().for_each(|a| data.extend(a.to_le_bytes()));
    let (mut at, mut acc) = (0, 0u32);
    loop {
        let i = program[at];
        at += 1;
        let jump = |yes: bool| usize::from(if yes { i.jt } else { i.jf });
        match i.code {
            0x20 => {
                let from = i.k as usize;
                acc = u32::from_le_bytes(data[from..from + 4].try_into().unwrap());
            }
            0x05 => at += i.k as usize,
            0x15 => at += jump(acc == i.k),
            0x25 => at += jump(acc > i.k),
            0x35 => at += jump(acc >= i.k),
            0x45 => at += jump(acc & i.k != 0),
            0x54 => acc &= i.k,
            0x06 => return i.k,
            other => panic!("instruction {other:#x} is not known"),
        }
    }
}

/// The strictest answer of all programs: the kernel compares the actions as signed numbers.
pub(super) fn strictest(programs: &[Program], audit: u32, nr: u32, args: [u64; 6]) -> u32 {
    let action = |a: &u32| (a & 0xffff_0000).cast_signed();
    programs.iter().map(|p| run(p, audit, nr, args)).min_by_key(action).unwrap()
}

fn answer(arch: Arch, audit: u32, nr: u32, args: [u64; 6]) -> u32 {
    strictest(&base(arch).unwrap(), audit, nr, args)
}

pub(super) const BOTH: [(Arch, u32); 2] = [(Arch::X86_64, X86_64), (Arch::Aarch64, AARCH64)];

pub(super) fn dump(programs: &[Program]) -> String {
    let mut out = String::new();
    for (n, program) in programs.iter().enumerate() {
        out.push_str(&format!("program {n}\n"));
        for i in program {
            out.push_str(&format!("{:#04x} {} {} {:#010x}\n", i.code, i.jt, i.jf, i.k));
        }
    }
    out
}

#[test]
fn the_programs_are_the_reviewed_ones() {
    for (arch, golden) in [
        (Arch::X86_64, include_str!("../../tests/golden/base.x86_64.txt")),
        (Arch::Aarch64, include_str!("../../tests/golden/base.aarch64.txt")),
    ] {
        let now = dump(&base(arch).unwrap());
        assert_eq!(now, golden, "{arch:?}: if the change is meant, the golden file is:\n{now}");
    }
}

#[test]
fn every_line_of_the_table_is_refused_on_both_architectures() {
    for (arch, audit) in BOTH {
        for rule in BASE {
            let mut args = [0; 6];
            if let When::Low32 { argument, value } = rule.when {
                args[usize::from(argument)] = u64::from(value);
            }
            assert_eq!(answer(arch, audit, rule.number.on(arch), args), EPERM, "{rule:?}");
        }
    }
}

#[test]
fn bits_above_the_32_that_the_kernel_reads_do_not_pass_the_filter() {
    for (arch, audit) in BOTH {
        for value in [TIOCSTI, TIOCLINUX] {
            let args = [0, 0xdead_beef_0000_0000 | u64::from(value), 0, 0, 0, 0];
            assert_eq!(answer(arch, audit, BASE[0].number.on(arch), args), EPERM);
        }
    }
}

#[test]
fn other_calls_and_other_ioctls_pass() {
    for (arch, audit) in BOTH {
        let ioctl = BASE[0].number.on(arch);
        for request in [0x5401, 0x5413, u64::from(TIOCSTI) << 32, 0] {
            let args = [u64::from(TIOCSTI), request, u64::from(TIOCSTI), 0, 0, 0];
            assert_eq!(answer(arch, audit, ioctl, args), libc::SECCOMP_RET_ALLOW);
        }
        for nr in (0..600).filter(|nr| BASE.iter().all(|r| r.number.on(arch) != *nr)) {
            assert_eq!(answer(arch, audit, nr, [0; 6]), libc::SECCOMP_RET_ALLOW, "{nr}");
        }
    }
}

#[test]
fn a_foreign_interface_ends_the_process_whatever_it_calls() {
    for nr in [0, 1, 26, 359, u32::MAX, X32_BIT | 16] {
        let kill = libc::SECCOMP_RET_KILL_PROCESS;
        assert_eq!(answer(Arch::X86_64, I386, nr, [0; 6]), kill);
        assert_eq!(answer(Arch::X86_64, AARCH64, nr, [0; 6]), kill);
        assert_eq!(answer(Arch::Aarch64, ARM, nr, [0; 6]), kill);
    }
}

#[test]
fn the_x32_bit_answers_enosys_and_minus_one_does_not_kill() {
    for nr in [X32_BIT, X32_BIT | 16, X32_BIT | 514, u32::MAX] {
        assert_eq!(answer(Arch::X86_64, X86_64, nr, [0; 6]), ENOSYS);
    }
}

#[test]
fn always_wins_over_a_condition_on_the_same_call() {
    for order in [[0, 1], [1, 0]] {
        let both = [BASE[0], Rule { when: When::Always, ..BASE[0] }];
        let rules = order.map(|i| both[i]);
        let programs = compile(&rules, Arch::X86_64).unwrap();
        assert_eq!(run(&programs[0], X86_64, 16, [0; 6]), EPERM);
    }
}

#[test]
fn each_error_number_gets_a_program_of_its_own() {
    let clone3 = Number { x86_64: 435, aarch64: 435 };
    let enosys = Rule {
        call: "clone3",
        number: clone3,
        when: When::Always,
        errno: libc::ENOSYS,
        why: "test",
    };
    let rules: Vec<Rule> = BASE.iter().copied().chain([enosys]).collect();
    assert_eq!(compile(&rules, Arch::X86_64).unwrap().len(), 2);
    assert_eq!(compile(&rules, Arch::Aarch64).unwrap().len(), 2);
}

#[test]
fn the_numbers_are_those_of_the_c_library() {
    let here = Arch::host().unwrap();
    let known = [
        ("ioctl", libc::SYS_ioctl),
        ("keyctl", libc::SYS_keyctl),
        ("add_key", libc::SYS_add_key),
        ("request_key", libc::SYS_request_key),
    ];
    for rule in BASE {
        let (_, number) = known.iter().find(|(name, _)| *name == rule.call).unwrap();
        assert_eq!(i64::from(rule.number.on(here)), *number, "{}", rule.call);
    }
    assert_eq!(u64::from(TIOCSTI), libc::TIOCSTI);
    assert_eq!(u64::from(TIOCLINUX), libc::TIOCLINUX);
}

#[test]
fn our_own_processes_can_do_what_they_need_and_nothing_else() {
    for (arch, audit) in BOTH {
        for (profile, table) in [(monitor as Profile, table::MONITOR), (init, table::INIT)] {
            let programs = profile(arch).unwrap();
            let death = u64::from(libc::PR_SET_PDEATHSIG.unsigned_abs());
            let run = |audit, nr| run(&programs[0], audit, nr, [death, 0, 0, 0, 0, 0]);
            let needed: Vec<u32> =
                table.iter().chain(table::KEEPERS).filter_map(|n| n.on(arch)).collect();
            for nr in (0..600).chain([X32_BIT, X32_BIT | 1, u32::MAX]) {
                let passes = run(audit, nr) == libc::SECCOMP_RET_ALLOW;
                assert_eq!(passes, needed.contains(&nr), "{arch:?} {nr}");
                assert!(passes || run(audit, nr) == libc::SECCOMP_RET_KILL_PROCESS);
                assert_eq!(run(I386, nr), libc::SECCOMP_RET_KILL_PROCESS);
            }
        }
    }
}

#[test]
fn the_monitor_changes_nothing_of_itself_but_its_death_signal() {
    for (arch, audit) in BOTH {
        let programs = monitor(arch).unwrap();
        let prctl = table::MONITOR.iter().find(|call| call.call == "prctl").unwrap();
        for option in 0..100 {
            let answer = run(&programs[0], audit, prctl.on(arch).unwrap(), [option, 0, 0, 0, 0, 0]);
            let passes = answer == libc::SECCOMP_RET_ALLOW;
            assert_eq!(passes, option == u64::from(libc::PR_SET_PDEATHSIG.unsigned_abs()));
        }
    }
}

#[test]
fn what_our_own_processes_need_has_the_numbers_of_the_c_library_and_a_reason() {
    let here = Arch::host().unwrap();
    let known = [
        #[cfg(target_arch = "x86_64")]
        ("poll", libc::SYS_poll),
        ("ppoll", libc::SYS_ppoll),
        ("restart_syscall", libc::SYS_restart_syscall),
        ("recvmsg", libc::SYS_recvmsg),
        ("sendmsg", libc::SYS_sendmsg),
        ("read", libc::SYS_read),
        ("wait4", libc::SYS_wait4),
        ("close", libc::SYS_close),
        ("fcntl", libc::SYS_fcntl),
        ("brk", libc::SYS_brk),
        ("mmap", libc::SYS_mmap),
        ("munmap", libc::SYS_munmap),
        ("mremap", libc::SYS_mremap),
        ("madvise", libc::SYS_madvise),
        ("rt_sigreturn", libc::SYS_rt_sigreturn),
        ("rt_sigprocmask", libc::SYS_rt_sigprocmask),
        ("gettid", libc::SYS_gettid),
        ("getpid", libc::SYS_getpid),
        ("tgkill", libc::SYS_tgkill),
        ("exit_group", libc::SYS_exit_group),
        ("lseek", libc::SYS_lseek),
        ("statx", libc::SYS_statx),
        ("fstat", libc::SYS_fstat),
        ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
        ("getrandom", libc::SYS_getrandom),
        ("clock_gettime", libc::SYS_clock_gettime),
        ("sendto", libc::SYS_sendto),
        ("kill", libc::SYS_kill),
        ("prctl", libc::SYS_prctl),
    ];
    for needed in [table::KEEPERS, table::MONITOR, table::RECORDER, table::INIT].concat() {
        let Some(number) = needed.on(here) else { continue };
        let (_, libcs) = known.iter().find(|(name, _)| *name == needed.call).unwrap();
        assert_eq!(i64::from(number), *libcs, "{}", needed.call);
        assert!(!needed.why.is_empty(), "{}", needed.call);
    }
}

#[test]
fn a_packet_that_could_change_the_packet_filter_ends_the_monitor() {
    let killed = libc::SECCOMP_RET_KILL_PROCESS;
    for (arch, audit) in BOTH {
        let programs = recorder(arch, 7).unwrap();
        let (sendto, sendmsg, recvmsg) = match arch {
            Arch::X86_64 => (44, 46, 47),
            Arch::Aarch64 => (206, 211, 212),
        };
        let passes = |nr, args: [u64; 3]| {
            let args = [args[0], args[1], args[2], 0, 0, 0];
            let action = |a: &u32| (a & 0xffff_0000).cast_signed();
            let answers = programs.iter().map(|p| run(p, audit, nr, args));
            answers.min_by_key(action).unwrap() != killed
        };
        assert!(passes(sendto, [7, 1 << 40, 48]) && passes(sendto, [7, 0, 59]));
        assert!(!passes(sendto, [7, 0, 60]) && !passes(sendto, [7, 0, (1 << 32) | 20]));
        assert!(!passes(sendto, [8, 0, 20]));
        assert!(!passes(sendmsg, [7, 0, 0]) && !passes(sendmsg, [(5 << 32) | 7, 0, 0]));
        assert!(passes(sendmsg, [8, 0, 0]) && passes(recvmsg, [7, 0, 0]));
    }
}

#[test]
fn a_shortened_program_decides_as_the_one_that_seccompiler_wrote() {
    let conditions = || {
        vec![
            all_of(1, SeccompCmpOp::Eq, &[3]).unwrap(),
            all_of(0, SeccompCmpOp::Ne, &[1, 2]).unwrap(),
        ]
    };
    for (arch, audit) in BOTH {
        // From no call to many; every third one has conditions.
        for count in (0..40).step_by(3) {
            let chain = |n: i64| if n % 3 == 0 { conditions() } else { Vec::new() };
            let rules = || -> BTreeMap<i64, Vec<SeccompRule>> {
                (0..count).map(|n| (n * n / 2 + n, chain(n))).collect()
            };
            let actions = || (SeccompAction::KillProcess, SeccompAction::Allow);
            let (otherwise, matched) = actions();
            let long = as_written(rules(), otherwise, matched, arch).unwrap();
            let (otherwise, matched) = actions();
            let short = program(rules(), otherwise, matched, arch).unwrap();
            assert!(short.len() <= long.len() + 2, "{count}");
            for nr in (0..900).chain([X32_BIT, X32_BIT | 4, u32::MAX]) {
                for first in 0..4 {
                    let args = [first, 3 * (first % 2), 0, 0, 0, 0];
                    let both = [&long, &short].map(|one| run(one, audit, nr, args));
                    assert_eq!(both[0], both[1], "{count} {nr} {args:?}");
                }
                assert_eq!(run(&short, I386, nr, [0; 6]), libc::SECCOMP_RET_KILL_PROCESS);
            }
        }
    }
}
