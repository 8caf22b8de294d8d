//! Checkpoints that are taken by themselves, one for each turn.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::terminal::Terminal;
use landbox_tests::{Place, World, procs, worlds};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path.as_ref()).unwrap_or_else(|e| format!("{e}"))
}

/// Number and turn of each checkpoint of the place's session.
fn checkpoints(place: &Place) -> Vec<(u64, Option<u64>)> {
    let shown = place.json(["show", "s"]);
    let all = shown["checkpoints"].as_array().unwrap().iter();
    all.map(|one| (one["number"].as_u64().unwrap(), one["turn"].as_u64())).collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A session on a terminal that does what each line says.
fn shell(place: &Place) -> Terminal {
    let script =
        "echo 0 > f; echo ready; while read -r line; do eval \"$line\"; echo did $line; done";
    let terminal = place.session(["--name", "s"], ["sh", "-c", script]).terminal(80, 24);
    terminal.expect("ready");
    terminal
}

/// Waits until the session has come to rest and what it holds then is ready to be kept.
fn rest(place: &Place) {
    until("no picture was made ready", || {
        place.sessions().iter().any(|dir| dir.join("checkpoints/next").exists())
    });
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn going_on_with_a_session_keeps_first_what_it_holds(world) {
        let place = Place::new(world);
        place.session(["--name", "s"], ["sh", "-c", "echo 1 > f; rm README.md; echo h > ~/h"]).output().ok();
        assert_eq!(checkpoints(&place), []);
        place.landbox(["resume", "s", "--", "sh", "-c", "echo 2 > f; echo x > README.md; rm ~/h"]).output().ok();
        assert_eq!(checkpoints(&place), [(1, Some(2))]);
        // Nothing has changed since the last one: no other is taken.
        place.landbox(["resume", "s", "--", "true"]).output().ok();
        place.landbox(["resume", "s", "--", "true"]).output().ok();
        let shown = place.json(["show", "s"]);
        assert_eq!(checkpoints(&place), [(1, Some(2)), (2, Some(3))], "{shown:#}");
        assert_eq!((&shown["turns"], &shown["checkpoint_skipped"]), (&json!(4), &Value::Null));
        let face = place.landbox(["show", "s"]).output().ok().text();
        assert!(face.contains(" before turn 2\n") && face.contains(" before turn 3\n"), "{face}");
        place.landbox(["rewind", "s", "1", "--yes"]).output().ok();
        let out = place.landbox(["resume", "s", "--", "sh", "-c", "cat f ~/h; test ! -e README.md"]).output().ok();
        assert_eq!(out.text(), "1\nh\n");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn on_a_terminal_each_line_for_a_command_at_rest_begins_a_turn(world) {
        let place = Place::new(world);
        let mut terminal = shell(&place);
        rest(&place);
        for (number, turn) in [(1, 2), (2, 3)] {
            terminal.send(format!("echo {number} > f\r"));
            terminal.expect(&format!("did echo {number}"));
            until("no checkpoint was taken", || checkpoints(&place).last() == Some(&(number, Some(turn))));
            rest(&place);
        }
        terminal.send("exit 7\r");
        assert_eq!(terminal.wait(), 7);
        // Each is what there was before its line was obeyed.
        for (number, text) in [(2, "1\n"), (1, "0\n")] {
            place.landbox(["land", "s", "--checkpoint", &number.to_string(), "--apply", "--yes"]).output().ok();
            assert_eq!(read(place.project.join("f")), text);
            place.landbox(["undo", "s"]).output().ok();
        }
        assert!(place.json(["show", "s"])["turns"].as_u64().unwrap() >= 3);
        place.landbox(["rewind", "s", "2", "--yes"]).output().ok();
        assert_eq!(place.landbox(["resume", "s", "--", "cat", "f"]).output().ok().text(), "1\n");
    }

    [user_kernel, root_fuse]
    fn a_controller_that_is_killed_beside_its_picture_leaves_a_session_that_goes_on(world) {
        let place = Place::new(world);
        let terminal = shell(&place);
        rest(&place);
        let dir = place.sessions()[0].clone();
        procs::kill_all(&procs::descendants(terminal.pid()));
        drop(terminal);
        until("the session did not end", || place.json(["show", "s"])["state"] == "failed");
        fs::write(dir.join("checkpoints/objects/.new-half"), "half").unwrap();
        fs::write(dir.join("checkpoints/.write-half"), "half").unwrap();
        fs::write(dir.join("checkpoints/9.json"), "{\"version\":2").unwrap();
        let out = place.landbox(["resume", "s", "--", "cat", "f"]).output().ok();
        assert_eq!(out.text(), "0\n");
        assert_eq!(checkpoints(&place).iter().map(|one| one.1).collect::<Vec<_>>(), [Some(2)]);
        assert!(!dir.join("checkpoints/next").exists());
        place.landbox(["checkpoint", "s"]).output().ok();
        let left = |name: &str| dir.join("checkpoints").join(name).exists();
        assert!(!left("objects/.new-half") && !left(".write-half"));
        place.landbox(["discard", "s", "--yes"]).output().ok();
        assert!(!dir.join("checkpoints").exists());
    }

    [user_kernel]
    fn a_bot_can_do_without(world) {
        let place = Place::new(world);
        let config = place.home.join("bots.json");
        let bot = |value: &str| {
            place.write(&config, format!("[{{\"name\": \"b\", \"command\": [\"sh\"], \"checkpoints\": {value}}}]"));
            let run = ["run", "--config", config.to_str().unwrap(), "--bot", "b", "--name", "s", "--"];
            place.landbox(run.into_iter().chain(["sh", "-c", "echo 1 > f"]))
        };
        bot("\"manual\"").output().ok();
        place.landbox(["resume", "s", "--", "sh", "-c", "echo 2 > f"]).output().ok();
        assert_eq!(checkpoints(&place), []);
        place.landbox(["checkpoint", "s"]).output().ok();
        assert_eq!(checkpoints(&place), [(1, None)]);
        let out = bot("\"turns\"").output().expect(125);
        assert!(out.errors().contains("must be \"turn\" or \"manual\", not \"turns\""), "{}", out.errors());
    }

    [user_kernel]
    fn what_can_not_be_kept_is_skipped_with_a_word_and_the_session_goes_on(world) {
        let place = Place::new(world);
        let mut terminal = shell(&place);
        rest(&place);
        terminal.send("mkdir d; echo x > d/x; chmod 000 d/x; rm f\r");
        terminal.expect("did mkdir");
        until("no checkpoint was taken", || checkpoints(&place) == [(1, Some(2))]);
        until("nothing was skipped", || {
            // Once it rests, a line is a turn.
            std::thread::sleep(Duration::from_millis(1500));
            terminal.send("true\r");
            std::thread::sleep(Duration::from_millis(500));
            !place.json(["show", "s"])["checkpoint_skipped"].is_null()
        });
        let skipped = place.json(["show", "s"])["checkpoint_skipped"].clone();
        assert!(skipped["why"].as_str().unwrap().contains("d/x: Permission denied"), "{skipped:#}");
        let face = place.landbox(["show", "s"]).output().ok().text();
        assert!(face.contains(&format!("before turn {}: no checkpoint of session", skipped["turn"])), "{face}");
        assert_eq!(checkpoints(&place), [(1, Some(2))]);
        terminal.send("exit\r");
        terminal.wait();
        // Nobody changes it any more: now it can be read.
        place.landbox(["resume", "s", "--", "true"]).output().ok();
        let all = checkpoints(&place);
        assert!(all.len() == 2 && all[1].1 > Some(2), "{all:?}");
        assert!(place.json(["show", "s"])["checkpoint_skipped"].is_null());
    }

    [user_kernel, user_fuse]
    fn a_line_for_a_command_that_prints_all_the_time_begins_a_turn_too(world) {
        let place = Place::new(world);
        let script = "echo 0 > f; while :; do printf .; sleep 0.1; done & \
                      while read -r line; do eval \"$line\"; echo did $line; done; kill $!";
        let mut terminal = place.session(["--name", "s"], ["sh", "-c", script]).terminal(80, 24);
        terminal.expect("...");
        // It is waited for to rest for a while; then who types says that a turn is near.
        until("no picture was made ready", || {
            terminal.send("x");
            place.sessions().iter().any(|dir| dir.join("checkpoints/next").exists())
        });
        assert_eq!(checkpoints(&place), []);
        // ^U: away with what was typed.
        terminal.send("\x15echo 1 > f\r");
        terminal.expect("did echo 1");
        until("no checkpoint was taken", || checkpoints(&place) == [(1, Some(2))]);
        terminal.send("\x04");
        terminal.wait();
        place.landbox(["land", "s", "--checkpoint", "1", "--apply", "--yes"]).output().ok();
        assert_eq!(read(place.project.join("f")), "0\n");
    }

    [user_kernel]
    fn gc_takes_a_landed_session_with_those_that_were_taken_by_themselves(world) {
        let place = Place::new(world);
        place.session(["--name", "s"], ["sh", "-c", "echo 1 > f"]).output().ok();
        place.landbox(["resume", "s", "--", "sh", "-c", "echo 2 > f"]).output().ok();
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        place.landbox(["gc"]).output().ok();
        assert_eq!(place.sessions().len(), 0);
    }
}

#[test]
fn login_files_are_in_no_checkpoint() {
    let place = Place::new(World::USUAL);
    place.write(place.home.join(".codex/auth.json"), "{\"token\": \"real\"}");
    let script = "echo '{\"token\": \"old-secret\"}' > ~/.codex/auth.json; echo notes > ~/.codex/notes; echo 1 > f";
    let config = place.home.join("bots.json");
    place.write(&config, "[{\"name\": \"b\", \"cliId\": \"codex\"}]");
    let run = [
        "run",
        "--config",
        config.to_str().unwrap(),
        "--bot",
        "b",
        "--name",
        "s",
        "--",
        "sh",
        "-c",
    ];
    place.landbox(run.into_iter().chain([script])).output().ok();
    assert!(read(place.home.join(".codex/auth.json")).contains("old-secret"));
    place.landbox(["resume", "s", "--", "true"]).output().ok();
    let objects = place.sessions()[0].join("checkpoints/objects");
    let kept: Vec<String> =
        fs::read_dir(objects).unwrap().map(|e| read(e.unwrap().path())).collect();
    assert!(
        kept.iter().any(|text| text == "notes\n")
            && !kept.iter().any(|text| text.contains("secret")),
        "{kept:?}"
    );
    // A login that was renewed meanwhile stays.
    place.write(place.home.join(".codex/auth.json"), "{\"token\": \"renewed\"}");
    place.landbox(["rewind", "s", "0", "--yes"]).output().ok();
    let out = place
        .landbox(["resume", "s", "--", "sh", "-c", "cat ~/.codex/auth.json; ls ~/.codex"])
        .output()
        .ok();
    assert_eq!(out.text(), "{\"token\": \"renewed\"}auth.json\n");
}
