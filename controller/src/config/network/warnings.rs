//! What a valid policy says that its owner hardly meant.

use crate::ui::text::visible;
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

/// A sentence for each of `networks`, this machine's with the interface that leads there, that has a number of the
/// session's own link, where the policy lets something through to such an address.
pub fn shadowed(
    policy: &NetworkPolicy,
    networks: impl FnOnce() -> Vec<(IpNet, String)>,
) -> Vec<String> {
    let meant: Vec<IpNet> =
        LINKS.into_iter().filter(|link| admits(&policy.private, link)).collect();
    if meant.is_empty() {
        return Vec::new();
    }
    let named = |(net, by): (IpNet, String)| {
        let link = meant.iter().find(|link| shadows(link, &net))?;
        let by = visible(by.as_bytes());
        Some(format!(
            "{net} ({by}) is a network of this machine, and no session with a network policy reaches it: {link} is the number of the session's own link"
        ))
    };
    networks().into_iter().filter_map(named).collect()
}

/// The link's networks, both of the private zone.
const LINKS: [IpNet; 2] = [IpNet::V4(LINK_V4), IpNet::V6(LINK_V6)];

/// Whether a zone lets something through to an address of `link`, as far as its mode and prefixes say.
fn admits(zone: &Zone, link: &IpNet) -> bool {
    match zone {
        Zone::Allow | Zone::Denylist(_) => true,
        Zone::Block => false,
        Zone::Allowlist(rules) => {
            rules.iter().any(|rule| link.contains(&rule.cidr) || rule.cidr.contains(link))
        }
    }
}

fn covers(outer: &IpNet, cidr: &IpNet) -> bool {
    outer.contains(cidr)
}

/// The network of the link that a prefix means to name, or names among its neighbours.
fn shadow(cidr: &IpNet) -> Option<IpNet> {
    LINKS.into_iter().find(|link| shadows(link, cidr))
}

fn shadows(link: &IpNet, net: &IpNet) -> bool {
    link.contains(net) || net.contains(link) && net.prefix_len() >= SPECIFIC
}
