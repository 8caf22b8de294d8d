//! From a policy to the table.
//!
//! Every packet that leaves is judged by itself. Connections are not tracked: that would cost a packet more than the
//! judgement, and it knows no interfaces, so a task that talks to itself over its own loopback could have one on record
//! that it then goes on with by the link. Which packets from outside are answers is read from TCP's own flags, and for
//! UDP from a set of what was sent.

use super::super::class::{
    ALIASES_V4, LINK_V6, LOOPBACK_V4, LOOPBACK_V6, MAPPED, PRIVATE_V4, PRIVATE_V6, ZoneName,
};
use super::super::egress::ROWS;
use super::super::verdict::DNS_PORT;
use super::super::{NetworkPolicy, Protocol, Zone};
use super::count::{self, Counter};
use super::lists::{Detail, Lists, Prefixes};
use super::{Base, Chain, Element, Expr, Hook, Meta, Reject, Rule, Ruleset, Set, SetKind, Verdict};
use ipnet::{IpNet, Ipv6Net};
use std::net::IpAddr;

/// ICMPv6's router solicitation, neighbour solicitation and neighbour advertisement.
const NEIGHBOUR_OUT: [u8; 3] = [133, 135, 136];
/// The two that come in. Addresses and routes are set by us: no router is asked.
const NEIGHBOUR_IN: [u8; 2] = [135, 136];
/// ICMPv6's multicast listener report, which the kernel sends by itself when the link comes up.
const LISTENER_REPORT: u8 = 143;
/// What may come in of ICMP and ICMPv6: that a packet could not be delivered (unreachable, too big, too old, malformed).
/// The kernel looks for the socket that sent it, and does nothing where there is none.
const ERRORS_V4: [u8; 3] = [3, 11, 12];
const ERRORS_V6: [u8; 4] = [1, 2, 3, 4];
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// TCP's flags: one begins a connection, the other answers.
const SYN: u8 = 1 << 1;
const ACK: u8 = 1 << 4;
/// Most flows of UDP whose answers are let in. The link has descriptors for fewer.
const FLOWS: usize = 16_384;

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

use Family::{V4, V6};

impl Family {
    fn name(self) -> &'static str {
        match self {
            V4 => "v4",
            V6 => "v6",
        }
    }

    /// As the kernel numbers it.
    fn number(self) -> u8 {
        match self {
            V4 => 2,
            V6 => 10,
        }
    }

    /// Bytes of an address.
    fn length(self) -> u32 {
        match self {
            V4 => 4,
            V6 => 16,
        }
    }

    /// Words of an address.
    fn words(self) -> u32 {
        self.length() / 4
    }

    fn of(self, net: &IpNet) -> bool {
        matches!((self, net), (V4, IpNet::V4(_)) | (V6, IpNet::V6(_)))
    }

    /// Where the sender's address is in a packet; the destination's follows.
    fn source(self) -> u32 {
        match self {
            V4 => 12,
            V6 => 8,
        }
    }

    /// Loads the destination's first `length` bytes.
    fn destination(self, length: u32, to: u32) -> Expr {
        let offset = self.source() + self.length();
        Expr::Payload { base: Base::Network, offset, length, to }
    }

    /// Name of the set of what was sent by UDP.
    fn flows(self) -> String {
        format!("flows_{}", self.name())
    }
}

/// The table that holds traffic to what `policy` says.
pub fn compile(policy: &NetworkPolicy) -> Ruleset {
    let mut table = Table::default();
    table.hooks();
    for family in [V4, V6] {
        table.family(family, policy);
        table.counting(family);
    }
    table.fixed_sets();
    table.ends();
    let services = table.lists.elements();
    table.set("services", SetKind::Exact, 12, services);
    Ruleset { sets: table.sets, chains: table.chains }.sorted()
}

/// What is being built.
#[derive(Default)]
struct Table {
    sets: Vec<Set>,
    chains: Vec<Chain>,
    lists: Lists,
}

