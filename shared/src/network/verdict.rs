//! What becomes of traffic under a policy: the reference that the kernel's rules are held to, and what `explain` prints.

use super::class::{self, ZoneName};
use super::{NetworkPolicy, Protocol, Rule, Traffic, Zone};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The port of name servers.
pub const DNS_PORT: u16 = 53;

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flow {
    /// A protocol with ports, to this port.
    To(Protocol, u16),
    /// ICMPv6's neighbour solicitation, neighbour advertisement or router solicitation.
    Neighbour,
    /// Anything else: rules that name a protocol don't match it.
    Other,
}

/// How a packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// As the kernel routes it: to the session's own addresses by its loopback, else by the link.
    Routed,
    /// By the link whatever its address: from a socket bound to it.
    Link,
}

/// What decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The session's own loopback is let through; loopback's addresses by any other way are refused.
    Loopback,
    /// The link could not work without neighbour discovery.
    Neighbour,
    /// The link's names for the host are refused.
    Alias,
    /// One of the policy's name servers.
    Dns,
    /// The zone of the address.
    Zone,
}

/// Whether it is let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It is.
    Allowed,
    /// It is refused at once.
    Denied,
}

/// What becomes of traffic, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Verdict {
    /// What decided.
    pub by: By,
    /// The zone of the address, whatever decided.
    pub zone: ZoneName,
    /// Whether it is let through.
    pub decision: Decision,
    /// Where a zone decided by a rule: the first that matches, from 0, in the policy's order.
    pub rule: Option<usize>,
}

/// What becomes of traffic to `address` under `policy`.
pub fn verdict(policy: &NetworkPolicy, address: IpAddr, flow: Flow) -> Verdict {
    verdict_by(policy, address, flow, Way::Routed)
}

/// [`verdict`] of a packet that leaves by `way`.
pub fn verdict_by(policy: &NetworkPolicy, address: IpAddr, flow: Flow, way: Way) -> Verdict {
    let address = class::canonical(address);
    let zone = class::zone_of(address);
    let fixed = |by, decision| Verdict { by, zone, decision, rule: None };
    if way == Way::Routed && class::is_own(address) {
        return fixed(By::Loopback, Decision::Allowed);
    }
    if class::is_loopback(address) {
        return fixed(By::Loopback, Decision::Denied);
    }
    if flow == Flow::Neighbour && address.is_ipv6() {
        return fixed(By::Neighbour, Decision::Allowed);
    }
    if class::is_alias(address) {
        return fixed(By::Alias, Decision::Denied);
    }
    if matches!(flow, Flow::To(_, DNS_PORT)) && policy.dns_servers.contains(&address) {
        return fixed(By::Dns, Decision::Allowed);
    }
    let (rule, decision) = judge(policy.zone(zone), address, flow);
    Verdict { by: By::Zone, zone, decision, rule }
}

fn judge(zone: &Zone, address: IpAddr, flow: Flow) -> (Option<usize>, Decision) {
    let first = |rules: &[Rule]| rules.iter().position(|rule| rule.matches(address, flow));
    match zone {
        Zone::Allow => (None, Decision::Allowed),
        Zone::Block => (None, Decision::Denied),
        Zone::Allowlist(rules) => match first(rules) {
            Some(rule) => (Some(rule), Decision::Allowed),
            None => (None, Decision::Denied),
        },
        Zone::Denylist(rules) => match first(rules) {
            Some(rule) => (Some(rule), Decision::Denied),
            None => (None, Decision::Allowed),
        },
    }
}

impl NetworkPolicy {
    /// What it says for one zone.
    pub fn zone(&self, name: ZoneName) -> &Zone {
        match name {
            ZoneName::Public => &self.public,
            ZoneName::Private => &self.private,
        }
    }
}

impl Zone {
    /// Its rules, where its mode has some.
    pub fn rules(&self) -> &[Rule] {
        match self {
            Self::Allow | Self::Block => &[],
            Self::Allowlist(rules) | Self::Denylist(rules) => rules,
        }
    }
}

