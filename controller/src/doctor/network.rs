//! What sessions with a network policy need besides.

use super::{Check, Status, sudo, trial};
use crate::host::Facts;
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

/// Whether a session under a policy could be run, once nothing is missing for it.
pub(super) fn policy(facts: &Facts) -> Check {
    const ID: &str = "network_policy";
    let outcome = trial::run_filtered(facts);
    if outcome.works() {
        return Check::ok(ID, "a session was run with one and checked from inside");
    }
    let reason = outcome.reason();
    let filter = reason.contains("nf_tables");
    let fix = filter.then(|| format!("{}modprobe -a nf_tables nft_reject_inet", sudo()));
    Check::bad(ID, Status::Warning, reason, COST, fix)
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
