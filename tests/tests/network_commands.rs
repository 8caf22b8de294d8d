//! `landbox sandbox-network-policy`, and what a network policy is refused with before anything is made.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::net::{Flow, Outer, PORT, address};
use landbox_tests::world::World;
use landbox_tests::{Place, worlds};
use serde_json::{Value, json};
use std::path::PathBuf;

const POLICY: &str = r#"{
  "version": 1, // comments are fine
  "public": {"mode": "allowlist", "rules": [
    {"cidr": "93.184.216.99/24", "protocol": "tcp", "ports": [443]},
    {"cidr": "::ffff:8.8.8.8"},
  ]},
  "private": {"mode": "block"},
  "dnsServers": ["9.9.9.9"],
}"#;

fn place() -> Place {
    let place = Place::new(World::USUAL);
    place.write(place.home.join("p.json"), POLICY);
    place
}

#[test]
fn check_prints_the_normal_form_which_checks_as_itself() {
    let place = place();
    let verb = "sandbox-network-policy";
    let check = |file: &std::path::Path| {
        place.landbox([verb, "check", file.to_str().unwrap()]).output().expect(0)
    };
    let first = check(&place.home.join("p.json"));
    assert!(
        first.text().starts_with("{\n  \"version\": 1,\n  \"public\": {\n"),
        "{}",
        first.text()
    );
    assert!(first.text().contains("\"cidr\": \"93.184.216.0/24\""), "{}", first.text());
    assert!(first.text().contains("\"cidr\": \"8.8.8.8/32\""), "{}", first.text());
    let again = place.home.join("again.json");
    place.write(&again, first.text());
    let second = check(&again);
    assert_eq!(second.text(), first.text());
}

#[test]
fn a_policy_may_come_by_a_pipe_and_never_without_an_end() {
    let place = place();
    let check = |file: &str| place.landbox(["sandbox-network-policy", "check", file]);
    let piped = check("/dev/stdin").prefix("exec < <(cat ~/p.json)").output().ok().text();
    assert_eq!(piped, check(place.home.join("p.json").to_str().unwrap()).output().ok().text());
    for (file, why) in [("/dev/zero", "larger than"), ("/", "directory"), ("/dev/null", "empty")] {
        let out = check(file).output().expect(2);
        assert!(out.errors().contains(why), "{file}: {}", out.errors());
    }
}

#[test]
fn check_names_every_mistake_and_ends_with_2() {
    let place = place();
    let policy = place.home.join("bad.json");
    place.write(
        &policy,
        "{\"version\": 1, \"public\": {\"mode\": \"allowlist\", \"rules\": [\n{\"cidr\": \"example.com\"}]},\n\"private\": {\"mode\": \"open\"}}",
    );
    let file = policy.to_str().unwrap();
    let out = place.landbox(["sandbox-network-policy", "check", file]).output().expect(2);
    assert_eq!(out.text(), "");
    for wanted in
        ["bad.json:2: \"public.rules[0].cidr\"", "\"example.com\"", "bad.json:3: \"private.mode\""]
    {
        assert!(out.errors().contains(wanted), "{wanted}: {}", out.errors());
    }
}

#[test]
fn explain_gives_the_verdict_as_its_exit_code() {
    let place = place();
    let policy = place.home.join("p.json").display().to_string();
    let ask = |words: &[&str], code: i32| {
        let args = [&["sandbox-network-policy", "explain", &policy], words].concat();
        place.landbox(&args).output().expect(code).text()
    };
    assert!(ask(&["93.184.216.34", "tcp", "443"], 0).starts_with("allowed"));
    assert!(ask(&["93.184.216.34", "tcp", "80"], 1).contains("no rule matches"));
    assert!(ask(&["93.184.216.34", "udp", "443"], 1).starts_with("denied"));
    assert!(ask(&["8.8.8.8"], 0).contains("rules[1]"));
    assert!(ask(&["::ffff:8.8.8.8", "udp", "1"], 0).contains("8.8.8.8"));
    assert!(ask(&["9.9.9.9", "udp", "53"], 0).contains("dnsServers"));
    assert!(ask(&["10.0.0.1", "tcp", "443"], 1).contains("private blocks"));
    assert!(ask(&["127.0.0.1", "tcp", "443"], 0).contains("loopback"));
    for bad in
        [&["example.com"][..], &["10.0.0.0/8"], &["8.8.8.8", "tcp"], &["8.8.8.8", "tcp", "0"]]
    {
        ask(bad, 2);
    }
    let document =
        place.json(["sandbox-network-policy", "explain", &policy, "8.8.8.8", "tcp", "1"]);
    assert_eq!(document["decision"], "allowed");
    assert_eq!((&document["zone"], &document["rule"]), (&"public".into(), &1.into()));
}

