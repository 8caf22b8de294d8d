//! A task that floods from its first instruction to its last never gets a packet past the rules, whatever dies meanwhile.

use landbox_tests::net::{Flow, Listeners, Outer, PORT, address, policy};
use landbox_tests::procs::{self, Proc};
use landbox_tests::seat::{Said, Seated};
use landbox_tests::{Place, Seat, seats, world, worlds};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{sleep, spawn};
use std::time::Duration;

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
fn flooding(
    seat: Seat,
    outer: &Outer,
    place: &Place,
    listeners: &mut Listeners,
) -> (Seated, Vec<Proc>) {
    let list = place.flows(&everything());
    let prober = world::bin("prober");
    let words = [prober.as_os_str(), "flood".as_ref(), list.as_os_str(), CLOCK.as_ref()];
    let mut live = seat.start(&mut outer.session(place, &public_alone(), words));
    live.expect("flooding");
    for flow in [Flow::tcp(ALLOWED[0], PORT), Flow::udp(ALLOWED[1], PORT)] {
        listeners.wait_for(&flow);
    }
    let tree = procs::descendants(live.pid());
    (live, tree)
}

/// The file of the project in which the task writes the time.
const CLOCK: &str = "clock";

/// When the task of the one session of this place was last alive.
fn last_instant(place: &Place) -> Duration {
    let layers = place.sessions().into_iter().map(|session| session.join("layers"));
    let clocks: Vec<PathBuf> = layers
        .flat_map(|layers| fs::read_dir(layers).unwrap())
        .map(|layer| layer.unwrap().path().join("upper").join(CLOCK))
        .filter(|clock| clock.exists())
        .collect();
    let [clock] = &clocks[..] else { panic!("not one clock: {clocks:?}") };
    Duration::from_nanos(fs::read_to_string(clock).unwrap().parse().unwrap())
}

/// What the end of one of its keepers may leave the task at most.
const SECOND: Duration = Duration::from_secs(1);

/// For how long, while `what` was done, this machine let a thread wait that had nothing to do but to look at the clock: so
/// long and longer it lets others wait, too.
fn stalled_during<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&over);
    let watch = spawn(move || {
        let (mut stalled, mut before) = (Duration::ZERO, procs::now());
        while !seen.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(1));
            let now = procs::now();
            stalled += (now - before).saturating_sub(Duration::from_millis(2));
            before = now;
        }
        stalled
    });
    let done = what();
    over.store(true, Ordering::SeqCst);
    (done, watch.join().unwrap())
}

/// The processes of the session that are neither the link nor the task nor the command, in order of their start.
fn keepers(tree: &[Proc]) -> Vec<&Proc> {
    let others = ["prober", "slirp4netns", "fuse-overlayfs", "landbox"];
    tree.iter().filter(|p| !others.contains(&&*p.name)).collect()
}

fn link(tree: &[Proc]) -> i32 {
    let found = tree.iter().find(|p| p.name == "slirp4netns");
    found.unwrap_or_else(|| panic!("no link among {tree:#?}")).pid
}

/// Kills one of those that keep a flooding session, some times: where in a round of the flood it falls is chance. Nothing
/// that is refused arrives before or after, the task has no instant a second later, and nothing is left.
fn ended_by(seat: Seat, victim: impl Fn(&Seated, &[Proc]) -> i32) -> (Said, Value) {
    let outer = Outer::new();
    let mut listeners = outer.listen(&[PORT]);
    let mut last = None;
    for _ in 0..4 {
        let place = Place::new(seat.world);
        let (live, tree) = flooding(seat, &outer, &place, &mut listeners);
        let victim = victim(&live, &tree);
        let killed = procs::now();
        let (said, stalled) = stalled_during(|| {
            procs::kill(victim, Signal::KILL);
            let said = live.wait();
            procs::gone(&tree, 10);
            said
        });
        assert!([125, 1009].contains(&said.code), "{}: {}", said.code, said.errors);
        let lived = last_instant(&place).saturating_sub(killed);
        assert!(lived < SECOND + 4 * stalled, "{lived:?} after the kill, {stalled:?} stalled");
        assert!(procs::mounts_below(place.root()).is_empty());
        only_what_is_allowed(&mut listeners);
        let kept = place.json(["show"]);
        assert!(["failed", "exited"].contains(&kept["state"].as_str().unwrap()), "{kept:#}");
        last = Some((said, kept["failure"]["message"].clone()));
    }
    last.unwrap()
}

seats! {
    fn nothing_passes_while_the_link_is_killed_and_the_cause_is_named(seat) {
        let (said, kept) = ended_by(seat, |_, tree| link(tree));
        assert_eq!((said.code, kept.as_str()), (125, Some("network forwarder exited")));
        assert!(said.errors.contains("network forwarder exited"), "{}", said.errors);
    }

    fn nothing_passes_while_the_monitor_is_killed(seat) {
        ended_by(seat, |_, tree| keepers(tree)[0].pid).0.expect(125);
    }

    fn nothing_passes_while_any_other_keeper_is_killed(seat) {
        ended_by(seat, |_, tree| keepers(tree).last().unwrap().pid).0.expect(125);
    }

    fn nothing_passes_while_the_controller_is_killed(seat) {
        ended_by(seat, |live, _| live.pid()).0.expect(1009);
    }

    fn nothing_passes_at_the_beginning_of_any_of_many_starts(seat) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[PORT]);
        let place = Place::new(seat.world);
        let list = place.flows(&everything());
        let prober = world::bin("prober");
        for _ in 0..10 {
            let command = [prober.as_os_str(), "flood".as_ref(), list.as_os_str()];
            let mut live = seat.start(&mut outer.session(&place, &public_alone(), command));
            live.expect("flooding");
            let tree = procs::descendants(live.pid());
            procs::kill(live.pid(), Signal::TERM);
            live.wait();
            procs::gone(&tree, 10);
            only_what_is_allowed(&mut listeners);
        }
    }
}

worlds! {
    [user_kernel]
    fn a_flood_that_uses_up_the_links_ports_harms_no_other_session(world) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[PORT]);
        let place = Place::new(world);
        let seat = Seat { world, terminal: false };
        let (live, tree) = flooding(seat, &outer, &place, &mut listeners);
        let other = Place::new(world);
        let answers = outer.probe(&other, &public_alone(), &[Flow::tcp(ALLOWED[0], PORT)]);
        assert!(answers[0].reached(), "{answers:?}");
        procs::kill(live.pid(), Signal::TERM);
        live.wait();
        procs::gone(&tree, 10);
    }
}
