//! The real CLIs work under a policy that allows the model's address and port alone, and reach nothing else.

use landbox_tests::clis::{Server, Turn};
use landbox_tests::net::{Outer, address, policy};
use landbox_tests::{Place, World, worlds};
use serde_json::json;
use std::fs;

const MODEL: u16 = 18080;
/// Another listener: on the model's own address, and on a private one.
const OTHER: u16 = 18087;

/// Writes a file, then tries to get out; the last line says how that went.
fn shell() -> String {
    let out = |address| format!("(exec 3<>/dev/tcp/{address}/{OTHER}) 2>/dev/null && echo LEAKED");
    let (same, private) = (out(address::PUBLIC_V4), out(address::PRIVATE_V4));
    format!("echo HELLO >> made.txt; {same}; {private}; cat made.txt && sleep 0.3")
}

fn one_turn(world: World, cli: &str, terminal: bool) {
    let outer = Outer::new();
    let place = Place::new(world);
    let mut others = outer.listen(&[OTHER]);
    let server = Server::start_within(&outer, &place, &shell(), address::PUBLIC_V4, MODEL);
    let rule = json!({"cidr": address::PUBLIC_V4, "protocol": "tcp", "ports": [MODEL]});
    let public = json!({"mode": "allowlist", "rules": [rule]});
    let mut rules = policy(public, json!({"mode": "block"}));
    // The fixture sends what codex's screen asks of a public host to the model server, as a proxy.
    rules["proxyMode"] = json!("trusted-egress");
    let file = place.policy(&rules);
    let wrapper =
        ["-q", "run", "--overlay", world.overlay_name(), "--network", file.to_str().unwrap(), "--"];
    let turn = Turn { cli, terminal, resume: false, outer: Some(&outer) };
    turn.take(&place, &server, &wrapper);
    let results = server.results();
    assert!(results.iter().any(|r| r.contains("HELLO")), "{cli}: {results:?}");
    assert!(!results.iter().any(|r| r.contains("LEAKED")), "{cli}: {results:?}");
    assert!(others.counts().is_empty(), "{cli}: {:?}", others.counts());
    assert!(fs::symlink_metadata(place.project.join("made.txt")).is_err());
}

macro_rules! turns {
    ($($cli:ident),+) => {
        $(
            mod $cli {
                use super::*;

                worlds! {
                    [user_kernel, root_kernel]
                    fn takes_a_turn_with_the_models_address_alone(world) {
                        one_turn(world, stringify!($cli), false);
                    }

                    [user_kernel]
                    fn takes_a_turn_on_a_terminal_with_the_models_address_alone(world) {
                        one_turn(world, stringify!($cli), true);
                    }
                }
            }
        )+
    };
}

turns!(codex, claude, opencode, gemini);
