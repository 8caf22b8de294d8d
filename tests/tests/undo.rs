//! Undo and receipts, from the command line.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::{Place, World, worlds};
use std::fs;
use std::path::PathBuf;

const TASK: &str = "echo one >> README.md; rm src/main.py; mkdir -p new/deep; echo n > new/deep/n; chmod 700 new; \
                    mkdir empty; ln -sfn new link";

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn undo_gives_the_project_back_and_the_changes_wait_in_the_session_again(world) {
        let place = Place::new(world);
        let before = place.tree();
        place.session(["--name", "s"], ["sh", "-c", TASK]).output().ok();
        let changes = place.changes();
        let card = place.json(["land", "s", "--apply", "--yes"]);
        let landed = place.tree();
        assert_ne!(landed, before);
        let receipt = card["receipt"].as_str().unwrap();
        place.landbox(["receipt", "verify", receipt]).output().ok();
        let landing = place.json(["show", "s"])["landing"].clone();
        assert_eq!((landing["count"].as_u64(), landing["undo"]["count"].as_u64()), (Some(1), Some(1)));
        let undone = place.json(["undo"]);
        assert_eq!((undone["pending"].as_bool(), undone["landing"].as_u64()), (Some(true), Some(1)));
        assert_eq!(place.tree(), before);
        assert_eq!(place.changes(), changes);
        place.landbox(["receipt", "verify", undone["receipt"].as_str().unwrap()]).output().ok();
        place.landbox(["undo"]).output().expect(4);
        // A resumed session goes on from what it had made.
        let out = place.landbox(["resume", "s", "--", "cat", "new/deep/n"]).output().ok();
        assert_eq!(out.text(), "n\n");
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        assert_eq!(place.tree(), landed);
        // A landing outlives its session.
        place.landbox(["gc"]).output().ok();
        assert_eq!(place.sessions().len(), 0);
        let undone = place.json(["undo"]);
        assert_eq!(place.tree(), before);
        assert!(fs::read_dir(undone["kept"].as_str().unwrap()).unwrap().count() > 0);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_was_edited_since_is_named_and_stays(world) {
        let place = Place::new(world);
        place.session(["--name", "s"], ["sh", "-c", TASK]).output().ok();
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        place.write(place.project.join("README.md"), "owner\n");
        place.write(place.project.join("new/mine"), "owner\n");
        let before = place.tree();
        let out = place.landbox(["undo", "s"]).output().expect(3);
        for path in ["README.md", "new/mine"] {
            assert!(out.errors().contains(path), "{}", out.errors());
        }
        assert_eq!(place.tree(), before);
    }
}

#[test]
fn a_receipt_that_was_touched_is_not_good_and_anything_else_is_no_receipt() {
    let place = Place::new(World::USUAL);
    place.session(["--name", "s"], ["sh", "-c", "echo x > x"]).output().ok();
    let card = place.json(["land", "s", "--apply", "--yes"]);
    let receipt = fs::read_to_string(card["receipt"].as_str().unwrap()).unwrap();
    let copy = place.project.join("copy.json");
    place.write(&copy, receipt.replace("\"landed\"", "\"merged\""));
    let out = place.landbox(["receipt", "verify", copy.to_str().unwrap()]).output().expect(1);
    assert!(out.text().contains("changed after it was signed"), "{}", out.text());
    place.write(&copy, "{}");
    place.landbox(["receipt", "verify", copy.to_str().unwrap()]).output().expect(2);
    place.landbox(["receipt", "verify", "/nonexistent"]).output().expect(2);
}

#[test]
fn what_undo_needs_is_out_of_reach_of_sessions_and_of_git() {
    let place = Place::new(World::USUAL);
    place.session(["--name", "s"], ["sh", "-c", "rm README.md"]).output().ok();
    place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
    let store = place.state().join("undo");
    assert!(fs::read_dir(&store).unwrap().next().is_some());
    let script = format!("ls -A {}", place.state().display());
    let out = place.session(["--name", "t"], ["sh", "-c", &script]).output().ok();
    assert_eq!(out.text(), "");
    assert!(!place.project.join(".landbox").exists());
}

#[test]
fn the_commit_of_a_landing_that_is_undone_stays_and_is_named() {
    let place = Place::new(World::USUAL);
    place.write(place.home.join(".gitconfig"), "[user]\nname = Ada\nemail = ada@example.org\n");
    // Without a repository that is said before anything is asked.
    place.session(["--name", "s"], ["sh", "-c", TASK]).output().ok();
    place.write(place.project.join("README.md"), "the owner's\n");
    let out = place.landbox(["land", "s", "--commit", "--yes"]).output().expect(6);
    assert!(out.errors().contains("no git repository"), "{}", out.errors());
    place.write(place.project.join("README.md"), "# Project\n\nOne line.\n");
    place.git(&["init", "-q"]);
    place.git(&["add", "-A"]);
    place.git(&["commit", "-qm", "first"]);
    let before = place.tree();
    place.landbox(["land", "s", "--commit", "--yes"]).output().ok();
    let commit = place.git(&["rev-parse", "HEAD"]);
    let undone = place.landbox(["undo", "s"]).output().ok();
    let short = &commit[..12];
    let first = &place.git(&["rev-parse", "HEAD~"])[..12];
    for text in [format!("its commit {short} stays"), format!("git reset {first} takes it off")] {
        assert!(undone.errors().contains(&text), "{}", undone.errors());
    }
    place.git(&["reset", "-q", first]);
    assert_eq!(place.git(&["status", "--short"]), "");
    let files = |tree: Vec<(PathBuf, u32, Vec<u8>)>| {
        let own =
            |(path, _, _): &(PathBuf, u32, Vec<u8>)| !path.starts_with(place.project.join(".git"));
        tree.into_iter().filter(own).collect::<Vec<_>>()
    };
    assert_eq!(files(place.tree()), files(before));
}
