//! The sixteen pairs of modes, and what no pair opens. By either kind of user, between pipes and on a terminal.

use landbox_tests::net::{self, Answer, Flow, Outer, PORT, address, closed, open, policy};
use landbox_tests::{Place, procs, seats, world};
use serde_json::{Value, json};

const MODES: [&str; 4] = ["allow", "block", "allowlist", "denylist"];
/// One address of each zone and family.
const FOUR: [&str; 4] =
    [address::PUBLIC_V4, address::PRIVATE_V4, address::PUBLIC_V6, address::PRIVATE_V6];

fn lets_through(mode: &str) -> bool {
    matches!(mode, "allow" | "allowlist")
}

/// A zone whose rules, where its mode has some, name the four addresses and the port.
fn zone(mode: &str) -> Value {
    let rules: Vec<Value> =
        FOUR.iter().map(|cidr| json!({"cidr": cidr, "protocol": "tcp", "ports": [PORT]})).collect();
    match mode {
        "allow" | "block" => json!({"mode": mode}),
        _ => json!({"mode": mode, "rules": rules}),
    }
}

fn reached(answers: &[Answer]) -> Vec<bool> {
    answers.iter().map(Answer::reached).collect()
}

seats! {
    fn each_zone_decides_alone_in_all_sixteen_pairs_of_modes(seat) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(seat.world);
        let flows = FOUR.map(|address| Flow::tcp(address, PORT));
        for public in MODES {
            for private in MODES {
                let rules = policy(zone(public), zone(private));
                let answers = seat.probe(&outer, &place, &rules, &flows);
                let (public_open, private_open) = (lets_through(public), lets_through(private));
                let expected = [public_open, private_open, public_open, private_open];
                assert_eq!(reached(&answers), expected, "{public} {private}: {answers:?}");
            }
        }
    }

    fn public_alone_opens_nothing_private_under_any_name(seat) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[PORT, 53]);
        let place = Place::new(seat.world);
        let public = policy(json!({"mode": "allow"}), json!({"mode": "block"}));
        let flows = [
            Flow::tcp(address::PRIVATE_V4, PORT).mapped(),
            Flow::udp(address::PRIVATE_V4, PORT).mapped(),
            Flow::tcp(address::PRIVATE_V4, PORT),
            Flow::tcp(address::PRIVATE_V6, PORT),
            Flow::tcp(address::GATEWAY, PORT),
            Flow::tcp(address::FORWARDER, 53),
            Flow::udp(address::FORWARDER, 53),
            Flow::tcp("169.254.169.254", PORT),
            Flow::tcp("64:ff9b::a4d:1", PORT),
            Flow::tcp("2002:a4d:1::1", PORT),
        ];
        let answers = seat.probe(&outer, &place, &public, &flows);
        assert!(answers.iter().all(|answer| !answer.reached()), "{answers:?}");
        assert!(listeners.counts().is_empty(), "{:?}", listeners.counts());
    }

    fn everything_allowed_still_opens_no_name_of_the_hosts(seat) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[PORT, 53]);
        let place = Place::new(seat.world);
        let flows = [
            Flow::tcp(address::PRIVATE_V4, PORT),
            Flow::tcp(address::GATEWAY, PORT),
            Flow::tcp(address::GATEWAY, PORT).mapped(),
            Flow::udp(address::GATEWAY, PORT),
            Flow::tcp(address::FORWARDER, 53),
            Flow::tcp(address::FORWARDER, 53).mapped(),
            Flow::udp(address::FORWARDER, 53),
            Flow::tcp(address::ROUTER_V6, PORT),
            Flow::tcp("fd00::3", 53),
            Flow::udp("fd00::3", 53),
        ];
        let answers = seat.probe(&outer, &place, &open(), &flows);
        let only: Vec<bool> = (0..flows.len()).map(|n| n == 0).collect();
        assert_eq!(reached(&answers), only, "{answers:?}");
        let counts = listeners.counts();
        assert_eq!(counts.keys().collect::<Vec<_>>(), [&flows[0].name()]);
    }

    fn a_host_socket_in_a_writable_folder_is_out_of_reach(seat) {
        let outer = Outer::new();
        let place = Place::new(seat.world);
        let path = place.outside.join("service.sock");
        let service = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let (uid, gid) = seat.world.ids();
        std::os::unix::fs::chown(&path, Some(uid), Some(gid)).unwrap();
        service.set_nonblocking(true).unwrap();
        let script = format!("import socket; socket.socket(socket.AF_UNIX).connect({path:?})");
        let said = seat.output(&mut outer.session(&place, &open(), ["python3", "-c", &script]));
        assert!(said.clone().expect(1).errors.contains("PermissionError"), "{}", said.errors);
        assert!(service.accept().is_err());
    }

    fn what_a_probe_does_to_proxy_variables_changes_nothing(seat) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(seat.world);
        let flows = place.flows(&FOUR.map(|address| Flow::tcp(address, PORT)));
        let prober = world::bin("prober");
        let script = format!(
            "unset HTTP_PROXY http_proxy; HTTPS_PROXY=http://127.0.0.1:{PORT} \
             NO_PROXY='*' exec {} net {}",
            prober.display(),
            flows.display()
        );
        let public = policy(json!({"mode": "allow"}), json!({"mode": "block"}));
        let said = seat.output(&mut outer.session(&place, &public, ["sh", "-c", &script]));
        let answers = said.expect(0).answers();
        assert_eq!(reached(&answers), [true, false, true, false], "{answers:?}");
    }

    fn the_same_policy_gives_the_same_answers_in_every_lifetime(seat) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(seat.world);
        let rules = policy(zone("allowlist"), zone("denylist"));
        let copy: Value = serde_json::from_str(&rules.to_string()).unwrap();
        let flows = FOUR.map(|address| Flow::tcp(address, PORT));
        let first = seat.probe(&outer, &place, &rules, &flows);
        assert_eq!(reached(&first), [true, false, true, false], "{first:?}");
        assert_eq!(reached(&seat.probe(&outer, &place, &copy, &flows)), reached(&first));
    }

    fn a_program_that_executes_itself_again_is_held_to_the_same_rules(seat) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(seat.world);
        let flows = place.flows(&FOUR.map(|address| Flow::tcp(address, PORT)));
        let prober = world::bin("prober");
        let words = ["again", "again", "net"].map(AsRef::as_ref);
        let words = [&[prober.as_os_str()][..], &words, &[flows.as_os_str()]].concat();
        let public = policy(json!({"mode": "allow"}), json!({"mode": "block"}));
        let said = seat.output(&mut outer.session(&place, &public, words));
        assert_eq!(reached(&said.expect(0).answers()), [true, false, true, false]);
    }

    fn the_task_changes_no_rule_and_makes_no_world_without_them(seat) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[PORT]);
        let place = Place::new(seat.world);
        let flows = place.flows(&[Flow::tcp(address::PRIVATE_V4, PORT)]);
        let prober = world::bin("prober");
        let script = format!(
            "for words in 'unshare --user --map-root-user true' 'unshare --net true' \
               'nft flush ruleset' 'nft list ruleset' 'nft add table inet other' \
               'ip link set tap0 down' 'ip address add 10.9.9.9/32 dev lo' \
               'ip route add 10.77.0.0/16 dev lo'; do \
               $words 2>&1 && echo WORKED: $words; done; \
             {} net {}",
            prober.display(),
            flows.display()
        );
        let said = seat.output(&mut outer.session(&place, &closed(), ["sh", "-c", &script]));
        let said = said.expect(0);
        assert!(!said.text.contains("WORKED"), "{}", said.text);
        assert!(said.text.contains("Operation not permitted"), "{}", said.text);
        assert!(!said.text.contains("not found"), "{}", said.text);
        let answers = said.answers();
        assert!(!answers[0].reached(), "{answers:?}");
        assert!(listeners.counts().is_empty());
    }

    fn a_rule_for_tcp_opens_no_udp_on_its_port(seat) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(seat.world);
        let flows = [Flow::tcp(address::PUBLIC_V4, PORT), Flow::udp(address::PUBLIC_V4, PORT)];
        let only = seat.probe(&outer, &place, &policy(zone("allowlist"), zone("block")), &flows);
        assert_eq!(reached(&only), [true, false], "{only:?}");
        let both = seat.probe(&outer, &place, &policy(zone("allow"), zone("block")), &flows);
        assert_eq!(reached(&both), [true, true], "{both:?}");
    }

    fn arguments_arrive_unchanged(seat) {
        let outer = Outer::new();
        let place = Place::new(seat.world);
        let odd = "it's \"quoted\" \\ \u{2028}\u{2029} $(no) \n end";
        // So that what ends a line on a terminal is no matter.
        let words = ["python3", "-c", "import sys; print(ascii(sys.argv[1]))", odd];
        let said = seat.output(&mut outer.session(&place, &closed(), words)).expect(0);
        let shown = r#"'it\'s "quoted" \\ \u2028\u2029 $(no) \n end'"#;
        assert!(said.text.lines().any(|line| line == shown), "{}", said.text);
    }

    fn the_sessions_own_loopback_works_and_is_not_the_hosts(seat) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[PORT]);
        let place = Place::new(seat.world);
        let flows = [
            Flow::tcp("127.0.0.1", PORT),
            Flow::udp("127.0.0.1", PORT),
            Flow::tcp("127.0.0.1", PORT).mapped(),
            Flow::tcp("127.9.9.9", PORT),
            Flow::tcp("::1", PORT),
            Flow::udp("::1", PORT),
        ];
        for rules in [open(), closed()] {
            let answers = seat.probe(&outer, &place, &rules, &flows);
            assert!(answers.iter().all(|a| a.said.starts_with("inner")), "{answers:?}");
        }
        assert!(listeners.counts().is_empty());
    }

    fn nothing_is_left_when_a_session_has_ended(seat) {
        let outer = Outer::new();
        let place = Place::new(seat.world);
        let words = ["sh", "-c", "echo up; read line; exit 7"];
        let mut live = seat.start(&mut outer.session(&place, &open(), words));
        live.expect("up");
        let there = procs::descendants(live.pid());
        assert!(there.iter().any(|p| p.name.starts_with("slirp4netns")), "{there:#?}");
        live.end_input();
        live.wait().expect(7);
        procs::gone(&there, 10);
        assert!(procs::mounts_below(place.root()).is_empty());
    }
}

#[test]
fn the_device_of_the_link_is_open_to_the_tests() {
    assert!(net::link_device(), "/dev/net/tun can't be opened: start the suite by tests/run.sh");
}
