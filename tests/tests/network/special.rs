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

worlds! {
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
