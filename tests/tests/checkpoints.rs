//! Pictures of a session's layers: to go back to, and to land.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::run::{Live, Out};
use landbox_tests::{Place, worlds};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path.as_ref()).unwrap_or_else(|e| format!("{e}"))
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_session_goes_back_to_a_checkpoint_exactly(world) {
        let place = Place::new(world);
        let script = "echo two >> README.md; rm src/main.py; rm -r src/deep; mkdir src/deep; echo n > src/deep/n; \
                      chmod 640 src/deep/n; ln -s nowhere l; mkfifo p; ln README.md hard; truncate -s 1T sparse; \
                      mkdir -m 555 closed; touch -d @1000000000 closed README.md; echo c > ~/.cache-of-the-cli";
        place.session(["--name", "s"], ["sh", "-c", script]).output().ok();
        place.landbox(["checkpoint", "s", "-m", "first\x1b[2J"]).output().ok();
        let list = "find . -printf '%p %y %m %l %T@ %n\\n' | sort";
        let look = || place.landbox(["resume", "s", "--", "sh", "-c", list]).output().ok().text();
        let (before, changes) = (look(), place.changes());
        let script = "rm -r src README.md l p; echo x > new; rm sparse; chmod 700 closed; echo y > closed/y; \
                      rm ~/.cache-of-the-cli";
        place.landbox(["resume", "s", "--", "sh", "-c", script]).output().ok();
        assert_ne!(place.changes(), changes);
        let out = place.landbox(["rewind", "s", "1", "--yes"]).output().ok();
        assert!(out.errors().contains("is back at checkpoint 1; what it was is checkpoint 2"), "{}", out.errors());
        assert_eq!(place.changes(), changes);
        assert_eq!(look(), before);
        let out = place.landbox(["resume", "s", "--", "sh", "-c", "cat ~/.cache-of-the-cli README.md"]).output().ok();
        assert_eq!(out.text(), "c\n# Project\n\nOne line.\ntwo\n");
        // And forth again: nothing is lost by going back.
        place.landbox(["rewind", "s", "2", "--yes"]).output().ok();
        assert!(place.changes().contains(&("new".into(), "added".into())));
        let shown = place.json(["show", "s"]);
        let all = shown["checkpoints"].as_array().unwrap();
        assert_eq!((&all[0]["number"], &all[0]["message"], &all[0]["turn"]), (&1.into(), &"first\x1b[2J".into(), &Value::Null));
        assert_eq!(all[1]["message"], "before going back to 1");
        let face = place.landbox(["show", "s"]).output().ok().text();
        assert!(face.contains("checkpoint   1 ") && !face.contains('\x1b'), "{face}");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_the_owner_wrote_before_a_discard_is_no_base_of_an_older_checkpoint(world) {
        let place = Place::new(world);
        let readme = place.project.join("README.md");
        let agent = "while read -r line; do eval \"$line\"; echo done; done";
        let mut live = place.session(["--name", "s"], ["sh", "-c", agent]).stdin_open().start();
        let within = |live: &mut Live, line: &str| {
            live.write(format!("{line}\n").as_bytes());
            live.expect("done");
        };
        within(&mut live, "echo session >> README.md; rm src/main.py; echo a > a");
        place.landbox(["checkpoint", "s"]).output().ok();
        // More than a tick of the clock by which files are stamped.
        std::thread::sleep(std::time::Duration::from_millis(30));
        place.write(&readme, "owner\n");
        place.write(place.project.join("src/main.py"), "owner\n");
        place.landbox(["discard", "s", "--yes", "--", "README.md", "src/main.py"]).output().ok();
        within(&mut live, "grep -qx owner README.md && grep -qx owner src/main.py || echo stale");
        let refused = |out: Out| {
            let text = out.expect(3).errors();
            assert!(text.contains("README.md") && text.contains("src/main.py"), "{text}");
            assert_eq!((read(&readme), read(place.project.join("src/main.py"))), ("owner\n".into(), "owner\n".into()));
        };
        refused(place.landbox(["land", "s", "--checkpoint", "1", "--apply", "--yes"]).output());
        // Looking at the checkpoint has changed nothing of the present.
        assert_eq!(place.changes(), [("a".to_owned(), "added".to_owned())]);
        place.landbox(["rewind", "s", "1", "--yes"]).output().ok();
        within(&mut live, "grep -qx session README.md && test ! -e src/main.py || echo stale");
        refused(place.landbox(["land", "s", "--apply", "--yes"]).output());
        live.close_stdin();
        live.wait().ok();
        refused(place.landbox(["land", "s", "--apply", "--yes"]).output());
        // The same on the way there and back, with the session ended and gone on with.
        place.landbox(["rewind", "s", "0", "--yes"]).output().ok();
        place.landbox(["resume", "s", "--", "true"]).output().ok();
        place.landbox(["rewind", "s", "1", "--yes"]).output().ok();
        refused(place.landbox(["land", "s", "--apply", "--yes"]).output());
    }

    [user_kernel, user_fuse]
    fn a_path_that_was_discarded_comes_back_with_its_checkpoint_and_lands(world) {
        let place = Place::new(world);
        place.session(["--name", "s"], ["sh", "-c", "echo two >> README.md; rm src/main.py; echo a > a"]).output().ok();
        place.landbox(["checkpoint", "s"]).output().ok();
        place.landbox(["discard", "s", "--yes", "--", "README.md", "src/main.py"]).output().ok();
        place.landbox(["resume", "s", "--", "true"]).output().ok();
        place.landbox(["rewind", "s", "1", "--yes"]).output().ok();
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        assert!(read(place.project.join("README.md")).ends_with("two\n"));
        assert!(!place.project.join("src/main.py").exists());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn landing_a_checkpoint_is_landing_and_the_session_keeps_what_came_later(world) {
        let place = Place::new(world);
        place.session(["--name", "s"], ["sh", "-c", "echo two >> README.md; echo a > a"]).output().ok();
        place.landbox(["checkpoint", "s"]).output().ok();
        place.landbox(["resume", "s", "--", "sh", "-c", "echo three >> README.md; rm a; echo b > b"]).output().ok();
        place.landbox(["land", "s", "--checkpoint", "9", "--apply", "--yes"]).output().expect(2);
        place.landbox(["land", "s", "--checkpoint", "1", "--apply", "--yes"]).output().ok();
        assert!(read(place.project.join("README.md")).ends_with("line.\ntwo\n"));
        assert_eq!(read(place.project.join("a")), "a\n");
        assert!(!place.project.join("b").exists());
        let card = place.json(["diff"]);
        let changed = |path: &str| card["changes"].as_array().unwrap().iter().any(|c| c["path"] == path);
        assert!(changed("README.md") && changed("b"), "{card:#}");
        let out = place.landbox(["resume", "s", "--", "cat", "README.md", "b"]).output().ok();
        assert!(out.text().ends_with("two\nthree\nb\n"), "{}", out.text());
    }

    [user_kernel, user_fuse]
    fn a_session_whose_checkpoint_landed_is_listed_as_what_it_is_and_undo_names_the_checkpoint(world) {
        let place = Place::new(world);
        let before = place.tree();
        place.session(["--name", "s"], ["sh", "-c", "echo a > a"]).output().ok();
        place.landbox(["rewind", "s", "0", "--yes"]).output().ok();
        place.landbox(["land", "s", "--checkpoint", "1", "--apply", "--yes"]).output().ok();
        let listed = || place.landbox(["ls"]).output().ok().text();
        assert!(listed().contains(" landed "), "{}", listed());
        assert_eq!(place.json(["show", "s"])["changes"]["files"], 0);
        let out = place.landbox(["undo", "s"]).output().ok();
        assert!(out.errors().contains(" --checkpoint 1 offers it again"), "{}", out.errors());
        assert!(!listed().contains(" landed ") && listed().contains(" 0 (+0 -0) "), "{}", listed());
        assert_eq!(place.tree(), before);
        // Names came and went in its folder, but by nobody else.
        place.landbox(["land", "s", "--checkpoint", "1", "--apply", "--yes"]).output().ok();
        place.landbox(["undo", "s"]).output().ok();
        // Somebody else's: the name may have been there, and be gone again.
        place.write(place.project.join("a"), "the owner's");
        fs::remove_file(place.project.join("a")).unwrap();
        place.landbox(["land", "s", "--checkpoint", "1", "--apply", "--yes"]).output().expect(3);
        place.landbox(["land", "s", "--checkpoint", "1", "--apply", "--yes", "--resolve-all", "theirs"]).output().ok();
        assert_eq!(read(place.project.join("a")), "a\n");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn undoing_a_checkpoint_that_landed_deletes_nothing_for_the_session(world) {
        let place = Place::new(world);
        place.session(["--name", "s"], ["sh", "-c", "rm src/main.py"]).output().ok();
        place.landbox(["rewind", "s", "0", "--yes"]).output().ok();
        let round = || {
            place.landbox(["land", "s", "--checkpoint", "1", "--apply", "--yes"]).output().ok();
            assert!(!place.project.join("src/main.py").exists());
            place.landbox(["undo", "s"]).output().ok();
            assert!(place.project.join("src/main.py").exists());
            assert_eq!(place.changes(), []);
        };
        round();
        let script = "echo ready; read -r line; cat src/main.py > /dev/null && echo there";
        let mut live = place.landbox(["resume", "s", "--", "sh", "-c", script]).stdin_open().start();
        live.expect("ready");
        round();
        live.write(b"\n");
        live.expect("there");
        live.wait().ok();
        assert_eq!(place.changes(), []);
    }

    [user_kernel]
    fn the_line_that_the_card_of_a_checkpoint_prints_lands_that_checkpoint_and_what_was_chosen(world) {
        let place = Place::new(world);
        place.session(["--name", "s"], ["sh", "-c", "echo good > a; echo b > b"]).output().ok();
        place.landbox(["checkpoint", "s", "-m", "well so far"]).output().ok();
        place.landbox(["resume", "s", "--", "sh", "-c", "echo BAD > a"]).output().ok();
        let out = place.landbox(["land", "s", "--checkpoint", "1", "--", "a"]).output().ok();
        let card = out.text();
        assert!(card.contains("  as of    checkpoint 1 (well so far) of 2"), "{card}");
        assert!(!card.contains("landbox diff") && !card.contains("  back "), "{card}");
        let line = card.lines().find(|line| line.contains(" --apply ")).unwrap();
        let words: Vec<&str> = line.split(" apply all").next().unwrap().split_whitespace().collect();
        place.landbox(&words[1..]).output().ok();
        assert_eq!(read(place.project.join("a")), "good\n");
        assert!(!place.project.join("b").exists());
        // What came later lands too; then the checkpoint is a step back, and its card says so.
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        assert_eq!(read(place.project.join("a")), "BAD\n");
        let out = place.landbox(["land", "s", "--checkpoint", "1"]).output().ok();
        assert!(out.text().contains("  back     older than the last landing"), "{}", out.text());
        let out = place.landbox(["diff", "s", "--checkpoint", "1"]).output().expect(2);
        assert!(out.errors().contains(" --checkpoint 1 shows that"), "{}", out.errors());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_running_session_goes_back_and_sees_it_but_keeps_its_home(world) {
        let place = Place::new(world);
        let first = "echo one > f; echo two >> README.md; mkdir d; echo x > d/x; chmod 640 d/x; ln -s f l; echo h > ~/h; echo ready";
        let second = "echo later > f; rm README.md; rm -r d; echo d > d; rm l; rm src/main.py; mkdir n; echo n > n/n; \
                      echo later > ~/h; echo changed";
        let look = "cat f README.md d/x l src/main.py; ls n; stat -c %a d/x; cat ~/h";
        let script = format!("{first}; read x; {second}; read x; ({look}) 2>&1; echo looked; read x; ({look}) 2>&1; echo end; read x");
        let mut live = place.session(["--name", "s"], ["sh", "-c", &script]).stdin_open().start();
        live.expect("ready");
        let then = place.changes();
        place.landbox(["checkpoint", "s"]).output().ok();
        live.write(b"\n");
        live.expect("changed");
        let later = place.changes();
        assert_ne!(then, later);
        let out = place.landbox(["rewind", "s"]).output().expect(2);
        assert!(out.errors().contains("landbox rewind") && out.errors().contains(" 1 --yes"), "{}", out.errors());
        let out = place.landbox(["rewind", "s", "--yes"]).output().ok();
        assert!(out.errors().contains("is back at checkpoint 1 (2"), "{}", out.errors());
        assert!(out.errors().contains("); what it was is checkpoint 2"), "{}", out.errors());
        assert!(out.errors().contains("Its home stays as it is"), "{}", out.errors());
        assert_eq!(place.json(["rewind", "s", "1", "--yes"])["home_stays"], true);
        assert_eq!(place.changes(), then);
        live.write(b"\n");
        live.expect("looked");
        // And forth again.
        place.landbox(["rewind", "s", "2", "--yes"]).output().ok();
        assert_eq!(place.changes(), later);
        live.write(b"\n");
        live.expect("end");
        place.landbox(["rewind", "s", "1", "--yes"]).output().ok();
        live.write(b"\n");
        let out = live.wait().ok().text();
        let seen = "one\n# Project\n\nOne line.\ntwo\nx\none\n";
        let looks: Vec<&str> = out.split("changed\n").nth(1).unwrap().split("looked\n").collect();
        assert!(looks[0].starts_with(seen) && looks[0].ends_with("640\nlater\n"), "{out}");
        assert!(looks[0].contains("n: No such file") || looks[0].contains("'n': No such file"), "{out}");
        assert!(looks[1].starts_with("later\n") && looks[1].contains("n\n") && !looks[1].contains("One line"), "{out}");
        assert_eq!(place.changes(), then);
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        assert_eq!(read(place.project.join("f")), "one\n");
        assert_eq!(read(place.project.join("d/x")), "x\n");
        assert!(place.project.join("src/main.py").exists());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_session_that_runs_goes_back_over_what_has_landed_and_to_its_beginning(world) {
        let place = Place::new(world);
        let script = "echo 1 > f; echo 1 >> README.md; echo ready; read x; echo 2 > f; rm README.md; echo g > g; echo more; \
                      read x; cat f README.md; test ! -e g && echo gone";
        let mut live = place.session(["--name", "s"], ["sh", "-c", script]).stdin_open().start();
        live.expect("ready");
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        live.write(b"\n");
        live.expect("more");
        // What landed is the owner's; of it nothing is taken back.
        place.landbox(["rewind", "s", "0", "--yes"]).output().ok();
        assert!(place.changes().is_empty(), "{:?}", place.changes());
        live.write(b"\n");
        let out = live.wait().ok().text();
        assert!(out.ends_with("more\n1\n# Project\n\nOne line.\n1\ngone\n"), "{out}");
        assert_eq!(read(place.project.join("f")), "1\n");
    }

    [user_kernel, root_fuse]
    fn what_a_session_writes_while_it_goes_back_stays_and_is_named(world) {
        let place = Place::new(world);
        let script = "echo 0 > busy; echo 1 > f; echo ready; read x; echo 2 > f; \
                      i=0; while test ! -e stop; do i=$((i+1)); echo $i > busy; test $i != 50 || echo more; done; cat f";
        let mut live = place.session(["--name", "s"], ["sh", "-c", script]).stdin_open().start();
        live.expect("ready");
        place.landbox(["checkpoint", "s"]).output().ok();
        live.write(b"\n");
        live.expect("more");
        let out = place.landbox(["rewind", "s", "1", "--yes"]).output();
        // Either all was looked at while it was held still, or nothing was done.
        assert!([0, 6].contains(&out.code()), "{}", out.errors());
        let pid = live.pid();
        landbox_tests::procs::kill(pid, rustix::process::Signal::TERM);
        live.wait();
        let id = place.json(["show", "s"])["id"].as_str().unwrap().to_owned();
        place.landbox(["rewind", &id, "1", "--yes"]).output().ok();
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        assert_eq!((read(place.project.join("f")), read(place.project.join("busy"))), ("1\n".into(), "0\n".into()));
    }

    [user_kernel]
    fn content_is_kept_once_and_goes_with_the_session(world) {
        let place = Place::new(world);
        place.session(["--name", "s"], ["sh", "-c", "head -c 3000000 /dev/urandom > big; cp big copy"]).output().ok();
        for _ in 0..4 {
            place.landbox(["checkpoint", "s"]).output().ok();
        }
        let dir = place.sessions()[0].join("checkpoints");
        let objects = fs::read_dir(dir.join("objects")).unwrap();
        let sizes: Vec<u64> = objects.map(|e| e.unwrap().metadata().unwrap().len()).collect();
        assert_eq!(sizes.iter().filter(|size| **size == 3_000_000).count(), 1, "{sizes:?}");
        let shown = place.json(["show", "s"]);
        assert!((3_000_000..4_000_000).contains(&shown["checkpoint_bytes"].as_u64().unwrap()), "{shown:#}");
        let face = place.landbox(["show", "s"]).output().ok().text();
        assert!(face.contains("MiB of at most 8.0 GiB"), "{face}");
        // What the session writes in place is another content, not the checkpoint's.
        place.landbox(["resume", "s", "--", "sh", "-c", "printf x | dd of=big conv=notrunc 2>/dev/null"]).output().ok();
        place.landbox(["rewind", "s", "1", "--yes"]).output().ok();
        let out = place.landbox(["resume", "s", "--", "cmp", "big", "copy"]).output();
        assert_eq!(out.code(), 0, "{}", out.errors());
        place.landbox(["discard", "s", "--yes"]).output().ok();
        assert!(!dir.exists());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn going_back_that_was_cut_short_is_gone_on_with_by_the_next_command(world) {
        let place = Place::new(world);
        place.session(["--name", "s"], ["sh", "-c", "echo one > f"]).output().ok();
        place.landbox(["checkpoint", "s"]).output().ok();
        let dir = place.sessions()[0].clone();
        let (upper, rewound) = (dir.join("layers/project/upper"), dir.join("layers/project/rewound"));
        // What is on its way to being what it was once.
        let copied = std::process::Command::new("cp").arg("-a").args([&upper, &rewound]).status().unwrap();
        assert!(copied.success());
        place.landbox(["resume", "s", "--", "sh", "-c", "echo two > f"]).output().ok();
        place.write(dir.join("checkpoints/rewinding"), "1\n");
        let out = place.landbox(["resume", "s", "--", "cat", "f"]).output().ok();
        assert_eq!(out.text(), "one\n");
        assert!(out.errors().contains("was on its way back to checkpoint 1, and is there now"), "{}", out.errors());
        assert!(!dir.join("checkpoints/rewinding").exists() && !rewound.exists());
    }

    [user_kernel, user_fuse, root_kernel]
    fn what_a_session_has_closed_to_its_owner_is_kept_and_comes_back_closed(world) {
        let place = Place::new(world);
        let script = "mkdir -p c/in/deep; echo secret > c/in/deep/f; echo s > c/s; ln c/s c/t; mkdir -m 000 empty; \
                      chmod 000 c/s c/in/deep/f; chmod 200 c/in; chmod 444 c; chmod 311 src; chmod 300 .";
        place.session(["--name", "s"], ["sh", "-c", script]).output().ok();
        let upper = place.sessions()[0].join("layers/project/upper");
        // As root, who sees all of it.
        let look = || {
            let mut found = Vec::new();
            let mut todo = vec![upper.clone()];
            while let Some(path) = todo.pop() {
                let meta = fs::symlink_metadata(&path).unwrap();
                if meta.is_dir() {
                    todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                }
                let text = if meta.is_file() { read(&path) } else { String::new() };
                found.push((path.strip_prefix(&upper).unwrap().to_owned(), meta.mode(), meta.uid(), meta.nlink(), text));
            }
            found.sort();
            found
        };
        let before = look();
        place.landbox(["checkpoint", "s"]).output().ok();
        assert_eq!(look(), before, "a look leaves no trace");
        assert!(!place.sessions()[0].join("checkpoints/lifted").exists());
        place.landbox(["resume", "s", "--", "sh", "-c", "chmod -R u+rwX .; rm -rf c empty; echo new > new"]).output().ok();
        assert_ne!(look(), before);
        place.landbox(["rewind", "s", "1", "--yes"]).output().ok();
        assert_eq!(look(), before);
        // And what going back replaced was kept though it was closed.
        place.landbox(["rewind", "s", "2", "--yes"]).output().ok();
        place.landbox(["rewind", "s", "1", "--yes"]).output().ok();
        assert_eq!(look(), before);
    }

    [user_kernel]
    fn of_a_running_session_what_cannot_be_read_is_named_and_nothing_is_kept(world) {
        let place = Place::new(world);
        let script = "mkdir d; echo x > d/x; chmod 000 d/x; echo ready; read end";
        let mut live = place.session(["--name", "s"], ["sh", "-c", script]).stdin_open().start();
        live.expect("ready");
        let out = place.landbox(["checkpoint", "s"]).output().expect(6);
        assert!(out.errors().contains("d/x") && out.errors().contains("end the session first"), "{}", out.errors());
        assert_eq!(place.json(["show", "s"])["checkpoints"].as_array().unwrap().len(), 0);
        live.write(b"\n");
        live.wait().ok();
        place.landbox(["checkpoint", "s"]).output().ok();
    }

    [user_kernel, user_fuse]
    fn a_checkpoint_can_be_thrown_away_alone_also_while_the_session_runs(world) {
        let place = Place::new(world);
        let script = "echo 1 > f; echo ready; read x; echo 2 > f; echo more; read x";
        let mut live = place.session(["--name", "s"], ["sh", "-c", script]).stdin_open().start();
        live.expect("ready");
        place.landbox(["checkpoint", "s"]).output().ok();
        live.write(b"\n");
        live.expect("more");
        place.landbox(["checkpoint", "s"]).output().ok();
        let changes = place.changes();
        let numbers = || {
            let shown = place.json(["show", "s"]);
            let all = shown["checkpoints"].as_array().unwrap().clone();
            all.iter().map(|one| one["number"].as_u64().unwrap()).collect::<Vec<_>>()
        };
        let id = place.json(["show", "s"])["id"].as_str().unwrap().to_owned();
        for (args, code, says) in [
            (&["discard", "s", "--checkpoint", "2"][..], 2, "the same command with --yes does it"),
            (&["discard", "s", "--checkpoint", "9", "--yes"], 2, "has no checkpoint 9"),
            (&["discard", "s", "--checkpoint", "0", "--yes"], 2, "is its beginning"),
            (&["discard", "s", "--checkpoint", "1", "--yes", "--", "f"], 2, "--checkpoint"),
        ] {
            let out = place.landbox(args).output().expect(code);
            assert!(out.errors().contains(says), "{}", out.errors());
            assert_eq!(numbers(), [1, 2]);
        }
        let out = place.landbox(["discard", "s", "--checkpoint", "2", "--yes", "--json"]).output().ok();
        assert!(out.errors().contains(&format!("Removed checkpoint 2 of session {id}.")), "{}", out.errors());
        let shown: Value = out.json();
        assert_eq!((&shown["state"], shown["checkpoints"].as_array().unwrap().len()), (&"running".into(), 1));
        assert_eq!(place.changes(), changes, "the session has what it had");
        let taken: Value = place.json(["checkpoint", "s"]);
        assert_eq!(taken["number"], 3, "no number is given twice");
        live.write(b"\n");
        live.wait().ok();
        place.landbox(["discard", "s", "--checkpoint", "1", "--checkpoint", "3", "--yes"]).output().ok();
        assert_eq!(numbers(), Vec::<u64>::new());
        assert_eq!(place.changes(), changes);
    }
}

#[test]
fn going_back_without_a_checkpoint_is_going_back_to_the_beginning() {
    let place = Place::new(landbox_tests::World::USUAL);
    place.session(["--name", "s"], ["sh", "-c", "echo x > x; echo h > ~/h"]).output().ok();
    let out = place.landbox(["rewind", "s", "7", "--yes"]).output().expect(2);
    assert!(out.errors().contains("has no checkpoint 7\n"), "{}", out.errors());
    let out = place.landbox(["rewind", "s", "--yes"]).output().ok();
    assert!(out.errors().contains("is back at its beginning (2"), "{}", out.errors());
    assert!(out.errors().contains("); what it was is checkpoint 1"), "{}", out.errors());
    assert!(place.changes().is_empty());
    let out = place.landbox(["resume", "s", "--", "sh", "-c", "ls x ~/h"]).output().expect(2);
    assert_eq!(out.text(), "");
    let out = place.landbox(["rewind", "s", "1", "--yes"]).output().ok();
    assert!(out.errors().contains("is back at checkpoint 1"), "{}", out.errors());
    let out = place.landbox(["rewind", "s", "1", "--yes"]).output().ok();
    assert!(
        out.errors().contains("is as it was at checkpoint 1; nothing was changed"),
        "{}",
        out.errors()
    );
    assert!(out.errors().contains("goes further back"), "{}", out.errors());
    assert_eq!(place.changes(), [("x".to_owned(), "added".to_owned())]);
}

#[test]
fn going_back_without_a_number_passes_what_is_the_same_and_what_going_back_has_left() {
    let place = Place::new(landbox_tests::World::USUAL);
    place.session(["--name", "s"], ["sh", "-c", "echo good > f; echo 1 > ~/h"]).output().ok();
    let again = |task: &str| place.landbox(["resume", "s", "--", "sh", "-c", task]).output().ok();
    again("echo bad > f");
    // Turns that leave the project as it is, as `exit` does: what they find is what the session holds.
    again("echo 2 > ~/h");
    again("echo 3 > ~/h");
    let holds = |what: &str| place.landbox(["diff", "s"]).output().ok().text().contains(what);
    let back = || place.landbox(["rewind", "s", "--yes"]).output().ok().errors();
    let said = back();
    assert!(said.contains("is back at checkpoint 1 (before turn 2, 2"), "{said}");
    assert!(holds("+good"));
    // Another step goes on from there, and not to what the first one replaced.
    let said = back();
    assert!(said.contains("is back at its beginning"), "{said}");
    assert!(place.changes().is_empty());
    let said = back();
    assert!(said.contains("nothing was changed") && said.contains("landbox show "), "{said}");
    let out = place.landbox(["rewind", "s", "2", "--yes"]).output().ok();
    assert!(out.errors().contains("is back at checkpoint 2; "), "{}", out.errors());
    assert!(holds("+bad"));
}
