//! What README.md says first of a session, where no other test says it; and the page that names the test of each promise.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::net::{Outer, PORT, address, open};
use landbox_tests::{Place, pages, worlds};

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_layer_takes_what_was_changed_and_no_copy_of_the_rest(world) {
        let place = Place::new(world);
        place.write(place.project.join("large"), vec![b'x'; 32 << 20]);
        place.write(place.home.join("larger"), vec![b'x'; 32 << 20]);
        place.sh("cat large ~/larger | wc -c; echo x >> README.md; mv src/main.py src/new.py").output().ok();
        for layer in place.json(["show"])["layers"].as_array().unwrap() {
            assert!(layer["bytes"].as_u64().unwrap() < 1 << 20, "{layer}");
        }
    }

    // Whoever runs sessions for others has to know it, and says which by --hide.
    [user_kernel, root_kernel]
    fn nothing_is_hidden_unless_its_owner_says_so(world) {
        let place = Place::new(world);
        let bots = place.outside.join("bots.json");
        place.write(&bots, r#"[{"name": "b", "command": "true"}]"#);
        let script = format!("cat ~/.ssh/id_ed25519 {}; wc -c < /etc/passwd; wc -c < /etc/hostname", bots.display());
        let options = ["--config", bots.to_str().unwrap(), "--bot", "b"];
        let out = place.session(options, ["sh", "-c", &script]).output().ok();
        assert!(out.text().contains("PRIVATE KEY of nobody\n[{\"name\""), "{}", out.text());
        // A read-only path that is not there is none.
        let out = place.session(["--read-only", "~/nothing/there"], ["true"]).output().ok();
        assert!(!out.errors().contains("warning"), "{}", out.errors());
    }

    [user_kernel]
    fn credentials_of_the_host_program_are_in_no_session_s_environment(world) {
        let place = Place::new(world);
        let mut run = place.sh("env; cat /proc/1/environ /proc/self/environ; true");
        for name in ["LARK_APP_ID", "LARK_APP_SECRET", "CLAUDECODE", "LANDBOX_TOKEN"] {
            run.env(name, "of-the-host");
        }
        let text = run.env("KEPT", "of-the-caller").output().ok().text();
        assert!(!text.contains("of-the-host") && text.contains("KEPT=of-the-caller"), "{text}");
    }

    [user_kernel, root_kernel]
    fn a_session_without_rules_has_the_network_of_the_machine(world) {
        let (outer, place) = (Outer::new(), Place::new(world));
        let _listeners = outer.listen(&[PORT]);
        let script = "import socket, sys\nfor to in sys.argv[1:]: socket.create_connection((to, 18087), 20).close(); print(to)";
        let targets = ["127.0.0.1", "::1", address::PRIVATE_V4, address::PUBLIC_V6];
        let mut run = place.session::<&str, _>([], [&["python3", "-c", script][..], &targets].concat());
        let text = run.within(&outer).output().ok().text();
        assert_eq!(text.lines().collect::<Vec<_>>(), targets);
    }

    [user_kernel, root_kernel]
    fn root_s_rules_and_addresses_of_the_machine_are_as_before_when_a_policy_is_in_force(world) {
        let (outer, place) = (Outer::new(), Place::new(world));
        let script = "nft add table inet owners; nft add chain inet owners in '{ type filter hook input priority 0; }'; \
                      nft add rule inet owners in tcp dport 1 drop";
        assert!(outer.command(["sh", "-c", script]).status().unwrap().success());
        let seen = || {
            let script = "nft list ruleset; ip address; ip route; ip -6 route; cat /proc/net/dev | cut -d: -f1";
            let out = outer.command(["sh", "-c", script]).output().unwrap();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            String::from_utf8_lossy(&out.stdout).into_owned()
        };
        let before = seen();
        assert!(before.contains("tcp dport 1 drop"), "{before}");
        let mut live = outer.session(&place, &open(), ["sh", "-c", "echo up; read line"]);
        let mut live = live.stdin_open().start();
        live.expect("up");
        assert_eq!(seen(), before);
        live.write(b"\n");
        live.wait().ok();
        assert_eq!(seen(), before);
    }
}

#[test]
fn every_test_that_the_page_of_promises_names_is_there() {
    let page = pages::read("PROMISES.md");
    let named = pages::tests_named_in(&page);
    assert!(named > 80, "{named}");
    // Each line of a table that is not its head names a test, or where it is written down.
    for line in
        page.lines().filter(|line| line.starts_with("| ")).filter(|l| !l.contains("held by"))
    {
        assert!(line.contains("::") || line.contains("README.md"), "nothing holds: {line}");
    }
}
