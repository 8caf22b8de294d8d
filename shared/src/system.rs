//! What every session's `/proc` and `/dev` are.

/// Parts of `/proc` that root can write by owning the files, without any capability: read-only in every session. Of the
/// rest `mtrr` asks for a capability, and `pressure` is watched by writing to it.
pub const PROC_READ_ONLY: [&str; 11] = [
    "sys",
    "sysrq-trigger",
    "irq",
    "bus",
    "fs",
    "acpi",
    "asound",
    "driver",
    "dynamic_debug",
    "scsi",
    "xen",
];

/// A device node of the host: name, major and minor number.
pub type Device = (&'static str, u64, u64);

/// What a minimal `/dev` holds: harmless, and open to everybody on every host.
pub const DEVICES: [Device; 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

/// Where the terminal's slave shows in `/dev`.
pub const CONSOLE: &str = "console";

/// Links in `/dev`: what they say, and their names.
pub const DEV_LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
];
