//! The table is carried out here as the kernel does, and held to the evaluator.

use super::*;
use crate::network::verdict::{By, Decision, Flow, Way, verdict_by};
use crate::network::{NETWORK_POLICY_VERSION, Rule as PolicyRule, Traffic, class};
use std::collections::BTreeMap;

/// What a packet does in the table: whether it passes, and which total counted it.
#[derive(Debug, PartialEq)]
struct Outcome {
    passes: bool,
    answered: Option<Reject>,
    total: Option<Counter>,
    recorded: Option<(String, Vec<u8>)>,
}

#[derive(Clone, Copy)]
struct Packet {
    to: IpAddr,
    protocol: u8,
    /// The port, or the type of ICMPv6 in its upper byte.
    word: u16,
    way: &'static str,
    state: u32,
    /// Whether it goes the way of its connection's first packet.
    onward: bool,
}

/// Bit of the state of a packet that begins a connection, and of one that belongs to none.
const NEW: u32 = 1 << 3;
const INVALID: u32 = 1;

impl Packet {
    fn fact(&self, key: Meta) -> Vec<u8> {
        match key {
            Meta::In => vec![0; 16],
            Meta::Out => {
                let mut name = self.way.as_bytes().to_vec();
                name.resize(16, 0);
                name
            }
            Meta::Family => vec![if self.to.is_ipv4() { 2 } else { 10 }],
            Meta::Protocol => vec![self.protocol],
        }
    }

    fn part(&self, base: Base, offset: u32, length: u32) -> Vec<u8> {
        let length = length as usize;
        match (base, offset, self.to) {
            (Base::Network, 16, IpAddr::V4(to)) => to.octets()[..length].to_vec(),
            (Base::Network, 24, IpAddr::V6(to)) => to.octets()[..length].to_vec(),
            (Base::Transport, 2, _) => self.word.to_be_bytes().to_vec(),
            (Base::Transport, 0, _) => vec![self.word.to_be_bytes()[0]],
            other => panic!("{other:?}"),
        }
    }
}

fn run(table: &Ruleset, packet: &Packet) -> Outcome {
    let chains: BTreeMap<&str, &Chain> =
        table.chains.iter().map(|chain| (&*chain.name, chain)).collect();
    let sets: BTreeMap<&str, &Set> = table.sets.iter().map(|set| (&*set.name, set)).collect();
    let mut chain = chains["output"];
    let mut outcome = Outcome { passes: false, answered: None, total: None, recorded: None };
    'chain: loop {
        for rule in &chain.rules {
            let mut registers = [0u8; 64];
            let put = |registers: &mut [u8; 64], to: u32, bytes: &[u8]| {
                let (at, whole) = (to as usize * 4, bytes.len().next_multiple_of(4));
                registers[at..at + whole].fill(0);
                registers[at..at + bytes.len()].copy_from_slice(bytes);
            };
            for expr in rule {
                let holds = match expr {
                    Expr::Meta { key, to } => {
                        put(&mut registers, *to, &packet.fact(*key));
                        true
                    }
                    Expr::Payload { base, offset, length, to } => {
                        put(&mut registers, *to, &packet.part(*base, *offset, *length));
                        true
                    }
                    Expr::Connection { key: Tracked::State, to } => {
                        put(&mut registers, *to, &packet.state.to_ne_bytes());
                        true
                    }
                    Expr::Connection { key: Tracked::Direction, to } => {
                        put(&mut registers, *to, &[u8::from(!packet.onward)]);
                        packet.state & (NEW | ESTABLISHED | RELATED) != 0
                    }
                    Expr::Put { bytes, to } => {
                        put(&mut registers, *to, bytes);
                        true
                    }
                    Expr::Mask { mask, at } => {
                        for (n, bits) in mask.iter().enumerate() {
                            registers[*at as usize * 4 + n] &= bits;
                        }
                        true
                    }
                    Expr::Equal { bytes, at } => registers[*at as usize * 4..].starts_with(bytes),
                    Expr::Lookup { set, at, to } => {
                        let set = sets[&**set];
                        let key = &registers[*at as usize * 4..][..set.key as usize];
                        match find(set, key) {
                            None => false,
                            Some(element) => {
                                if set.name == count::TOTALS {
                                    let all = Counter::ALL.into_iter();
                                    outcome.total = all.clone().find(|c| c.key() == *element.key);
                                }
                                assert_eq!(to.is_some(), !element.data.is_empty());
                                if let Some(to) = to {
                                    put(&mut registers, *to, &element.data.clone());
                                }
                                true
                            }
                        }
                    }
                    Expr::Record { set, at } => {
                        let key = &registers[*at as usize * 4..][..sets[&**set].key as usize];
                        outcome.recorded = Some((set.clone(), key.to_vec()));
                        true
                    }
                    Expr::Untracked => true,
                    Expr::Reject(reject) => {
                        outcome.answered = Some(*reject);
                        return outcome;
                    }
                    Expr::Verdict(Verdict::Accept) => {
                        outcome.passes = true;
                        return outcome;
                    }
                    Expr::Verdict(Verdict::Drop) => return outcome,
                    Expr::Verdict(Verdict::Goto(name)) => {
                        chain = chains[&**name];
                        continue 'chain;
                    }
                };
                if !holds {
                    break;
                }
            }
        }
        return outcome;
    }
}

