//! Taking a landing back while its session runs: the owner's tree is as it was, and the session goes on.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::{Place, run::Live, worlds};
use std::fs;

const TASK: &str = "echo one >> README.md; rm src/main.py; mkdir -p new/deep; echo n > new/deep/n; chmod 700 new; \
                    mkdir empty; ln -sfn new link; mkdir -m 555 closed";
/// What the session is, seen from inside.
const LOOK: &str = "find . ! -name .git -printf '%p %y %m %l\\n' | sort; cat README.md new/deep/n";

/// A script that does `first`, then what each line on its input says, and tells when it has.
fn obedient(first: &str) -> String {
    format!(
        "{first}\necho ready; while read -r line; do eval \"$line\"; printf 'did %s\\n' \"$line\"; done"
    )
}

fn say(live: &mut Live, line: &str) {
    live.write(format!("{line}\n").as_bytes());
    live.expect(&format!("did {line}"));
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_landed_while_it_ran_is_the_owners_again_and_the_sessions_still(world) {
        let place = Place::new(world);
        let before = place.tree();
        let script = obedient(TASK);
        let mut live = place.session(["--name", "s"], ["sh", "-c", &script]).stdin_open().start();
        live.expect("ready");
        let changes = place.changes();
        say(&mut live, &format!("({LOOK}) > /tmp/before"));
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        let landed = place.tree();
        assert_ne!(landed, before);
        assert!(place.changes().is_empty());
        let undone = place.json(["undo", "s"]);
        assert_eq!(undone["pending"], true, "{undone:#}");
        assert_eq!(place.tree(), before);
        assert_eq!(place.changes(), changes);
        say(&mut live, &format!("({LOOK}) > /tmp/after; cmp /tmp/before /tmp/after && echo same > same"));
        assert!(place.changes().contains(&("same".into(), "added".into())));
        // It goes on, and lands once more.
        say(&mut live, "rm same; echo two >> README.md");
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        assert!(fs::read_to_string(place.project.join("README.md")).unwrap().ends_with("one\ntwo\n"));
        live.close_stdin();
        live.wait().ok();
        place.landbox(["undo", "s"]).output().ok();
        assert_eq!(place.tree(), before);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_left_the_layer_after_an_earlier_landing_is_not_deleted_by_undoing_a_later_one(world) {
        let place = Place::new(world);
        let script = obedient("echo early > early");
        let mut live = place.session(["--name", "s"], ["sh", "-c", &script]).stdin_open().start();
        live.expect("ready");
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        say(&mut live, "echo late > late");
        live.close_stdin();
        live.wait().ok();
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        // What has landed leaves the layer with that.
        place.landbox(["resume", "s", "--", "true"]).output().ok();
        place.landbox(["undo", "s"]).output().ok();
        assert_eq!(place.changes(), [("late".to_owned(), "added".to_owned())]);
        let out = place.landbox(["resume", "s", "--", "cat", "early", "late"]).output().ok();
        assert_eq!(out.text(), "early\nlate\n");
        assert!(place.project.join("early").exists());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_landed_before_it_went_on_is_given_back_to_it(world) {
        let place = Place::new(world);
        let before = place.tree();
        place.session(["--name", "s"], ["sh", "-c", TASK]).output().ok();
        let changes = place.changes();
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        let landed = place.tree();
        // Some of it the running session has seen, the rest not yet.
        let script = obedient("cat README.md new/deep/n; ls -l link");
        let mut live = place.landbox(["resume", "s", "--", "sh", "-c", &script]).stdin_open().start();
        live.expect("ready");
        let undone = place.json(["undo", "s"]);
        assert_eq!(undone["pending"], true, "{undone:#}");
        assert_eq!(place.tree(), before);
        assert_eq!(place.changes(), changes);
        say(&mut live, "cat new/deep/n; tail -1 README.md; readlink link; ls -d empty closed; ls src");
        live.close_stdin();
        let out = live.wait().ok().text();
        assert!(out.ends_with(&["n", "one", "new", "closed", "empty"].join("\n")) || out.contains("n\none\nnew\nclosed\nempty\n"), "{out}");
        assert!(!out.contains("main.py\n"), "{out}");
        assert_eq!(place.changes(), changes);
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        assert_eq!(place.tree(), landed);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_it_has_written_since_stays(world) {
        let place = Place::new(world);
        let before = place.tree();
        place.session(["--name", "s"], ["sh", "-c", TASK]).output().ok();
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        let script = obedient("echo later >> README.md; rm new/deep/n; echo back > src/main.py");
        let mut live = place.landbox(["resume", "s", "--", "sh", "-c", &script]).stdin_open().start();
        live.expect("ready");
        place.landbox(["undo", "s"]).output().ok();
        assert_eq!(place.tree(), before);
        say(&mut live, "tail -2 README.md > all; cat src/main.py >> all; ls new/deep >> all");
        live.close_stdin();
        let said = live.wait().ok().errors();
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        assert_eq!(fs::read_to_string(place.project.join("all")).unwrap(), "one\nlater\nback\n", "{said}");
        assert!(fs::read_to_string(place.project.join("README.md")).unwrap().ends_with("one\nlater\n"));
    }

    [user_kernel, root_fuse]
    fn what_the_owner_has_edited_since_is_named_and_nothing_is_undone(world) {
        let place = Place::new(world);
        let script = obedient("echo 1 > a; echo 1 > b");
        let mut live = place.session(["--name", "s"], ["sh", "-c", &script]).stdin_open().start();
        live.expect("ready");
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        place.write(place.project.join("a"), "mine\n");
        let landed = place.tree();
        let out = place.landbox(["undo", "s"]).output().expect(3);
        assert!(out.errors().contains("no longer what had landed: a"), "{}", out.errors());
        assert_eq!(place.tree(), landed);
        live.close_stdin();
        live.wait().ok();
    }
}
