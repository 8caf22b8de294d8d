//! The restricted profile, run by the interpreter of the base one's tests.

use super::tests::{AARCH64, ARM, BOTH, ENOSYS, EPERM, I386, X86_64, dump, strictest};
use super::*;
use crate::table::{BASE, RESTRICTED, X32_BIT};

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const UPPER: u64 = 0xdead_beef_0000_0000;

fn answer(arch: Arch, audit: u32, nr: u32, args: [u64; 6]) -> u32 {
    strictest(&restricted(arch).unwrap(), audit, nr, args)
}

fn number(arch: Arch, call: &str) -> u32 {
    RESTRICTED.iter().find(|rule| rule.call == call).unwrap().number.on(arch)
}

/// `nr` with `first` as its first argument.
fn with(arch: Arch, audit: u32, call: &str, first: u64) -> u32 {
    answer(arch, audit, number(arch, call), [first, 0, 0, 0, 0, 0])
}

#[test]
fn the_programs_are_the_reviewed_ones() {
    for (arch, golden) in [
        (Arch::X86_64, include_str!("../../tests/golden/restricted.x86_64.txt")),
        (Arch::Aarch64, include_str!("../../tests/golden/restricted.aarch64.txt")),
    ] {
        let now = dump(&restricted(arch).unwrap());
        assert_eq!(now, golden, "{arch:?}: if the change is meant, the golden file is:\n{now}");
    }
}

#[test]
fn every_line_of_both_tables_answers_its_error_on_both_architectures() {
    for (arch, audit) in BOTH {
        for rule in BASE.iter().chain(RESTRICTED) {
            let mut args = [0; 6];
            match rule.when {
                When::Always => {}
                When::Low32 { argument, value } => args[usize::from(argument)] = u64::from(value),
                When::Low32Not { argument, values } => {
                    args[usize::from(argument)] = u64::from(values.iter().max().unwrap() + 1);
                }
                When::Masked { argument, mask: _, value } => {
                    // Where the family is looked at, too, this one passes.
                    args = [u64::from(libc::AF_UNIX.unsigned_abs()), 0, 0, 0, 0, 0];
                    args[usize::from(argument)] = u64::from(value);
                }
                When::Bit { argument, bit } => args[usize::from(argument)] = u64::from(bit),
            }
            let expected = libc::SECCOMP_RET_ERRNO | rule.errno.unsigned_abs();
            assert_eq!(answer(arch, audit, rule.number.on(arch), args), expected, "{rule:?}");
        }
    }
}

#[test]
fn only_internet_sockets_are_made() {
    for (arch, audit) in BOTH {
        for family in 0..=256 {
            let allowed = [libc::AF_INET, libc::AF_INET6].map(i64::from).contains(&family);
            let expected = if allowed { ALLOW } else { EPERM };
            let family = family.cast_unsigned();
            assert_eq!(with(arch, audit, "socket", family), expected, "{family}");
            // The kernel reads 32 bits: what is above them makes no family of another.
            assert_eq!(with(arch, audit, "socket", UPPER | family), expected, "{family}");
        }
        for family in [u64::from(u32::MAX), 2 << 32, 10 << 32, 1 << 63] {
            assert_eq!(with(arch, audit, "socket", family), EPERM, "{family:#x}");
        }
    }
}

#[test]
fn pairs_that_can_reach_a_path_are_not_made() {
    let (streams, datagrams) = (libc::SOCK_STREAM, libc::SOCK_DGRAM);
    for (arch, audit, nr) in [(Arch::X86_64, X86_64, 53), (Arch::Aarch64, AARCH64, 199)] {
        let pair = |family: u64, kind: i32, expected| {
            for flags in [0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC] {
                let kind = u64::from((kind | flags).cast_unsigned());
                for upper in [0, UPPER] {
                    let args = [upper | family, upper | kind, 0, 0, 0, 0];
                    assert_eq!(answer(arch, audit, nr, args), expected, "{family} {kind:#x}");
                }
            }
        };
        for kind in [streams, libc::SOCK_SEQPACKET] {
            pair(1, kind, ALLOW);
        }
        for kind in [datagrams, libc::SOCK_RAW] {
            pair(1, kind, EPERM);
        }
        for family in [0, 2, 10, 16, 30, 1 << 16] {
            pair(family, streams, EPERM);
            pair(family, datagrams, EPERM);
        }
    }
}

