//! What a landing could bring that runs later, leaves the project or gives a secret away is named and needs a yes of its
//! own.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::{Place, worlds};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

fn risks(card: &Value) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for change in card["changes"].as_array().unwrap() {
        for risk in change["risks"].as_array().unwrap() {
            let text = |v: &Value| v.as_str().unwrap().to_owned();
            assert!(!text(&risk["why"]).is_empty());
            out.push((text(&change["path"]), text(&risk["kind"])));
        }
    }
    out.sort();
    out
}

/// Makes the project a repository with one commit.
fn repository(place: &Place) {
    let script = "git config --global user.name a && git config --global user.email a@b && git init -qb main . && \
                  git add -A && git commit -qm first";
    let (uid, gid) = place.world.ids();
    let mut make = Command::new("sh");
    make.args(["-c", script])
        .current_dir(&place.project)
        .env("HOME", &place.home)
        .uid(uid)
        .gid(gid);
    assert!(make.status().unwrap().success());
}

/// A change with a risk of two kinds and one without.
const SCRIPT: &str =
    "echo x > plain.txt; mkdir -p .vscode; echo '{}' > .vscode/tasks.json; ln -s /etc/passwd out";

worlds! {
    [user_kernel, user_fuse]
    fn every_kind_of_risk_needs_a_yes_of_its_own_where_nobody_can_be_asked(world) {
        let place = Place::new(world);
        place.sh(SCRIPT).output().ok();
        let card = place.json(["diff"]);
        let expected = [(".vscode/tasks.json", "editor"), ("out", "outside-link")];
        assert_eq!(risks(&card), expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
        let digest = card["digest"].as_str().unwrap().to_owned();
        for (how, missing) in [
            (&["--yes"][..], &["editor", "outside-link"][..]),
            (&["--expect", &digest], &["editor", "outside-link"]),
            (&["--yes", "--accept-risk", "outside-link"], &["editor"]),
        ] {
            let out = place.landbox(["land", "--apply"]).args(how).output().expect(6);
            for kind in missing {
                assert!(out.errors().contains(&format!("--accept-risk {kind}")), "{}", out.errors());
            }
            assert!(!place.project.join("plain.txt").exists());
        }
        let out = place.landbox(["land", "--apply", "--yes", "--accept-risk", "nosuch"]).output().expect(2);
        assert!(out.errors().contains("outside-link"), "{}", out.errors());
        let accepted = ["--accept-risk", "editor", "--accept-risk", "outside-link"];
        place.landbox(["land", "--apply", "--expect", &digest]).args(accepted).output().ok();
        assert!(place.project.join(".vscode/tasks.json").exists());
    }

    [user_kernel]
    fn a_terminal_is_asked_for_each_kind_and_one_no_lands_nothing(world) {
        let place = Place::new(world);
        place.sh(SCRIPT).output().ok();
        for (answers, lands) in [(["y", "n"], false), (["y", "y"], true)] {
            let mut terminal = place.landbox(["land"]).terminal(100, 40);
            let at = terminal.expect_after(0, "Apply this to");
            terminal.send("y\n");
            let at = terminal.expect_after(at, "Risk editor: 1 file");
            terminal.send(format!("{}\n", answers[0]));
            terminal.expect_after(at, "Risk outside-link: 1 file");
            terminal.send(format!("{}\n", answers[1]));
            assert_eq!(terminal.wait(), 0, "{}", terminal.shown());
            assert_eq!(place.project.join("plain.txt").exists(), lands, "{}", terminal.shown());
        }
    }

    [user_kernel]
    fn an_ordinary_edit_is_landed_by_one_yes(world) {
        let place = Place::new(world);
        place.sh("echo more >> README.md; echo 'print(1)' >> src/main.py; rm -r src/deep; mkdir n; echo a > n/a.rs")
            .output()
            .ok();
        assert_eq!(risks(&place.json(["diff"])), []);
        place.landbox(["land", "--apply", "--yes"]).output().ok();
    }

    [user_kernel, user_fuse]
    fn hooks_and_settings_of_git_are_named_and_stay_out(world) {
        let place = Place::new(world);
        place.sh("mkdir -p sub/.git/hooks; echo sh > sub/.git/hooks/pre-commit; echo x > a").output().ok();
        let card = place.json(["diff"]);
        assert!(risks(&card).contains(&("sub/.git/hooks/pre-commit".into(), "git".into())), "{card:#}");
        let shown = place.landbox(["land"]).output().text();
        assert!(shown.contains("git would run programs by"), "{shown}");
        place.landbox(["land", "--apply", "--yes"]).output().ok();
        assert!(!place.project.join("sub").exists());
        assert!(place.project.join("a").exists());
    }

    [user_kernel, user_fuse]
    fn a_script_of_a_package_does_not_come_unnamed_by_a_move_or_a_link(world) {
        let place = Place::new(world);
        let scripts = r#"{"scripts": {"postinstall": "sh x"}}"#;
        place.write(place.project.join("x/data.json"), scripts);
        place.sh("mv x/data.json x/package.json; echo '{}' > q.json; ln -s q.json deno.json").output().ok();
        let card = place.json(["diff"]);
        let expected = [("deno.json", "install"), ("x/package.json", "install")];
        assert_eq!(risks(&card), expected.map(|(a, b)| (a.to_owned(), b.to_owned())), "{card:#}");
        place.landbox(["land", "--apply", "--yes"]).output().expect(6);
    }

    [user_kernel]
    fn text_that_ends_lines_or_differences_in_its_own_way_is_named(world) {
        let place = Place::new(world);
        let make = r"printf '# harmless\rimport os\n' > a.py; printf '#!/bin/sh\n#\0\necho x\n' > run; printf 'a\r\n' > b.txt";
        place.sh(make).output().ok();
        let expected = [("a.py", "hidden-text"), ("run", "hidden-text")];
        assert_eq!(risks(&place.json(["diff"])), expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    // Written by its own mode: what the owner can read, a session can give away.
    [user_kernel]
    fn a_secret_that_moves_into_the_project_is_named(world) {
        let place = Place::new(world);
        let key = ["-----BEGIN OPENSSH ", "PRIVATE KEY-----\nx\n"].concat();
        place.write(place.home.join(".ssh/id_test"), key);
        place.sh("cp ~/.ssh/id_test notes.txt").output().ok();
        assert_eq!(risks(&place.json(["diff"])), [("notes.txt".into(), "secret".into())]);
        assert!(fs::read_dir(&place.project).unwrap().all(|e| e.unwrap().file_name() != "notes.txt"));
    }

    [user_kernel, user_fuse]
    fn a_branch_in_the_owners_repository_needs_the_same_yes(world) {
        let place = Place::new(world);
        repository(&place);
        place.sh(SCRIPT).output().ok();
        let branch = place.project.join(".git/refs/heads/b");
        let out = place.landbox(["land", "--to-branch", "b", "--accept-risk", "editor"]).output().expect(6);
        assert!(out.errors().contains("--accept-risk outside-link"), "{}", out.errors());
        assert!(!branch.exists());
        for (answers, made) in [(["y", "n"], false), (["y", "y"], true)] {
            let mut terminal = place.landbox(["land", "--to-branch", "b"]).terminal(100, 40);
            let at = terminal.expect_after(0, "Risk editor: 1 file");
            terminal.send(format!("{}\n", answers[0]));
            terminal.expect_after(at, "Risk outside-link: 1 file");
            terminal.send(format!("{}\n", answers[1]));
            assert_eq!(terminal.wait(), 0, "{}", terminal.shown());
            assert_eq!(branch.exists(), made, "{}", terminal.shown());
        }
    }

    [user_kernel]
    fn what_is_only_written_to_a_file_says_its_risks_and_asks_nothing(world) {
        let place = Place::new(world);
        repository(&place);
        place.sh(SCRIPT).output().ok();
        for how in ["--patch", "--mbox"] {
            let file = place.outside.join("out");
            let out = place.landbox(["land", how]).args([&file]).output().ok();
            assert!(out.errors().contains("editor (1), outside-link (1)"), "{}", out.errors());
            assert!(fs::read_to_string(file).unwrap().contains("tasks.json"));
        }
    }
}

#[test]
fn kinds_that_were_typed_as_one_word_are_told_apart() {
    let place = Place::new(landbox_tests::World::USUAL);
    let out = place.landbox(["land", "--accept-risk", "git,secret"]).output().expect(2);
    assert!(out.errors().contains("--accept-risk git --accept-risk secret"), "{}", out.errors());
}
