//! Random policies and destinations, on and around the edges where zones and rules begin and end.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use landbox_shared::network::class::{OWN_V4, OWN_V6, PRIVATE_V4, PRIVATE_V6, is_own};
use landbox_shared::network::{
    NETWORK_POLICY_VERSION, NetworkPolicy, Protocol, Rule, Traffic, Zone, check,
};
use landbox_tests::net::{Flow, Transport};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The ports that are probed; policies name others too.
pub(crate) const PORTS: [u16; 6] = [1, 53, 80, 443, 18087, 65535];

/// Numbers that follow from a seed alone (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(count).unwrap()).unwrap()
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// The first and last address of a prefix, and the ones just outside it.
fn edges(net: &IpNet) -> Vec<IpAddr> {
    match net {
        IpNet::V4(net) => {
            let (first, last) = (u32::from(net.network()), u32::from(net.broadcast()));
            [first.wrapping_sub(1), first, last, last.wrapping_add(1)]
                .map(|bits| Ipv4Addr::from(bits).into())
                .into()
        }
        IpNet::V6(net) => {
            let (first, last) = (u128::from(net.network()), u128::from(net.broadcast()));
            [first.wrapping_sub(1), first, last, last.wrapping_add(1)]
                .map(|bits| Ipv6Addr::from(bits).into())
                .into()
        }
    }
}

fn zone_edges() -> Vec<IpAddr> {
    let v4 = PRIVATE_V4.into_iter().map(IpNet::V4);
    v4.chain(PRIVATE_V6.into_iter().map(IpNet::V6)).flat_map(|net| edges(&net)).collect()
}

/// Addresses that mean something to the link or to the stack.
const SPECIAL: [&str; 16] = [
    "10.0.2.2",
    "10.0.2.3",
    "127.0.0.1",
    "127.0.0.53",
    "::1",
    "fd00::2",
    "fd00::3",
    "169.254.169.254",
    "93.184.216.34",
    "10.77.0.1",
    "2606:4700::100",
    "fd55::1",
    "64:ff9b::a4d:1",
    "::7f00:1",
    "2001:db8::1",
    "240.0.0.1",
];

fn any_address(random: &mut Random) -> IpAddr {
    match random.below(4) {
        0 => random.pick(&zone_edges()),
        1 => random.pick(&SPECIAL).parse().unwrap(),
        2 => Ipv4Addr::from(u32::try_from(random.next() >> 32).unwrap()).into(),
        // Most of IPv6 is private: half of what is drawn begins as public addresses do.
        _ => {
            let bits = (u128::from(random.next()) << 64) | u128::from(random.next());
            let begin = 0x2000u128 << 112 | bits >> 3;
            Ipv6Addr::from(if random.one_in(2) { begin } else { bits }).into()
        }
    }
}

fn cidr(random: &mut Random) -> IpNet {
    loop {
        let net: IpNet = match any_address(random) {
            IpAddr::V4(address) => {
                let prefix = random.pick(&[0, 1, 4, 8, 9, 12, 16, 20, 24, 27, 31, 32, 32]);
                Ipv4Net::new(address, prefix).unwrap().trunc().into()
            }
            IpAddr::V6(address) => {
                let prefix = random.pick(&[0, 1, 3, 7, 16, 23, 32, 48, 64, 96, 127, 128, 128]);
                Ipv6Net::new(address, prefix).unwrap().trunc().into()
            }
        };
        // What `check` refuses is no policy: prefixes over IPv4 addresses written as IPv6.
        if !check::cidr_flaw(&net) {
            return net;
        }
    }
}

fn traffic(random: &mut Random) -> Traffic {
    let protocol = if random.one_in(3) { Protocol::Udp } else { Protocol::Tcp };
    match random.below(4) {
        0 => Traffic::Any,
        1 => Traffic::Ports(protocol, vec![]),
        _ => {
            let mut ports: Vec<u16> = Vec::new();
            for _ in 0..=random.below(4) {
                let other = u16::try_from(1 + random.below(65535)).unwrap();
                let port = random.pick(&PORTS);
                let port = if random.one_in(4) { other } else { port };
                if !ports.contains(&port) {
                    ports.push(port);
                }
            }
            Traffic::Ports(protocol, ports)
        }
    }
}

fn zone(random: &mut Random) -> Zone {
    let count = match random.below(8) {
        0 => 0,
        1 => 64,
        _ => 1 + random.below(12),
    };
    let mut rules = || -> Vec<Rule> {
        (0..count).map(|_| Rule { cidr: cidr(random), traffic: traffic(random) }).collect()
    };
    let rules = rules();
    match random.below(6) {
        0 => Zone::Allow,
        1 => Zone::Block,
        2 | 3 => Zone::Allowlist(rules),
        _ => Zone::Denylist(rules),
    }
}

