//! What a session reached and what it was refused, as `show` says it afterwards.

use landbox_tests::net::{Flow, Outer, PORT, address, policy};
use landbox_tests::{Place, procs, worlds};
use rustix::process::Signal;
use serde_json::{Value, json};

fn rows<'a>(session: &'a Value, list: &str) -> Vec<&'a Value> {
    let rows = session["egress"][list].as_array();
    rows.unwrap_or_else(|| panic!("no egress.{list} in {session:#}")).iter().collect()
}

fn count(rows: &[&Value], address: &str, protocol: &str, port: u16) -> u64 {
    let of = |row: &&&Value| {
        row["address"] == address && row["protocol"] == protocol && row["port"] == port
    };
    rows.iter().filter(of).map(|row| row["count"].as_u64().unwrap()).sum()
}

/// Makes a connection look like the answer to one that began elsewhere: an IPv6 socket may take any address for its own.
const BACKWARDS: &str = "
import socket, sys
one, other, port, end = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.stdin
IPV6_FREEBIND = 78
def send(source, to):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
    s.bind((source, port)); s.sendto(b'x', (to, port))
send(one, other); send(other, one); send(other, one)
print('sent', flush=True); end.read()";

/// Sends to more destinations, for longer, than there is room to tell of at once.
const BUSY: &str = "
import socket, sys, time
port = int(sys.argv[1])
v4, v6 = [socket.socket(family, socket.SOCK_DGRAM) for family in (socket.AF_INET, socket.AF_INET6)]
print('busy', flush=True)
for _ in range(16):
    for n in range(1000):
        for s, to in (v4, '10.77.%d.%d' % (n // 250, 1 + n % 250)), (v6, 'fd55::%x' % n):
            try: s.sendto(b'x', (to, port))
            except OSError: pass
    time.sleep(0.5)";
const ROUNDS: u32 = 16;

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn the_figures_are_exact(world) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let rule = json!({"cidr": "93.184.216.0/24", "protocol": "tcp"});
        let rules = policy(json!({"mode": "allowlist", "rules": [rule]}), json!({"mode": "block"}));
        let mut flows = vec![Flow::tcp(address::PUBLIC_V4, PORT); 5];
        flows.extend([Flow::tcp(address::PRIVATE_V4, PORT); 3]);
        flows.extend([Flow::tcp(address::PRIVATE_V6, PORT); 2]);
        flows.push(Flow::udp(address::PUBLIC_V4, PORT));
        outer.probe(&place, &rules, &flows);
        let session = place.json(["show"]);
        let (reached, refused) = (rows(&session, "reached"), rows(&session, "refused"));
        assert_eq!(count(&reached, address::PUBLIC_V4, "tcp", PORT), 5, "{session:#}");
        assert_eq!(count(&refused, address::PRIVATE_V4, "tcp", PORT), 3, "{session:#}");
        assert_eq!(count(&refused, address::PRIVATE_V6, "tcp", PORT), 2, "{session:#}");
        assert_eq!(count(&refused, address::PUBLIC_V4, "udp", PORT), 1, "{session:#}");
        assert_eq!(reached.len(), 1, "{session:#}");
        assert_eq!(refused.len(), 3, "{session:#}");
    }

    [user_kernel, root_kernel]
    fn each_line_says_what_decided_and_when_and_a_person_is_shown_the_same(world) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let rules = json!([{"cidr": "192.0.2.0/24"}, {"cidr": "93.184.216.0/24", "protocol": "tcp"}]);
        let rules = policy(json!({"mode": "allowlist", "rules": rules}), json!({"mode": "block"}));
        let flows = [Flow::tcp(address::PUBLIC_V4, PORT), Flow::tcp(address::PRIVATE_V4, PORT)];
        outer.probe(&place, &rules, &flows);
        let session = place.json(["show"]);
        let (reached, refused) = (rows(&session, "reached"), rows(&session, "refused"));
        let facts = |row: &Value| ["zone", "by", "rule"].map(|key| row[key].clone());
        assert_eq!(facts(reached[0]), [json!("public"), json!("zone"), json!(1)], "{session:#}");
        assert_eq!(facts(refused[0]), [json!("private"), json!("zone"), json!(null)], "{session:#}");
        for row in [reached[0], refused[0]] {
            // All of them are spelled alike, so that the order of the letters is that of time.
            let times = [&session["created_at"], &row["first_at"], &row["last_at"], &session["ended_at"]];
            let times = times.map(|time| time.as_str().unwrap()[..19].to_owned());
            assert!(times.is_sorted(), "{session:#}");
        }
        let shown = place.landbox(["show"]).output().ok().text();
        for (key, address) in [("reached", address::PUBLIC_V4), ("refused", address::PRIVATE_V4)] {
            let lines: Vec<&str> = shown.lines().filter(|line| line.trim_start().starts_with(key)).collect();
            assert!(lines.iter().any(|line| line.contains("1 in all")), "{shown}");
            assert!(lines.iter().any(|line| line.contains(&format!("1 × {address} tcp {PORT} ("))), "{shown}");
        }
    }

    [user_kernel, root_kernel]
    fn what_is_sent_as_if_it_were_an_answer_is_counted(world) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let (one, other) = (address::PUBLIC_V6, "2606:4700::200");
        let rules = policy(json!({"mode": "allow"}), json!({"mode": "block"}));
        let port = PORT.to_string();
        let words = ["python3", "-c", BACKWARDS, one, other, &port];
        let mut live = outer.session(&place, &rules, words).stdin_open().start();
        live.expect("sent");
        listeners.wait_for(&Flow::udp(one, PORT));
        live.wait().ok();
        let session = place.json(["show"]);
        let reached = rows(&session, "reached");
        assert_eq!(count(&reached, other, "udp", PORT), 1, "{session:#}");
        // A flow of UDP counts once.
        assert_eq!(count(&reached, one, "udp", PORT), 1, "{session:#}");
        assert_eq!(session["egress"]["totals"]["reached"]["all"], 2, "{session:#}");
    }

    [user_kernel]
    fn junk_cannot_hide_what_was_reached_and_the_totals_stay_exact(world) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let rules = policy(json!({"mode": "allow"}), json!({"mode": "block"}));
        let mut flows: Vec<Flow> = (0..3000u32)
            .map(|n| Flow::udp(&format!("10.77.{}.{}", n / 250, 1 + n % 250), PORT))
            .collect();
        flows.push(Flow::tcp(address::PUBLIC_V4, PORT));
        outer.probe(&place, &rules, &flows);
        let session = place.json(["show"]);
        let (reached, refused) = (rows(&session, "reached"), rows(&session, "refused"));
        assert_eq!(count(&reached, address::PUBLIC_V4, "tcp", PORT), 1, "{session:#}");
        assert!(refused.len() <= 1024);
        let text = session["egress"].to_string();
        assert!(text.contains("3000"), "{}", session["egress"]["totals"]);
    }

    [user_kernel]
    fn what_is_told_to_a_controller_that_stands_still_is_told_in_the_end(world) {
        let outer = Outer::new();
        let place = Place::new(world);
        let rules = policy(json!({"mode": "allow"}), json!({"mode": "block"}));
        let port = PORT.to_string();
        let words = ["python3", "-c", BUSY, &port];
        let mut live = outer.session(&place, &rules, words).start();
        live.expect("busy");
        let tree = procs::descendants(live.pid());
        procs::kill(live.pid(), Signal::STOP);
        // The link goes after the task, and what was counted is told after that.
        let link = tree.iter().find(|p| p.name == "slirp4netns").unwrap();
        procs::gone(std::slice::from_ref(link), 60);
        procs::kill(live.pid(), Signal::CONT);
        live.wait().ok();
        let session = place.json(["show"]);
        let sent = u64::from(ROUNDS * 2 * 1000);
        assert_eq!(session["egress"]["totals"]["refused"]["all"], sent, "{session:#}");
        let refused = rows(&session, "refused");
        assert!(refused.iter().all(|row| row["count"] == ROUNDS), "{session:#}");
    }

    [user_kernel]
    fn a_session_without_a_policy_has_no_figures(world) {
        let place = Place::new(world);
        place.sh("true").output().ok();
        assert_eq!(place.json(["show"])["egress"], Value::Null);
    }
}
