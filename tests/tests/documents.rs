//! What scripts rely on: one document a command, errors as documents, exit codes.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::Place;
use landbox_tests::world::World;
use serde_json::Value;

/// The keys of an object, sorted.
fn keys(value: &Value) -> Vec<String> {
    let mut keys: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
    keys.sort();
    keys
}

fn error(place: &Place, args: &[&str], code: i32, kind: &str) -> Value {
    let out = place.landbox(args).output().expect(code);
    assert!(out.stdout.is_empty(), "{args:?}: {}", out.text());
    let document: Value = serde_json::from_slice(&out.stderr)
        .unwrap_or_else(|e| panic!("{args:?}: {e}: {}", out.errors()));
    assert_eq!(keys(&document), ["error"]);
    assert_eq!(keys(&document["error"]), ["hints", "kind", "message", "warnings"]);
    assert_eq!(document["error"]["kind"], kind, "{document}");
    assert!(!document["error"]["message"].as_str().unwrap().is_empty());
    document
}

#[test]
fn every_error_is_a_document_where_documents_are_asked_for() {
    let place = Place::new(World::USUAL);
    place.session(["--name", "s"], ["sh", "-c", "echo x > new"]).output().ok();
    let zeros = format!("sha256:{}", "0".repeat(64));
    for (args, code, kind) in [
        (&["land", "--json", "--bogus"][..], 2, "usage"),
        (&["--json"], 2, "usage"),
        (&["bogus", "--json"], 2, "usage"),
        (&["land", "--apply", "--patch", "x", "--json"], 2, "usage"),
        (&["show", "nothing", "--json"], 2, "usage"),
        (&["diff", "--json", "--layer", "nothing"], 2, "usage"),
        (&["diff", "--json", "--", "../x"], 2, "usage"),
        (&["land", "--json", "--apply"], 2, "usage"),
        (&["land", "--json", "--patch", "-"], 2, "usage"),
        (&["land", "--json", "--expect", "x"], 2, "usage"),
        (&["land", "--json", "--apply", "--expect", &zeros], 6, "refused"),
        (&["land", "--json", "--patch", "/nowhere/x"], 1, "failed"),
        (&["discard", "s", "--json"], 2, "usage"),
        (&["run", "--json", "--", "true"], 125, "usage"),
        (&["run", "--json", "--bogus", "--", "true"], 125, "usage"),
        (&["resume", "s", "--json", "--", "true"], 125, "usage"),
        (&["send", "--json"], 6, "refused"),
    ] {
        error(&place, args, code, kind);
    }
    place.landbox(["land", "--apply", "--yes"]).output().ok();
    error(&place, &["land", "--json"], 4, "nothing");
    // What follows -- is the command's.
    let out = place.session::<&str, _>([], ["echo", "--json"]).output().ok();
    assert_eq!(out.text(), "--json\n");
}

#[test]
fn what_was_warned_of_is_part_of_the_document_of_a_failure() {
    let place = Place::new(World::USUAL);
    place.session(["--name", "s"], ["sh", "-c", "echo x > new; echo y > other"]).output().ok();
    let landings = place.state().join("landings");
    place.sh("true").output().ok();
    std::fs::create_dir_all(&landings).unwrap();
    place.write(landings.join("0.json"), "no journal");
    let document = error(&place, &["show", "nothing", "--json"], 2, "usage");
    let warnings = document["error"]["warnings"].as_array().unwrap();
    assert!(warnings.iter().any(|line| line.as_str().unwrap().contains("journal")), "{document}");
    // Of a command that succeeds they are for people.
    let out = place.landbox(["show", "s", "--json"]).output().ok();
    let _: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(out.errors().starts_with("landbox: warning: "), "{}", out.errors());
}

#[test]
fn help_lists_json_only_where_it_can_be_had() {
    let place = landbox_tests::Place::new(landbox_tests::World::USUAL);
    for command in ["run", "resume"] {
        assert!(
            !place.landbox([command, "--help"]).output().ok().text().contains("--json"),
            "{command}"
        );
        let out = place.landbox([command, "--json", "x"]).output().expect(125);
        assert!(
            out.errors().contains("stdout belongs to the command"),
            "{command}: {}",
            out.errors()
        );
    }
    assert!(place.landbox(["land", "--help"]).output().ok().text().contains("--json"));
}

#[test]
fn nobody_is_asked_where_a_document_is_wanted() {
    let place = Place::new(World::USUAL);
    place.session(["--name", "s"], ["sh", "-c", "echo x > new"]).output().ok();
    place.landbox(["checkpoint", "s"]).output().ok();
    for (args, hint) in [
        (&["discard", "s"][..], "--yes does it"),
        (&["rewind", "s", "1"], " 1 --yes"),
        (&["land", "s", "--apply"], "--expect sha256:"),
    ] {
        let mut terminal = place.landbox(args).args(["--json"]).terminal(200, 24);
        assert_eq!(terminal.wait(), 2, "{args:?}");
        let shown = terminal.shown();
        assert!(shown.contains("nobody is asked") && shown.contains(hint), "{args:?}: {shown}");
    }
}

#[test]
fn where_the_newest_session_has_nothing_to_land_the_ones_that_have_are_named() {
    let place = Place::new(World::USUAL);
    place.session(["--name", "s"], ["sh", "-c", "echo x > new"]).output().ok();
    let id = place.json(["show"])["id"].as_str().unwrap().to_owned();
    place.sh("true").output().ok();
    let out = place.landbox(["land"]).output().expect(4);
    assert!(out.errors().contains(&format!("landbox land {id}")), "{}", out.errors());
    place.landbox(["discard", "s", "--yes"]).output().ok();
    assert!(!place.landbox(["land"]).output().expect(4).errors().contains(&id));
}
