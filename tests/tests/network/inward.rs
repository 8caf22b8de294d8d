//! What comes in by the link: answers to what the session sent, and nothing else. And that nothing passes through.

use landbox_tests::net::{Flow, Outer, PORT, address, policy};
use landbox_tests::{Place, World, procs, worlds};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// Answers each datagram, but only after others have: from another port, and from another address. The link would take
/// all of them in.
const PEER: &str = "
import socket, sys
address, other, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ':' in address else socket.AF_INET
def at(host, port):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((host, port))
    return s
asked, strangers = at(address, port), [at(address, port + 1), at(other, port)]
print('ready', flush=True)
while True:
    _, back = asked.recvfrom(100)
    for stranger in strangers: stranger.sendto(b'stranger', back)
    asked.sendto(b'friend', back)";

/// Asks from a socket that takes what comes from anybody.
const ASK: &str = "
import socket, sys
address, port = sys.argv[1], int(sys.argv[2])
s = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
for _ in range(3):
    s.sendto(b'?', (address, port))
    print(s.recv(100).decode())";

worlds! {
    [user_kernel, root_kernel]
    fn only_who_was_asked_is_heard(world) {
        let outer = Outer::new();
        let place = Place::new(world);
        let all = policy(json!({"mode": "allow"}), json!({"mode": "allow"}));
        let port = PORT.to_string();
        for (asked, other) in
            [(address::PUBLIC_V4, address::PRIVATE_V4), (address::PUBLIC_V6, address::PRIVATE_V6)]
        {
            let mut peer = outer.command(["python3", "-c", PEER, asked, other, &port]);
            let mut peer = peer.stdout(Stdio::piped()).spawn().unwrap();
            let mut ready = String::new();
            BufReader::new(peer.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
            let out = outer.session(&place, &all, ["python3", "-c", ASK, asked, &port]).output();
            peer.kill().unwrap();
            peer.wait().unwrap();
            assert_eq!((&*ready, &*out.ok().text()), ("ready\n", "friend\nfriend\nfriend\n"));
        }
    }
}

/// Has a network namespace forward, and gives it packets to public and private addresses as if they came in by loopback.
const PASS_ON: &str = "
import socket, struct, sys
port, own = int(sys.argv[1]), '172.30.0.9'
for key, value in ('ip_forward', '1'), ('conf/all/rp_filter', '0'), ('conf/lo/rp_filter', '0'):
    open('/proc/sys/net/ipv4/' + key, 'w').write(value)
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('lo', 0))
for to in sys.argv[2:] * 3:
    udp = struct.pack('!HHHH', 4000, port, 12, 0) + b'out\\n'
    ends = socket.inet_aton(own) + socket.inet_aton(to)
    head = struct.pack('!BBHHHBBH', 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0)
    total = sum(struct.unpack('!10H', head + ends)); total = (total >> 16) + (total & 0xffff)
    head = head[:10] + struct.pack('!H', ~(total + (total >> 16)) & 0xffff)
    s.send(b'\\0' * 12 + b'\\x08\\0' + head + ends + udp)
print('given')";

/// A new network namespace takes over whether the host forwards.
#[test]
fn root_has_the_sessions_network_forward_and_nothing_leaves_that_way() {
    let outer = Outer::new();
    let mut listeners = outer.listen(&[PORT]);
    let place = Place::new(World::USUAL);
    let public = policy(json!({"mode": "allow"}), json!({"mode": "block"}));
    // It stays and asks again: what is still on its way when a session ends goes with its link.
    let open = format!("exec 3<>/dev/udp/{}/{PORT}", address::PUBLIC_V4);
    let script = format!("echo up; read go; {open}; until read -t 0.2 seen; do echo x >&3; done");
    let words = ["bash", "-c", &script];
    let mut live = outer.session(&place, &public, words).stdin_open().start();
    live.expect("up");
    let tree = procs::descendants(live.pid());
    let task = tree.iter().find(|p| p.name == "bash").unwrap_or_else(|| panic!("{tree:#?}"));
    let port = PORT.to_string();
    let given = std::process::Command::new("nsenter")
        .arg(format!("--net=/proc/{}/ns/net", task.pid))
        .args(["python3", "-c", PASS_ON, &port, address::PRIVATE_V4, "93.184.216.35"])
        .output()
        .unwrap();
    assert_eq!(given.stdout, b"given\n", "{given:?}");
    // What the session sends itself comes behind them.
    live.write(b"go\n");
    let own = Flow::udp(address::PUBLIC_V4, PORT);
    listeners.wait_for(&own);
    live.write(b"seen\n");
    live.wait().ok();
    assert_eq!(listeners.counts().into_keys().collect::<Vec<_>>(), [own.name()]);
}