impl Rule {
    /// Whether it matches traffic to `address` (in the form packets carry).
    pub fn matches(&self, address: IpAddr, flow: Flow) -> bool {
        let carries = match &self.traffic {
            Traffic::Any => true,
            Traffic::Ports(protocol, ports) => match flow {
                Flow::To(wanted, port) => {
                    wanted == *protocol && (ports.is_empty() || ports.contains(&port))
                }
                Flow::Neighbour | Flow::Other => false,
            },
        };
        carries && self.cidr.contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::NETWORK_POLICY_VERSION;

    fn rule(cidr: &str, traffic: Traffic) -> Rule {
        Rule { cidr: cidr.parse().unwrap(), traffic }
    }

    fn policy(public: Zone, private: Zone) -> NetworkPolicy {
        let dns_servers = vec!["10.1.1.1".parse().unwrap(), "2606:4700::53".parse().unwrap()];
        NetworkPolicy {
            version: NETWORK_POLICY_VERSION,
            public,
            private,
            dns_servers,
            proxy_mode: None,
        }
    }

    const HTTPS: Flow = Flow::To(Protocol::Tcp, 443);

    fn ask(policy: &NetworkPolicy, address: &str, flow: Flow) -> (By, Decision, Option<usize>) {
        let Verdict { by, zone: _, decision, rule } =
            verdict(policy, address.parse().unwrap(), flow);
        (by, decision, rule)
    }

    #[test]
    fn the_sixteen_pairs_of_modes_decide_each_zone_alone() {
        let lists = |mode: usize| {
            let rules = vec![
                rule("93.184.216.34/32", Traffic::Ports(Protocol::Tcp, vec![80, 443])),
                rule("10.77.0.1/32", Traffic::Ports(Protocol::Tcp, vec![443])),
                rule("2606:4700::100/128", Traffic::Ports(Protocol::Tcp, vec![])),
                rule("fd55::1/128", Traffic::Any),
            ];
            match mode {
                0 => Zone::Allow,
                1 => Zone::Block,
                2 => Zone::Allowlist(rules),
                _ => Zone::Denylist(rules),
            }
        };
        for public in 0..4 {
            for private in 0..4 {
                let policy = policy(lists(public), lists(private));
                for (address, mode) in [
                    ("93.184.216.34", public),
                    ("2606:4700::100", public),
                    ("10.77.0.1", private),
                    ("::ffff:10.77.0.1", private),
                    ("fd55::1", private),
                ] {
                    let (by, decision, _) = ask(&policy, address, HTTPS);
                    let wanted = if mode % 2 == 0 { Decision::Allowed } else { Decision::Denied };
                    assert_eq!((by, decision), (By::Zone, wanted), "{public} {private} {address}");
                }
            }
        }
    }

    #[test]
    fn empty_lists_block_everything_or_nothing() {
        let policy = policy(Zone::Allowlist(vec![]), Zone::Denylist(vec![]));
        assert_eq!(ask(&policy, "8.8.8.8", HTTPS), (By::Zone, Decision::Denied, None));
        assert_eq!(ask(&policy, "10.9.9.9", HTTPS), (By::Zone, Decision::Allowed, None));
    }

    #[test]
    fn rules_are_a_union_and_the_first_that_matches_is_named() {
        let tcp = |ports| Traffic::Ports(Protocol::Tcp, ports);
        let zone = Zone::Allowlist(vec![
            rule("10.0.0.0/8", tcp(vec![22])),
            rule("10.1.0.0/16", tcp(vec![443])),
            rule("0.0.0.0/0", tcp(vec![443])),
        ]);
        let policy = policy(Zone::Block, zone);
        assert_eq!(ask(&policy, "10.1.0.1", HTTPS), (By::Zone, Decision::Allowed, Some(1)));
        let ssh = Flow::To(Protocol::Tcp, 22);
        assert_eq!(ask(&policy, "10.1.0.1", ssh), (By::Zone, Decision::Allowed, Some(0)));
        let udp = Flow::To(Protocol::Udp, 443);
        assert_eq!(ask(&policy, "10.1.0.1", udp), (By::Zone, Decision::Denied, None));
        assert_eq!(ask(&policy, "10.1.0.1", Flow::Other), (By::Zone, Decision::Denied, None));
        // A prefix over both zones matches only inside the zone that holds it.
        assert_eq!(ask(&policy, "8.8.8.8", HTTPS), (By::Zone, Decision::Denied, None));
    }

    #[test]
    fn own_loopback_works_and_loopback_by_the_link_never_does() {
        let policy = policy(Zone::Allow, Zone::Allow);
        for own in ["127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::", "10.0.2.100", "fd00::100"] {
            assert_eq!(ask(&policy, own, HTTPS), (By::Loopback, Decision::Allowed, None), "{own}");
        }
        for address in ["127.0.0.1", "127.9.9.9", "::1", "::", "::127.0.0.1", "::ffff:127.0.0.1"] {
            let found = verdict_by(&policy, address.parse().unwrap(), HTTPS, Way::Link);
            assert_eq!((found.by, found.decision), (By::Loopback, Decision::Denied), "{address}");
        }
        assert_eq!(ask(&policy, "::7f00:1", HTTPS), (By::Loopback, Decision::Denied, None));
    }

    #[test]
    fn the_links_names_for_the_host_are_refused_in_every_policy() {
        let policy = policy(Zone::Allow, Zone::Allow);
        for alias in ["10.0.2.2", "10.0.2.3", "::ffff:10.0.2.3", "fd00::2", "fd00::ffff:1"] {
            assert_eq!(ask(&policy, alias, HTTPS), (By::Alias, Decision::Denied, None), "{alias}");
        }
        let discovery = ask(&policy, "fd00::2", Flow::Neighbour);
        assert_eq!(discovery, (By::Neighbour, Decision::Allowed, None));
        assert_eq!(ask(&policy, "10.0.2.4", HTTPS).0, By::Zone);
    }

    #[test]
    fn name_servers_are_reached_on_their_port_before_any_zone_is_asked() {
        let policy = policy(Zone::Block, Zone::Block);
        for server in ["10.1.1.1", "::ffff:10.1.1.1", "2606:4700::53"] {
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                let found = ask(&policy, server, Flow::To(protocol, 53));
                assert_eq!(found, (By::Dns, Decision::Allowed, None));
            }
            assert_eq!(ask(&policy, server, Flow::To(Protocol::Udp, 853)).1, Decision::Denied);
            assert_eq!(ask(&policy, server, Flow::Other).1, Decision::Denied);
        }
        assert_eq!(ask(&policy, "10.1.1.2", Flow::To(Protocol::Udp, 53)).1, Decision::Denied);
    }
}
