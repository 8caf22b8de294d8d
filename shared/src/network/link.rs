//! The program that is a session's link, and what it must be able to do.

use super::route::{INTERFACE, MTU};
use crate::bytes;
use std::ffi::CString;

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

/// Its place and arguments for the network namespace of process `init`, with two descriptors: one to say that it is ready,
/// one that is closed to end it. No way to the host's loopback, none to its name servers, nothing it doesn't need.
pub fn arguments(init: i32, sandboxed: bool, fds: &[i32]) -> Option<Vec<CString>> {
    let [ready, exit] = fds else { return None };
    let always = [
        PROGRAM,
        "--disable-host-loopback",
        "--disable-dns",
        "--enable-ipv6",
        "--enable-seccomp",
        "--configure",
    ];
    let mut all: Vec<String> = always.map(str::to_owned).into();
    all.extend(sandboxed.then(|| "--enable-sandbox".to_owned()));
    all.extend([
        format!("--mtu={MTU}"),
        format!("--ready-fd={ready}"),
        format!("--exit-fd={exit}"),
        init.to_string(),
        INTERFACE.to_owned(),
    ]);
    all.into_iter().map(|argument| CString::new(argument).ok()).collect()
}

/// What is said where it ended before the task began; `said` is what it wrote.
pub fn ended_early(said: &[u8]) -> String {
    // An unknown flag is followed by a list of all that are known.
    let mut lines = said.split(|byte| *byte == b'\n');
    let unknown = lines.find(|line| line.windows(12).any(|part| part == b"unrecognized"));
    let why = bytes::last_line(unknown.unwrap_or(said));
    let why = why.as_deref().unwrap_or("without a word");
    let needs = "Landbox needs slirp4netns 1.0 or newer, with libslirp 4.1 or newer and libseccomp";
    format!("the link ended before the task began: {why} ({needs})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_flag_is_said_and_not_the_list_that_follows() {
        let said = b"slirp4netns: unrecognized option '--enable-sandbox'\nUsage: slirp4netns\n-c, --configure\n";
        assert!(ended_early(said).contains("'--enable-sandbox'"));
        assert!(ended_early(b"a\nno such device\n").contains("no such device"));
        assert!(ended_early(b"").contains("without a word"));
    }

    #[test]
    fn it_is_called_with_the_flags_that_are_looked_for() {
        let words = |sandboxed| {
            let said = arguments(7, sandboxed, &[512, 513]).unwrap().into_iter();
            said.map(|argument| argument.into_string().unwrap()).collect::<Vec<_>>()
        };
        let said = words(true);
        let flags = said.iter().filter(|argument| argument.starts_with("--"));
        let mut flags: Vec<&str> = flags.map(|flag| flag.split('=').next().unwrap()).collect();
        let mut known = FLAGS.to_vec();
        flags.sort_unstable();
        known.sort_unstable();
        assert_eq!(flags, known);
        assert_eq!(said.last().unwrap(), "tap0");
        assert!(!words(false).contains(&"--enable-sandbox".to_owned()));
    }
}
