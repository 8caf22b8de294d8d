//! The table in a real kernel: in network namespaces of the tests' own threads.

use super::filter::{Held, load, read_back};
use super::netlink::{self, Netlink};
use crate::failure::Failure;
use crate::sys::nft;
use landbox_shared::network::ruleset::Ruleset;
use landbox_shared::network::ruleset::compile::compile;
use landbox_shared::network::ruleset::dump;
use landbox_shared::network::ruleset::form::{Expression, Kind, Object, Value};
use landbox_shared::network::{
    NETWORK_POLICY_VERSION, NetworkPolicy, Protocol, Rule, Traffic, Zone,
};
use nftnl::nftnl_sys as c;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{SockProtocol, setsockopt, sockopt};
use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;

/// Whether this is the place for the named test: a network namespace of its own. An ordinary user plays it in another
/// process, which may make one.
fn enter(test: &str) -> bool {
    if unshare(CloneFlags::CLONE_NEWNET).is_ok() {
        return true;
    }
    let mut again = Command::new("unshare");
    again.args(["--map-root-user", "--net"]).arg(std::env::current_exe().unwrap());
    let status = again.args(["--exact", &format!("net::tests::{test}")]).status().unwrap();
    assert!(status.success());
    false
}

fn socket() -> OwnedFd {
    netlink::open(SockProtocol::NetlinkNetFilter).unwrap()
}

fn policy() -> NetworkPolicy {
    let rule = |cidr: &str, traffic| Rule { cidr: cidr.parse().unwrap(), traffic };
    NetworkPolicy {
        version: NETWORK_POLICY_VERSION,
        public: Zone::Denylist(vec![
            rule("8.8.0.0/16", Traffic::Any),
            rule("2606:4700::/33", Traffic::Ports(Protocol::Udp, vec![])),
        ]),
        private: Zone::Allowlist(vec![
            rule("10.0.0.0/8", Traffic::Ports(Protocol::Tcp, vec![443, 80])),
            rule("10.1.0.0/16", Traffic::Ports(Protocol::Tcp, vec![])),
            rule("0.0.0.0/0", Traffic::Ports(Protocol::Udp, vec![53])),
            rule("fd00:1::/32", Traffic::Any),
        ]),
        dns_servers: vec!["10.9.9.9".parse().unwrap(), "2001:db8::53".parse().unwrap()],
        proxy_mode: None,
    }
}

fn largest() -> NetworkPolicy {
    let zone = |top: u8| {
        let rule = |n: u8| Rule {
            cidr: format!("{top}.{n}.0.0/16").parse().unwrap(),
            traffic: Traffic::Ports(
                Protocol::Tcp,
                (0..256).map(|p| 1 + p * 200 + u16::from(n) % 199).collect(),
            ),
        };
        Zone::Allowlist((0..=255).map(rule).collect())
    };
    NetworkPolicy { public: zone(9), private: zone(10), dns_servers: vec![], ..policy() }
}

/// How much is left of a packet of some length.
type Keep = fn(usize) -> usize;

/// Stands between us and the kernel.
struct Between<'a> {
    socket: &'a OwnedFd,
    /// Whether a batch reaches the kernel.
    loads: bool,
    /// What is done when the first list is asked for.
    meddle: &'a dyn Fn(),
    meddled: Cell<bool>,
    /// What is left of a packet with these objects.
    cut: Option<(u16, Keep)>,
}

impl<'a> Between<'a> {
    fn new(socket: &'a OwnedFd) -> Self {
        Self { socket, loads: true, meddle: &|| {}, meddled: Cell::new(false), cut: None }
    }
}

fn number(of_libnftnl: u32) -> u16 {
    u16::try_from(of_libnftnl).unwrap()
}

fn kind(packet: &[u8]) -> u16 {
    u16::from_ne_bytes([packet[4], packet[5]])
}

impl Netlink for Between<'_> {
    fn send(&self, pages: &[Vec<u8>]) -> nix::Result<()> {
        // NFNL_MSG_BATCH_BEGIN.
        if kind(&pages[0]) == 0x10 && !self.loads {
            return Ok(());
        }
        if kind(&pages[0]) == dump::LIST_TABLES && !self.meddled.replace(true) {
            (self.meddle)();
        }
        self.socket.send(pages)
    }

    fn receive(&self, buffer: &mut [u8]) -> nix::Result<usize> {
        let length = self.socket.receive(buffer)?;
        match self.cut {
            Some((cut, keep)) if kind(buffer) == cut => Ok(keep(length)),
            Some(_) | None => Ok(length),
        }
    }
}

