//! Addresses that mean something to the link or to the stack, by every way out: none of them leads to the host.

use landbox_tests::net::{Flow, Outer, PORT, address, closed, open, policy};
use landbox_tests::{Place, worlds};
use serde_json::json;

/// Names of the host, and of what the link would take for the host.
const HOST: [&str; 21] = [
    "127.0.0.1",
    "127.0.0.2",
    "127.0.0.53",
    "127.255.255.254",
    "0.0.0.0",
    "::1",
    "::",
    "::2",
    "::7f00:1",
    "::a4d:1",
    "10.0.2.2",
    "10.0.2.3",
    "10.0.2.0",
    "10.0.2.255",
    "255.255.255.255",
    "224.0.0.1",
    "fd00::",
    "fd00::1",
    "fd00::2",
    "fd00::3",
    "ff02::1",
];

/// Neighbours on the link: the router's name there, and any other. They are addresses of the private zone.
const NEIGHBOURS: [&str; 3] = ["fe80::2", "fe80::3", "fe80::1:2"];

fn ways(addresses: &[&str]) -> Vec<Flow> {
    let mut flows = Vec::new();
    for address in addresses {
        for flow in [Flow::tcp(address, PORT), Flow::udp(address, PORT)] {
            flows.extend([flow, flow.bound()]);
            if flow.address.is_ipv4() {
                flows.extend([flow.mapped(), flow.mapped().bound()]);
            }
        }
    }
    flows
}

/// Names a private destination in every way that an unprivileged socket has beside its address: source routes, either
/// end first; loopback as the way out; protocols that are neither TCP nor UDP; a connection of several paths.
const ODD_WAYS: &str = "
import socket, sys
private, public, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
def attempt(kind, to, *options, protocol=0):
    try:
        s = socket.socket(socket.AF_INET, kind, protocol); s.settimeout(2)
        for level, name, value in options: s.setsockopt(level, name, value)
        s.connect((to, port)); s.send(b'x\\n'); s.send(b'x\\n')
    except OSError: pass
def by(hop, kind_of_route):
    return (socket.IPPROTO_IP, socket.IP_OPTIONS, bytes([kind_of_route, 7, 4]) + socket.inet_aton(hop) + b'\\0')
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    for route in (131, 137):
        attempt(kind, private, by(public, route)); attempt(kind, public, by(private, route))
    attempt(kind, private, (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'lo'))
attempt(socket.SOCK_STREAM, private, protocol=262)
attempt(socket.SOCK_DGRAM, private, protocol=136)
print('tried')";

/// The same for IPv6, whose routing header an unprivileged socket may send; and what changes its mind between a
/// destination that is allowed and one that is not: a datagram of two parts, a socket connected anew, data that goes with
/// the first packet, fragments.
const MORE_ODD_WAYS: &str = "
import ctypes, socket, struct, sys
private, public, old_private, old_public, port = *sys.argv[1:5], int(sys.argv[5])
V6, ROUTE, INFO, MTU = socket.IPPROTO_IPV6, 57, 50, 24
CORK, SEGMENT, MORE, FAST = (17, 1, 1), (17, 103, 100), 0x8000, 0x20000000
tried = 0
def attempt(family, kind, act, *options):
    global tried; tried += 1
    try:
        s = socket.socket(family, kind); s.settimeout(0.3)
        for option in options: s.setsockopt(*option)
        act(s)
    except OSError: pass
def by(*hops):
    last = len(hops) - 1
    return (V6, ROUTE, struct.pack('BBBBBBH', 0, 2 * len(hops), 4, last, last, 0, 0)
            + b''.join(socket.inet_pton(socket.AF_INET6, hop) for hop in hops))
def go(to): return lambda s: (s.connect((to, port)), s.send(b'x\\n'), s.send(b'x\\n'))
def two(first, second, flags): return lambda s: (s.sendto(b'a', flags, (first, port)), s.sendto(b'b', (second, port)),
                                                 s.setsockopt(17, 1, 0))
def again(first, second):
    def act(s):
        go(first)(s); ctypes.CDLL(None).connect(s.fileno(), bytes(16), 16); go(second)(s)
    return act
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    for route in ([private, public], [public, private], [private, '::1'], [private, 'fd00::100']):
        for to in (public, private): attempt(socket.AF_INET6, kind, go(to), by(*route))
    for family, yes, no in (socket.AF_INET, old_public, old_private), (socket.AF_INET6, public, private):
        attempt(family, kind, again(yes, no))
        attempt(family, kind, lambda s: s.sendto(b'x\\n', FAST, (no, port)))
        attempt(family, kind, go(no), (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'lo'))
