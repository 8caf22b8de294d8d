//! Policies of the largest allowed size, and of the shapes that are hardest to say in sets.

use crate::policies::{self, Random};
use landbox_tests::net::{Answer, Flow, Outer, policy};
use landbox_tests::{Place, World, worlds};
use serde_json::{Value, json};

/// The last of the ports of [`all_ports`].
const LAST: u16 = 60_000;

/// As many ports as one rule may have, no two of them neighbours.
fn all_ports() -> Vec<u16> {
    (0..256).map(|n| LAST - 3 * n).collect()
}

fn hosts(name: impl Fn(u32) -> String) -> Value {
    let rules: Vec<Value> = (0..256)
        .map(|n| json!({"cidr": name(n), "protocol": "tcp", "ports": all_ports()}))
        .collect();
    json!({"mode": "allowlist", "rules": rules})
}

fn reached(answers: &[Answer]) -> Vec<bool> {
    answers.iter().map(Answer::reached).collect()
}

fn largest(world: World, public: Value, private: Value, tried: &[(Flow, bool)]) {
    let outer = Outer::new();
    let _listeners = outer.listen(&[LAST, LAST - 1, LAST - 3 * 255]);
    let place = Place::new(world);
    let flows: Vec<Flow> = tried.iter().map(|(flow, _)| *flow).collect();
    let answers = outer.probe(&place, &policy(public, private), &flows);
    let wanted: Vec<bool> = tried.iter().map(|(_, works)| *works).collect();
    assert_eq!(reached(&answers), wanted, "{answers:?}");
}

worlds! {
    [user_kernel, root_kernel]
    fn the_largest_lists_of_ipv4_hosts_and_ports_load_and_hold(world) {
        let (public, private) =
            (hosts(|n| format!("93.184.216.{n}")), hosts(|n| format!("10.77.{n}.1")));
        let lowest = LAST - 3 * 255;
        largest(world, public, private, &[
            (Flow::tcp("93.184.216.0", LAST), true),
            (Flow::tcp("93.184.216.255", lowest), true),
            (Flow::tcp("10.77.255.1", LAST), true),
            (Flow::tcp("10.77.0.1", lowest).mapped(), true),
            (Flow::tcp("93.184.216.9", LAST - 1), false),
            (Flow::udp("93.184.216.9", LAST), false),
            (Flow::tcp("93.184.217.0", LAST), false),
            (Flow::tcp("10.77.255.2", LAST), false),
        ]);
    }

    [user_kernel, root_kernel]
    fn the_largest_lists_of_ipv6_hosts_and_ports_load_and_hold(world) {
        let (public, private) =
            (hosts(|n| format!("2606:4700::{n:x}")), hosts(|n| format!("fd55:{n:x}::1")));
        largest(world, public, private, &[
            (Flow::tcp("2606:4700::", LAST), true),
            (Flow::tcp("2606:4700::ff", LAST - 3 * 255), true),
            (Flow::tcp("fd55:ff::1", LAST), true),
            (Flow::tcp("fd55:0::1", LAST), true),
            (Flow::tcp("2606:4700::100", LAST), false),
            (Flow::tcp("fd55:ff::2", LAST), false),
            (Flow::tcp("fd55:ff::1", LAST - 1), false),
        ]);
    }

    [user_kernel]
    fn prefixes_inside_prefixes_at_every_length_load_and_hold(world) {
        // Each is inside the one before and has a port of its own: the worst case for sets that can't overlap.
        let ports = all_ports();
        let nested = |prefix: &dyn Fn(usize) -> String, count: usize| -> Vec<Value> {
            (0..count)
                .map(|n| json!({"cidr": prefix(n), "protocol": "tcp", "ports": [ports[n]]}))
                .collect()
        };
        let private = nested(&|n| format!("10.77.255.129/{}", n + 8), 25);
        let public = nested(&|n| format!("2606:4700::1/{}", n + 8), 121);
        largest(
            world,
            json!({"mode": "allowlist", "rules": public}),
            json!({"mode": "allowlist", "rules": private}),
            &[
                (Flow::tcp("10.0.0.1", LAST), true),
                (Flow::tcp("10.77.255.129", LAST), true),
                (Flow::tcp("11.0.0.1", LAST), false),
                (Flow::tcp("10.77.255.129", LAST - 1), false),
                (Flow::tcp("2600::1", LAST), true),
                (Flow::tcp("2606:4700::1", LAST), true),
                (Flow::tcp("2700::1", LAST), false),
            ],
        );
    }

    [user_kernel]
    fn random_policies_of_the_largest_number_of_rules_load(world) {
        let outer = Outer::new();
        let _listeners = outer.listen(&policies::PORTS);
        let place = Place::new(world);
        for seed in 0..4 {
            let mut random = Random::new(1_000 + seed);
            let policy = policies::largest(&mut random);
            let flows = policies::flows(&mut random, &policy, 40);
            let answers = outer.probe(&place, &policies::text(&policy), &flows);
            let differ = crate::evaluator::differences(&policy, &flows, &answers);
            assert!(differ.is_empty(), "seed {seed}: {differ:#?}");
        }
    }
}
