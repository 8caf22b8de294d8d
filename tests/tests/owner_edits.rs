//! The owner edits while the session runs: what the session saw is known, what both did is merged or told, nothing of the
//! owner's is ever lost.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::run::Live;
use landbox_tests::{Place, worlds};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

const EIGHT: &str = "1\n2\n3\n4\n5\n6\n7\n8\n";

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// What the owner does to a file.
type Edit<'a> = &'a dyn Fn(&Path);

/// A session that does `first`, waits for a word, and does `then`.
fn begin(place: &Place, first: &str, then: &str) -> Live {
    let script = format!("{first}\necho ready; read go\n{then}");
    let mut live = place.session::<&str, _>([], ["sh", "-c", &script]).stdin_open().start();
    live.expect("ready");
    live
}

fn end(mut live: Live) {
    live.write(b"go\n");
    live.wait().ok();
}

/// Waits until the base of `path` has been taken.
fn taken(place: &Place, path: &str) {
    let until = Instant::now() + Duration::from_secs(30);
    let is_taken = || {
        let sessions = std::fs::read_dir(place.state().join("sessions")).unwrap();
        let mut live = sessions.map(|s| s.unwrap().path().join("base/project.live"));
        live.any(|file| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            text.lines().any(|line| {
                let line: Value = serde_json::from_str(line).unwrap_or_default();
                line["p"] == path || line["p"] == serde_json::json!(path.as_bytes())
            })
        })
    };
    while !is_taken() {
        assert!(Instant::now() < until, "the base of {path} was never taken");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn states(place: &Place) -> Vec<(String, String)> {
    let card: Value = place.landbox(["diff", "--json"]).output().ok().json();
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let changes = card["changes"].as_array().unwrap();
    changes.iter().map(|c| (text(&c["path"]), text(&c["state"]))).collect()
}

fn land(place: &Place, args: &[&str]) -> i32 {
    let all = ["land", "--apply", "--yes"].iter().chain(args);
    place.landbox(all).output().code()
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse] fn edits_of_other_lines_meanwhile_are_merged_and_named_while_it_runs(world) {
        let place = Place::new(world);
        for name in ["f", "moved over"] {
            place.write(place.project.join(name), EIGHT);
        }
        let task = "for f in f 'moved over'; do sed s/1/one/ \"$f\" > ../t; cat ../t > \"$f\"; done";
        let live = begin(&place, task, "");
        for name in ["f", "moved over"] {
            taken(&place, name);
        }
        let edited = EIGHT.replace('8', "eight");
        place.write(place.project.join("f"), &edited);
        place.write(place.project.join("new"), &edited);
        std::fs::rename(place.project.join("new"), place.project.join("moved over")).unwrap();
        let shown: Value = place.landbox(["show", "--json"]).output().ok().json();
        assert_eq!(shown["owner_edits"], serde_json::json!(["f", "moved over"]));
        assert!(place.landbox(["show"]).output().ok().text().contains("moved over, which the session changed"));
        end(live);
        let merged = |name: &str| (name.to_owned(), "merged".to_owned());
        assert_eq!(states(&place), [merged("f"), merged("moved over")]);
        assert_eq!(land(&place, &[]), 0);
        for name in ["f", "moved over"] {
            assert_eq!(read(place.project.join(name)), EIGHT.replace('8', "eight").replace('1', "one"));
        }
        assert_eq!(place.landbox(["land"]).output().code(), 4);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn what_the_owner_made_of_a_changed_file_stays_until_they_say_otherwise(world) {
        let owner: [(&str, Edit); 4] = [
            ("same line", &|f| std::fs::write(f, EIGHT.replace('1', "mine")).unwrap()),
            ("deleted", &|f| std::fs::remove_file(f).unwrap()),
            ("a folder", &|f| {
                std::fs::remove_file(f).unwrap();
                std::fs::create_dir(f).unwrap();
                std::fs::write(f.join("x"), "x").unwrap();
            }),
            ("a link", &|f| {
                std::fs::remove_file(f).unwrap();
                std::os::unix::fs::symlink("README.md", f).unwrap();
            }),
        ];
        for (what, edit) in owner {
            let place = Place::new(world);
            let file = place.project.join("f");
            place.write(&file, EIGHT);
            place.write(place.project.join("other"), "1\n");
            let live = begin(&place, "sed -i s/1/theirs/ f; echo 2 > other", "");
            taken(&place, "f");
            edit(&file);
            let look = || (file.symlink_metadata().map(|m| m.file_type()).ok(), std::fs::read(&file).ok());
            let before = look();
            end(live);
            assert_eq!(land(&place, &[]), 3, "{what}");
            assert_eq!(land(&place, &["--resolve", "f=yours"]), 2, "{what}");
            assert_eq!((look(), read(place.project.join("other"))), (before.clone(), "1\n".to_owned()), "{what}");
            let mine = ["land", "--apply", "--yes", "--resolve", "f=mine"];
            let out = place.landbox(mine).output().ok();
            let said = out.errors();
            assert!(said.contains("Landed 1 change in ") && said.contains("; 1 of the session's changes was dropped;"), "{said}");
            assert_eq!((look(), read(place.project.join("other"))), (before, "2\n".to_owned()), "{what}");
            assert_eq!(place.landbox(["land"]).output().code(), 4, "{what}");
            assert_eq!(place.json(["undo"])["changes"], 1, "{what}");
        }
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn a_file_replaced_before_the_session_wrote_it_is_never_merged_with_the_wrong_base(world) {
        let place = Place::new(world);
        let file = place.project.join("f");
        place.write(&file, EIGHT);
        // It has been looked up inside, so the copy is made of the old file.
        let live = begin(&place, "exec 9< f; cat f > /dev/null", "echo theirs >> f; cat <&9 > /dev/null");
        let edited = EIGHT.replace('1', "the owner's");
        place.write(place.project.join("new"), &edited);
        std::fs::rename(place.project.join("new"), &file).unwrap();
        end(live);
        let state = states(&place);
        let code = land(&place, &[]);
        let now = read(&file);
        if code == 0 {
            // Then the session saw the owner's file, and wrote on from it.
            assert_eq!(now, format!("{edited}theirs\n"), "{state:?}");
        } else {
            assert_eq!((code, now.as_str()), (3, edited.as_str()), "{state:?}");
            assert_eq!(state, [("f".to_owned(), "conflict".to_owned())]);
        }
    }

    [user_kernel, root_kernel] fn a_file_edited_in_place_before_the_session_wrote_it_is_what_the_session_saw(world) {
        let place = Place::new(world);
        let file = place.project.join("f");
        place.write(&file, EIGHT);
        let live = begin(&place, "cat f > /dev/null", "echo theirs >> f; sleep 0.1; echo done; read go");
        std::fs::write(&file, EIGHT.replace('1', "the owner's")).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let mut live = live;
        live.write(b"go\n");
        live.expect("done");
        taken(&place, "f");
        end(live);
        assert_eq!(states(&place), [("f".to_owned(), "clean".to_owned())]);
        assert_eq!(land(&place, &[]), 0);
        assert_eq!(read(&file), EIGHT.replace('1', "the owner's") + "theirs\n");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn a_folder_replaced_meanwhile_is_no_base_for_what_lies_in_it(world) {
        let place = Place::new(world);
        for dir in ["d", "other"] {
            place.write(place.project.join(dir).join("f"), format!("{dir}\n{EIGHT}"));
            place.write(place.project.join(dir).join("g"), format!("{dir}\n"));
        }
        let live = begin(&place, "cat d/g > /dev/null", "echo theirs >> d/g");
        let at = |name: &str| place.project.join(name);
        std::fs::rename(at("d"), at("d.old")).unwrap();
        std::fs::rename(at("other"), at("d")).unwrap();
        place.write(at("d/touched"), "x");
        end(live);
        assert_eq!(land(&place, &[]), 3);
        assert_eq!(read(at("d/g")), "other\n");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn edits_of_other_files_never_matter(world) {
        let place = Place::new(world);
        let at = |name: &str| place.project.join(name);
        let live = begin(&place, "echo theirs >> src/main.py; rm src/deep/er/file.txt", "");
        taken(&place, "src/main.py");
        taken(&place, "src/deep/er/file.txt");
        place.write(at("README.md"), "the owner's\n");
        place.write(at("src/other.py"), "the owner's\n");
        place.write(at("src/deep/er/more.txt"), "the owner's\n");
        end(live);
        assert!(states(&place).iter().all(|(_, state)| state == "clean"), "{:?}", states(&place));
        assert_eq!(land(&place, &[]), 0);
        assert_eq!(read(at("src/main.py")), "print('hello')\ntheirs\n");
        for name in ["README.md", "src/other.py", "src/deep/er/more.txt"] {
            assert_eq!(read(at(name)), "the owner's\n");
        }
        assert!(!at("src/deep/er/file.txt").exists());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn what_was_taken_survives_a_killed_landbox(world) {
        let place = Place::new(world);
        let file = place.project.join("f");
        place.write(&file, EIGHT);
        let live = begin(&place, "sed -i s/1/one/ f", "sleep 60");
        taken(&place, "f");
        let tree = landbox_tests::procs::descendants(live.pid());
        landbox_tests::procs::kill(live.pid(), rustix::process::Signal::KILL);
        live.wait_open().expect(1009);
        landbox_tests::procs::gone(&tree, 30);
        std::fs::write(&file, EIGHT.replace('8', "eight")).unwrap();
        assert_eq!(land(&place, &[]), 0);
        assert_eq!(read(&file), EIGHT.replace('8', "eight").replace('1', "one"));
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn what_the_owner_deleted_unseen_is_not_put_back(world) {
        let place = Place::new(world);
        let at = |name: &str| place.project.join(name);
        for name in ["f", "moved", "kept/g"] {
            place.write(at(name), EIGHT);
        }
        let go = place.outside.join("go");
        let wait = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
        let write = "for f in f moved kept/g new; do echo theirs > t; mv t $f; done; touch last";
        let live = begin(&place, "true", &format!("echo going\n{wait}\n{write}\nsleep 60"));
        let mut live = live;
        live.write(b"go\n");
        // What was written must have come in before nobody passes it on.
        live.expect("going");
        let tree = landbox_tests::procs::descendants(live.pid());
        // Nobody watches any more.
        landbox_tests::procs::kill(live.pid(), rustix::process::Signal::STOP);
        place.write(&go, "");
        let until = Instant::now() + Duration::from_secs(60);
        let sessions = place.state().join("sessions");
        let session = std::fs::read_dir(sessions).unwrap().next().unwrap().unwrap().path();
        while !session.join("layers/project/upper/last").exists() {
            assert!(Instant::now() < until, "the session never wrote");
            std::thread::sleep(Duration::from_millis(20));
        }
        std::fs::remove_file(at("f")).unwrap();
        std::fs::rename(at("moved"), place.outside.join("moved")).unwrap();
        landbox_tests::procs::kill(live.pid(), rustix::process::Signal::KILL);
        live.wait_open().expect(1009);
        landbox_tests::procs::gone(&tree, 30);
        let all = states(&place);
        for (path, state) in [("f", "conflict"), ("moved", "conflict"), ("kept/g", "clean")] {
            assert!(all.contains(&(path.into(), state.into())), "{path}: {all:?}");
        }
        let out = place.landbox(["land", "--apply", "--yes"]).output().expect(3);
        assert!(out.errors().contains("you may have deleted it"), "{}", out.errors());
        assert!(!at("f").exists() && !at("moved").exists() && read(at("kept/g")) == EIGHT);
        let theirs = ["--resolve", "f=theirs", "--resolve-all", "mine"];
        assert_eq!(land(&place, &theirs), 0);
        assert_eq!(read(at("f")), "theirs\n");
        assert!(!at("moved").exists() && !at("new").exists());
        assert_eq!(read(at("kept/g")), "theirs\n");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn what_was_lost_to_the_watch_is_a_conflict_and_what_it_found_again_is_merged(world) {
        let place = Place::new(world);
        let at = |name: &str| place.project.join(name);
        for name in ["f", "g"] {
            place.write(at(name), EIGHT);
        }
        let go = place.outside.join("go");
        let wait = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
        // More names than the kernel's queue of a watch holds, before those that matter.
        let most: usize = read("/proc/sys/fs/inotify/max_queued_events").trim().parse().unwrap();
        let flood = format!("python3 -c 'import os\nfor i in range({}): open(\"t\", \"w\").close(); os.unlink(\"t\")'", most / 2 + 100);
        let write = "for f in f g; do sed s/1/one/ $f > ../t; cat ../t > $f; done; touch last";
        let live = begin(&place, "touch first", &format!("echo going\n{wait}\n{flood}\n{write}\necho written; read end"));
        taken(&place, "first");
        let mut live = live;
        live.write(b"go\n");
        live.expect("going");
        landbox_tests::procs::kill(live.pid(), rustix::process::Signal::STOP);
        place.write(&go, "");
        let until = Instant::now() + Duration::from_secs(120);
        let session = place.sessions().pop().unwrap();
        while !session.join("layers/project/upper/last").exists() {
            assert!(Instant::now() < until, "the session never wrote");
            std::thread::sleep(Duration::from_millis(20));
        }
        let edited = EIGHT.replace('8', "eight");
        std::fs::write(at("f"), &edited).unwrap();
        landbox_tests::procs::kill(live.pid(), rustix::process::Signal::CONT);
        live.expect("written");
        taken(&place, "g");
        taken(&place, "last");
        std::fs::write(at("g"), &edited).unwrap();
        end(live);
        let all = states(&place);
        for (path, state) in [("f", "conflict"), ("g", "merged"), ("last", "clean")] {
            assert!(all.contains(&(path.into(), state.into())), "{path}: {all:?}");
        }
        assert_eq!(land(&place, &[]), 3);
        assert_eq!((read(at("f")), read(at("g"))), (edited.clone(), edited));
        assert_eq!(land(&place, &["--resolve", "f=mine"]), 0);
        assert_eq!(read(at("g")), EIGHT.replace('8', "eight").replace('1', "one"));
    }

    // A file without a name tells the time just before the start; a folder that takes none leaves it unknown.
    [user_kernel, user_fuse] fn in_a_folder_that_takes_no_file_all_is_a_conflict_and_lands_when_told(world) {
        let place = Place::new(world);
        let file = place.project.join("src/main.py");
        std::fs::set_permissions(&place.project, PermissionsExt::from_mode(0o555)).unwrap();
        let script = "echo more >> src/main.py; echo new > src/new";
        place.session(["--name", "s"], ["sh", "-c", script]).output().ok();
        let states = states(&place);
        let before = read(&file);
        assert!(states.contains(&("src/main.py".to_owned(), "conflict".to_owned())), "{states:?}");
        assert_eq!(land(&place, &[]), 3);
        assert_eq!((read(&file), place.project.join("src/new").exists()), (before.clone(), false));
        assert_eq!(land(&place, &["--resolve-all", "theirs"]), 0);
        assert_eq!(read(&file), format!("{before}more\n"));
        assert_eq!(read(place.project.join("src/new")), "new\n");
        assert_eq!(std::fs::metadata(&place.project).unwrap().permissions().mode() & 0o777, 0o555);
        std::fs::set_permissions(&place.project, PermissionsExt::from_mode(0o755)).unwrap();
    }

    // fuse-overlayfs refuses to save such a file.
    [user_kernel, root_kernel] fn what_the_session_still_sees_of_a_deleted_file_and_saves_anew_is_not_put_back(world) {
        let place = Place::new(world);
        let at = |name: &str| place.project.join(name);
        for name in ["f", "d/e/f"] {
            place.write(at(name), EIGHT);
        }
        let save = "for f in f d/e/f new d/e/new; do echo theirs > t; mv t $f; done";
        let live = begin(&place, "cat f d/e/f > /dev/null; touch first", save);
        taken(&place, "first");
        // Longer than a tick of the clock that files are stamped by: within one nobody can say who came first.
        std::thread::sleep(Duration::from_millis(50));
        std::fs::remove_file(at("f")).unwrap();
        std::fs::remove_file(at("d/e/f")).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        end(live);
        let all = states(&place);
        for (path, state) in [("f", "conflict"), ("d/e/f", "conflict"), ("new", "clean")] {
            assert!(all.contains(&(path.into(), state.into())), "{path}: {all:?}");
        }
        // What the owner makes there later is nothing that the session saw.
        place.write(at("f"), "the owner's\n");
        let id = place.sessions()[0].file_name().unwrap().to_owned().into_string().unwrap();
        place.landbox(["resume", &id, "--", "true"]).output().ok();
        assert_eq!(land(&place, &[]), 3);
        assert_eq!(read(at("f")), "the owner's\n");
        assert!(!at("d/e/f").exists());
        assert_eq!(land(&place, &["--resolve-all", "theirs"]), 0);
        assert_eq!(read(at("f")) + &read(at("d/e/f")) + &read(at("new")), "theirs\ntheirs\ntheirs\n");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn new_files_land_where_the_owner_is_busy_in_the_same_folder(world) {
        let place = Place::new(world);
        let at = |name: &str| place.project.join(name);
        place.write(at("f"), EIGHT);
        let live = begin(&place, "touch first", "echo t > a; mv a new; mkdir -p d/e; echo t > d/e/f; echo t > t; mv t f\necho done; read go");
        // Somebody watches from here on.
        taken(&place, "first");
        // Files are stamped by a clock that ticks every few milliseconds: within one tick nobody can say who came first.
        std::thread::sleep(std::time::Duration::from_millis(50));
        std::fs::remove_file(at("README.md")).unwrap();
        place.write(at("before"), "mine\n");
        std::thread::sleep(std::time::Duration::from_millis(50));
        let mut live = live;
        live.write(b"go\n");
        live.expect("done");
        for path in ["new", "d", "f"] {
            taken(&place, path);
        }
        place.write(at("after"), "mine\n");
        end(live);
        assert!(states(&place).iter().all(|(_, state)| state == "clean"), "{:?}", states(&place));
        assert_eq!(land(&place, &[]), 0);
        assert_eq!([read(at("new")), read(at("d/e/f")), read(at("f"))].concat(), "t\nt\nt\n");
    }
}

worlds! {
    // fuse-overlayfs refuses to save such a file.
    [user_kernel, root_kernel] fn what_the_owner_deletes_as_the_session_starts_is_not_put_back(world) {
        // Before anybody watches; the session may be over by then, or go on for long.
        for more in ["", "sleep 1"] {
            let place = Place::new(world);
            let at = |name: &str| place.project.join(name);
            for name in ["f", "d/e/f", "quiet/f"] {
                place.write(at(name), EIGHT);
            }
            let save = format!("for f in f d/e/f quiet/new; do echo theirs > t; mv t $f; done; touch later; {more}");
            let live = begin(&place, "cat f d/e/f quiet/f > /dev/null", &save);
            std::fs::remove_file(at("f")).unwrap();
            std::fs::remove_file(at("d/e/f")).unwrap();
            std::thread::sleep(Duration::from_millis(30));
            end(live);
            // The owner's next change says nothing of the one before.
            let all = states(&place);
            for (path, state) in [("f", "conflict"), ("d/e/f", "conflict"), ("quiet/new", "clean")] {
                assert!(all.contains(&(path.into(), state.into())), "{more} {path}: {all:?}");
            }
            assert_eq!(land(&place, &[]), 3);
            assert!(!at("f").exists() && !at("d/e/f").exists());
        }
    }
}