/// A policy with as many rules as there may be.
pub(crate) fn largest(random: &mut Random) -> NetworkPolicy {
    let rules = |random: &mut Random| -> Vec<Rule> {
        (0..256).map(|_| Rule { cidr: cidr(random), traffic: traffic(random) }).collect()
    };
    let (public, private) = (Zone::Allowlist(rules(random)), Zone::Denylist(rules(random)));
    NetworkPolicy { public, private, ..policy(random) }
}

/// A policy that `check` accepts.
pub(crate) fn policy(random: &mut Random) -> NetworkPolicy {
    let mut dns_servers: Vec<IpAddr> = Vec::new();
    for _ in 0..random.below(4) {
        let address = any_address(random).to_canonical();
        if check::dns_flaw(address).is_none() && !dns_servers.contains(&address) {
            dns_servers.push(address);
        }
    }
    let (public, private) = (zone(random), zone(random));
    NetworkPolicy {
        version: NETWORK_POLICY_VERSION,
        public,
        private,
        dns_servers,
        proxy_mode: None,
    }
}

/// Destinations on and around the edges of the zones and of the policy's rules, and anywhere.
pub(crate) fn flows(random: &mut Random, policy: &NetworkPolicy, count: usize) -> Vec<Flow> {
    let rules = policy.public.rules().iter().chain(policy.private.rules());
    let mut near: Vec<IpAddr> = rules.flat_map(|rule| edges(&rule.cidr)).collect();
    near.extend(&policy.dns_servers);
    let mut flows = Vec::new();
    while flows.len() < count {
        let address = if near.is_empty() || random.one_in(3) {
            any_address(random)
        } else {
            random.pick(&near)
        };
        let flow = Flow {
            transport: if random.one_in(3) { Transport::Udp } else { Transport::Tcp },
            address: address.to_canonical(),
            port: random.pick(&PORTS),
            mapped: address.to_canonical().is_ipv4() && random.one_in(3),
            bound: random.one_in(3),
        };
        if excluded(&flow).is_none() {
            flows.push(flow);
        }
    }
    flows
}

/// Why a destination says nothing about the rules: the kernel's own stack or the link decides, whatever they are.
pub(crate) fn excluded(flow: &Flow) -> Option<&'static str> {
    let own = [IpAddr::V4(OWN_V4), IpAddr::V6(OWN_V6)].contains(&flow.address);
    if own && flow.bound {
        return Some(
            "a socket bound to the link still reaches the session's own address by loopback",
        );
    }
    if is_own(flow.address) && !flow.bound && flow.port < 1024 {
        return Some("what is let through by loopback meets a port that the task can't listen on");
    }
    match flow.address {
        IpAddr::V4(address) => match address.octets() {
            [0, 0, 0, 0] if flow.bound => Some("the kernel puts an own address in its place"),
            [224..=239, ..] => Some("multicast: TCP can't connect, and no listener joins a group"),
            [255, 255, 255, 255] | [127, 255, 255, 255] | [127, 0, 0, 0] | [0, 255, 255, 255] => {
                Some("a broadcast address: sockets need to ask for it first")
            }
            [10, 0, 2, 2 | 3 | 100] => None,
            [10, 0, 2, _] => Some("the link's own network: nobody answers for the others there"),
            _ => None,
        },
        IpAddr::V6(address) => match address.segments()[0] {
            _ if address.is_unspecified() => Some("the kernel puts an own address in its place"),
            0xff00.. => Some("multicast: TCP can't connect, and no listener joins a group"),
            0xfe80..=0xfebf => Some("link-local: means nothing without the name of a link"),
            _ => None,
        },
    }
}

/// The policy as the owner writes it.
pub(crate) fn text(policy: &NetworkPolicy) -> Value {
    let list = |mode: &str, rules: &[Rule]| {
        let rules: Vec<Value> = rules.iter().map(rule_text).collect();
        json!({"mode": mode, "rules": rules})
    };
    let zone = |zone: &Zone| match zone {
        Zone::Allow => json!({"mode": "allow"}),
        Zone::Block => json!({"mode": "block"}),
        Zone::Allowlist(rules) => list("allowlist", rules),
        Zone::Denylist(rules) => list("denylist", rules),
    };
    json!({
        "version": policy.version,
        "public": zone(&policy.public),
        "private": zone(&policy.private),
        "dnsServers": policy.dns_servers,
    })
}

fn rule_text(rule: &Rule) -> Value {
    let name = |protocol: &Protocol| match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    };
    match &rule.traffic {
        Traffic::Any => json!({"cidr": rule.cidr}),
        Traffic::Ports(protocol, ports) if ports.is_empty() => {
            json!({"cidr": rule.cidr, "protocol": name(protocol)})
        }
        Traffic::Ports(protocol, ports) => {
            json!({"cidr": rule.cidr, "protocol": name(protocol), "ports": ports})
        }
    }
}
