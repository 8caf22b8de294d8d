//! What the profiles refuse, and why; first the base one. Everything else is allowed: the boundary is made of namespaces and mounts,
//! and this profile closes only what those leave open.
//!
//! Two things are refused by construction and have no line here: a call through a foreign interface (`int $0x80`, or
//! the 32-bit interface on Arm) ends the process by SIGSYS, because its numbers mean other calls; and a call with the
//! x32 bit answers ENOSYS ([`X32_BIT`]). 32-bit programs therefore do not run in a session.
//!
//! Not here, on purpose: `io_uring_*`. Operations queued on a ring pass every filter, so a profile that forbids
//! something a ring can do must forbid the ring too. A ring can do neither of what is refused below: it has no terminal
//! ioctl (its pass-through command reaches only drivers that offer one, and terminals do not) and no keyring call. The
//! restricted profile, which forbids sockets, has to forbid rings.
//!
//! The processes that stay beside the task have the opposite kind of profile: [`MONITOR`] and [`INIT`] list what is
//! still needed, and everything else ends the process, and with it the session.
#![forbid(unsafe_code)]

mod restricted;

pub use restricted::RESTRICTED;

use crate::Arch;

/// Set in the number of every x32 call. Kernels with x32 would run such a call under the ordinary architecture value,
/// where no rule by number sees it. ENOSYS, not death: it is what a kernel without x32 says, and `syscall(-1)`, which
/// tracers use to skip a call, carries the bit too.
pub const X32_BIT: u32 = 0x4000_0000;

/// One refusal.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Name of the call.
    pub call: &'static str,
    /// Its number on each architecture.
    pub number: Number,
    /// Which calls of that number.
    pub when: When,
    /// The error number the caller gets.
    pub errno: i32,
    /// Why.
    pub why: &'static str,
}

/// The number of one call on each architecture.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// On 64-bit x86.
    pub x86_64: u32,
    /// On 64-bit Arm.
    pub aarch64: u32,
}

impl Number {
    /// The number on `arch`.
    pub fn on(self, arch: Arch) -> u32 {
        match arch {
            Arch::X86_64 => self.x86_64,
            Arch::Aarch64 => self.aarch64,
        }
    }
}

/// Which calls a rule means.
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// All of them.
    Always,
    /// Those whose argument has this value in its low 32 bits. The kernel looks at no more of an `unsigned int`
    /// argument, so a filter that compared all 64 bits would be passed with a bit set in the upper half.
    Low32 {
        /// Which argument, from 0.
        argument: u8,
        /// The value.
        value: u32,
    },
    /// Those whose argument has none of these values in its low 32 bits.
    Low32Not {
        /// Which argument, from 0.
        argument: u8,
        /// The values that pass.
        values: &'static [u32],
    },
    /// Those whose argument has this value in these of its low 32 bits.
    Masked {
        /// Which argument, from 0.
        argument: u8,
        /// The bits.
        mask: u32,
        /// The value.
        value: u32,
    },
    /// Those whose argument has this bit set, among its low 32.
    Bit {
        /// Which argument, from 0.
        argument: u8,
        /// The bit, as a value.
        bit: u32,
    },
}

const IOCTL: Number = Number { x86_64: 16, aarch64: 29 };

/// Pushes a byte into a terminal's input queue.
pub const TIOCSTI: u32 = 0x5412;
/// Linux console control; its sub-command 2 and 3 select and paste text.
pub const TIOCLINUX: u32 = 0x541c;