fn find<'a>(set: &'a Set, key: &[u8]) -> Option<&'a Element> {
    match set.kind {
        SetKind::Ranges => {
            let before = set.elements.iter().filter(|element| &*element.key <= key);
            before.max_by(|a, b| (&a.key, a.end).cmp(&(&b.key, b.end))).filter(|e| !e.end)
        }
        SetKind::Exact | SetKind::Counters | SetKind::Recorder => {
            set.elements.iter().find(|element| element.key == key)
        }
    }
}

/// A small generator with a printed seed: the same numbers everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn of<T: Copy>(&mut self, choice: &[T]) -> T {
        choice[self.roll(choice.len())]
    }
}

const NETS: &[&str] = &[
    "0.0.0.0/0",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.1.2.0/24",
    "10.1.2.3/32",
    "8.8.8.8/32",
    "8.0.0.0/5",
    "192.168.0.0/16",
    "127.0.0.0/8",
    "10.0.2.0/24",
    "::/0",
    "fc00::/7",
    "fd00::/8",
    "2001:db8::/32",
    "2606:4700::/32",
    "2606:4700:4700::1111/128",
    "2000::/3",
    "fd00:1::/33",
    "1.1.1.0/31",
    "224.0.0.0/4",
];
const ADDRESSES: &[&str] = &[
    "10.1.2.3",
    "10.1.2.4",
    "10.1.3.1",
    "10.2.0.0",
    "10.255.255.255",
    "11.0.0.0",
    "8.8.8.8",
    "8.8.4.4",
    "1.1.1.1",
    "1.1.1.0",
    "1.1.1.2",
    "192.168.7.7",
    "127.0.0.1",
    "127.255.255.255",
    "126.255.255.255",
    "128.0.0.0",
    "10.0.2.2",
    "10.0.2.3",
    "10.0.2.15",
    "0.0.0.0",
    "0.1.2.3",
    "224.0.0.1",
    "239.1.1.1",
    "255.255.255.255",
    "223.255.255.255",
    "::1",
    "::",
    "::7f00:1",
    "64:ff9b::1",
    "fd00::2",
    "fd00::3",
    "fd00:1::1",
    "fd00:1:8000::1",
    "fdff::1",
    "fe80::1",
    "ff02::1",
    "2001:db8::5",
    "2001:1ff::1",
    "2001:200::1",
    "2606:4700:4700::1111",
    "2606:4700::1",
    "2606:4701::1",
    "1fff:ffff::1",
    "3fff:1000::1",
    "3fff::1",
    "4000::1",
    "7fff::1",
    "ffff::1",
    "203.0.113.5",
    "198.20.0.1",
];
const PORTS: &[u16] = &[53, 80, 443, 1, 65535, 8080];

