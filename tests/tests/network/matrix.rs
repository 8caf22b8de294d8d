//! The sixteen pairs of modes, and what no pair opens.

use landbox_tests::net::{self, Answer, Flow, Outer, PORT, address, closed, open, policy};
use landbox_tests::{Place, World, procs, world, worlds};
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

/// Tries the flows in a session on a terminal.
fn on_a_terminal(outer: &Outer, place: &Place, policy: &Value, flows: &[Flow]) -> Vec<Answer> {
    let list = place.flows(flows);
    let prober = world::bin("prober");
    let command = [prober.as_os_str(), "net".as_ref(), list.as_os_str()];
    let mut terminal = outer.session(place, policy, command).terminal(200, 50);
    assert_eq!(terminal.wait(), 0, "{}", terminal.shown());
    let shown = terminal.shown();
    let (start, end) = (shown.find("[{").unwrap(), shown.rfind("}]").unwrap());
    serde_json::from_str(&shown[start..end + 2]).unwrap_or_else(|e| panic!("{e}: {shown:?}"))
}

fn sixteen(world: World, try_all: impl Fn(&Outer, &Place, &Value, &[Flow]) -> Vec<Answer>) {
    let outer = Outer::new();
    let _listeners = outer.listen(&[PORT]);
    let place = Place::new(world);
    let flows = FOUR.map(|address| Flow::tcp(address, PORT));
    for public in MODES {
        for private in MODES {
            let answers = try_all(&outer, &place, &policy(zone(public), zone(private)), &flows);
            let (public_open, private_open) = (lets_through(public), lets_through(private));
            let expected = [public_open, private_open, public_open, private_open];
            assert_eq!(reached(&answers), expected, "{public} {private}: {answers:?}");
        }
    }
}

