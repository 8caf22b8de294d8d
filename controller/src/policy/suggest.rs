//! The smallest change of a network policy that would have allowed what it refused.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use landbox_shared::network::check::{PORTS, RULES};
use landbox_shared::network::class::ZoneName;
use landbox_shared::network::egress::Destination;
use landbox_shared::network::verdict::{By, Decision, Flow, Way, verdict_by};
use landbox_shared::network::{NetworkPolicy, Rule, Traffic, Zone};
use std::net::IpAddr;

/// What would have to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// The whole policy with the change.
    pub policy: NetworkPolicy,
    /// The rules that are new in it, by zone and place, with how often what they allow was refused. A rule of a denylist
    /// that stands for a wider one has no count.
    pub added: Vec<(ZoneName, usize, u64)>,
    /// The rules of the old policy that are not in it any more.
    pub removed: Vec<(ZoneName, usize)>,
    /// Zones that blocked everything and let something through now.
    pub opened: Vec<ZoneName>,
    /// What no policy allows, or what there was no room for.
    pub left: Vec<Destination>,
}

impl Suggestion {
    /// Whether nothing has to change.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

/// Finds it for destinations and how often each was refused.
pub fn suggest(policy: &NetworkPolicy, refused: &[(Destination, u64)]) -> Suggestion {
    let mut left = Vec::new();
    let mut edits = [Edit::new(policy, ZoneName::Public), Edit::new(policy, ZoneName::Private)];
    for (destination, count) in refused {
        let found = verdict_by(policy, destination.address, destination.flow(), Way::Link);
        if found.decision == Decision::Allowed {
            // Counted under an address that is allowed otherwise: there is nothing to change.
            continue;
        }
        let edit = edits.iter_mut().find(|edit| edit.name == found.zone);
        let edit = edit.filter(|_| found.by == By::Zone && is_single(destination.address));
        if !edit.is_some_and(|edit| edit.allow(destination, *count)) {
            left.push(*destination);
        }
    }
    let mut policy = policy.clone();
    let (mut added, mut removed, mut opened) = (Vec::new(), Vec::new(), Vec::new());
    for edit in edits {
        let Edit { name, old, rules, is_denylist } = edit;
        let kept = |n: &usize| rules.iter().any(|(origin, _, _)| *origin == Some(*n));
        removed.extend((0..old).filter(|n| !kept(n)).map(|n| (name, n)));
        let new = rules.iter().enumerate().filter(|(_, (origin, ..))| origin.is_none());
        added.extend(new.map(|(n, (_, _, count))| (name, n, *count)));
        let zone = match name {
            ZoneName::Public => &mut policy.public,
            ZoneName::Private => &mut policy.private,
        };
        let changed = rules.iter().any(|(origin, ..)| origin.is_none()) || rules.len() != old;
        if matches!(zone, Zone::Block) && changed {
            opened.push(name);
        }
        if changed {
            let rules = rules.into_iter().map(|(_, rule, _)| rule).collect();
            *zone = if is_denylist { Zone::Denylist(rules) } else { Zone::Allowlist(rules) };
        }
    }
    Suggestion { policy, added, removed, opened, left }
}

/// Whether an address is one machine's: a link like ours carries nothing to many.
fn is_single(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_multicast() && !address.is_broadcast(),
        IpAddr::V6(address) => !address.is_multicast() && !address.is_unicast_link_local(),
    }
}

/// The rules of one zone as they are changed: each with its place in the old policy, or how often it was missed.
struct Edit {
    name: ZoneName,
    old: usize,
    rules: Vec<(Option<usize>, Rule, u64)>,
    is_denylist: bool,
}

impl Edit {
    fn new(policy: &NetworkPolicy, name: ZoneName) -> Self {
        let zone = policy.zone(name);
        let rules = zone.rules().iter().enumerate().map(|(n, rule)| (Some(n), rule.clone(), 0));
        let is_denylist = matches!(zone, Zone::Denylist(_));
        Self { name, old: zone.rules().len(), rules: rules.collect(), is_denylist }
    }

    /// Lets a destination through; false where there is no room for that.
    fn allow(&mut self, destination: &Destination, count: u64) -> bool {
        if self.is_denylist { self.spare(destination) } else { self.admit(destination, count) }
    }

