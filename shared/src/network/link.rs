//! The program that is a session's link, and what it must be able to do.

/// Where it lies. Nothing overrides that.
pub const PROGRAM: &str = "/usr/bin/slirp4netns";

/// Every flag it is called with. A version that does not know one is refused.
pub const FLAGS: [&str; 9] = [
    "--configure",
    "--ready-fd",
    "--exit-fd",
    "--mtu",
    "--enable-ipv6",
    "--disable-host-loopback",
    "--disable-dns",
    "--enable-seccomp",
    "--enable-sandbox",
];