#[test]
fn set_and_clear_need_the_daemon_and_nothing_works_inside() {
    let place = place();
    let policy = place.home.join("p.json").display().to_string();
    let verb = "sandbox-network-policy";
    for args in [&[verb, "set", "app", &policy][..], &[verb, "clear", "app"]] {
        let out = place.landbox(args).output().expect(6);
        assert!(out.errors().contains("daemon"), "{}", out.errors());
    }
    // What can't be had is not offered.
    let help = place.landbox([verb, "--help"]).output().ok().text();
    assert!(help.contains("suggest") && !help.contains("daemon"), "{help}");
    let out = place.landbox(["run", "--", "landbox", verb, "clear", "app"]).output().expect(6);
    assert!(out.errors().contains("inside of a session"), "{}", out.errors());
}

#[test]
fn what_a_policy_cannot_hold_is_refused_by_name_before_anything_is_made() {
    let place = place();
    let policy = place.home.join("p.json").display().to_string();
    let run = ["run", "--network", &policy, "--", "true"];
    for (name, value) in [
        ("HTTPS_PROXY", "http://user:secret@127.0.0.1:1"),
        ("all_proxy", "socks5://127.0.0.1:1"),
        ("BOTMUX_MCP_GATEWAY_SOCKET", "/run/botmux-mcp/s/gateway.sock"),
    ] {
        let out = place.landbox(run).env(name, value).output().expect(125);
        assert!(out.errors().contains(name), "{}", out.errors());
        assert!(!out.errors().contains(value), "{}", out.errors());
    }
    let inner =
        "{\"version\": 1, \"public\": {\"mode\": \"allow\"}, \"private\": {\"mode\": \"block\"}}";
    let bots = place.home.join(".config/landbox/bots.json");
    for (more, wanted) in [
        ("\"sandbox\": false", "needs the sandbox"),
        ("\"backendType\": \"tmux\"", "tmux"),
        ("\"backendType\": \"zellij\"", "zellij"),
        ("\"backendType\": \"herdr\"", "herdr"),
        ("\"backendType\": \"zmx\"", "zmx"),
        ("\"backendType\": \"riff\"", "riff"),
        ("\"adopt\": true", "adopt"),
        ("\"remoteRunner\": \"host\"", "remoteRunner"),
        ("\"existingAppServer\": {\"url\": \"x\"}", "existingAppServer"),
        ("\"env\": {\"http_proxy\": \"x\"}", "http_proxy"),
    ] {
        let bot = format!(
            "[{{\"name\": \"b\", \"command\": \"true\", \"sandboxNetworkPolicy\": {inner}, {more}}}]"
        );
        place.write(&bots, &bot);
        let out = place.landbox(["run", "--bot", "b"]).output().expect(125);
        assert!(out.errors().contains(wanted), "{more}: {}", out.errors());
    }
    assert_eq!(place.sessions(), [] as [PathBuf; 0]);
}

/// A policy that lets the public address through on another port than the tests', and nothing private.
fn narrow() -> Value {
    let rule = json!({"cidr": address::PUBLIC_V4, "protocol": "tcp", "ports": [443]});
    landbox_tests::net::policy(
        json!({"mode": "allowlist", "rules": [rule]}),
        json!({"mode": "block"}),
    )
}