worlds! {
    [user_kernel, root_kernel]
    fn each_zone_decides_alone_in_all_sixteen_pairs_of_modes(world) {
        sixteen(world, Outer::probe);
    }

    [user_kernel, root_kernel]
    fn a_terminal_makes_no_difference(world) {
        sixteen(world, on_a_terminal);
    }

    [user_kernel, root_kernel]
    fn public_alone_opens_nothing_private_under_any_name(world) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[PORT, 53]);
        let place = Place::new(world);
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
        let answers = outer.probe(&place, &public, &flows);
        assert!(answers.iter().all(|answer| !answer.reached()), "{answers:?}");
        assert!(listeners.counts().is_empty(), "{:?}", listeners.counts());
    }

    [user_kernel, root_kernel]
    fn everything_allowed_still_opens_no_name_of_the_hosts(world) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[PORT, 53]);
        let place = Place::new(world);
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
        let answers = outer.probe(&place, &open(), &flows);
        let only: Vec<bool> = (0..flows.len()).map(|n| n == 0).collect();
        assert_eq!(reached(&answers), only, "{answers:?}");
        let counts = listeners.counts();
        assert_eq!(counts.keys().collect::<Vec<_>>(), [&flows[0].name()]);
    }

    [user_kernel, root_kernel]
    fn a_host_socket_in_a_writable_folder_is_out_of_reach(world) {
        let outer = Outer::new();
        let place = Place::new(world);
        let path = place.outside.join("service.sock");
        let service = std::os::unix::net::UnixListener::bind(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(world.ids().0), Some(world.ids().1)).unwrap();
        service.set_nonblocking(true).unwrap();
        let script = format!("import socket; socket.socket(socket.AF_UNIX).connect({path:?})");
        let out = outer
            .session(&place, &open(), ["python3", "-c", &script])
            .output()
            .expect(1);
        assert!(out.errors().contains("PermissionError"), "{}", out.errors());
        assert!(service.accept().is_err());
    }

    [user_kernel]
    fn what_a_probe_does_to_proxy_variables_changes_nothing(world) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let flows = place.flows(&FOUR.map(|address| Flow::tcp(address, PORT)));
        let prober = world::bin("prober");
        let script = format!(
            "unset HTTP_PROXY http_proxy; HTTPS_PROXY=http://127.0.0.1:{PORT} \
             NO_PROXY='*' exec {} net {}",
            prober.display(),
            flows.display()
        );
        let public = policy(json!({"mode": "allow"}), json!({"mode": "block"}));
        let answers: Vec<Answer> =
            outer.session(&place, &public, ["sh", "-c", &script]).output().ok().json();
        assert_eq!(reached(&answers), [true, false, true, false], "{answers:?}");
    }

    [user_kernel, root_kernel]
    fn the_same_policy_gives_the_same_answers_in_every_lifetime(world) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let rules = policy(zone("allowlist"), zone("denylist"));
        let copy: Value = serde_json::from_str(&rules.to_string()).unwrap();
        let flows = FOUR.map(|address| Flow::tcp(address, PORT));
        let first = outer.probe(&place, &rules, &flows);
        assert_eq!(reached(&first), [true, false, true, false], "{first:?}");
        assert_eq!(reached(&outer.probe(&place, &copy, &flows)), reached(&first));
    }

    [user_kernel, root_kernel]
    fn the_task_changes_no_rule_and_makes_no_world_without_them(world) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
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
        let out = outer.session(&place, &closed(), ["sh", "-c", &script]).output().ok();
        let text = out.text();
        assert!(!text.contains("WORKED"), "{text}");
        assert!(text.contains("Operation not permitted"), "{text}");
        assert!(!text.contains("not found"), "{text}");
        let answers: Vec<Answer> = out.json_of_last_line();
        assert!(!answers[0].reached(), "{answers:?}");
        assert!(listeners.counts().is_empty());
    }

    [user_kernel, root_kernel]
    fn a_rule_for_tcp_opens_no_udp_on_its_port(world) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let flows = [Flow::tcp(address::PUBLIC_V4, PORT), Flow::udp(address::PUBLIC_V4, PORT)];
        let only = outer.probe(&place, &policy(zone("allowlist"), zone("block")), &flows);
        assert_eq!(reached(&only), [true, false], "{only:?}");
        let both = outer.probe(&place, &policy(zone("allow"), zone("block")), &flows);
        assert_eq!(reached(&both), [true, true], "{both:?}");
    }

    [user_kernel]
    fn arguments_arrive_unchanged(world) {
        let outer = Outer::new();
        let place = Place::new(world);
        let odd = "it's \"quoted\" \\ \u{2028}\u{2029} $(no) \n end";
        let out = outer.session(&place, &closed(), ["printf", "%s", odd]).output().ok();
        assert_eq!(out.text(), odd);
    }

    [user_kernel, root_kernel]
    fn the_sessions_own_loopback_works_and_is_not_the_hosts(world) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let flows = [
            Flow::tcp("127.0.0.1", PORT),
            Flow::udp("127.0.0.1", PORT),
            Flow::tcp("127.0.0.1", PORT).mapped(),
            Flow::tcp("127.9.9.9", PORT),
            Flow::tcp("::1", PORT),
            Flow::udp("::1", PORT),
        ];
        for rules in [open(), closed()] {
            let answers = outer.probe(&place, &rules, &flows);
            assert!(answers.iter().all(|a| a.said.starts_with("inner")), "{answers:?}");
        }
        assert!(listeners.counts().is_empty());
    }

    [user_kernel, root_kernel]
    fn nothing_is_left_when_a_session_has_ended(world) {
        let outer = Outer::new();
        let place = Place::new(world);
        let mut live = outer
            .session(&place, &open(), ["sh", "-c", "echo up; read line"])
            .stdin_open()
            .start();
        live.expect("up");
        let there = procs::descendants(live.pid());
        assert!(there.iter().any(|p| p.name.starts_with("slirp4netns")), "{there:#?}");
        live.wait().expect(1);
        procs::gone(&there, 10);
        assert!(procs::mounts_below(place.root()).is_empty());
    }
}

#[test]
fn the_device_of_the_link_is_open_to_the_tests() {
    assert!(net::link_device(), "/dev/net/tun can't be opened: start the suite by tests/run.sh");
}
