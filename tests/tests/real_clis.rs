//! Real coding CLIs take turns inside a session against a scripted model server on loopback: a turn and its resumption,
//! through pipes and on a terminal. What they write is in the changeset, not in the project, and lands.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::clis::{Server, Turn};
use landbox_tests::{Place, World, worlds};
use serde_json::Value;
use std::fs;
use std::path::Path;

const MADE: &str = "made-by-agent.txt";
const DOOMED: &str = "doomed.txt";

/// What the model has the CLI's shell do.
fn shell() -> String {
    format!(
        "pwd && echo HELLO >> {MADE} && {{ test ! -e {DOOMED} || rm {DOOMED}; }} \
         && cat {MADE} && sleep 0.3"
    )
}

/// Changes of session `name` as (path, kind).
fn changes(place: &Place, name: &str) -> Vec<(String, String)> {
    let card = place.json(["diff", name]);
    let text = |v: &Value, key: &str| v[key].as_str().unwrap_or_default().to_owned();
    let mut found: Vec<_> = card["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (text(c, "path"), text(c, "kind")))
        .collect();
    found.sort();
    found
}

fn hellos(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().matches("HELLO").count()
}

/// A turn, its resumption and the landing of both.
fn whole_story(world: World, cli: &str, terminal: bool) {
    let place = Place::new(world);
    let server = Server::start(&place, &shell());
    place.write(place.project.join(DOOMED), "x\n");
    let name = format!("{cli}-{}", if terminal { "terminal" } else { "pipes" });
    let first = ["-q", "run", "--overlay", world.overlay_name(), "--name", &name, "--"];
    let turn = Turn { cli, terminal, resume: false, outer: None };
    turn.take(&place, &server, &first);
    let project = place.project.display().to_string();
    let results = server.results();
    assert!(
        results.iter().any(|r| r.contains(&project) && r.contains("HELLO")),
        "{cli}: the shell call's result is not there: {results:?}"
    );
    // Nothing real has changed; the layer has the change.
    assert!(!place.project.join(MADE).exists() && place.project.join(DOOMED).exists());
    let expected =
        [(DOOMED.to_owned(), "deleted".to_owned()), (MADE.to_owned(), "added".to_owned())];
    assert_eq!(changes(&place, &name), expected);

    Turn { resume: true, ..turn }.take(&place, &server, &["-q", "resume", &name, "--"]);
    assert!(!place.project.join(MADE).exists() && place.project.join(DOOMED).exists());
    assert_eq!(changes(&place, &name), expected);

    place.landbox(["land", &name, "--apply", "--yes"]).risks_accepted().output().ok();
    assert_eq!(hellos(&place.project.join(MADE)), 2, "both turns landed");
    assert!(!place.project.join(DOOMED).exists());
}

macro_rules! stories {
    ($($cli:ident),+) => {
        $(
            mod $cli {
                use super::*;

                worlds! {
                    [user_kernel, user_fuse, root_kernel]
                    fn takes_a_turn_resumes_and_lands(world) {
                        whole_story(world, stringify!($cli), false);
                    }

                    [user_kernel, root_kernel]
                    fn takes_a_turn_on_a_terminal_resumes_and_lands(world) {
                        whole_story(world, stringify!($cli), true);
                    }
                }
            }
        )+
    };
}

stories!(codex, claude, opencode, gemini);

// What a CLI does to the overlay differs little from one user to the other: one of them stands for all.
worlds! {
    [root_fuse]
    fn claude_takes_a_turn_resumes_and_lands(world) {
        whole_story(world, "claude", false);
    }

    [user_fuse, root_fuse]
    fn codex_takes_a_turn_on_a_terminal_resumes_and_lands(world) {
        whole_story(world, "codex", true);
    }

    [user_fuse]
    fn opencode_takes_a_turn_on_a_terminal_resumes_and_lands(world) {
        whole_story(world, "opencode", true);
    }
}