worlds! {
    [user_kernel, root_kernel]
    fn what_is_suggested_lets_through_what_was_refused_and_no_more(world) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let flows = [
            Flow::tcp(address::PUBLIC_V4, PORT),
            Flow::tcp(address::PRIVATE_V6, PORT),
            Flow::tcp(address::GATEWAY, PORT),
        ];
        let before = outer.probe(&place, &narrow(), &flows);
        assert!(before.iter().all(|answer| !answer.reached()), "{before:?}");
        let document = place.json(["sandbox-network-policy", "suggest"]);
        assert_eq!(document["added"].as_array().unwrap().len(), 2, "{document:#}");
        assert_eq!(document["opened"], json!(["private"]));
        assert_eq!(document["not_allowable"][0]["address"], address::GATEWAY);
        // What people read is a policy, too.
        let text = place.landbox(["sandbox-network-policy", "suggest"]).output().ok().text();
        assert!(text.contains("// new: refused"), "{text}");
        let file = place.home.join("suggested.json");
        place.write(&file, &text);
        let check = ["sandbox-network-policy", "check", file.to_str().unwrap()];
        let checked: Value = place.landbox(check).output().ok().json();
        assert_eq!(checked, document["policy"]);
        let others = [
            Flow::udp(address::PUBLIC_V4, PORT),
            Flow::tcp(address::PRIVATE_V4, PORT),
            Flow::tcp(address::PUBLIC_V6, PORT),
        ];
        let after = outer.probe(&place, &checked, &[&flows[..], &others].concat());
        let reached: Vec<bool> = after.iter().map(|answer| answer.reached()).collect();
        assert_eq!(reached, [true, true, false, false, false, false], "{after:?}");
    }

    [user_kernel]
    fn a_resumed_session_keeps_its_policy_and_adds_its_traffic_up(world) {
        let outer = Outer::new();
        let _listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let bots = place.home.join(".config/landbox/bots.json");
        let bot = |policy: &Value| {
            json!([{"name": "b", "command": "true", "sandboxNetworkPolicy": policy}]).to_string()
        };
        let list = place.flows(&[Flow::tcp(address::PUBLIC_V4, PORT)]);
        let prober = landbox_tests::world::bin("prober");
        let words = [prober.to_str().unwrap(), "net", list.to_str().unwrap()];
        place.write(&bots, bot(&narrow()));
        let run = [&["run", "--overlay", "kernel", "--name", "s", "--bot", "b", "--"][..], &words].concat();
        let first = place.landbox(&run).within(&outer).output().ok();
        assert!(first.errors().contains("1 refused connection, 1 destination"), "{}", first.errors());
        // Whatever the file says now.
        place.write(&bots, bot(&landbox_tests::net::open()));
        let resume = [&["resume", "s", "--"][..], &words].concat();
        let second = place.landbox(&resume).within(&outer).output().ok();
        assert!(second.text().contains("\"errno\":111"), "{}", second.text());
        let session = place.json(["show", "s"]);
        assert_eq!(session["boundary"]["network"], "policy");
        assert_eq!(session["boundary"]["seccomp"], "restricted");
        let refused = &session["egress"]["refused"];
        assert_eq!((&refused[0]["count"], refused.as_array().unwrap().len()), (&json!(2), 1));
        assert_eq!(session["egress"]["totals"]["refused"]["all"], 2);
        assert_eq!(session["egress"]["dropped_rows"], 0);
        let review = place.landbox(["diff", "s"]).output().ok();
        assert!(review.errors().contains("2 refused connections, 1 destination"), "{}", review.errors());
    }
}

/// A guest of VirtualBox or QEMU often lives in such a network.
#[test]
fn root_gives_the_machine_a_network_of_the_links_number_and_it_is_named() {
    let outer = Outer::new();
    let place = Place::new(World::USUAL);
    let script = "ip link add guest0 type veth peer name guest1; ip link set guest0 up; ip link set guest1 up\n\
                  ip addr add 10.0.2.15/24 dev guest0; ip -6 addr add fd00::15/64 dev guest0 nodad";
    let said = |run: &mut landbox_tests::run::Run, first: bool| {
        let out = if first { run.within_changed(&outer, script) } else { run.within(&outer) }
            .output()
            .ok();
        ["10.0.2.0/24 (guest0)", "fd00::/64 (guest0)"].map(|named| out.errors().contains(named))
    };
    let (open, closed) = (landbox_tests::net::open(), landbox_tests::net::closed());
    assert_eq!(said(&mut outer.session(&place, &open, ["true"]), true), [true, true]);
    assert_eq!(
        said(&mut place.landbox(["resume", &id(&place), "--", "true"]), false),
        [true, true]
    );
    let file = place.policy(&open);
    let check = ["sandbox-network-policy", "check", file.to_str().unwrap()];
    assert_eq!(said(&mut place.landbox(check), false), [true, true]);
    // Who is let nowhere there need not know.
    assert_eq!(said(&mut outer.session(&place, &closed, ["true"]), false), [false, false]);
}

fn id(place: &Place) -> String {
    place.json(["show"])["id"].as_str().unwrap().to_owned()
}

/// Programs that manage the host's name servers replace the file by a rename, which takes what is mounted on it away.
#[test]
fn root_replaces_the_hosts_name_servers_and_the_session_goes_on() {
    let outer = Outer::new();
    let place = Place::new(World::USUAL);
    let etc = place.root().join("etc");
    let script = format!(
        "cp -a /etc {0}; rm -f {0}/resolv.conf; echo nameserver 10.1.1.1 > {0}/resolv.conf; mount --bind {0} /etc",
        etc.display()
    );
    let mut rules = landbox_tests::net::closed();
    rules["dnsServers"] = json!(["10.99.0.53"]);
    let task = "cat /etc/resolv.conf; read line; echo \"went on $line\"";
    let mut run = outer.session(&place, &rules, ["sh", "-c", task]);
    let mut live = run.within_changed(&outer, &script).stdin_open().start();
    live.expect("nameserver 10.99.0.53");
    let new = etc.join("resolv.conf.new");
    std::fs::write(&new, "nameserver 10.2.2.2\n").unwrap();
    std::fs::rename(&new, etc.join("resolv.conf")).unwrap();
    live.write(b"all the same\n");
    let out = live.wait().ok();
    assert!(out.text().ends_with("went on all the same\n"), "{}", out.text());
}
