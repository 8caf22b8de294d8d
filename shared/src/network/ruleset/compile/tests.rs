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
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    /// The sender's port, or ICMP's type in its upper byte.
    own: u16,
    port: u16,
    /// TCP's.
    flags: u8,
    /// The interface by which it goes or comes.
    way: &'static str,
}

impl Packet {
    /// From the session by the link.
    fn to(to: &str, protocol: u8, port: u16) -> Self {
        let to: IpAddr = to.parse().unwrap();
        let from = if to.is_ipv4() { "10.0.2.100" } else { "fd00::100" };
        let (from, own) = (from.parse().unwrap(), 40_000);
        Self { from, to, protocol, own, port, flags: SYN, way: "tap0" }
    }

    /// What its receiver sends back.
    fn back(self) -> Self {
        let Self { from, to, own, port, .. } = self;
        Self { from: to, to: from, own: port, port: own, flags: SYN | ACK, ..self }
    }

    fn fact(&self, key: Meta) -> Vec<u8> {
        match key {
            Meta::In | Meta::Out => {
                let mut name = self.way.as_bytes().to_vec();
                name.resize(16, 0);
                name
            }
            Meta::Family => vec![if self.to.is_ipv4() { 2 } else { 10 }],
            Meta::Protocol => vec![self.protocol],
        }
    }

    /// Its bytes, as far as the table may look at them.
    fn part(&self, base: Base, offset: u32, length: u32) -> Vec<u8> {
        let addresses = match (self.from, self.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                [&[0; 12][..], &from.octets(), &to.octets()].concat()
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                [&[0; 8][..], &from.octets(), &to.octets()].concat()
            }
            other => panic!("{other:?}"),
        };
        let mut transport = [self.own.to_be_bytes(), self.port.to_be_bytes()].concat();
        if self.protocol == TCP {
            transport.resize(13, 0);
            transport.push(self.flags);
        }
        let bytes = match base {
            Base::Network => addresses,
            Base::Transport => transport,
        };
        bytes[offset as usize..][..length as usize].to_vec()
    }
}

/// The table, and what packets left in it.
struct World<'a> {
    chains: BTreeMap<&'a str, &'a Chain>,
    sets: BTreeMap<&'a str, &'a Set>,
    flows: Vec<(String, Vec<u8>)>,
    /// Whether there is room for more flows.
    room: bool,
}

fn run(table: &Ruleset, packet: &Packet) -> Outcome {
    World::new(table).run("output", packet)
}

impl<'a> World<'a> {
    fn new(table: &'a Ruleset) -> Self {
        let chains = table.chains.iter().map(|chain| (&*chain.name, chain)).collect();
        let sets = table.sets.iter().map(|set| (&*set.name, set)).collect();
        Self { chains, sets, flows: Vec::new(), room: true }
    }

