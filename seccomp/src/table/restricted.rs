//! What the restricted profile refuses beyond the base one. It serves a network policy, which is enforced by rules on IP
//! packets in a network namespace: what is closed here is every way to a socket those rules don't see, and every way to
//! a place where they are not.
//!
//! Not here, because the kernel refuses it to a task that has no capability and can't make a user namespace in which it
//! would have one: mounts (the new calls too), raw and packet sockets, the rules and addresses themselves, marks, entering
//! another process's namespaces by ptrace. Not here either, because no packet leaves by it: ptrace and memory of the
//! session's own processes, performance counters, `userfaultfd`. `socketpair` is left where it joins the session's own
//! processes and nothing else: Unix streams, which every CLI's shell calls need, and packets in order. The ends of those
//! stay with each other. An end of a datagram pair can send to any path.
#![forbid(unsafe_code)]

use super::{Number, Rule, When};

/// The two families of Internet sockets.
const INTERNET: &[u32] = &[libc::AF_INET.unsigned_abs(), libc::AF_INET6.unsigned_abs()];

/// The bits of a socket's type that are not flags.
const TYPE: u32 = 0xf;

const SOCKETPAIR: Number = Number { x86_64: 53, aarch64: 199 };

/// `socketpair` of one type.
const fn pair(kind: i32, why: &'static str) -> Rule {
    let when = When::Masked { argument: 1, mask: TYPE, value: kind.cast_unsigned() };
    Rule { call: "socketpair", number: SOCKETPAIR, when, errno: libc::EPERM, why }
}

const fn everywhere(number: u32) -> Number {
    Number { x86_64: number, aarch64: number }
}

const fn always(call: &'static str, number: Number, errno: i32, why: &'static str) -> Rule {
    Rule { call, number, when: When::Always, errno, why }
}

/// `clone` with one flag. On both architectures the flags come first, and the kernel looks at the low 32 bits.
const fn clone(flag: i32, why: &'static str) -> Rule {
    let when = When::Bit { argument: 0, bit: flag.cast_unsigned() };
    Rule {
        call: "clone",
        number: Number { x86_64: 56, aarch64: 220 },
        when,
        errno: libc::EPERM,
        why,
    }
}

/// What the restricted profile has beside [`super::BASE`]. `CLONE_NEWTIME` has no line: its bit lies in the byte that
/// `clone` reads as the exit signal, so only `unshare` and `clone3` can say it.
pub const RESTRICTED: &[Rule] = &[
    Rule {
        call: "socket",
        number: Number { x86_64: 41, aarch64: 198 },
        when: When::Low32Not { argument: 0, values: INTERNET },
        errno: libc::EPERM,
        why: "a read-only mount stops no connect() to a host's path socket, and netlink, vsock, packet and the rest are \
              not IP packets or not in the task's namespace: what is listening there would fetch what the policy forbids",
    },
    Rule {
        call: "socketpair",
        number: SOCKETPAIR,
        when: When::Low32Not { argument: 0, values: &[libc::AF_UNIX.unsigned_abs()] },
        errno: libc::EPERM,
        why: "as socket",
    },
    pair(
        libc::SOCK_DGRAM,
        "either end sends to any path, connects to it and takes one of its own: with descriptors, to and from the host",
    ),
    pair(libc::SOCK_RAW, "another name for datagrams between Unix sockets"),
    always(
        "setns",
        Number { x86_64: 308, aarch64: 268 },
        libc::EPERM,
        "enters a network namespace that has no rules",
    ),
    always(
        "unshare",
        Number { x86_64: 272, aarch64: 97 },
        libc::EPERM,
        "makes namespaces: in a user namespace of its own the task would have every capability again",
    ),
    clone(libc::CLONE_NEWUSER, "as unshare: every capability again"),
    clone(libc::CLONE_NEWNET, "as unshare: a network without the rules"),
    clone(libc::CLONE_NEWNS, "as unshare: mounts of its own"),
    clone(
        libc::CLONE_NEWPID,
        "as unshare: processes that those who end the session don't see as its own",
    ),
    clone(libc::CLONE_NEWIPC, "as unshare"),
    clone(libc::CLONE_NEWUTS, "as unshare"),
    clone(libc::CLONE_NEWCGROUP, "as unshare"),
    always(
        "clone3",
        everywhere(435),
        libc::ENOSYS,
        "its flags lie in memory, where no filter looks; ENOSYS makes C libraries use clone, as on older kernels",
    ),
    always(
        "io_uring_setup",
        everywhere(425),
        libc::EPERM,
        "operations queued on a ring, opening sockets among them, pass every filter",
    ),
    always(
        "io_uring_enter",
        everywhere(426),
        libc::EPERM,
        "as io_uring_setup, on a ring from elsewhere",
    ),
    always(
        "io_uring_register",
        everywhere(427),
        libc::EPERM,
        "as io_uring_setup, on a ring from elsewhere",
    ),
    always(
        "pidfd_getfd",
        everywhere(438),
        libc::EPERM,
        "takes a descriptor out of another process: a socket made elsewhere obeys other rules",
    ),
    always(
        "bpf",
        Number { x86_64: 321, aarch64: 280 },
        libc::EPERM,
        "opens programs and maps of the host that are pinned in the file system, among them maps that redirect what \
         is sent on one socket to another",
    ),
];
