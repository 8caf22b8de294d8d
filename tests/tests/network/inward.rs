//! What comes in by the link: answers to what the session sent, and nothing else.

use landbox_tests::net::{Outer, PORT, address, policy};
use landbox_tests::{Place, worlds};
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