fn refusal(result: Result<Held, Failure>) -> String {
    result.map(|held| held.0).unwrap_err().to_string()
}

/// Adds something, as somebody else would.
fn add(objects: &[Object]) {
    socket().send(&nft::transaction(objects)).unwrap();
}

fn table(name: &str) -> Object {
    let parts = vec![(number(c::NFTNL_TABLE_NAME), Value::Text(name.into()))];
    Object::new(Kind::Table, parts, vec![], vec![]).unwrap()
}

#[test]
fn what_was_loaded_is_what_the_kernel_holds() {
    if !enter("what_was_loaded_is_what_the_kernel_holds") {
        return;
    }
    let socket = socket();
    let held = load(&socket, &compile(&policy())).unwrap();
    assert!(held.0 == compile(&policy()) && held.1 > 0);
}

#[test]
fn the_largest_policy_loads_with_the_usual_send_buffer() {
    if !enter("the_largest_policy_loads_with_the_usual_send_buffer") {
        return;
    }
    let socket = socket();
    // The kernel doubles it.
    setsockopt(&socket.as_fd(), sockopt::SndBuf, &(212_992 / 2)).unwrap();
    let held = load(&socket, &compile(&largest())).unwrap();
    assert!(held.0.elements() > 50_000, "{}", held.0.elements());
}

#[test]
fn a_load_that_silently_loads_nothing_is_noticed() {
    if !enter("a_load_that_silently_loads_nothing_is_noticed") {
        return;
    }
    let socket = socket();
    let between = Between { loads: false, ..Between::new(&socket) };
    assert!(refusal(load(&between, &compile(&policy()))).contains("other network rules"));
    assert_eq!(read_back(&socket).unwrap().0, Ruleset::default());
}

#[test]
fn a_change_between_loading_and_reading_back_is_noticed() {
    if !enter("a_change_between_loading_and_reading_back_is_noticed") {
        return;
    }
    let socket = socket();
    let accept_all = || {
        let parts = vec![
            (number(c::NFTNL_RULE_TABLE), Value::Text("landbox".into())),
            (number(c::NFTNL_RULE_CHAIN), Value::Text("v4".into())),
        ];
        let verdict = Expression {
            name: c"immediate",
            parts: vec![
                (number(c::NFTNL_EXPR_IMM_DREG), Value::Number(0)),
                (number(c::NFTNL_EXPR_IMM_VERDICT), Value::Number(1)),
            ],
        };
        add(&[Object::new(Kind::Rule, parts, vec![verdict], vec![]).unwrap()]);
    };
    let between = Between { meddle: &accept_all, ..Between::new(&socket) };
    let why = refusal(load(&between, &compile(&policy())));
    assert!(why.contains("changed while") || why.contains("other network rules"), "{why}");
    // What is there by now is another table.
    assert!(read_back(&socket).unwrap().0 != compile(&policy()));
}

#[test]
fn a_table_of_anybody_else_is_refused() {
    if !enter("a_table_of_anybody_else_is_refused") {
        return;
    }
    add(&[table("other")]);
    let socket = socket();
    assert!(refusal(load(&socket, &compile(&policy()))).contains("reading the network rules back"));
}

#[test]
fn a_table_that_is_there_already_is_refused() {
    if !enter("a_table_that_is_there_already_is_refused") {
        return;
    }
    add(&[table("landbox")]);
    let socket = socket();
    assert!(refusal(load(&socket, &compile(&policy()))).contains("loading the network rules"));
}

#[test]
fn a_list_that_is_cut_short_is_noticed() {
    if !enter("a_list_that_is_cut_short_is_noticed") {
        return;
    }
    load(&socket(), &compile(&policy())).unwrap();
    // Rules and elements: half a packet, and a packet that ends behind its first message.
    for kind in [0x0a06, 0x0a0c] {
        for keep in [|length: usize| length / 2, |_: usize| 20, |_: usize| 0] {
            // A new one each time: the rest of the list stays in the old one.
            let socket = socket();
            let between = Between { cut: Some((kind, keep)), ..Between::new(&socket) };
            let why = refusal(read_back(&between));
            assert!(why.contains("reading the network rules back"), "{why}");
        }
    }
}
