//! Choosing what lands: paths, patterns, groups. What is not landed stays for later.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::{Place, worlds};
use std::fs;

/// A session that changed a bit of everything.
fn changed(world: landbox_tests::World) -> Place {
    let place = Place::new(world);
    place.write(place.project.join("gone/a.txt"), "a\n");
    place.write(place.project.join("gone/b.txt"), "b\n");
    let script = "echo two >> README.md; echo more >> src/main.py; rm -r gone; mv src/deep/er/file.txt moved.txt; \
                  mkdir -m 700 new; echo x > new/x; echo y > new/y; mkdir -p far/away; echo z > far/away/z";
    place.session(["--name", "s"], ["sh", "-c", script]).output().ok();
    place
}

fn paths(place: &Place) -> Vec<String> {
    place.changes().into_iter().map(|(path, _)| path).collect()
}

worlds! {
    [user_kernel, user_fuse]
    fn a_session_that_changed_ignored_files_alone_says_so_at_its_end(world) {
        let place = Place::new(world);
        place.git(&["init", "-q", "."]);
        place.write(place.project.join(".gitignore"), "*.log\n");
        let out = place.session(["--name", "s"], ["sh", "-c", "echo 1 > a.log; echo 2 > b.log"]).output().ok();
        let id = place.json(["show", "s"])["id"].as_str().unwrap().to_owned();
        let said = out.errors();
        assert!(said.contains("2 files changed that the project's ignore rules cover, and no other"), "{said}");
        assert!(said.contains(&format!("landbox diff {id} --with-ignored")), "{said}");
        // What was named and did not change is answered with the session's own id.
        let out = place.landbox(["diff", "--", "nowhere"]).output().expect(2);
        assert!(out.errors().contains(&format!("landbox diff {id} --stat")), "{}", out.errors());
    }

    [user_kernel]
    fn folders_are_told_from_files(world) {
        let place = Place::new(world);
        place.session(["--name", "s"], ["sh", "-c", "mkdir -m 700 ~/d ~/e; echo x > ~/d/x; mkdir empty"]).output().ok();
        let out = place.landbox(["diff", "s", "--layer", "home", "--stat"]).output().ok().text();
        assert!(out.contains("changes  1 file and 2 folders, +1 -0"), "{out}");
        let out = place.landbox(["diff", "s", "--stat"]).output().ok().text();
        assert!(out.contains("changes  1 folder, +0 -0"), "{out}");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn chosen_paths_land_with_their_folders_and_the_rest_lands_later(world) {
        let place = changed(world);
        let all = paths(&place);
        place.landbox(["land", "--apply", "--yes", "--", "new/x", "gone/a.txt", "README.md"]).output().ok();
        let at = |path: &str| place.project.join(path);
        assert_eq!(fs::read_to_string(at("README.md")).unwrap(), "# Project\n\nOne line.\ntwo\n");
        assert!(at("new/x").exists() && !at("new/y").exists() && !at("far").exists());
        assert!(!at("gone/a.txt").exists() && at("gone/b.txt").exists());
        assert_eq!(fs::read_to_string(at("src/main.py")).unwrap(), "print('hello')\n");
        let landed = ["README.md", "gone/a.txt", "new", "new/x"];
        let left: Vec<String> = all.into_iter().filter(|p| !landed.contains(&p.as_str())).collect();
        assert_eq!(paths(&place), left);
        place.landbox(["land", "--apply", "--yes"]).output().ok();
        assert!(at("new/y").exists() && at("far/away/z").exists() && !at("gone").exists());
        assert!(at("moved.txt").exists() && !at("src/deep/er/file.txt").exists());
        place.landbox(["land", "--apply", "--yes"]).output().expect(4);
    }

    [user_kernel]
    fn a_rename_lands_whole_by_either_of_its_names(world) {
        let place = changed(world);
        place.landbox(["land", "--apply", "--yes", "--", "src/deep"]).output().ok();
        assert!(place.project.join("moved.txt").exists());
        assert!(!place.project.join("src/deep/er/file.txt").exists());
        let changes = paths(&place);
        assert!(!changes.contains(&"moved.txt".into()), "{changes:?}");
    }

    [user_kernel]
    fn patterns_leave_out_and_the_digest_is_that_of_what_is_left(world) {
        let place = changed(world);
        let digest = |args: &[&str]| place.json(args)["digest"].as_str().unwrap().to_owned();
        let (all, some) = (digest(&["diff"]), digest(&["diff", "--exclude", "*.md", "--exclude", "/new/"]));
        assert_ne!(all, some);
        let land = ["land", "--apply", "--exclude", "/new/", "--exclude", "*.md", "--expect"];
        place.landbox(land.iter().copied().chain([all.as_str()])).output().expect(6);
        place.landbox(land.iter().copied().chain([some.as_str()])).output().ok();
        assert_eq!(paths(&place), ["README.md", "new", "new/x", "new/y"]);
        let out = place.landbox(["diff", "--json", "--", "README.md", "new"]).output().ok();
        assert_eq!(out.json::<serde_json::Value>()["digest"], digest(&["diff"]));
    }

    [user_kernel]
    fn paths_are_seen_from_where_the_owner_stands(world) {
        let place = changed(world);
        let patch = |args: &[&str]| {
            let args = ["land", "--patch", "-"].iter().chain(args).copied();
            let mut run = place.landbox(args);
            run.cwd(place.project.join("src"));
            run
        };
        let out = patch(&["s", "--", "main.py"]).output().ok();
        assert!(out.text().starts_with("diff --git a/src/main.py"), "{}", out.text());
        let out = patch(&["s", "--", "../README.md"]).output().ok();
        assert!(out.text().starts_with("diff --git a/README.md"), "{}", out.text());
        let out = patch(&["s", "--", "no/such\nthing"]).output().expect(2);
        assert!(out.errors().contains("nothing changed at no/such\\nthing"), "{}", out.errors());
        let out = patch(&["s", "--", "../../x"]).output().expect(2);
        assert!(out.errors().contains("no path inside"), "{}", out.errors());
        patch(&["s", "--exclude", "{a"]).output().expect(2);
    }

    [user_kernel]
    fn a_landing_says_what_takes_it_back_and_what_waits(world) {
        let place = changed(world);
        let said = place.landbox(["land", "--apply", "--yes", "--exclude", "*.md"]).output().ok().errors();
        assert!(said.contains("; landbox undo ") && said.contains("1 file waits in the session"), "{said}");
        let said = place.landbox(["land", "--apply", "--yes", "--exclude", "*.md"]).output().expect(4).errors();
        assert!(said.contains("of what you chose, which leaves out 1 change"), "{said}");
        let said = place.landbox(["land", "--apply", "--yes"]).output().ok().errors();
        assert!(!said.contains("waits"), "{said}");
    }

    [user_kernel]
    fn a_session_with_ignored_files_alone_says_how_they_land(world) {
        let place = Place::new(world);
        place.git(&["init", "-q", "."]);
        place.write(place.project.join(".gitignore"), "out/\n");
        place.session(["--name", "s"], ["sh", "-c", "mkdir out; echo x > out/x"]).output().ok();
        let said = place.landbox(["land", "s"]).output().expect(4).errors();
        assert!(said.contains("nothing to land") && said.contains("--with-ignored lands that too"), "{said}");
    }

    [user_kernel]
    fn the_card_says_what_was_not_chosen(world) {
        let place = changed(world);
        let out = place.landbox(["land", "--", "README.md"]).output().ok();
        assert!(out.text().contains("others   8 files that you did not choose"), "{}", out.text());
        assert!(!out.text().contains("main.py"), "{}", out.text());
    }
}
