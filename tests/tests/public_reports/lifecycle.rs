//! Ends, resumptions and leftovers.

use super::{change, kinds, land, read};
use landbox_tests::snapshot::Snapshot;
use landbox_tests::{Place, procs, worlds};
use rustix::process::Signal;
use std::time::Duration;

worlds! {
    // Marks of deletion that were kept in the memory of what died.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn deletions_outlive_a_kill_and_a_resumption(world) {
        let place = Place::new(world);
        place.write(place.project.join("d/x"), "x\n");
        let script = "rm README.md; rm -rf d; mv src/main.py moved; echo ready; sleep 100";
        let mut live = place.session(["--name", "s"], ["sh", "-c", script]).start();
        live.expect("ready");
        let tree = procs::descendants(live.pid());
        procs::kill(live.pid(), Signal::KILL);
        live.wait();
        procs::gone(&tree, 5);
        let before = kinds(&place);
        let out = place.landbox(["resume", "s", "--", "sh", "-c", "ls . src"]).output().ok();
        assert_eq!(out.text(), ".:\nlink\nmoved\nsrc\n\nsrc:\ndeep\n");
        assert_eq!(kinds(&place), before);
        assert_eq!(before, ["deleted README.md", "deleted d/x", "renamed moved"]);
    }

    // Folders nobody may open: a review says so, and a discard leaves nothing.
    [user_kernel, user_fuse]
    fn closed_folders_are_said_to_be_unreadable_and_the_rest_is_reviewed(world) {
        let place = Place::new(world);
        place
            .sh("mkdir -p x/y; echo 1 > x/y/z; echo 2 > x/f; echo 3 > secret; chmod 000 x/y secret; chmod 555 x; echo ok > seen")
            .output()
            .ok();
        let card = place.json(["diff"]);
        for path in ["x/y", "secret"] {
            let change = change(&card, path);
            assert!(change["landable"] == false && change["reason"].is_string(), "{change}");
        }
        land(&place);
        assert_eq!(read(place.project.join("seen")), "ok\n");
        assert!(!place.project.join("x/y").exists());
    }

    // A stub made to hide something, left behind by whoever was killed before it could remove it.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn hiding_what_is_missing_leaves_no_stub_when_everything_is_killed(world) {
        let place = Place::new(world);
        place.sh("true").output().ok();
        let ours = [place.state(), place.home.join(".config/landbox")];
        let look = || Snapshot::take(&[place.root()], &ours);
        let before = look();
        let options = ["--hide", ".git", "--hide", ".env", "--hide", "~/.codex", "--hide", "~/a/b/c"];
        for n in 0..12 {
            let live = place.session(options, ["sleep", "100"]).start();
            std::thread::sleep(Duration::from_millis(n * 15));
            let tree = procs::descendants(live.pid());
            procs::kill(live.pid(), Signal::KILL);
            live.wait();
            procs::gone(&tree, 5);
        }
        before.same_as(&look());
        assert_eq!(procs::mounts_below(place.root()), Vec::<String>::new());
    }

    // A list of what to clean up, within reach of the session.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn state_kept_below_the_project_can_not_be_reached_landed_or_turned_against_the_owner(world) {
        let place = Place::new(world);
        let state = place.project.join(".lb");
        let victim = place.home.join("victim");
        place.write(victim.join("file"), "");
        let run = |args: &[&str]| {
            let mut run = place.landbox(args);
            run.env("LANDBOX_STATE_DIR", &state);
            run
        };
        let script = "find .lb -mindepth 1; ln -sfn ~/victim .lb/sessions; rm -rf .lb; mkdir -p .lb/sessions; echo x > .lb/x; \
                      mv .lb lb2; echo ok > seen; true";
        let over = world.overlay_name();
        let out = run(&["run", "--overlay", over, "--name", "s", "--", "sh", "-c", script]).output().ok();
        assert_eq!(out.text(), "");
        let card: serde_json::Value = run(&["diff", "s", "--json"]).output().ok().json();
        for change in card["changes"].as_array().unwrap() {
            assert!(change["path"] == "seen" || change["landable"] == false, "{change}");
        }
        run(&["land", "s", "--apply", "--yes"]).output().ok();
        assert_eq!(read(place.project.join("seen")), "ok\n");
        assert!(state.join("sessions").is_dir() && !place.project.join("lb2").exists());
        run(&["run", "--overlay", over, "--name", "t", "--", "sh", "-c", "ln -s ~/victim v; rm README.md"]).output().ok();
        run(&["discard", "t", "--yes"]).output().ok();
        assert!(victim.join("file").exists() && place.project.join("README.md").exists());
    }
}
