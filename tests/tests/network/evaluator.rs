//! The kernel is held to the reference evaluator: random policies, random destinations on their edges, and every answer
//! is what `verdict` says.
//!
//! `LANDBOX_TEST_SEEDS=FIRST..LAST` tries other seeds than the fixed ones.

use crate::policies::{self, PORTS, Random};
use landbox_shared::network::verdict::{By, Decision, Flow as Sent, Way, verdict_by};
use landbox_shared::network::{NetworkPolicy, Protocol};
use landbox_tests::net::{Answer, Flow, Outer, Transport};
use landbox_tests::{Place, World, worlds};
use std::collections::BTreeSet;
use std::ops::Range;

/// Sessions, each with a policy of its own, for each kind of user: together 10,240 destinations.
const SEEDS: u64 = 32;
const FLOWS: usize = 160;

fn seeds(fixed: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("LANDBOX_TEST_SEEDS") else { return fixed };
    let (first, last) = text.split_once("..").unwrap();
    first.parse().unwrap()..last.parse().unwrap()
}

/// Whether the reference lets it through, and by what.
fn reference(policy: &NetworkPolicy, flow: &Flow) -> (By, bool) {
    let protocol = match flow.transport {
        Transport::Tcp => Protocol::Tcp,
        Transport::Udp => Protocol::Udp,
    };
    let way = if flow.bound { Way::Link } else { Way::Routed };
    let verdict = verdict_by(policy, flow.address, Sent::To(protocol, flow.port), way);
    (verdict.by, verdict.decision == Decision::Allowed)
}

/// What the answer should be; `None` where it is.
fn wrong(policy: &NetworkPolicy, flow: &Flow, answer: &Answer) -> Option<String> {
    let (by, allowed) = reference(policy, flow);
    // A refusal is immediate and has one error number for each protocol.
    let refusal = match flow.transport {
        Transport::Tcp => libc::ECONNREFUSED,
        Transport::Udp => libc::EPERM,
    };
    let right = match (by, allowed) {
        (By::Loopback, true) => answer.said.starts_with("inner"),
        (_, true) => answer.said == format!("outer {} {}", flow.address, flow.port),
        (_, false) => answer.errno == refusal,
    };
    let wanted = if allowed { "allowed" } else { "denied" };
    (!right).then(|| format!("{flow}: {wanted} by {by:?}, but {answer:?}"))
}

/// Where the answers are not what the reference says.
pub(crate) fn differences(
    policy: &NetworkPolicy,
    flows: &[Flow],
    answers: &[Answer],
) -> Vec<String> {
    flows.iter().zip(answers).filter_map(|(flow, answer)| wrong(policy, flow, answer)).collect()
}

fn hold(outer: &Outer, place: &Place, seed: u64) -> Vec<String> {
    let mut random = Random::new(seed);
    let policy = policies::policy(&mut random);
    let flows = policies::flows(&mut random, &policy, FLOWS);
    let mut listeners = outer.listen(&PORTS);
    let answers = outer.probe(place, &policies::text(&policy), &flows);
    let mut found = differences(&policy, &flows, &answers);
    // And the listeners saw what was let through, no less and no more.
    let let_out = |flow: &&Flow| {
        matches!(reference(&policy, flow), (By::Zone | By::Dns | By::Alias | By::Neighbour, true))
    };
    let expected: BTreeSet<String> = flows.iter().filter(let_out).map(Flow::name).collect();
    let counted: BTreeSet<String> = listeners.counts().into_keys().collect();
    found.extend(counted.difference(&expected).map(|name| format!("{name} arrived outside")));
    found.extend(expected.difference(&counted).map(|name| format!("{name} never arrived")));
    found.iter().map(|text| format!("seed {seed}: {text}")).collect()
}

#[allow(clippy::disallowed_macros)] // the test's own words, shown where it fails
fn hold_all(world: World, seeds: Range<u64>) {
    println!("seeds {seeds:?}, {FLOWS} destinations each");
    let outer = Outer::new();
    let place = Place::new(world);
    let found: Vec<String> = seeds.flat_map(|seed| hold(&outer, &place, seed)).collect();
    assert!(found.is_empty(), "{} differ:\n{}", found.len(), found.join("\n"));
}

worlds! {
    [user_kernel]
    fn the_kernel_does_what_the_evaluator_says_for_an_ordinary_user(world) {
        hold_all(world, seeds(0..SEEDS));
    }

    [root_kernel]
    fn the_kernel_does_what_the_evaluator_says_for_root(world) {
        hold_all(world, seeds(SEEDS..2 * SEEDS));
    }
}