    fn run(&mut self, hook: &str, packet: &Packet) -> Outcome {
        let mut chain = self.chains[hook];
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
                        Expr::Equal { bytes, at } => {
                            registers[*at as usize * 4..].starts_with(bytes)
                        }
                        Expr::Lookup { set, at, to } => {
                            let set = self.sets[&**set];
                            let key = &registers[*at as usize * 4..][..set.key as usize];
                            match find(set, key) {
                                None => self.flows.contains(&(set.name.clone(), key.to_vec())),
                                Some(element) => {
                                    if set.name == count::TOTALS {
                                        let mut all = Counter::ALL.into_iter();
                                        outcome.total = all.find(|c| c.key() == *element.key);
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
                            let set = self.sets[&**set];
                            let key = &registers[*at as usize * 4..][..set.key as usize];
                            let element = (set.name.clone(), key.to_vec());
                            if set.kind == SetKind::Recorder {
                                outcome.recorded = Some(element);
                                true
                            } else if self.room || self.flows.contains(&element) {
                                self.flows.push(element);
                                true
                            } else {
                                false
                            }
                        }
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
                            chain = self.chains[&**name];
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
}

fn find<'a>(set: &'a Set, key: &[u8]) -> Option<&'a Element> {
    match set.kind {
        SetKind::Ranges => {
            let before = set.elements.iter().filter(|element| &*element.key <= key);
            before.max_by(|a, b| (&a.key, a.end).cmp(&(&b.key, b.end))).filter(|e| !e.end)
        }
        SetKind::Exact | SetKind::Counters | SetKind::Recorder | SetKind::Flows => {
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
                (ICMPV6, 135, Flow::Neighbour),
                (ICMPV6, 128, Flow::Other),
                (132, 443, Flow::Other),
            ] {
                if protocol == ICMPV6 && to.is_ipv4() {
                    continue;
                }
                let mut packet = Packet::to(address, protocol, word);
                if protocol == ICMPV6 {
                    packet.own = word << 8;
                }
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
        let packet = Packet { way: "lo", ..Packet::to(address, TCP, 1) };
        let passed = Outcome { passes: true, answered: None, total: None, recorded: None };
        assert_eq!(run(&table, &packet), passed);
        assert!(World::new(&table).run("input", &packet).passes);
        let outcome = run(&table, &Packet { way: "lo1", ..packet });
        assert!(!(outcome.passes && class::is_loopback(packet.to)), "{address}");
        assert!(!World::new(&table).run("input", &Packet { way: "lo1", ..packet }).passes);
    }
}

fn open_to_the_public() -> Ruleset {
    compile(&NetworkPolicy {
        version: NETWORK_POLICY_VERSION,
        public: Zone::Allow,
        private: Zone::Block,
        dns_servers: vec![],
        proxy_mode: None,
    })
}

#[test]
fn every_packet_of_a_connection_is_judged_and_its_first_is_counted() {
    let table = open_to_the_public();
    for (good, bad) in [("8.8.8.8", "10.1.1.1"), ("2606:4700::1", "fdff::1")] {
        let begin = Packet::to(good, TCP, 443);
        let passed = run(&table, &begin);
        assert!(passed.passes && passed.total == Some(Counter::ReachedPublic));
        assert!(passed.recorded.is_some());
        for flags in [ACK, ACK | 8, ACK | 1, 4, 0] {
            let passed = run(&table, &Packet { flags, ..begin });
            assert!(passed.passes && passed.total.is_none() && passed.recorded.is_none());
            let refused = run(&table, &Packet { flags, ..Packet::to(bad, TCP, 443) });
            assert!(!refused.passes && refused.total == Some(Counter::RefusedPrivate));
        }
    }
}

#[test]
fn a_flow_of_udp_is_judged_and_counted_once_as_long_as_it_lasts() {
    let table = open_to_the_public();
    for (good, bad) in [("8.8.8.8", "10.1.1.1"), ("2606:4700::1", "fdff::1")] {
        let mut world = World::new(&table);
        let packet = Packet::to(good, UDP, 53);
        let counted = |outcome: Outcome| (outcome.passes, outcome.total.is_some());
        assert_eq!(counted(world.run("output", &packet)), (true, true));
        assert_eq!(counted(world.run("output", &packet)), (true, false));
        for other in [Packet { own: 7, ..packet }, Packet { port: 54, ..packet }] {
            assert_eq!(counted(world.run("output", &other)), (true, true));
        }
        // What was refused leaves nothing that would let an answer in.
        let packet = Packet::to(bad, UDP, 53);
        assert_eq!(counted(world.run("output", &packet)), (false, true));
        assert!(!world.run("input", &packet.back()).passes);
        // Without room it passes and is counted each time; its answers have no way in.
        world.room = false;
        let packet = Packet::to(good, UDP, 99);
        assert_eq!(counted(world.run("output", &packet)), (true, true));
        assert_eq!(counted(world.run("output", &packet)), (true, true));
        assert!(!world.run("input", &packet.back()).passes);
    }
}

#[test]
fn nothing_comes_in_but_answers() {
    let table = open_to_the_public();
    for address in ["8.8.8.8", "2606:4700::1"] {
        let mut world = World::new(&table);
        let mut comes_in = |packet: Packet| world.run("input", &packet).passes;
        let tcp = Packet::to(address, TCP, 443).back();
        for (flags, passes) in
            [(SYN, false), (SYN | 8, false), (SYN | ACK, true), (ACK, true), (4, true), (5, true)]
        {
            assert_eq!(comes_in(Packet { flags, ..tcp }), passes, "{flags:#x}");
        }
        let (icmp, errors) = match tcp.to {
            IpAddr::V4(_) => (ICMP, &ERRORS_V4[..]),
            IpAddr::V6(_) => (ICMPV6, &ERRORS_V6[..]),
        };
        for kind in 0..=255 {
            let packet = Packet { protocol: icmp, own: u16::from(kind) << 8, ..tcp };
            let neighbour = icmp == ICMPV6 && NEIGHBOUR_IN.contains(&kind);
            assert_eq!(comes_in(packet), errors.contains(&kind) || neighbour, "{kind}");
        }
        for protocol in [0, 2, 41, 132, 136] {
            assert!(!comes_in(Packet { protocol, ..tcp }));
        }
        let udp = Packet::to(address, UDP, 443);
        assert!(!comes_in(udp.back()));
        assert!(world.run("output", &udp).passes);
        let mut comes_in = |packet: Packet| world.run("input", &packet).passes;
        assert!(comes_in(udp.back()));
        // From another port or address, or to another port, it answers nothing.
        let elsewhere =
            Packet::to(if udp.to.is_ipv4() { "8.8.4.4" } else { "2606:4700::2" }, UDP, 443);
        let other_port = Packet { port: 444, ..udp };
        for other in [elsewhere, other_port, Packet { own: 7, ..udp }] {
            assert!(!comes_in(other.back()));
        }
        // And the set does not say what may leave.
        assert!(!comes_in(udp));
    }
}

#[test]
fn nothing_is_forwarded_in_any_policy() {
    let mut dice = Dice(3);
    for _ in 0..20 {
        let table = compile(&policy(&mut dice));
        for address in ADDRESSES {
            for way in ["lo", "tap0"] {
                let packet = Packet { way, ..Packet::to(address, TCP, 443) };
                assert!(!World::new(&table).run("forward", &packet).passes, "{address} {way}");
            }
        }
        let hooks: Vec<Hook> = table.chains.iter().filter_map(|chain| chain.hook).collect();
        assert!(hooks.len() == 3 && hooks.iter().all(|hook| hook.drops));
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