    fn admit(&mut self, destination: &Destination, count: u64) -> bool {
        let flow = destination.flow();
        let cidr = IpNet::from(destination.address);
        let at_host = |rule: &Rule| rule.cidr == cidr;
        if let Some((_, _, counted)) =
            self.rules.iter_mut().find(|(_, rule, _)| rule.matches(destination.address, flow))
        {
            *counted = counted.saturating_add(count);
            return true;
        }
        let Flow::To(protocol, port) = flow else {
            // Only a rule without a protocol matches this, and that one makes the others for the host needless.
            let narrow =
                |(origin, rule, _): &(Option<usize>, Rule, u64)| origin.is_none() && at_host(rule);
            let counted = self.rules.extract_if(.., |entry| narrow(entry)).map(|(_, _, n)| n);
            let counted = counted.fold(count, u64::saturating_add);
            return self.push(Rule { cidr, traffic: Traffic::Any }, counted);
        };
        for (origin, rule, counted) in &mut self.rules {
            if let Traffic::Ports(known, ports) = &mut rule.traffic
                && origin.is_none()
                && rule.cidr == cidr
                && *known == protocol
                && ports.len() < PORTS
            {
                ports.push(port);
                ports.sort_unstable();
                *counted = counted.saturating_add(count);
                return true;
            }
        }
        self.push(Rule { cidr, traffic: Traffic::Ports(protocol, vec![port]) }, count)
    }

    fn push(&mut self, rule: Rule, count: u64) -> bool {
        let room = self.rules.len() < RULES;
        if room {
            self.rules.push((None, rule, count));
        }
        room
    }

    /// Cuts a destination out of every rule that matches it.
    fn spare(&mut self, destination: &Destination) -> bool {
        let (address, flow) = (destination.address, destination.flow());
        let mut rules = Vec::new();
        for (origin, rule, count) in &self.rules {
            if !rule.matches(address, flow) {
                rules.push((*origin, rule.clone(), *count));
                continue;
            }
            let traffic = rule.traffic.clone();
            let around = around(&rule.cidr, address);
            rules.extend(around.map(|cidr| (None, Rule { cidr, traffic: traffic.clone() }, 0)));
            // Where the rule lists ports, the others stay denied.
            if let (Traffic::Ports(protocol, ports), Flow::To(_, port)) = (traffic, flow) {
                let rest: Vec<u16> = ports.into_iter().filter(|p| *p != port).collect();
                if !rest.is_empty() {
                    let traffic = Traffic::Ports(protocol, rest);
                    rules.push((None, Rule { cidr: IpNet::from(address), traffic }, 0));
                }
            }
        }
        let room = rules.len() <= RULES;
        if room {
            self.rules = rules;
        }
        room
    }
}