for family, yes, no in (socket.AF_INET, old_public, old_private), (socket.AF_INET6, public, private):
    for first, second in (yes, no), (no, yes):
        attempt(family, socket.SOCK_DGRAM, two(first, second, MORE))
        attempt(family, socket.SOCK_DGRAM, two(first, second, 0), CORK)
    attempt(family, socket.SOCK_DGRAM, lambda s: s.sendto(b'x' * 1000, (no, port)), SEGMENT)
for index in (1, 2):
    info = [(V6, INFO, struct.pack('16sI', bytes(16), index))]
    attempt(socket.AF_INET6, socket.SOCK_DGRAM, lambda s: s.sendmsg([b'x'], info, 0, (private, port)))
    info4 = [(0, 8, struct.pack('I8x', index))]
    attempt(socket.AF_INET, socket.SOCK_DGRAM, lambda s: s.sendmsg([b'x'], info4, 0, (old_private, port)))
for size in (2000, 60000):
    attempt(socket.AF_INET6, socket.SOCK_DGRAM, lambda s: s.sendto(b'x' * size, (private, port)), (V6, MTU, 1280))
print('tried', tried)";

worlds! {
    [user_kernel, root_kernel]
    fn a_destination_that_is_changed_on_the_way_is_judged_as_it_leaves(world) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let rules = policy(json!({"mode": "allow"}), json!({"mode": "block"}));
        let port = PORT.to_string();
        let ends = [address::PRIVATE_V6, address::PUBLIC_V6, address::PRIVATE_V4, address::PUBLIC_V4];
        let words = [&["python3", "-c", MORE_ODD_WAYS][..], &ends, &[&port]].concat();
        let out = outer.session(&place, &rules, words).output().ok();
        assert_eq!(out.text(), "tried 44\n", "{}", out.errors());
        let counts = listeners.counts();
        let public = [address::PUBLIC_V4, address::PUBLIC_V6];
        let past = counts.keys().filter(|name| !public.iter().any(|to| name.contains(to)));
        assert_eq!(past.collect::<Vec<_>>(), [] as [&String; 0], "{counts:?}");
        assert!(counts.len() >= 4, "{counts:?}");
    }

    [user_kernel, root_kernel]
    fn odd_ways_of_naming_a_destination_reach_nothing_private(world) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let rules = policy(json!({"mode": "allow"}), json!({"mode": "block"}));
        let port = PORT.to_string();
        let words = ["python3", "-c", ODD_WAYS, address::PRIVATE_V4, address::PUBLIC_V4, &port];
        let out = outer.session(&place, &rules, words).output().ok();
        assert_eq!(out.text(), "tried\n");
        let counts = listeners.counts();
        assert!(counts.keys().all(|name| name.contains(address::PUBLIC_V4)), "{counts:?}");
    }

    [user_kernel, root_kernel]
    fn no_name_of_the_host_is_reached_by_any_way_under_any_policy(world) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let closed_to = [&HOST[..], &NEIGHBOURS].concat();
        for (rules, addresses) in [(open(), &HOST[..]), (closed(), &closed_to)] {
            let flows = ways(addresses);
            // What leads to nobody at all is given up soon; whether it led outside is the listeners' to say.
            let answers = outer.probe_with(&place, &rules, &flows, |run| {
                run.args(["150"]);
            });
            for (flow, answer) in flows.iter().zip(&answers) {
                // The session's own loopback may answer; nobody outside may.
                assert!(!answer.said.starts_with("outer"), "{flow}: {answer:?}");
            }
            assert!(listeners.counts().is_empty(), "{:?}", listeners.counts());
        }
    }

    [user_kernel]
    fn loopback_by_the_link_is_refused_at_once(world) {
        let outer = Outer::new();
        let place = Place::new(world);
        let flows: Vec<Flow> = ["127.0.0.1", "::1", "::7f00:1"]
            .iter()
            .flat_map(|address| [Flow::tcp(address, PORT), Flow::udp(address, PORT)])
            .map(Flow::bound)
            .collect();
        let answers = outer.probe(&place, &open(), &flows);
        for (flow, answer) in flows.iter().zip(&answers) {
            assert!(![0, libc::ETIMEDOUT].contains(&answer.errno), "{flow}: {answer:?}");
        }
    }

    [user_kernel, root_kernel]
    fn a_socket_bound_to_the_link_passes_the_same_rules(world) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let flows: Vec<Flow> = [
            address::PUBLIC_V4,
            address::PRIVATE_V4,
            address::PUBLIC_V6,
            address::PRIVATE_V6,
        ]
        .iter()
        .flat_map(|address| [Flow::tcp(address, PORT).bound(), Flow::udp(address, PORT).bound()])
        .collect();
        let refused = outer.probe(&place, &closed(), &flows);
        assert!(refused.iter().all(|answer| !answer.reached()), "{refused:?}");
        assert!(listeners.counts().is_empty());
        let reached = outer.probe(&place, &open(), &flows);
        assert!(reached.iter().all(|answer| answer.said.starts_with("outer")), "{reached:?}");
    }
}