/// The base profile. EPERM throughout: it is what container engines answer here, so libraries have met it, and unlike
/// ENOSYS it doesn't claim that the kernel lacks terminals or keyrings.
pub const BASE: &[Rule] = &[
    Rule {
        call: "ioctl",
        number: IOCTL,
        when: When::Low32 { argument: 1, value: TIOCSTI },
        errno: libc::EPERM,
        why: "types into the controlling terminal: whatever reads it next, after the session too, obeys (CVE-2017-5226)",
    },
    Rule {
        call: "ioctl",
        number: IOCTL,
        when: When::Low32 { argument: 1, value: TIOCLINUX },
        errno: libc::EPERM,
        why: "selects and pastes text on a Linux console, which types it like TIOCSTI (CVE-2023-28339)",
    },
    Rule {
        call: "keyctl",
        number: Number { x86_64: 250, aarch64: 219 },
        when: When::Always,
        errno: libc::EPERM,
        why: "the owner's session keyring is inherited through every namespace: the session would read and change its keys",
    },
    Rule {
        call: "add_key",
        number: Number { x86_64: 248, aarch64: 217 },
        when: When::Always,
        errno: libc::EPERM,
        why: "would leave or replace keys in the inherited keyring, for programs outside to find",
    },
    Rule {
        call: "request_key",
        number: Number { x86_64: 249, aarch64: 218 },
        when: When::Always,
        errno: libc::EPERM,
        why: "reads its owner's keys, and may have the host start /sbin/request-key on the session's behalf",
    },
];

/// A call that one of our own processes still makes.
#[derive(Clone, Copy, Debug)]
pub struct Needed {
    /// Its number on 64-bit x86; `None` where there is no such call.
    pub x86_64: Option<u32>,
    /// Its number on 64-bit Arm.
    pub aarch64: Option<u32>,
    /// Name of the call.
    pub call: &'static str,
    /// What for.
    pub why: &'static str,
}

impl Needed {
    /// The number on `arch`.
    pub fn on(self, arch: Arch) -> Option<u32> {
        match arch {
            Arch::X86_64 => self.x86_64,
            Arch::Aarch64 => self.aarch64,
        }
    }
}

const fn needed(x86_64: u32, aarch64: u32, call: &'static str, why: &'static str) -> Needed {
    Needed { x86_64: Some(x86_64), aarch64: Some(aarch64), call, why }
}

/// What monitor and init both need while the task runs.
pub const KEEPERS: &[Needed] = &[
    Needed { x86_64: Some(7), aarch64: None, call: "poll", why: "waiting" },
    needed(271, 73, "ppoll", "waiting"),
    needed(219, 128, "restart_syscall", "waiting on after it was stopped and continued"),
    needed(47, 212, "recvmsg", "hearing from each other, and from the controller"),
    needed(46, 211, "sendmsg", "talking to them"),
    needed(
        0,
        63,
        "read",
        "the list of mounts, what a daemon complained about, the signals to pass on",
    ),
    needed(61, 260, "wait4", "reaping"),
    needed(3, 57, "close", "letting go of what was passed on"),
    #[cfg(debug_assertions)]
    needed(72, 25, "fcntl", "the standard library checks a descriptor before it closes it"),
    needed(12, 214, "brk", "memory"),
    needed(9, 222, "mmap", "memory"),
    needed(11, 215, "munmap", "memory"),
    needed(25, 216, "mremap", "memory"),
    needed(28, 233, "madvise", "memory"),
    needed(15, 139, "rt_sigreturn", "coming back from a handler"),
    needed(14, 135, "rt_sigprocmask", "ending after a defect"),
    needed(186, 178, "gettid", "ending after a defect"),
    needed(39, 172, "getpid", "ending after a defect"),
    needed(234, 131, "tgkill", "ending after a defect"),
    needed(231, 94, "exit_group", "ending"),
];

/// What the monitor needs besides. Its memory held the task's environment, and it lives as long as the session.
pub const MONITOR: &[Needed] = &[
    needed(8, 62, "lseek", "the list of mounts, again"),
    needed(332, 291, "statx", "the standard library asks for a file's size before it reads it"),
    needed(5, 80, "fstat", "the same, in older versions"),
    needed(424, 424, "pidfd_send_signal", "ending init and the daemons"),
    needed(
        157,
        167,
        "prctl",
        "outliving the controller while the kernel undoes the mounts: its own death signal alone",
    ),
    needed(318, 278, "getrandom", "seeds of hash tables"),
    needed(228, 113, "clock_gettime", "when the counts are due, where the kernel shares no clock"),
];

/// What the monitor needs besides where it reads what the packet filter counted.
pub const RECORDER: &[Needed] =
    &[needed(44, 206, "sendto", "asking for the counts: short, and on that socket alone")];

/// What init needs besides. It is the task's parent, with the ids of N.
pub const INIT: &[Needed] = &[needed(62, 129, "kill", "passing a signal on to the task")];
