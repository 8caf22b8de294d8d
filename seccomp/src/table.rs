//! What the base profile refuses, and why. Everything else is allowed: the boundary is made of namespaces and mounts,
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
#![forbid(unsafe_code)]

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
