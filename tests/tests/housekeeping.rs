//! What is kept and what goes: sessions listed, looked through, and removed when they are old.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::Place;
use landbox_tests::world::World;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A session of that name that wrote one file of two lines, and its folder.
fn made(place: &Place, name: &str) -> PathBuf {
    place.session(["--name", name], ["sh", "-c", "printf 'a\\nb\\n' > made"]).output().ok();
    let id = place.json(["show", name])["id"].as_str().unwrap().to_owned();
    place.state().join("sessions").join(id)
}

/// Every time that a document of the session holds, so many days earlier.
fn aged(session: &std::path::Path, days: i64) {
    for name in ["snapshot.json", "state.json"] {
        let path = session.join(name);
        let mut document: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        backdate(&mut document, days);
        // As if it were from before there was one: it would no longer fit.
        document.as_object_mut().unwrap().remove("digest");
        let mode = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, serde_json::to_vec_pretty(&document).unwrap()).unwrap();
        fs::set_permissions(&path, mode).unwrap();
    }
}

fn backdate(value: &mut Value, days: i64) {
    match value {
        Value::Object(map) => map.iter_mut().for_each(|(key, value)| {
            if key.ends_with("_at") && value.is_string() {
                *value = Value::from(earlier(value.as_str().unwrap(), days));
            } else {
                backdate(value, days);
            }
        }),
        Value::Array(all) => all.iter_mut().for_each(|value| backdate(value, days)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn earlier(time: &str, days: i64) -> String {
    let date = std::process::Command::new("date")
        .args(["-u", "-d", &format!("{time} - {days} days"), "+%Y-%m-%dT%H:%M:%SZ"])
        .output()
        .unwrap();
    assert!(date.status.success(), "{time}");
    String::from_utf8(date.stdout).unwrap().trim().to_owned()
}

#[test]
fn old_sessions_go_when_asked_for_after_they_were_listed_and_no_younger_one() {
    let place = Place::new(World::USUAL);
    let [old, younger, young] = ["old", "younger", "young"].map(|name| made(&place, name));
    aged(&old, 31);
    aged(&younger, 29);
    let id = old.file_name().unwrap().to_str().unwrap().to_owned();
    // Neither unasked nor as a rehearsal.
    place.landbox(["gc"]).output().ok();
    let out = place.landbox(["gc", "--expired", "--dry-run", "-q"]).output().ok();
    assert!(out.text().starts_with(&format!("would remove {id} (expired)")), "{}", out.text());
    assert_eq!(out.errors(), "");
    assert_eq!(place.sessions().len(), 3);

    let mut run = place.landbox(["resume", "old", "--", "sh", "-c", "echo ready; read go"]);
    let mut live = run.stdin_open().start();
    live.expect("ready");
    place.landbox(["gc", "--expired"]).output().ok();
    assert!(old.join("layers/project/upper/made").exists(), "a session that runs is not old");
    live.write(b"\n");
    live.wait().ok();
    place.landbox(["gc", "--expired"]).output().ok();
    assert!(old.exists(), "it ran a moment ago");

    aged(&old, 31);
    let out = place.landbox(["gc", "--expired", "--json"]).output().ok();
    let report: Value = out.json();
    assert_eq!(report["removed"].as_array().unwrap().len(), 1, "{report:#}");
    assert_eq!(
        (&report["removed"][0]["id"], &report["removed"][0]["reason"]),
        (&id.into(), &"expired".into())
    );
    assert!(report["removed"][0]["bytes"].as_u64().unwrap() > 0, "{report:#}");
    let mut left = place.sessions();
    let mut expected = [younger, young];
    left.sort();
    expected.sort();
    assert_eq!(left, expected);
    assert_eq!(place.changes(), [("made".to_owned(), "added".to_owned())]);
}

#[test]
fn a_scan_of_the_list_counts_what_a_running_session_has_written_so_far() {
    let place = Place::new(World::USUAL);
    let script = "printf 'a\\nb\\n' > made; rm src/main.py; echo ready; read go; printf 'c\\n' >> made; echo more; read go";
    let mut live = place.session(["--name", "s"], ["sh", "-c", script]).stdin_open().start();
    live.expect("ready");
    let listed = |args: &[&str]| place.json(args)["sessions"][0].clone();
    assert_eq!(listed(&["ls"])["changes"], Value::Null);
    let counted = |added: u64, deleted: u64| serde_json::json!({"files": 2, "added": added, "deleted": deleted});
    let first = listed(&["ls", "--scan"]);
    assert_eq!(
        (&first["state"], &first["changes"]),
        (&"running".into(), &counted(2, 1)),
        "{first:#}"
    );
    let bytes = |layer: &Value| layer["bytes"].as_u64();
    let layers = first["layers"].as_array().unwrap();
    assert!(layers.iter().any(|l| l["id"] == "project" && bytes(l) > Some(0)), "{first:#}");
    live.write(b"\n");
    live.expect("more");
    assert_eq!(listed(&["ls", "--scan"])["changes"], counted(3, 1));
    let text = place.landbox(["ls", "--scan"]).output().ok().text();
    assert!(text.contains("2 (+3 -1)"), "{text}");
    live.write(b"\n");
    live.wait().ok();
    assert_eq!(listed(&["ls"])["changes"], counted(3, 1));
}

#[test]
fn a_session_that_runs_is_never_collected_though_all_of_it_has_landed_or_was_discarded() {
    let place = Place::new(World::USUAL);
    for (name, end) in [
        ("landed", &["land", "landed", "--apply", "--yes"][..]),
        ("gone", &["discard", "gone", "--yes"]),
    ] {
        let script = format!("echo 1 > {name}; echo ready; read go; echo later > later-{name}");
        let mut live = place.session(["--name", name], ["sh", "-c", &script]).stdin_open().start();
        live.expect("ready");
        place.landbox(end).output().ok();
        place.landbox(["gc"]).output().ok();
        place.landbox(["gc", "--expired"]).output().ok();
        live.write(b"\n");
        live.wait().ok();
        assert_eq!(place.changes().last().unwrap().0, format!("later-{name}"));
        // And afterwards it holds what has not landed.
        place.landbox(["gc"]).output().ok();
        assert_eq!(place.sessions().len(), 1);
        place.landbox(["discard", name, "--yes"]).output().ok();
        place.landbox(["gc"]).output().ok();
        assert_eq!(place.sessions(), Vec::<PathBuf>::new());
    }
}