fn policy(dice: &mut Dice) -> NetworkPolicy {
    let mut rules = || {
        let traffic = |dice: &mut Dice| {
            let protocol = dice.of(&[Protocol::Tcp, Protocol::Udp]);
            let count = dice.roll(4);
            let ports = (0..count).map(|_| dice.of(PORTS)).collect();
            if dice.roll(4) == 0 { Traffic::Any } else { Traffic::Ports(protocol, ports) }
        };
        let rules: Vec<PolicyRule> = (0..dice.roll(7))
            .map(|_| PolicyRule { cidr: dice.of(NETS).parse().unwrap(), traffic: traffic(dice) })
            .collect();
        match dice.roll(6) {
            0 => Zone::Allow,
            1 => Zone::Block,
            2 | 3 => Zone::Allowlist(rules),
            _ => Zone::Denylist(rules),
        }
    };
    let (public, private) = (rules(), rules());
    let servers = ["8.8.8.8", "10.1.2.3", "2606:4700:4700::1111"];
    let dns_servers = servers.iter().filter(|_| dice.roll(3) == 0).map(|s| s.parse().unwrap());
    let dns_servers = dns_servers.collect();
    let version = NETWORK_POLICY_VERSION;
    NetworkPolicy { version, public, private, dns_servers, proxy_mode: None }
}

#[test]
fn the_table_decides_as_the_evaluator_says() {
    let mut dice = Dice(20_251_129);
    for _ in 0..400 {
        let policy = policy(&mut dice);
        let table = compile(&policy);
        for address in ADDRESSES {
            let to: IpAddr = address.parse().unwrap();
            for (protocol, word, flow) in [
                (TCP, 443, Flow::To(Protocol::Tcp, 443)),
                (TCP, 53, Flow::To(Protocol::Tcp, 53)),
                (UDP, 53, Flow::To(Protocol::Udp, 53)),
                (UDP, 65535, Flow::To(Protocol::Udp, 65535)),
                (ICMPV6, u16::from_be_bytes([135, 0]), Flow::Neighbour),
                (ICMPV6, u16::from_be_bytes([128, 0]), Flow::Other),
                (132, 443, Flow::Other),
            ] {
                if protocol == ICMPV6 && to.is_ipv4() {
                    continue;
                }
                let packet = Packet { to, protocol, word, way: "tap0", state: NEW, onward: true };
                let outcome = run(&table, &packet);
                let verdict = verdict_by(&policy, to, flow, Way::Link);
                let allowed = verdict.decision == Decision::Allowed;
                assert_eq!(outcome.passes, allowed, "{policy:?} {address} {flow:?} {verdict:?}");
                let private = verdict.zone == class::ZoneName::Private;
                let total = match (verdict.by, allowed, private) {
                    (By::Neighbour, _, _) => None,
                    (By::Zone, true, true) => Some(Counter::ReachedPrivate),
                    (By::Zone, true, false) => Some(Counter::ReachedPublic),
                    (By::Zone, false, true) => Some(Counter::RefusedPrivate),
                    (By::Zone, false, false) => Some(Counter::RefusedPublic),
                    (By::Loopback | By::Alias | By::Dns, true, _) => Some(Counter::ReachedFixed),
                    (By::Loopback | By::Alias | By::Dns, false, _) => Some(Counter::RefusedFixed),
                };
                assert_eq!(outcome.total, total, "{policy:?} {address} {flow:?}");
                let answered = (!allowed).then_some(match protocol {
                    TCP => Reject::Reset,
                    _ => Reject::Prohibited,
                });
                assert_eq!(outcome.answered, answered);
                if let Some((set, key)) = outcome.recorded {
                    let (what, family) = set.split_once('_').unwrap();
                    assert_eq!((what == "reached", family == "v4"), (allowed, to.is_ipv4()));
                    let port = if [TCP, UDP].contains(&protocol) { word } else { 0 };
                    let expected = match to {
                        IpAddr::V4(to) => to.octets().to_vec(),
                        IpAddr::V6(to) => to.octets().to_vec(),
                    };
                    let [high, low] = port.to_be_bytes();
                    let rest = [protocol, 0, 0, 0, high, low, 0, 0];
                    assert_eq!(key, [&expected[..], &rest].concat());
                } else {
                    assert_eq!(verdict.by, By::Neighbour);
                }
            }
        }
    }
}

#[test]
fn only_loopback_itself_carries_its_addresses_and_nothing_there_is_counted() {
    let mut dice = Dice(1);
    let table = compile(&policy(&mut dice));
    for address in ADDRESSES {
        let to = address.parse().unwrap();
        let packet = Packet { to, protocol: TCP, word: 1, way: "lo", state: 1 << 6, onward: true };
        let passed = Outcome { passes: true, answered: None, total: None, recorded: None };
        assert_eq!(run(&table, &packet), passed);
        let outcome = run(&table, &Packet { way: "lo1", state: NEW, ..packet });
        assert!(!(outcome.passes && class::is_loopback(to)), "{address}");
    }
}