impl Table {
    fn set(&mut self, name: &str, kind: SetKind, key: u32, elements: Vec<Element>) {
        let data = elements.first().map_or(0, |element| element.data.len());
        let size = match kind {
            SetKind::Recorder => ROWS,
            SetKind::Flows => FLOWS,
            SetKind::Ranges => 0,
            SetKind::Exact | SetKind::Counters => elements.len(),
        };
        let number = |size| u32::try_from(size).unwrap_or(u32::MAX);
        let (name, data, size) = (name.to_owned(), number(data), number(size));
        self.sets.push(Set { name, kind, key, data, size, elements });
    }

    fn keys(&mut self, name: &str, length: u32, keys: impl IntoIterator<Item = Vec<u8>>) {
        let elements = keys.into_iter().map(key).collect();
        self.set(name, SetKind::Exact, length, elements);
    }

    fn chain(&mut self, name: impl Into<String>, rules: Vec<Rule>) {
        self.chains.push(Chain { name: name.into(), hook: None, rules });
    }

    fn hooks(&mut self) {
        let mut hook = |name: &str, number, priority, drops, rules| {
            let hook = Some(Hook { number, priority, drops });
            self.chains.push(Chain { name: name.to_owned(), hook, rules });
        };
        let by_loopback = |way| [interface(way), vec![Expr::Verdict(Verdict::Accept)]].concat();
        let enter = |family: Family| [is(family), vec![goto(family.name())]].concat();
        let output = vec![by_loopback(Meta::Out), enter(V4), enter(V6)];
        hook("output", 3, 0, true, output);
        let tcp =
            |mask, flags| [flagged(mask, flags), vec![Expr::Verdict(Verdict::Accept)]].concat();
        let icmp = |protocol, set| icmp(protocol, set, Verdict::Accept);
        // No connection begins outside. What belongs to none of the task's the kernel answers with a reset, which is
        // judged like all that leaves. The first rule is asked of nearly every packet.
        let input = vec![
            tcp(SYN, 0),
            by_loopback(Meta::In),
            tcp(ACK, ACK),
            answer(V4),
            answer(V6),
            icmp(ICMP, "errors_v4"),
            icmp(ICMPV6, "errors_v6"),
            icmp(ICMPV6, "neighbour_in"),
        ];
        hook("input", 1, 0, true, input);
        // New network namespaces take forwarding over from the host, where containers' hosts have it on. Nothing is the
        // session's to forward: what came in by its loopback would leave by the link past the other two.
        hook("forward", 2, 0, true, Vec::new());
    }

    /// What is asked of a packet to an address of one family that doesn't leave by loopback, in this order.
    fn family(&mut self, family: Family, policy: &NetworkPolicy) {
        let refuse = |begin: &[u8]| {
            let length = u32::try_from(begin.len()).unwrap_or(u32::MAX);
            let equal = Expr::Equal { bytes: begin.to_vec(), at: 0 };
            vec![family.destination(length, 0), equal, goto(Counter::RefusedFixed.chain())]
        };
        let named = |set: &str, to: &str| {
            vec![family.destination(family.length(), 0), lookup(set, 0), goto(to)]
        };
        let mut rules = match family {
            V4 => vec![
                // All of these prefixes end at a byte.
                refuse(&LOOPBACK_V4.network().octets()[..1]),
                named("aliases_v4", Counter::RefusedFixed.chain()),
            ],
            V6 => vec![
                refuse(&LOOPBACK_V6.network().octets()[..12]),
                refuse(&MAPPED.network().octets()[..12]),
                // Before the link's names, of which one is the router.
                icmp(ICMPV6, "neighbour_out", Verdict::Accept),
                // Else every session would begin with a refusal that is none of the task's doing.
                icmp(ICMPV6, "reports", Verdict::Drop),
                refuse(&LINK_V6.network().octets()[..8]),
            ],
        };
        let servers: Vec<Vec<u8>> =
            policy.dns_servers.iter().filter_map(|server| octets(family, *server)).collect();
        if !servers.is_empty() {
            let name = format!("dns_{}", family.name());
            let [high, low] = DNS_PORT.to_be_bytes();
            let asked = |protocol| {
                move |server: &Vec<u8>| [server, &[protocol, 0, 0, 0, high, low, 0, 0][..]].concat()
            };
            let keys = servers.iter().map(asked(TCP)).chain(servers.iter().map(asked(UDP)));
            self.keys(&name, family.length() + 8, keys.collect::<Vec<_>>());
            let whole = [destination_key(family, true), vec![lookup(&name, 0)]].concat();
            rules.push([whole, vec![goto(Counter::ReachedFixed.chain())]].concat());
        }
        let private = self.zone(family, ZoneName::Private, &policy.private);
        let public = self.zone(family, ZoneName::Public, &policy.public);
        rules.push(named(&format!("private_{}", family.name()), &private));
        rules.push(vec![goto(&public)]);
        self.chain(family.name(), rules);
    }

