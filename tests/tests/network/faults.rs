//! Each step of the network's set-up made to fail in turn: the launch is refused, the message says what and what to do, the
//! command never ran, and nothing is left.

use landbox_tests::net::{Flow, Outer, PORT, address, open};
use landbox_tests::run::Run;
use landbox_tests::world::Who;
use landbox_tests::{Place, World, procs, world, worlds};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Where the helper finds the link's program.
const LINK: &str = "/usr/bin/slirp4netns";

/// A session under a policy that `script`, run by root before, has to spoil; what it said.
#[track_caller]
fn refused_after(place: &Place, script: &str) -> String {
    refused(place, |run, outer| {
        run.within_changed(outer, script);
    })
}

/// A session under a policy with something wrong about it; what it said.
#[track_caller]
fn refused(place: &Place, spoil: impl FnOnce(&mut Run, &Outer)) -> String {
    let outer = Outer::new();
    let mut listeners = outer.listen(&[PORT]);
    let list = place.flows(&[Flow::tcp(address::PUBLIC_V4, PORT)]);
    let ran = format!("echo RAN; {} net {}", world::bin("prober").display(), list.display());
    let mut run = outer.session(place, &open(), ["sh", "-c", &ran]);
    spoil(&mut run, &outer);
    let live = run.start();
    let pid = live.pid();
    let out = live.wait().expect(125);
    assert_eq!(out.text(), "", "the command ran: {}", out.errors());
    assert!(listeners.counts().is_empty());
    procs::gone(&procs::descendants(pid), 10);
    nothing_runs_for(place);
    assert!(procs::mounts_below(place.root()).is_empty());
    out.errors()
}

/// No process of anybody's names this place.
#[track_caller]
fn nothing_runs_for(place: &Place) {
    let left: Vec<procs::Proc> = procs::all()
        .into_iter()
        .filter(|p| {
            let line = std::fs::read(format!("/proc/{}/cmdline", p.pid)).unwrap_or_default();
            p.alive() && String::from_utf8_lossy(&line).contains(place.root().to_str().unwrap())
        })
        .collect();
    procs::gone(&left, 10);
}

/// A program in place of the link's; `$REAL` is the real one.
fn fake_link(place: &Place, body: &str) -> String {
    let [real, fake] = ["real-link", "fake-link"].map(|name| place.root().join(name));
    std::fs::copy(LINK, &real).unwrap();
    let text = format!("#!/bin/sh\nREAL={}\n{body}\n", real.display());
    std::fs::write(&fake, text).unwrap();
    std::fs::set_permissions(&fake, PermissionsExt::from_mode(0o755)).unwrap();
    format!("mount --bind {} {LINK}", fake.display())
}

#[track_caller]
fn says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
}

#[test]
fn root_takes_the_links_program_away_and_the_package_is_named() {
    let place = Place::new(World::USUAL);
    let scratch = place.root().join("scratch");
    let script = format!(
        "mkdir {0}; mount -t tmpfs none {0}; mkdir {0}/u {0}/w\n\
         mount -t overlay -o lowerdir=/usr/bin,upperdir={0}/u,workdir={0}/w none /usr/bin; rm {LINK}",
        scratch.display()
    );
    let said = refused_after(&place, &script);
    says(&said, &["slirp4netns", "install"]);
}

#[test]
fn root_puts_an_older_link_there_and_the_missing_flag_is_named() {
    let place = Place::new(World::USUAL);
    // The help of a version before the flags, and its way of refusing them.
    let body = "case \"$*\" in *--help*) echo '-c, --configure  -e, --exit-fd=FD  -r, --ready-fd=FD'; exit 0;; \
                *--version*) echo 'slirp4netns version 0.2.1'; exit 0;; esac\n\
                echo \"$0: unrecognized option '--disable-dns'\" >&2; exit 1";
    let said = refused_after(&place, &fake_link(&place, body));
    says(&said, &["/usr/bin/slirp4netns", "too old", "--mtu"]);
}

#[test]
fn root_puts_a_link_there_that_exits_at_once() {
    let place = Place::new(World::USUAL);
    let body = "case \"$*\" in *--help*) exec $REAL --help;; *--version*) exec $REAL --version;; esac\n\
                echo 'no such luck' >&2; exit 1";
    let said = refused_after(&place, &fake_link(&place, body));
    says(&said, &["slirp4netns", "no such luck"]);
}

#[test]
fn root_puts_a_link_there_that_never_says_it_is_ready() {
    let place = Place::new(World::USUAL);
    let body = "case \"$*\" in *--help*) exec $REAL --help;; *--version*) exec $REAL --version;; esac\n\
                exec sleep 600";
    let said = refused_after(&place, &fake_link(&place, body));
    says(&said, &["slirp4netns"]);
}

#[test]
fn root_puts_a_link_there_that_says_it_is_ready_and_is_not() {
    let place = Place::new(World::USUAL);
    let body = "case \"$*\" in *--help*) exec $REAL --help;; *--version*) exec $REAL --version;; esac\n\
                for word; do case $word in --ready-fd=*) fd=${word#*=};; -r) :;; esac; done\n\
                eval \"printf 1 >&$fd\"; exec sleep 600";
    let said = refused_after(&place, &fake_link(&place, body));
    says(&said, &["slirp4netns"]);
}

