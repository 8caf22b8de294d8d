//! A task that floods from its first instruction to its last never gets a packet past the rules, whatever dies meanwhile.

use landbox_tests::net::{Flow, Listeners, Outer, PORT, address, policy};
use landbox_tests::procs::{self, Proc};
use landbox_tests::run::Live;
use landbox_tests::{Place, World, world, worlds};
use rustix::process::Signal;
use serde_json::{Value, json};

const ALLOWED: [&str; 2] = [address::PUBLIC_V4, address::PUBLIC_V6];
/// Refused under a policy that allows what is public: private addresses, and every name of the host's loopback.
const REFUSED: [&str; 10] = [
    address::PRIVATE_V4,
    address::PRIVATE_V6,
    address::GATEWAY,
    address::FORWARDER,
    address::ROUTER_V6,
    "127.0.0.1",
    "127.0.0.53",
    "::1",
    "::7f00:1",
    "169.254.169.254",
];

fn public_alone() -> Value {
    policy(json!({"mode": "allow"}), json!({"mode": "block"}))
}

fn everything() -> Vec<Flow> {
    let to = |address| [Flow::tcp(address, PORT), Flow::udp(address, PORT)];
    let refused = REFUSED.into_iter().flat_map(to).map(Flow::bound);
    let plain = [address::PRIVATE_V4, address::PRIVATE_V6, address::GATEWAY];
    let plain = plain.into_iter().flat_map(to);
    let mapped = to(address::PRIVATE_V4).map(Flow::mapped);
    ALLOWED.into_iter().flat_map(to).chain(refused).chain(plain).chain(mapped).collect()
}

/// Nothing but what the policy allows has arrived.
#[track_caller]
fn only_what_is_allowed(listeners: &mut Listeners) {
    let counts = listeners.counts();
    let past: Vec<_> =
        counts.iter().filter(|(name, _)| !ALLOWED.iter().any(|a| name.contains(a))).collect();
    assert!(past.is_empty(), "past the rules: {past:?}");
}

/// A session that floods, and its processes once something it may reach was reached.
fn flooding(outer: &Outer, place: &Place, listeners: &mut Listeners) -> (Live, Vec<Proc>) {
    let list = place.flows(&everything());
    let prober = world::bin("prober");
    let command = [prober.as_os_str(), "flood".as_ref(), list.as_os_str()];
    let mut live = outer.session(place, &public_alone(), command).start();
    live.expect("flooding");
    for flow in [Flow::tcp(ALLOWED[0], PORT), Flow::udp(ALLOWED[1], PORT)] {
        listeners.wait_for(&flow);
    }
    let tree = procs::descendants(live.pid());
    (live, tree)
}

/// The processes of the session that are neither the link nor the task, in order of their start.
fn keepers(tree: &[Proc]) -> Vec<&Proc> {
    let others = ["prober", "slirp4netns", "fuse-overlayfs"];
    tree.iter().filter(|p| !others.iter().any(|name| p.name.starts_with(name))).collect()
}

fn ended_by(world: World, victim: impl Fn(&Live, &[Proc]) -> i32) -> String {
    let outer = Outer::new();
    let mut listeners = outer.listen(&[PORT]);
    let place = Place::new(world);
    let mut said = String::new();
    // Where in a round the end falls is chance: some rounds.
    for _ in 0..4 {
        let (live, tree) = flooding(&outer, &place, &mut listeners);
        procs::kill(victim(&live, &tree), Signal::KILL);
        let out = live.wait();
        assert!([125, 1009].contains(&out.code()), "{}: {}", out.code(), out.errors());
        procs::gone(&tree, 10);
        assert!(procs::mounts_below(place.root()).is_empty());
        only_what_is_allowed(&mut listeners);
        said = out.errors();
    }
    said
}

fn link(tree: &[Proc]) -> i32 {
    let found = tree.iter().find(|p| p.name.starts_with("slirp4netns"));
    found.unwrap_or_else(|| panic!("no link among {tree:#?}")).pid
}

worlds! {
    [user_kernel, root_kernel]
    fn nothing_passes_while_the_link_is_killed_and_the_cause_is_named(world) {
        let said = ended_by(world, |_, tree| link(tree));
        assert!(said.contains("network forwarder exited"), "{said}");
    }

    [user_kernel, root_kernel]
    fn nothing_passes_while_the_monitor_is_killed(world) {
        ended_by(world, |_, tree| keepers(tree)[0].pid);
    }

    [user_kernel]
    fn nothing_passes_while_any_other_keeper_is_killed(world) {
        ended_by(world, |_, tree| keepers(tree).last().unwrap().pid);
    }

    [user_kernel, root_kernel]
    fn nothing_passes_while_the_controller_is_killed(world) {
        ended_by(world, |live, _| live.pid());
    }

    [user_kernel, root_kernel]
    fn nothing_passes_at_the_beginning_of_any_of_many_starts(world) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let list = place.flows(&everything());
        let prober = world::bin("prober");
        for _ in 0..10 {
            let command = [prober.as_os_str(), "flood".as_ref(), list.as_os_str()];
            let mut live = outer.session(&place, &public_alone(), command).start();
            live.expect("flooding");
            let tree = procs::descendants(live.pid());
            procs::kill(live.pid(), Signal::TERM);
            live.wait();
            procs::gone(&tree, 10);
            only_what_is_allowed(&mut listeners);
        }
    }

    [user_kernel]
    fn a_flood_that_uses_up_the_links_ports_harms_no_other_session(world) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let (live, tree) = flooding(&outer, &place, &mut listeners);
        let other = Place::new(world);
        let answers = outer.probe(&other, &public_alone(), &[Flow::tcp(ALLOWED[0], PORT)]);
        assert!(answers[0].reached(), "{answers:?}");
        procs::kill(live.pid(), Signal::TERM);
        live.wait();
        procs::gone(&tree, 10);
    }
}