    /// The chain that decides for a zone.
    fn zone(&mut self, family: Family, name: ZoneName, zone: &Zone) -> String {
        let (reached, refused) = match name {
            ZoneName::Public => (Counter::ReachedPublic, Counter::RefusedPublic),
            ZoneName::Private => (Counter::ReachedPrivate, Counter::RefusedPrivate),
        };
        let (matched, otherwise) = match zone {
            Zone::Allow => return reached.chain().to_owned(),
            Zone::Block => return refused.chain().to_owned(),
            Zone::Allowlist(_) => (reached, refused),
            Zone::Denylist(_) => (refused, reached),
        };
        let rules = zone.rules().iter().filter(|rule| family.of(&rule.cidr));
        let Prefixes { elements, lookups } = self.lists.file(rules);
        if elements.is_empty() {
            return otherwise.chain().to_owned();
        }
        let chain = format!("{name}_{}_rules", family.name());
        let map = format!("{name}_{}_prefixes", family.name());
        let mut rules: Vec<Rule> = lookups
            .into_iter()
            .map(|(length, detail)| {
                let found = in_lists(family, &map, length, detail);
                [found, vec![goto(matched.chain())]].concat()
            })
            .collect();
        rules.push(vec![goto(otherwise.chain())]);
        self.set(&map, SetKind::Exact, 4 + family.length(), elements);
        self.chain(chain.clone(), rules);
        chain
    }

    /// Counts destinations, then passes or refuses. A recorder that is full ends its rule: the next one decides the same.
    fn counting(&mut self, family: Family) {
        for (what, end) in
            [("reached", Expr::Verdict(Verdict::Accept)), ("refused", goto("refuse"))]
        {
            let name = format!("{what}_{}", family.name());
            self.set(&name, SetKind::Recorder, family.length() + 8, Vec::new());
            let record = || vec![Expr::Record { set: name.clone(), at: 0 }, end.clone()];
            let word = family.words() + 2;
            let has_ports = vec![protocol(word), lookup("with_ports", word)];
            let with_port = [has_ports, destination_key(family, true), record()].concat();
            let without = [destination_key(family, false), record()].concat();
            self.chain(name.clone(), vec![with_port, without, vec![end.clone()]]);
        }
    }

    fn fixed_sets(&mut self) {
        for family in [V4, V6] {
            let key = 2 * family.length() + 8;
            self.set(&family.flows(), SetKind::Flows, key, Vec::new());
        }
        self.keys("errors_v4", 1, ERRORS_V4.map(|kind| vec![kind]));
        self.keys("errors_v6", 1, ERRORS_V6.map(|kind| vec![kind]));
        self.keys("aliases_v4", 4, ALIASES_V4.map(|address| address.octets().to_vec()));
        self.keys("neighbour_out", 1, NEIGHBOUR_OUT.map(|kind| vec![kind]));
        self.keys("neighbour_in", 1, NEIGHBOUR_IN.map(|kind| vec![kind]));
        self.keys("reports", 1, [vec![LISTENER_REPORT]]);
        let protocols = [Protocol::Tcp, Protocol::Udp].map(|protocol| vec![protocol.number()]);
        self.keys("with_ports", 1, protocols);
        self.set("private_v4", SetKind::Ranges, 4, ranges(V4, &PRIVATE_V4.map(IpNet::V4)));
        self.set("private_v6", SetKind::Ranges, 16, ranges(V6, &PRIVATE_V6.map(IpNet::V6)));
        let totals = Counter::ALL.map(|counter| key(counter.key().to_vec())).to_vec();
        self.set(count::TOTALS, SetKind::Counters, 4, totals);
    }

