//! Rules as lists of services. A rule's prefix leads to the number of a list, the number with protocol and port is
//! looked up in one set of all lists. Rules with the same ports share a list, so that a policy of many hosts stays small,
//! and no prefix has to be cut where it overlaps another: each prefix length is looked up by itself.

use super::super::{Rule, Traffic};
use super::Element;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};

/// A protocol and port. Port 0 stands for every port, protocol 0 for every protocol; neither is used on the wire.
type Service = (u8, u16);
const ANY: Service = (0, 0);

/// How much of a packet must be looked at to find it in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Detail {
    /// Nothing: the list holds everything.
    Any,
    /// Its protocol.
    Protocol,
    /// Its protocol and port.
    Port,
}

/// The lists of all zones, each sorted, with its number.
#[derive(Debug, Default)]
pub(super) struct Lists(BTreeMap<Vec<Service>, u32>);

/// Which list each prefix of one family leads to.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    /// Elements of the map.
    pub(super) elements: Vec<Element>,
    /// Which lookups can find something, longest prefix first.
    pub(super) lookups: Vec<(u8, Detail)>,
}

impl Lists {
    /// Files the rules of one zone and family.
    pub(super) fn file<'a>(&mut self, rules: impl Iterator<Item = &'a Rule>) -> Prefixes {
        let mut by_prefix: BTreeMap<IpNet, Vec<Service>> = BTreeMap::new();
        for rule in rules {
            by_prefix.entry(rule.cidr).or_default().extend(services(&rule.traffic));
        }
        let mut prefixes = Prefixes::default();
        let mut lookups = BTreeSet::new();
        for (prefix, services) in by_prefix {
            let services = simplified(services);
            let details: BTreeSet<Detail> = services.iter().map(|one| detail(*one)).collect();
            let length = prefix.prefix_len();
            lookups.extend(details.into_iter().map(|detail| (length, detail)));
            let next = u32::try_from(self.0.len() + 1).unwrap_or(u32::MAX);
            let list = *self.0.entry(services).or_insert(next);
            let mut key = u32::from(length).to_be_bytes().to_vec();
            match prefix {
                IpNet::V4(net) => key.extend(net.network().octets()),
                IpNet::V6(net) => key.extend(net.network().octets()),
            }
            let data = list.to_be_bytes().to_vec();
            prefixes.elements.push(Element { key, end: false, data });
        }
        prefixes.lookups = lookups.into_iter().rev().collect();
        prefixes
    }

    /// Elements of the set of all lists: number of the list, protocol, port.
    pub(super) fn elements(&self) -> Vec<Element> {
        let element = |list: u32, (protocol, port): Service| {
            let [high, low] = port.to_be_bytes();
            let key = [&list.to_be_bytes()[..], &[protocol, 0, 0, 0, high, low, 0, 0]].concat();
            Element { key, end: false, data: Vec::new() }
        };
        let all = self.0.iter().map(|(services, list)| (*list, services));
        all.flat_map(|(list, services)| services.iter().map(move |s| element(list, *s))).collect()
    }
}

fn services(traffic: &Traffic) -> Vec<Service> {
    match traffic {
        Traffic::Any => vec![ANY],
        Traffic::Ports(protocol, ports) if ports.is_empty() => vec![(protocol.number(), 0)],
        Traffic::Ports(protocol, ports) => {
            ports.iter().map(|port| (protocol.number(), *port)).collect()
        }
    }
}

/// Sorts them, and leaves out what a wider one holds already.
fn simplified(mut services: Vec<Service>) -> Vec<Service> {
    services.sort_unstable();
    services.dedup();
    // Everything, and everything of a protocol, come before what they hold.
    if services.first() == Some(&ANY) {
        return vec![ANY];
    }
    let mut whole = None;
    services.retain(|(protocol, port)| {
        if *port == 0 {
            whole = Some(*protocol);
        }
        *port == 0 || whole != Some(*protocol)
    });
    services
}

fn detail(service: Service) -> Detail {
    match service {
        ANY => Detail::Any,
        (_, 0) => Detail::Protocol,
        (_, _) => Detail::Port,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Protocol::{Tcp, Udp};

    fn rule(cidr: &str, traffic: Traffic) -> Rule {
        Rule { cidr: cidr.parse().unwrap(), traffic }
    }

    #[test]
    fn rules_with_the_same_services_share_a_list() {
        let mut lists = Lists::default();
        let ports = || Traffic::Ports(Tcp, vec![443, 80]);
        let rules = [rule("1.0.0.0/8", ports()), rule("2.2.2.2/32", ports())];
        let prefixes = lists.file(rules.iter());
        assert_eq!(prefixes.elements.len(), 2);
        assert_eq!(prefixes.elements[0].data, prefixes.elements[1].data);
        assert_eq!(lists.elements().len(), 2);
        assert_eq!(prefixes.lookups, [(32, Detail::Port), (8, Detail::Port)]);
    }

    #[test]
    fn rules_of_one_prefix_are_a_union_and_the_wider_wins() {
        let mut lists = Lists::default();
        let rules = [
            rule("1.0.0.0/8", Traffic::Ports(Tcp, vec![80])),
            rule("1.0.0.0/8", Traffic::Ports(Tcp, vec![])),
            rule("1.0.0.0/8", Traffic::Ports(Udp, vec![53])),
        ];
        let prefixes = lists.file(rules.iter());
        assert_eq!(prefixes.elements.len(), 1);
        assert_eq!(prefixes.lookups, [(8, Detail::Port), (8, Detail::Protocol)]);
        assert_eq!(lists.elements().len(), 2);
        let any = [rules[0].clone(), rule("1.0.0.0/8", Traffic::Any)];
        let mut lists = Lists::default();
        assert_eq!(lists.file(any.iter()).lookups, [(8, Detail::Any)]);
        assert_eq!(lists.elements().len(), 1);
    }
}