#[test]
fn no_clone_makes_a_namespace_and_every_other_clone_passes() {
    let namespaces = libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET;
    for (arch, audit) in BOTH {
        for bit in (0..32).map(|n| 1u32 << n) {
            let refused = bit & namespaces.cast_unsigned() != 0;
            let expected = if refused { EPERM } else { ALLOW };
            for flags in [u64::from(bit), UPPER | u64::from(bit)] {
                assert_eq!(with(arch, audit, "clone", flags), expected, "{flags:#x}");
            }
        }
        // A thread, fork with any exit signal, vfork, and each of them with a namespace hidden among the rest.
        for flags in [0x003d_0f00, 0x0120_0011, 0xff, 0x4111] {
            assert_eq!(with(arch, audit, "clone", flags), ALLOW, "{flags:#x}");
            let hidden = flags | u64::from(libc::CLONE_NEWUSER.cast_unsigned());
            assert_eq!(with(arch, audit, "clone", hidden), EPERM, "{hidden:#x}");
        }
    }
}

#[test]
fn clone3_does_not_exist() {
    for (arch, audit) in BOTH {
        assert_eq!(with(arch, audit, "clone3", 0), ENOSYS);
    }
}

#[test]
fn calls_that_are_in_no_table_pass() {
    for (arch, audit) in BOTH {
        let named = |nr: u32| BASE.iter().chain(RESTRICTED).any(|r| r.number.on(arch) == nr);
        for nr in (0..600).filter(|nr| !named(*nr)) {
            assert_eq!(answer(arch, audit, nr, [0; 6]), ALLOW, "{nr}");
        }
    }
}

#[test]
fn foreign_interfaces_are_closed_as_in_the_base_profile() {
    let kill = libc::SECCOMP_RET_KILL_PROCESS;
    for nr in [0, 1, 41, 56, 102, 359, 435, u32::MAX, X32_BIT | 41] {
        // Call 102 is socketcall on i386, 359 its socket.
        assert_eq!(answer(Arch::X86_64, I386, nr, [2, 0, 0, 0, 0, 0]), kill);
        assert_eq!(answer(Arch::Aarch64, ARM, nr, [2, 0, 0, 0, 0, 0]), kill);
    }
    for nr in [X32_BIT | 41, X32_BIT | 56, X32_BIT | 272, u32::MAX] {
        assert_eq!(answer(Arch::X86_64, X86_64, nr, [2, 0, 0, 0, 0, 0]), ENOSYS);
    }
}

#[test]
fn the_numbers_are_those_of_the_c_library() {
    let here = Arch::host().unwrap();
    let known = [
        ("socket", libc::SYS_socket),
        ("socketpair", libc::SYS_socketpair),
        ("setns", libc::SYS_setns),
        ("unshare", libc::SYS_unshare),
        ("clone", libc::SYS_clone),
        ("clone3", libc::SYS_clone3),
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("io_uring_enter", libc::SYS_io_uring_enter),
        ("io_uring_register", libc::SYS_io_uring_register),
        ("pidfd_getfd", libc::SYS_pidfd_getfd),
        ("bpf", libc::SYS_bpf),
    ];
    for rule in RESTRICTED {
        let (_, number) = known.iter().find(|(name, _)| *name == rule.call).unwrap();
        assert_eq!(i64::from(rule.number.on(here)), *number, "{}", rule.call);
        assert!(!rule.why.is_empty(), "{}", rule.call);
    }
}
