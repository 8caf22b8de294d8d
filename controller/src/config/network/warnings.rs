//! What a valid policy says that its owner hardly meant.

use ipnet::IpNet;
use landbox_shared::network::class::{self, LINK_V4, LINK_V6, LOOPBACK_V4, LOOPBACK_V6, ZoneName};
use landbox_shared::network::{NetworkPolicy, Zone};

/// The shortest prefix that names networks rather than the whole of a family.
const SPECIFIC: u8 = 8;

/// A sentence for each rule and name server that can't do what it says.
pub fn warnings(policy: &NetworkPolicy) -> Vec<String> {
    let mut found = Vec::new();
    for name in [ZoneName::Public, ZoneName::Private] {
        let zone = policy.zone(name);
        let verb = if matches!(zone, Zone::Denylist(_)) { "deny" } else { "allow" };
        for (n, rule) in zone.rules().iter().enumerate() {
            let at = || format!("{name}.rules[{n}]");
            let cidr = &rule.cidr;
            if !class::touches(cidr, name) {
                found.push(format!("{} ({cidr}) never matches: no address of it is {name}", at()));
            } else if covers(&LOOPBACK_V4.into(), cidr) || covers(&LOOPBACK_V6.into(), cidr) {
                found.push(format!(
                    "{} ({cidr}) has nothing to {verb}: the session's own loopback always works, and the host's is never reached", at()
                ));
            } else if let Some(link) = shadow(cidr) {
                found.push(format!(
                    "{} ({cidr}) does not reach a real network {link}: that is the number of the session's own link", at()
                ));
            }
        }
    }
    for (n, server) in policy.dns_servers.iter().enumerate() {
        if let Some(link) = shadow(&IpNet::from(*server)) {
            found.push(format!(
                "dnsServers[{n}] ({server}) can't be reached: {link} is the number of the session's own link"
            ));
        }
    }
    found
}

fn covers(outer: &IpNet, cidr: &IpNet) -> bool {
    outer.contains(cidr)
}

/// The network of the link that a prefix means to name, or names among its neighbours.
fn shadow(cidr: &IpNet) -> Option<IpNet> {
    let links = [IpNet::V4(LINK_V4), IpNet::V6(LINK_V6)];
    links
        .into_iter()
        .find(|link| link.contains(cidr) || cidr.contains(link) && cidr.prefix_len() >= SPECIFIC)
}