#[test]
fn packets_of_a_known_connection_are_judged_but_counted_once() {
    let all = NetworkPolicy {
        version: NETWORK_POLICY_VERSION,
        public: Zone::Allow,
        private: Zone::Block,
        dns_servers: vec![],
        proxy_mode: None,
    };
    let table = compile(&all);
    let packet = |to: &str| Packet {
        to: to.parse().unwrap(),
        protocol: TCP,
        word: 443,
        way: "tap0",
        state: ESTABLISHED,
        onward: true,
    };
    let passed = run(&table, &packet("8.8.8.8"));
    assert!(passed.passes && passed.total.is_none() && passed.recorded.is_none());
    let refused = run(&table, &packet("10.1.1.1"));
    assert!(!refused.passes && refused.total == Some(Counter::RefusedPrivate));
    // What only looks like an answer began nothing that was counted.
    for odd in [
        Packet { onward: false, ..packet("8.8.8.8") },
        Packet { state: INVALID, ..packet("8.8.8.8") },
    ] {
        let passed = run(&table, &odd);
        assert!(passed.passes && passed.total == Some(Counter::ReachedPublic));
        assert!(passed.recorded.is_some());
    }
}

#[test]
fn ranges_join_where_they_touch_and_the_last_one_has_no_end() {
    let nets = |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect::<Vec<IpNet>>();
    let v4 = ranges(V4, &nets(&["224.0.0.0/3", "10.0.0.0/9", "10.128.0.0/9", "10.1.0.0/16"]));
    let seen: Vec<_> = v4.iter().map(|e| (e.key.clone(), e.end)).collect();
    let expected =
        [(vec![10, 0, 0, 0], false), (vec![224, 0, 0, 0], false), (vec![11, 0, 0, 0], true)];
    assert_eq!(seen, expected);
    assert_eq!(ranges(V6, &nets(&["4000::/2", "8000::/1"])).len(), 1);
}

#[test]
fn no_set_has_a_key_twice_and_every_name_is_short_and_leads_somewhere() {
    let mut dice = Dice(7);
    for _ in 0..100 {
        let table = compile(&policy(&mut dice));
        for set in &table.sets {
            let keys: std::collections::BTreeSet<_> =
                set.elements.iter().map(|element| &element.key).collect();
            assert_eq!(keys.len(), set.elements.len(), "{}", set.name);
            assert!(set.name.len() < 32);
            // The kernel gives concatenated keys in whole words.
            assert!(set.elements.iter().all(|e| e.key.len() == set.key as usize), "{}", set.name);
        }
        for expr in table.chains.iter().flat_map(|chain| chain.rules.iter().flatten()) {
            if let Expr::Verdict(Verdict::Goto(name)) = expr {
                assert!(table.chains.iter().any(|chain| chain.name == *name), "{name}");
            }
            if let Expr::Lookup { set: name, .. } | Expr::Record { set: name, .. } = expr {
                assert!(table.sets.iter().any(|set| set.name == *name), "{name}");
            }
        }
    }
}

#[test]
fn the_largest_policy_stays_as_many_elements_as_it_has_ports() {
    let rules = |zone: u8| {
        let rule = |n: u8| PolicyRule {
            cidr: IpNet::new(IpAddr::from([zone, n, 0, 0]), 16).unwrap(),
            traffic: Traffic::Ports(
                Protocol::Tcp,
                (0..256).map(|p| 1 + p + u16::from(n)).collect(),
            ),
        };
        Zone::Allowlist((0..=255).map(rule).collect())
    };
    let policy = NetworkPolicy {
        version: NETWORK_POLICY_VERSION,
        public: rules(9),
        private: rules(10),
        dns_servers: vec![],
        proxy_mode: None,
    };
    let table = compile(&policy);
    // Both zones have the same lists.
    let services = table.sets.iter().find(|set| set.name == "services").unwrap();
    assert_eq!(services.elements.len(), 256 * 256);
    assert!(table.digest().is_ok());
}
