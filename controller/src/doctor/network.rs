//! What sessions with a network policy need besides.

use super::{Check, Status, sudo};
use crate::host::link::{self, Lack};
use landbox_shared::network::link::PROGRAM;

/// What it costs when one of the parts is missing.
const COST: &str = "sessions can have no network policy; --network on and off work without it";

/// The link's program and its device.
pub(super) fn link() -> [Check; 2] {
    [
        part("slirp4netns", format!("{PROGRAM}, with every flag that is needed"), link::program()),
        part("tun", format!("{} opens", link::TUN), link::tun()),
    ]
}

fn part(id: &'static str, well: String, lack: Option<Lack>) -> Check {
    match lack {
        None => Check::ok(id, well),
        Some(lack) => Check::bad(id, Status::Warning, lack.found(), COST, Some(lack.fix(sudo()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_part_is_a_warning_with_what_to_type() {
        let check = part("slirp4netns", String::new(), Some(Lack::Flag("--enable-seccomp")));
        assert_eq!(check.status, Status::Warning);
        assert!(check.found.contains("--enable-seccomp"));
        assert!(check.fix.unwrap().contains("install -y slirp4netns"));
        let device = Lack::Tun { why: "x".into(), exists: false };
        assert!(part("tun", String::new(), Some(device)).fix.unwrap().contains("modprobe tun"));
    }
}