    /// Where every packet ends: one chain for each total, and the refusal.
    fn ends(&mut self) {
        for counter in Counter::ALL {
            let total =
                vec![Expr::Put { bytes: counter.key().to_vec(), to: 0 }, lookup(count::TOTALS, 0)];
            let rules = if counter.is_reached() {
                let accept = || vec![Expr::Verdict(Verdict::Accept)];
                // What goes on with a connection was counted when it began.
                let goes_on = [flagged(SYN, 0), accept()].concat();
                let sent = |family: Family| {
                    let known = [sent(family), vec![met(family), remember(family)], accept()];
                    let new = [sent(family), vec![remember(family)]];
                    let count = [
                        is(family),
                        total.clone(),
                        vec![goto(&format!("reached_{}", family.name()))],
                    ];
                    [known.concat(), new.concat(), count.concat()]
                };
                [vec![goes_on], sent(V4).into(), sent(V6).into()].concat()
            } else {
                let count = |family: Family| {
                    let to = goto(&format!("refused_{}", family.name()));
                    [is(family), total.clone(), vec![to]].concat()
                };
                vec![count(V4), count(V6)]
            };
            self.chain(counter.chain(), rules);
        }
        let tcp = vec![
            protocol(0),
            Expr::Equal { bytes: vec![TCP], at: 0 },
            // At once; after "prohibited", TCP would try again for a second.
            Expr::Reject(Reject::Reset),
        ];
        self.chain("refuse", vec![tcp, vec![Expr::Reject(Reject::Prohibited)]]);
    }
}

fn key(key: Vec<u8>) -> Element {
    Element { key, end: false, data: Vec::new() }
}

fn goto(chain: &str) -> Expr {
    Expr::Verdict(Verdict::Goto(chain.to_owned()))
}

fn lookup(set: &str, at: u32) -> Expr {
    Expr::Lookup { set: set.to_owned(), at, to: None }
}

fn protocol(to: u32) -> Expr {
    Expr::Meta { key: Meta::Protocol, to }
}

/// Holds for a packet that leaves, or came, by loopback.
fn interface(way: Meta) -> Rule {
    let mut name = b"lo".to_vec();
    // The whole name, so that no other begins like it.
    name.resize(16, 0);
    vec![Expr::Meta { key: way, to: 0 }, Expr::Equal { bytes: name, at: 0 }]
}

fn is(family: Family) -> Rule {
    let number = Expr::Equal { bytes: vec![family.number()], at: 0 };
    vec![Expr::Meta { key: Meta::Family, to: 0 }, number]
}

/// Holds for TCP of whose flags these are set like this.
fn flagged(mask: u8, flags: u8) -> Rule {
    vec![
        protocol(0),
        Expr::Equal { bytes: vec![TCP], at: 0 },
        Expr::Payload { base: Base::Transport, offset: 13, length: 1, to: 0 },
        Expr::Mask { mask: vec![mask], at: 0 },
        Expr::Equal { bytes: vec![flags], at: 0 },
    ]
}

/// Holds for UDP of a family, and loads its flow as it leaves: both addresses, then both ports.
fn sent(family: Family) -> Rule {
    flow(family, family.source(), family.source() + family.length(), 0, 2)
}

/// Lets UDP in that answers what was sent, and remembers that for longer.
fn answer(family: Family) -> Rule {
    let mut rule = flow(family, family.source() + family.length(), family.source(), 2, 0);
    rule.extend([met(family), remember(family), Expr::Verdict(Verdict::Accept)]);
    rule
}

fn flow(family: Family, own: u32, other: u32, own_port: u32, other_port: u32) -> Rule {
    let (length, word) = (family.length(), family.words());
    let address = |offset, to| Expr::Payload { base: Base::Network, offset, length, to };
    let port = |offset, to| Expr::Payload { base: Base::Transport, offset, length: 2, to };
    let udp = vec![protocol(0), Expr::Equal { bytes: vec![UDP], at: 0 }];
    let key = vec![
        address(own, 0),
        address(other, word),
        port(own_port, 2 * word),
        port(other_port, 2 * word + 1),
    ];
    [is(family), udp, key].concat()
}

/// Holds where the loaded flow is known.
fn met(family: Family) -> Expr {
    lookup(&family.flows(), 0)
}

/// Keeps the loaded flow, from now on.
fn remember(family: Family) -> Expr {
    Expr::Record { set: family.flows(), at: 0 }
}