#[test]
fn root_puts_a_link_there_that_was_ready_and_is_gone() {
    let place = Place::new(World::USUAL);
    // The real one says that it is ready to a pipe of the script's, and has ended when the script passes that on.
    let body = "case \"$*\" in *--help*) exec $REAL --help;; *--version*) exec $REAL --version;; esac\n\
                exec bash -c 'for word; do case $word in --ready-fd=*) ready=${word#*=};; *) words+=(\"$word\");; esac; done\n\
                coproc LINK { exec '$REAL' --ready-fd=1 \"${words[@]}\"; }\n\
                read -rn1 <&${LINK[0]}; kill -9 $LINK_PID; wait $LINK_PID; printf 1 >&$ready; exit 0' fake \"$@\"";
    let said = refused_after(&place, &fake_link(&place, body));
    says(&said, &["slirp4netns"]);
}

#[test]
fn root_takes_the_tunnel_device_away_and_it_is_named_before_anything_is_made() {
    let place = Place::new(World::USUAL);
    let said = refused_after(&place, "mount -t tmpfs none /dev/net");
    says(&said, &["/dev/net/tun"]);
    assert!(place.sessions().is_empty());
}

#[test]
fn root_closes_the_tunnel_device_to_others_and_it_is_named() {
    let place = Place::new(World::USUAL);
    let said = refused_after(
        &place,
        "mount -t tmpfs none /dev/net; mknod /dev/net/tun c 10 200; chmod 0600 /dev/net/tun",
    );
    says(&said, &["/dev/net/tun"]);
    assert!(place.sessions().is_empty());
}

#[test]
fn root_takes_the_tunnel_device_away_and_a_session_without_a_network_starts() {
    let place = Place::new(World::USUAL);
    let outer = Outer::new();
    let mut run = place.session(["--network", "off"], ["echo", "ran"]);
    let out = run.within_changed(&outer, "mount -t tmpfs none /dev/net").output().ok();
    assert_eq!(out.text(), "ran\n");
}

/// What is said where the packet filter turns out not to hold the policy, with a hand of root's between helper and kernel.
#[track_caller]
fn refused_with(world: World, fault: &str) -> String {
    let place = Place::new(world);
    refused(&place, |run, outer| {
        run.within_meddled(outer, fault);
    })
}

#[test]
fn root_s_hand_alone_stops_no_session() {
    for world in [World::USUAL, World { who: Who::Root, ..World::USUAL }] {
        let (place, outer) = (Place::new(world), Outer::new());
        let mut run = outer.session(&place, &open(), ["echo", "ran"]);
        assert_eq!(run.within_meddled(&outer, "none").output().ok().text(), "ran\n");
    }
}

#[test]
fn root_keeps_the_rules_from_the_kernel_and_the_session_is_refused() {
    for world in [World::USUAL, World { who: Who::Root, ..World::USUAL }] {
        says(&refused_with(world, "nothing-loads"), &["other network rules than were loaded"]);
    }
}

#[test]
fn root_takes_a_part_of_the_packet_filter_away_and_its_modules_are_named() {
    says(&refused_with(World::USUAL, "part-missing"), &["modprobe nf_tables nft_reject_inet"]);
}

#[test]
fn root_adds_a_rule_before_the_rules_are_read_back_and_the_session_is_refused() {
    says(&refused_with(World::USUAL, "rule-before"), &["other network rules than were loaded"]);
}

#[test]
fn root_adds_a_rule_while_the_rules_are_read_back_and_the_session_is_refused() {
    says(&refused_with(World::USUAL, "rule-meanwhile"), &["changed while they were read back"]);
}

#[test]
fn root_cuts_the_list_of_rules_and_the_session_is_refused() {
    says(&refused_with(World::USUAL, "list-cut"), &["reading the network rules back"]);
}

#[test]
fn root_keeps_ipv6_from_the_link_and_the_session_is_refused() {
    for world in [World::USUAL, World { who: Who::Root, ..World::USUAL }] {
        says(&refused_with(world, "no-ipv6"), &["IPv6 address", "is IPv6 switched off?"]);
    }
}

#[test]
fn root_has_a_table_of_its_own_there_and_the_session_is_refused() {
    says(&refused_with(World::USUAL, "foreign-table"), &["reading the network rules back"]);
}

worlds! {
    [user_kernel, root_kernel]
    fn a_kernel_without_nf_tables_refuses_the_launch_and_says_so(world) {
        let place = Place::new(world);
        let outer = Outer::new();
        let policy = place.policy(&open());
        // The prober becomes the command with a filter that answers as a kernel without netfilter's netlink would.
        let mut run = place.landbox(["without", "nf-tables"]);
        run.args([world::bin("landbox")]);
        run.args(["run", "--overlay", "kernel", "--network"]).args([&policy]).args(["--", "echo", "RAN"]);
        let out = run.program(world::bin("prober")).within(&outer).output().expect(125);
        assert_eq!(out.text(), "");
        says(&out.errors(), &["nf_tables"]);
        nothing_runs_for(&place);
        assert!(procs::mounts_below(place.root()).is_empty());
    }

    [user_kernel, root_kernel]
    fn a_refused_launch_leaves_the_session_s_name_free(world) {
        let place = Place::new(world);
        let outer = Outer::new();
        let policy = place.policy(&open());
        let run = |program: &Path, words: &[&str]| {
            let mut run = place.landbox(words);
            run.args(["run", "--overlay", "kernel", "--name", "same", "--network"]).args([&policy]);
            run.args(["--", "echo", "ran"]).program(program).within(&outer).output()
        };
        let landbox = world::bin("landbox");
        run(&world::bin("prober"), &["without", "nf-tables", landbox.to_str().unwrap()]).expect(125);
        assert_eq!(run(&landbox, &[]).ok().text(), "ran\n");
    }
}
