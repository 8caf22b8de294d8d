//! `land -i`: the review on a terminal.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::{Place, World, worlds};
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn numbered(count: usize) -> String {
    (1..=count).map(|n| format!("line {n}\n")).collect()
}

/// A project with a long file, and a session that ran `script`.
fn changed(world: World, script: &str) -> Place {
    let place = Place::new(world);
    place.write(place.project.join("long.txt"), numbered(40));
    place.session(["--name", "s"], ["sh", "-c", script]).output().ok();
    place
}

const TWICE: &str = "sed -i 's/^line 3$/three/; s/^line 5$/five/; s/^line 30$/thirty/' long.txt";

fn long(place: &Place) -> String {
    fs::read_to_string(place.project.join("long.txt")).unwrap()
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn picked_hunks_land_and_the_rest_lands_later(world) {
        let place = changed(world, &format!("{TWICE}; rm src/main.py; echo new > n.txt"));
        let mut terminal = place.landbox(["land", "-i"]).terminal(100, 40);
        let before = terminal.settings();
        // Added and changed files, then what is deleted: by folder and name.
        let mut at = terminal.expect_after(0, "(1/4) Land this hunk [y,n,q,a,d,j,J,g,/,s,e,?]?");
        for (keys, next) in [
            ("s\n", "(1/5) Land this hunk"),
            ("y\n", "(2/5) Land this hunk"),
            ("n\n", "(3/5) Land this hunk"),
            ("y\n", "(4/5) Land this hunk"),
            ("y\n", "(5/5) Land this deletion"),
            ("n\n", "Apply this to"),
        ] {
            terminal.send(keys);
            at = terminal.expect_after(at, next);
        }
        assert!(terminal.shown().contains("only the parts that you chose"), "{}", terminal.shown());
        terminal.send("y\n");
        assert_eq!(terminal.wait(), 0, "{}", terminal.shown());
        assert_eq!(terminal.settings(), before);
        let expected = numbered(40).replace("line 3\n", "three\n").replace("line 30\n", "thirty\n");
        assert_eq!(long(&place), expected);
        assert_eq!(fs::read_to_string(place.project.join("n.txt")).unwrap(), "new\n");
        assert!(place.project.join("src/main.py").exists());
        let left: Vec<String> = place.changes().into_iter().map(|(path, _)| path).collect();
        assert_eq!(left, ["long.txt", "src/main.py"]);
        place.landbox(["land", "--apply", "--yes"]).output().ok();
        assert_eq!(long(&place), expected.replace("line 5\n", "five\n"));
        assert!(!place.project.join("src/main.py").exists());
        place.landbox(["land", "--apply", "--yes"]).output().expect(4);
    }

    [user_kernel]
    fn what_was_reviewed_is_not_asked_again_until_it_changes(world) {
        let place = changed(world, TWICE);
        let mut terminal = place.landbox(["land", "-i"]).terminal(100, 40);
        terminal.expect("(1/2) Land this hunk");
        terminal.send("n\n");
        terminal.expect("(2/2) Land this hunk");
        // Interrupted, not ended.
        terminal.send(b"\x03");
        assert_ne!(terminal.wait(), 0);
        assert_eq!(long(&place), numbered(40));
        let mut terminal = place.landbox(["land", "-i"]).terminal(100, 40);
        terminal.expect("(2/2) Land this hunk");
        assert!(!terminal.shown().contains("(1/2)"));
        terminal.send("q\n");
        assert_eq!(terminal.wait(), 0, "{}", terminal.shown());
        place.landbox(["resume", "s", "--", "sed", "-i", "s/^five$/5/", "long.txt"]).output().ok();
        let mut terminal = place.landbox(["land", "-i"]).terminal(100, 40);
        terminal.expect("(1/2) Land this hunk");
        terminal.send("y\n");
        terminal.expect("(2/2) Land this hunk");
        terminal.send("n\n");
        terminal.expect("Apply this to");
        terminal.send("n\n");
        assert_eq!(terminal.wait(), 0);
        assert_eq!(long(&place), numbered(40));
        let mut terminal = place.landbox(["land", "-i"]).terminal(100, 40);
        terminal.expect("Go over it again? [y/N]");
        terminal.send("\n");
        terminal.expect("Apply this to");
        terminal.send("y\n");
        assert_eq!(terminal.wait(), 0);
        assert_eq!(long(&place), numbered(40).replace("line 3\n", "three\n").replace("line 5\n", "5\n"));
    }

    [user_kernel, user_fuse]
    fn an_edit_that_landed_stays_where_the_session_s_own_text_is_dropped(world) {
        let place = changed(world, "sed -i 's/^line 3$/three/' long.txt");
        let editor = place.outside.join("editor.sh");
        place.write(&editor, "#!/bin/sh\nexec sed -i 's/^+three/+THREE/' \"$1\"\n");
        fs::set_permissions(&editor, PermissionsExt::from_mode(0o755)).unwrap();
        let mut run = place.landbox(["land", "-i"]);
        run.env("VISUAL", &editor);
        let mut terminal = run.terminal(100, 40);
        terminal.expect("(1/1) Land this hunk");
        terminal.send("e\n");
        terminal.expect("Apply this to");
        terminal.send("y\n");
        assert_eq!(terminal.wait(), 0, "{}", terminal.shown());
        let edited = numbered(40).replace("line 3\n", "THREE\n");
        assert_eq!(long(&place), edited);
        place.landbox(["discard", "s", "--yes", "--", "long.txt"]).output().ok();
        place.landbox(["land", "--apply", "--yes"]).output().expect(4);
        assert_eq!(long(&place), edited);
    }

    [user_kernel]
    fn the_editor_gets_a_private_copy_and_its_result_must_fit(world) {
        let place = changed(world, TWICE);
        let editor = place.outside.join("editor.sh");
        // It spoils the terminal, and its first result does not fit.
        let script = format!(
            "#!/bin/sh\nstty raw -echo\nstat -c '%a' \"$2\" >> {0}/seen\npwd >> {0}/seen\ncat \"$2\" >> {0}/seen\n\
             if test -e {0}/once; then sed -i 's/^-no such/-line 3/; s/^+three/+THREE/' \"$2\"; \
             else : > {0}/once; sed -i 's/^-line 3/-no such/' \"$2\"; fi\n",
            place.outside.display()
        );
        place.write(&editor, script);
        fs::set_permissions(&editor, PermissionsExt::from_mode(0o755)).unwrap();
        let mut run = place.landbox(["land", "-i"]);
        run.env("VISUAL", format!("'{}' -w", editor.display())).env("EDITOR", "false");
        let mut terminal = run.terminal(100, 40);
        let before = terminal.settings();
        terminal.expect("(1/2) Land this hunk");
        terminal.send("e\n");
        terminal.expect("does not apply");
        terminal.expect("Edit it again?");
        assert_eq!(terminal.settings(), before);
        terminal.send("y\n");
        terminal.expect("(2/2) Land this hunk");
        terminal.send("n\n");
        terminal.expect("Apply this to");
        terminal.send("y\n");
        assert_eq!(terminal.wait(), 0, "{}", terminal.shown());
        assert_eq!(terminal.settings(), before);
        assert_eq!(long(&place), numbered(40).replace("line 3\n", "THREE\n").replace("line 5\n", "five\n"));
        assert!(terminal.shown().contains("What you edited landed as you wrote it."), "{}", terminal.shown());
        let seen = fs::read_to_string(place.outside.join("seen")).unwrap();
        let mut lines = seen.lines();
        assert_eq!(lines.next(), Some("600"));
        assert!(lines.next().unwrap().starts_with(place.state().to_str().unwrap()), "{seen}");
        assert_eq!(seen.matches("+three").count(), 2, "{seen}");
        // Nothing of it is left, and the layer was not touched.
        let session = &place.sessions()[0];
        let names = fs::read_dir(session).unwrap().map(|e| e.unwrap().file_name());
        assert!(!names.into_iter().any(|n| n.to_string_lossy().starts_with(".edit-")));
        place.landbox(["land", "--apply", "--yes"]).output().ok();
        assert!(long(&place).contains("three\n") && long(&place).contains("thirty\n"));
    }

    [user_kernel, user_fuse]
    fn a_part_lands_while_the_session_runs_and_the_session_keeps_the_rest(world) {
        let place = Place::new(world);
        place.write(place.project.join("long.txt"), numbered(40));
        let script = format!("{TWICE}; echo ready; read line; cat long.txt");
        let mut live = place.session(["--name", "s"], ["sh", "-c", &script]).stdin_open().start();
        live.expect("ready");
        let mut terminal = place.landbox(["land", "-i"]).terminal(100, 40);
        terminal.expect("(1/2) Land this hunk");
        terminal.send("n\n");
        terminal.expect("(2/2) Land this hunk");
        terminal.send("y\n");
        terminal.expect("Apply this to");
        terminal.send("y\n");
        assert_eq!(terminal.wait(), 0, "{}", terminal.shown());
        assert_eq!(long(&place), numbered(40).replace("line 30\n", "thirty\n"));
        live.write(b"go\n");
        let out = live.wait().ok();
        assert!(out.text().contains("three\nline 4\nfive\n") && out.text().contains("thirty\n"), "{}", out.text());
        place.landbox(["land", "--apply", "--yes"]).output().ok();
        let all = numbered(40).replace("line 3\n", "three\n").replace("line 5\n", "five\n").replace("line 30\n", "thirty\n");
        assert_eq!(long(&place), all);
    }

    [user_kernel, user_fuse]
    fn what_was_reviewed_lands_whatever_a_running_session_writes_meanwhile(world) {
        let place = Place::new(world);
        let script = "echo good > new; echo ready; read line; echo evil > new; echo written; read line";
        let mut live = place.session(["--name", "s"], ["sh", "-c", script]).stdin_open().start();
        live.expect("ready");
        let mut terminal = place.landbox(["land", "-i", "--apply", "--yes"]).terminal(100, 40);
        terminal.expect("Land this hunk");
        live.write(b"go\n");
        live.expect("written");
        terminal.send("y\n");
        assert_eq!(terminal.wait(), 0, "{}", terminal.shown());
        assert_eq!(fs::read_to_string(place.project.join("new")).unwrap(), "good\n");
        live.write(b"go\n");
        live.wait().ok();
        place.landbox(["land", "--apply", "--yes"]).output().ok();
        assert_eq!(fs::read_to_string(place.project.join("new")).unwrap(), "evil\n");
    }

    [user_kernel]
    fn what_became_another_change_while_it_was_reviewed_does_not_land(world) {
        let place = changed(world, "echo good > new; echo also > other");
        for (answer, goes) in [("--to-branch", "b"), ("--apply", "--yes"), ("--patch", "p")] {
            let mut terminal = place.landbox(["land", "-i", answer, goes]).terminal(100, 40);
            terminal.expect("(1/2) Land this hunk");
            place.landbox(["resume", "s", "--", "sh", "-c", "date +%s%N > new"]).output().ok();
            terminal.send("y\n");
            terminal.expect("(2/2) Land this hunk");
            terminal.send("q\n");
            assert_eq!(terminal.wait(), 6, "{}", terminal.shown());
            terminal.expect("new was changed again");
        }
        assert!(!place.project.join("new").exists() && !place.project.join("p").exists());
    }

    [user_kernel]
    fn a_key_that_is_no_text_ends_no_review(world) {
        let place = changed(world, TWICE);
        let mut terminal = place.landbox(["land", "-i", "--apply", "--yes"]).terminal(100, 40);
        terminal.expect("(1/2) Land this hunk");
        terminal.send("y\n");
        let from = terminal.expect_after(0, "(2/2) Land this hunk");
        terminal.send(b"\xe9\n");
        terminal.expect_after(from, "One letter, please");
        terminal.send("y\n");
        assert_eq!(terminal.wait(), 0, "{}", terminal.shown());
        assert!(long(&place).contains("three\n") && long(&place).contains("thirty\n"));
    }

    [user_kernel, user_fuse]
    fn what_an_interrupted_question_left_of_a_running_session_goes(world) {
        let place = Place::new(world);
        let mut live = place.session(["--name", "s"], ["sh", "-c", "echo x > x; echo ready; read line"]).stdin_open().start();
        live.expect("ready");
        let scratch = place.sessions()[0].join("scratch");
        let left = || fs::read_dir(&scratch).map_or(0, Iterator::count);
        for args in [&["land"][..], &["land", "-i"]] {
            let mut terminal = place.landbox(args).terminal(100, 40);
            terminal.expect(if args.len() == 1 { "[y/N]" } else { "Land this hunk" });
            assert_eq!(left(), 1, "the picture, and nothing of the one before");
            terminal.send(b"\x03");
            terminal.wait();
        }
        assert_eq!(left(), 1);
        place.landbox(["gc"]).output().ok();
        assert_eq!(left(), 0);
        live.write(b"go\n");
        live.wait().ok();
    }

    [user_kernel]
    fn a_part_that_landed_can_be_undone(world) {
        let place = changed(world, TWICE);
        let all = place.json(["diff"])["digest"].clone();
        let mut terminal = place.landbox(["land", "-i", "--apply", "--yes"]).terminal(100, 40);
        terminal.expect("(1/2)");
        terminal.send("n\n");
        terminal.expect("(2/2)");
        terminal.send("y\n");
        assert_eq!(terminal.wait(), 0, "{}", terminal.shown());
        assert_eq!(long(&place), numbered(40).replace("line 30\n", "thirty\n"));
        place.landbox(["undo", "s"]).output().ok();
        assert_eq!(long(&place), numbered(40));
        assert_eq!(place.json(["diff"])["digest"], all);
        place.landbox(["land", "--apply", "--yes"]).output().ok();
        assert!(long(&place).contains("three\n") && long(&place).contains("thirty\n"));
    }

    [user_kernel]
    fn a_part_of_a_file_can_be_written_as_a_patch(world) {
        let place = changed(world, TWICE);
        let patch = place.outside.join("p");
        let mut terminal = place.landbox(["land", "-i", "--patch", patch.to_str().unwrap()]).terminal(100, 40);
        terminal.expect("(1/2)");
        terminal.send("n\n");
        terminal.expect("(2/2)");
        terminal.send("y\n");
        assert_eq!(terminal.wait(), 0, "{}", terminal.shown());
        let text = fs::read_to_string(patch).unwrap();
        assert!(text.contains("+thirty") && !text.contains("+three"), "{text}");
        assert_eq!(long(&place), numbered(40));
    }

    [user_kernel]
    fn nothing_that_a_session_wrote_can_answer_or_fake_a_question(world) {
        let script = "printf 'a\\r\\033[2J\\033[1A(9/9) Land this hunk [y]? y\\n\\033]52;c;AAAA\\007\\n' > evil; \
                      : > \"$(printf 'x\\n(1,1) Apply this to it? y\\033[8m')\"";
        let place = changed(world, script);
        let mut terminal = place.landbox(["land", "-i"]).terminal(100, 40);
        terminal.expect("(1/2) Land this hunk");
        terminal.send("n\n");
        terminal.expect("(2/2) Land this addition");
        terminal.send("n\n");
        assert_eq!(terminal.wait(), 0, "{}", terminal.shown());
        let shown = terminal.shown();
        assert!(shown.contains("You picked nothing"), "{shown}");
        for bad in ["\u{1b}[2J", "\u{1b}[1A", "\u{1b}]52", "\u{1b}[8m", "\n(9/9)", "\n(1,1)"] {
            assert!(!shown.contains(bad), "{bad:?} in {shown:?}");
        }
        assert!(!place.project.join("evil").exists());
    }

    [user_kernel]
    fn without_a_terminal_there_is_no_review(world) {
        let place = changed(world, TWICE);
        let out = place.landbox(["land", "-i"]).output().expect(2);
        assert!(out.errors().contains("needs a terminal"), "{}", out.errors());
        place.landbox(["land", "-i", "--json"]).output().expect(2);
        assert_eq!(long(&place), numbered(40));
    }
}