/// Decides ICMP or ICMPv6 whose type is in a set.
fn icmp(of: u8, set: &str, verdict: Verdict) -> Rule {
    let kind = Expr::Payload { base: Base::Transport, offset: 0, length: 1, to: 0 };
    vec![
        protocol(0),
        Expr::Equal { bytes: vec![of], at: 0 },
        kind,
        lookup(set, 0),
        Expr::Verdict(verdict),
    ]
}

/// Loads address, protocol and port (or 0) of the destination.
fn destination_key(family: Family, with_port: bool) -> Rule {
    let word = family.words();
    let port = if with_port {
        Expr::Payload { base: Base::Transport, offset: 2, length: 2, to: word + 1 }
    } else {
        Expr::Put { bytes: vec![0; 4], to: word + 1 }
    };
    vec![family.destination(family.length(), 0), protocol(word), port]
}

/// Holds where the destination's prefix of this length leads to a list that holds the packet.
fn in_lists(family: Family, map: &str, length: u8, detail: Detail) -> Rule {
    let mut rule = vec![
        Expr::Put { bytes: u32::from(length).to_be_bytes().to_vec(), to: 0 },
        family.destination(family.length(), 1),
    ];
    let mask = mask(family, length);
    if mask.contains(&0) || mask.last() != Some(&0xff) {
        rule.push(Expr::Mask { mask, at: 1 });
    }
    rule.push(Expr::Lookup { set: map.to_owned(), at: 0, to: Some(0) });
    let nothing = |to| Expr::Put { bytes: vec![0; 4], to };
    let port = Expr::Payload { base: Base::Transport, offset: 2, length: 2, to: 2 };
    rule.extend(match detail {
        Detail::Any => [nothing(1), nothing(2)],
        Detail::Protocol => [protocol(1), nothing(2)],
        Detail::Port => [protocol(1), port],
    });
    rule.push(lookup("services", 0));
    rule
}

fn mask(family: Family, length: u8) -> Vec<u8> {
    let length = u32::from(length);
    match family {
        V4 => u32::MAX.checked_shl(32 - length).unwrap_or(0).to_be_bytes().to_vec(),
        V6 => u128::MAX.checked_shl(128 - length).unwrap_or(0).to_be_bytes().to_vec(),
    }
}

fn octets(family: Family, address: IpAddr) -> Option<Vec<u8>> {
    match (family, address) {
        (V4, IpAddr::V4(address)) => Some(address.octets().to_vec()),
        (V6, IpAddr::V6(address)) => Some(address.octets().to_vec()),
        (V4, IpAddr::V6(_)) | (V6, IpAddr::V4(_)) => None,
    }
}

/// The first and the first-after key of each range. Neighbours become one range: the kernel refuses two elements with
/// the same key. A range that ends with the last address has no key after it.
fn ranges(family: Family, nets: &[IpNet]) -> Vec<Element> {
    let bound = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    };
    let last = match family {
        V4 => u128::from(u32::MAX),
        V6 => u128::MAX,
    };
    let mut spans: Vec<(u128, u128)> =
        nets.iter().map(|net| (bound(net.network()), bound(net.broadcast()))).collect();
    spans.sort_unstable();
    spans.dedup_by(|next, span| {
        let joined = span.1 == last || next.0 <= span.1 + 1;
        if joined {
            span.1 = span.1.max(next.1);
        }
        joined
    });
    let bytes = |bound: u128| match family {
        V4 => bound.to_be_bytes()[12..].to_vec(),
        V6 => bound.to_be_bytes().to_vec(),
    };
    let begin = |(first, _): &(u128, u128)| key(bytes(*first));
    let end = |(_, end): &(u128, u128)| {
        (*end != last).then(|| Element { end: true, ..key(bytes(end + 1)) })
    };
    spans.iter().map(begin).chain(spans.iter().filter_map(end)).collect()
}

/// Whether the constants that are compared by their first bytes end at a byte.
const _: () = {
    const fn whole(net: Ipv6Net, bytes: u8) -> bool {
        net.prefix_len() == bytes * 8
    }
    assert!(LOOPBACK_V4.prefix_len() == 8 && whole(LOOPBACK_V6, 12));
    assert!(whole(MAPPED, 12) && whole(LINK_V6, 8));
};

#[cfg(test)]
mod tests;