/// The fewest prefixes that hold all of `cidr` but one address.
fn around(cidr: &IpNet, address: IpAddr) -> impl Iterator<Item = IpNet> {
    let (from, most) = (cidr.prefix_len(), cidr.max_prefix_len());
    (from..most).filter_map(move |above| {
        // The half of the prefix of this length that the address is not in.
        let bits = above + 1;
        match address {
            IpAddr::V4(address) => {
                let other = u32::from(address) ^ (1 << (most - bits));
                Ipv4Net::new(other.into(), bits).ok().map(|net| IpNet::V4(net.trunc()))
            }
            IpAddr::V6(address) => {
                let other = u128::from(address) ^ (1 << (most - bits));
                Ipv6Net::new(other.into(), bits).ok().map(|net| IpNet::V6(net.trunc()))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use landbox_shared::network::verdict::verdict;
    use landbox_shared::network::{NETWORK_POLICY_VERSION, Protocol};
    use proptest::prelude::*;

    fn policy(public: Zone, private: Zone) -> NetworkPolicy {
        let (dns_servers, proxy_mode) = (Vec::new(), None);
        NetworkPolicy { version: NETWORK_POLICY_VERSION, public, private, dns_servers, proxy_mode }
    }

    fn to(address: &str, protocol: u8, port: u16) -> (Destination, u64) {
        (Destination { address: address.parse().unwrap(), protocol, port }, 2)
    }

    fn rule(cidr: &str, traffic: Traffic) -> Rule {
        Rule { cidr: cidr.parse().unwrap(), traffic }
    }

    fn tcp(ports: &[u16]) -> Traffic {
        Traffic::Ports(Protocol::Tcp, ports.to_vec())
    }

    #[test]
    fn a_blocked_zone_opens_for_exactly_what_was_refused() {
        let refused = [
            to("93.184.216.34", 6, 443),
            to("93.184.216.34", 6, 80),
            to("93.184.216.34", 17, 443),
            to("2606:4700::1", 6, 443),
        ];
        let found = suggest(&policy(Zone::Block, Zone::Block), &refused);
        let udp = Traffic::Ports(Protocol::Udp, vec![443]);
        let wanted = vec![
            rule("93.184.216.34/32", tcp(&[80, 443])),
            rule("93.184.216.34/32", udp),
            rule("2606:4700::1/128", tcp(&[443])),
        ];
        assert_eq!(found.policy, policy(Zone::Allowlist(wanted), Zone::Block));
        assert_eq!(found.opened, [ZoneName::Public]);
        assert_eq!(found.added.iter().map(|(_, _, n)| n).sum::<u64>(), 8);
        assert!(found.removed.is_empty() && found.left.is_empty());
    }

    #[test]
    fn what_no_policy_allows_is_left() {
        let refused = [
            to("10.0.2.2", 6, 80),
            to("fd00::2", 6, 80),
            to("127.0.0.1", 6, 80),
            to("224.0.0.251", 17, 5353),
            to("ff02::2", 58, 0),
            to("255.255.255.255", 17, 67),
        ];
        let found = suggest(&policy(Zone::Block, Zone::Block), &refused);
        assert_eq!(found.left.len(), refused.len());
        assert!(found.is_empty());
        assert_eq!(found.policy, policy(Zone::Block, Zone::Block));
    }

    #[test]
    fn a_protocol_without_ports_opens_the_host() {
        let refused = [to("10.1.1.1", 6, 22), to("10.1.1.1", 1, 0), to("10.1.1.1", 6, 23)];
        let found = suggest(&policy(Zone::Block, Zone::Block), &refused);
        let wanted = Zone::Allowlist(vec![rule("10.1.1.1/32", Traffic::Any)]);
        assert_eq!(found.policy.private, wanted);
        assert_eq!(found.added, [(ZoneName::Private, 0, 6)]);
    }

    #[test]
    fn a_denylist_is_cut_around_the_host() {
        let deny = Zone::Denylist(vec![
            rule("10.0.0.0/30", tcp(&[22, 443])),
            rule("192.168.0.0/16", Traffic::Any),
        ]);
        let found = suggest(&policy(Zone::Block, deny), &[to("10.0.0.1", 6, 443)]);
        let wanted = Zone::Denylist(vec![
            rule("10.0.0.2/31", tcp(&[22, 443])),
            rule("10.0.0.0/32", tcp(&[22, 443])),
            rule("10.0.0.1/32", tcp(&[22])),
            rule("192.168.0.0/16", Traffic::Any),
        ]);
        assert_eq!(found.policy.private, wanted);
        assert_eq!(found.removed, [(ZoneName::Private, 0)]);
        let host = Zone::Denylist(vec![rule("10.0.0.1/32", Traffic::Any)]);
        let found = suggest(&policy(Zone::Block, host), &[to("10.0.0.1", 6, 443)]);
        assert_eq!(found.policy.private, Zone::Denylist(Vec::new()));
        assert!(!found.is_empty());
    }

    #[test]
    fn there_is_no_room_beyond_the_largest_policy() {
        let refused: Vec<_> = (0..300u32)
            .map(|n| to(&std::net::Ipv4Addr::from(0x0a01_0000 + n).to_string(), 6, 80))
            .collect();
        let found = suggest(&policy(Zone::Block, Zone::Block), &refused);
        assert_eq!(found.policy.private.rules().len(), RULES);
        assert_eq!(found.left.len(), 300 - RULES);
        assert_eq!(found.policy.flaw(), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn what_was_refused_is_allowed_and_no_other_host_gains(
            mode in 0..3,
            rules in proptest::collection::vec((any::<u8>(), 24..=32u8, 0..3), 0..5),
            refused in proptest::collection::vec((any::<u8>(), 0..3u8, 1..4u16), 0..6),
            other in any::<u8>(),
        ) {
            let host = |n: u8| IpAddr::from([10, 0, 0, n]);
            let rules: Vec<Rule> = rules.into_iter().map(|(n, bits, kind)| Rule {
                cidr: IpNet::new(host(n), bits).unwrap().trunc(),
                traffic: match kind {
                    0 => Traffic::Any,
                    1 => tcp(&[1, 2]),
                    _ => Traffic::Ports(Protocol::Udp, vec![]),
                },
            }).collect();
            let zone = match mode {
                0 => Zone::Block,
                1 => Zone::Allowlist(rules),
                _ => Zone::Denylist(rules),
            };
            let old = policy(Zone::Block, zone);
            let refused: Vec<(Destination, u64)> = refused.into_iter().map(|(n, protocol, port)| {
                let (protocol, port) = ([1, 6, 17][usize::from(protocol)], port);
                let port = if protocol == 1 { 0 } else { port };
                (Destination { address: host(n), protocol, port }, 1)
            }).collect();
            let found = suggest(&old, &refused);
            prop_assert_eq!(found.policy.flaw(), None);
            for (to, _) in &refused {
                if !found.left.contains(to) {
                    let now = verdict(&found.policy, to.address, to.flow());
                    prop_assert_eq!(now.decision, Decision::Allowed);
                }
            }
            if !refused.iter().any(|(to, _)| to.address == host(other)) {
                for flow in [Flow::Other, Flow::To(Protocol::Tcp, 1), Flow::To(Protocol::Udp, 9)] {
                    let decided = |policy| verdict(policy, host(other), flow).decision;
                    prop_assert_eq!(decided(&found.policy), decided(&old));
                }
            }
        }
    }
}
