//! Mistakes in `bots.json`, in flags and in the environment.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::Place;
use landbox_tests::world::World;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

#[test]
fn configuration_errors_stop_the_start_and_say_where() {
    let place = Place::new(World::USUAL);
    let bots = place.home.join(".config/landbox/bots.json");
    place.write(&bots, "[\n  // two mistakes\n  {\"name\": \"b\", \"command\": \"true\",\n   \"sandboxHidePath\": [],\n   \"sandbox\": 1},\n]\n");
    let out = place.landbox(["run", "--bot", "b"]).output().expect(125);
    assert!(
        out.errors().contains("bots.json:4: unknown key \"sandboxHidePath\""),
        "{}",
        out.errors()
    );
    assert!(out.errors().contains("bots.json:5: \"sandbox\" must be"), "{}", out.errors());
    for args in [
        &["run", "--bot", "c"][..],
        &["run", "--config", "nowhere.json", "--bot", "b"],
        &["run", "--config", "nowhere.json", "--", "true"],
        &["run", "--hide", "", "--", "true"],
        &["run", "--hide", "~", "--", "true"],
        &["run", "--hide", "~other/.ssh", "--", "true"],
        &["run", "--hide", "$HOME/.ssh", "--", "true"],
        &["run", "--hide", "**/.env", "--", "true"],
        &["run", "--auth", "~", "--", "true"],
        &["run", "--network", "policy.json", "--", "true"],
        &["run", "--workdir", "/usr", "--", "true"],
        &["run"],
    ] {
        let out = place.landbox(args).output().expect(125);
        assert!(out.errors().contains("landbox: error: "), "{args:?}: {}", out.errors());
    }
    for home in ["", "relative", "/", "/nowhere/at/all"] {
        let out = place.landbox(["run", "--", "true"]).env("HOME", home).output().expect(125);
        assert!(out.errors().to_lowercase().contains("home"), "{home}: {}", out.errors());
    }
    place.write(place.project.join("slip.json"), "[{\"sandboxHidePath\": []}]");
    for named in ["nowhere.json", "slip.json", "/"] {
        let out = place.landbox(["run", "--", "true"]).env("LANDBOX_BOTS", named).output();
        assert!(out.expect(125).errors().contains("landbox: error: "), "{named}");
    }
    let slip = place.landbox(["run", "--config", "slip.json", "--", "true"]).output().expect(125);
    assert!(slip.errors().contains("did you mean \"sandboxHidePaths\"?"), "{}", slip.errors());
    assert_eq!(place.sessions(), [] as [PathBuf; 0]);
}

#[test]
fn a_bot_decides_command_folder_environment_and_rules() {
    let place = Place::new(World::USUAL);
    place.mkdir(place.home.join("work"));
    place.write(
        place.home.join(".config/landbox/bots.json"),
        r#"[
  {
    "name": "oncall-bot", "larkAppId": "x",
    "command": "sh -c 'pwd; echo $MODEL $DEBUG; cat ~/.ssh/*; echo new > ~/.profile || echo refused'",
    "workingDir": "~/work",
    "env": {"MODEL": "large", "DEBUG": 1},
    "sandbox": "oncall",
    "sandboxHidePaths": ["~/.ssh"],
    "sandboxReadonlyPaths": ["~/.profile"],
  },
  {"name": "bare", "command": ["sh", "-c", "echo real > bare.txt"], "sandbox": false},
]"#,
    );
    let out = place.landbox(["run", "--bot", "oncall-bot"]).output();
    assert_eq!(
        out.text(),
        format!("{}\nlarge 1\nrefused\n", place.home.join("work").display()),
        "{}",
        out.errors()
    );
    // What was typed after -- replaces the command, not the rules.
    let typed = place.landbox(["run", "--bot", "oncall-bot", "--", "ls", "-A", ".."]).output().ok();
    assert!(typed.text().contains(".ssh"), "{}", typed.text());
    let bare = place.landbox(["run", "--bot", "bare"]).output().ok();
    let warned = "warning: this bot has \"sandbox\": false: the command runs on your real files, with no boundary";
    assert!(bare.errors().contains(warned), "{}", bare.errors());
    let recorded = place.json(["show"]);
    assert_eq!((&recorded["isolated"], &recorded["bot"]), (&false.into(), &"bare".into()));
    assert_eq!((&recorded["boundary"], &recorded["layers"]), (&Value::Null, &Value::Array(vec![])));
    assert_eq!(std::fs::read_to_string(place.project.join("bare.txt")).unwrap(), "real\n");
    // There is nothing it could show: not the same as no change, and "nothing to do" is land's word.
    let diff = place.landbox(["diff"]).output().expect(6);
    assert!(diff.errors().contains("ran without the sandbox"), "{}", diff.errors());
    place.landbox(["land"]).output().expect(4);
}

#[test]
fn a_file_that_is_there_and_can_t_be_read_stops_the_start_and_no_other_takes_its_place() {
    let place = Place::new(World::USUAL);
    let (own, host) =
        (place.home.join(".config/landbox/bots.json"), place.home.join(".botmux/bots.json"));
    place.write(&host, r#"[{"name": "b", "command": "true"}]"#);
    place.landbox(["run", "--bot", "b"]).output().ok();
    let refused = |why: &str| {
        for run in [&["run", "--bot", "b"][..], &["run", "--bot", "b", "--", "true"]] {
            let said = place.landbox(run).output().expect(125).errors();
            assert!(said.contains(why) && said.contains(own.to_str().unwrap()), "{said}");
        }
    };
    place.write(&own, "[]");
    fs::set_permissions(&own, Permissions::from_mode(0o000)).unwrap();
    refused("Permission denied");
    let named = |file: &Path| {
        let mut run = place.landbox(["run", "--", "true"]);
        run.env("LANDBOX_BOTS", file).output().expect(125).errors()
    };
    assert!(named(&own).contains("Permission denied"));
    fs::remove_file(&own).unwrap();
    place.symlink("nowhere", &own);
    refused("No such file");
    fs::remove_file(&own).unwrap();
    place.mkdir(&own);
    refused("Is a directory");
    fs::remove_dir(&own).unwrap();
    place.write(&own, [b'[', 0xff, b']']);
    refused("");
    assert_eq!(place.sessions().len(), 1);
}
