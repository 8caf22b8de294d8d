//! Rules as people write them: each entry holds, or is refused by name.

use super::read;
use landbox_tests::world::World;
use landbox_tests::{Place, worlds};
use serde_json::json;
use std::path::PathBuf;

/// A bot with one list of one entry.
fn bot(place: &Place, key: &str, entry: &str) {
    let bots = json!([{ "name": "b", "command": ["true"], key: [entry] }]);
    place.write(place.home.join(".config/landbox/bots.json"), bots.to_string());
}

const LISTS: [&str; 3] = ["sandboxHidePaths", "sandboxReadonlyPaths", "authPaths"];

#[test]
fn what_no_list_understands_is_refused_in_every_list_by_name() {
    let place = Place::new(World::USUAL);
    for entry in [
        "",
        "~otheruser/.ssh",
        "$HOME/.aws",
        "${HOME}/.aws",
        "~/.ssh/ ",
        " ~/.ssh",
        "~/project/**/.env",
        "*.pem",
        "~/proj/secrets/**",
        "[ab]",
        "key?",
        "a\0b",
        "~/.profile/x",
        "README.md/deep/er",
    ] {
        for list in LISTS {
            bot(&place, list, entry);
            let out = place.landbox(["run", "--bot", "b"]).output().expect(125);
            assert!(out.errors().contains("bots.json:1"), "{list} {entry:?}: {}", out.errors());
        }
    }
    // The home or the project whole: for one list it would hide everything, for another open everything.
    for entry in ["~", "~/", ".", "..", "/", "~/../home"] {
        for list in ["sandboxHidePaths", "authPaths"] {
            bot(&place, list, entry);
            let out = place.landbox(["run", "--bot", "b"]).output().expect(125);
            assert!(out.errors().contains("bots.json:1"), "{list} {entry:?}: {}", out.errors());
        }
    }
    assert_eq!(place.sessions(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn values_that_are_no_paths_and_keys_that_are_nearly_ours_stop_the_start() {
    let place = Place::new(World::USUAL);
    let file = place.home.join(".config/landbox/bots.json");
    for text in [
        r#"[{"name": "b", "command": "true", "sandboxHidePaths": [1, null, {}]}]"#,
        r#"[{"name": "b", "command": "true", "sandboxHidePaths": "~/.ssh"}]"#,
        r#"[{"name": "b", "command": "true", "sandboxHidePath": []}]"#,
        r#"[{"name": "b", "command": "true", "SandboxHidePaths": []}]"#,
        r#"[{"name": "b", "command": "true", "sandboxHidePaths ": []}]"#,
        r#"[{"name": "b", "command": "true", "sandboxNetwork": "none"}]"#,
        r#"[{"name": "b", "command": "true", "sandbox": {"x": 1}}]"#,
        r#"[{"name": "b", "command": "true", "sandboxHidePaths": [], "sandboxHidePaths": ["~/.ssh"]}]"#,
        r#"[{"name": "b", "command": "true"}, {"name": "b", "command": "false"}]"#,
        r#"{"name": "b", "command": "true"}"#,
        r#"[{"name": "b", "command": "true""#,
    ] {
        place.write(&file, text);
        let out = place.landbox(["run", "--bot", "b"]).output().expect(125);
        assert!(out.errors().contains("bots.json"), "{text}: {}", out.errors());
    }
}

#[test]
fn a_home_that_is_none_is_named_and_nothing_starts() {
    let place = Place::new(World::USUAL);
    for (home, why) in [
        ("", "HOME is not set"),
        ("relative", "must be an absolute path"),
        ("/", "a system folder"),
        ("/nonexistent", "/nonexistent"),
    ] {
        let out = place.landbox(["run", "--", "true"]).env("HOME", home).output().expect(125);
        assert!(out.errors().contains(why), "{home}: {}", out.errors());
    }
    assert_eq!(place.sessions(), Vec::<std::path::PathBuf>::new());
}

worlds! {
    // A slash that means something else, a folder that depends on where one stands.
    [user_kernel, root_kernel]
    fn relative_entries_lie_below_the_project_wherever_it_was_called_from(world) {
        let place = Place::new(world);
        for file in ["secrets/k", "docs/a", "sub/secrets/mine"] {
            place.write(place.project.join(file), "real\n");
        }
        for file in ["sibling/key", ".aws/credentials"] {
            place.write(place.home.join(file), "real\n");
        }
        let bots = json!([{
            "name": "b", "command": ["sh", "-c",
                "cat ~/project/secrets/k ~/sibling/key ~/.aws/credentials; cat ~/project/sub/secrets/mine; \
                 echo x > ~/project/docs/a || echo refused"],
            "workingDir": "~/project",
            "sandboxHidePaths": ["./secrets", "secrets", "../sibling/key", "~//.aws", "//landbox-test-nothing/x"],
            "sandboxReadonlyPaths": ["docs/"],
        }]);
        place.write(place.home.join(".config/landbox/bots.json"), bots.to_string());
        for folder in [place.project.join("sub"), place.home.clone(), place.outside.clone(), "/".into()] {
            let out = place.landbox(["run", "--bot", "b"]).cwd(&folder).output();
            assert_eq!(out.text(), "real\nrefused\n", "{}: {}", folder.display(), out.errors());
        }
    }

    // One path in several lists: shown one way, enforced another.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn of_several_rules_for_one_path_the_strictest_holds_and_show_agrees(world) {
        let place = Place::new(world);
        place.write(place.project.join("k"), "secret\n");
        place.write(place.project.join("r"), "old\n");
        let options = ["--auth", "k", "--read-only", "k", "--hide", "k", "--auth", "r", "--read-only", "r"];
        let out = place
            .session(options, ["sh", "-c", "cat k; echo x > k || echo refused; cat r; echo x > r || echo refused"])
            .output()
            .ok();
        assert_eq!(out.text(), "refused\nold\nrefused\n", "{}", out.errors());
        let shown = place.json(["show"]);
        let holes: Vec<&str> =
            shown["real_writes"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
        assert!(!holes.iter().any(|p| p.ends_with("/k") || p.ends_with("/r")), "{holes:?}");
        let (k, r) = (place.project.join("k"), place.project.join("r"));
        let paths = |key: &str| -> Vec<PathBuf> { serde_json::from_value(shown[key].clone()).unwrap() };
        assert!(paths("hidden").contains(&k) && paths("hidden").contains(&place.state()), "{shown:#}");
        assert_eq!(paths("read_only"), std::slice::from_ref(&r));
        // A person is told what the owner's own rules came to.
        let text = place.landbox(["show"]).output().ok().text();
        let rules: Vec<&str> = text.lines().filter(|line| line.starts_with("hidden") || line.starts_with("read-only")).collect();
        assert_eq!(rules, [format!("hidden       {}", k.display()), format!("read-only    {}", r.display())]);
    }

    // A link in a folder that is real: what it leads to is not.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_link_in_an_auth_folder_opens_its_target_only_where_it_is_listed_itself(world) {
        let place = Place::new(world);
        place.mkdir(place.home.join(".agentcli"));
        let token = place.outside.join("creds.json");
        place.write(&token, "old\n");
        place.symlink(&token, place.home.join(".agentcli/creds.json"));
        let script = "echo new > ~/.agentcli/creds.json || echo refused; echo s > ~/.agentcli/state";
        let out = place.session(["--auth", "~/.agentcli"], ["sh", "-c", script]).output().ok();
        assert_eq!((out.text().as_str(), read(&token).as_str()), ("refused\n", "old\n"));
        assert_eq!(read(place.home.join(".agentcli/state")), "s\n");
        let options = ["--auth", "~/.agentcli", "--auth", "~/.agentcli/creds.json"];
        let out = place.session(options, ["sh", "-c", script]).output().ok();
        assert_eq!((out.text().as_str(), read(&token).as_str()), ("", "new\n"));
        let shown = place.json(["show"])["real_writes"].clone();
        let holes: Vec<&str> = shown.as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
        assert!(holes.contains(&token.to_str().unwrap()), "{holes:?}");
    }

    // A file of the repository must not set the rules of whoever works in it.
    [user_kernel]
    fn a_configuration_in_the_project_is_not_read(world) {
        let place = Place::new(world);
        let bots = json!([{ "name": "b", "command": ["true"], "authPaths": ["~/.ssh"], "sandbox": false }]);
        for name in ["bots.json", ".landbox.json", ".landbox/bots.json", ".botmux/bots.json", ".config/landbox/bots.json"] {
            place.write(place.project.join(name), bots.to_string());
        }
        place.landbox(["run", "--bot", "b"]).output().expect(125);
        place.sh("echo x > ~/.ssh/new").output().ok();
        assert!(!place.home.join(".ssh/new").exists());
    }

    // The longest names a file system takes, and one byte more.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn the_longest_name_can_be_hidden_and_a_longer_one_is_refused(world) {
        let place = Place::new(world);
        let longest = "n".repeat(255);
        place.write(place.project.join(&longest), "TOKEN\n");
        let missing = "m".repeat(255);
        let script = format!("cat {longest}; cat {missing}; echo end");
        let out = place.session(["--hide", &longest, "--hide", &missing], ["sh", "-c", &script]).output().ok();
        assert_eq!(out.text(), "end\n");
        let out = place.session(["--hide", &"n".repeat(256)], ["true"]).output().expect(125);
        assert!(out.errors().contains("too long"), "{}", out.errors());
    }
}
