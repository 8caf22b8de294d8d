//! Reviewing, landing and taking back what a session changed while it runs.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::procs::{Proc, descendants, wait_for};
use landbox_tests::run::Live;
use landbox_tests::{Place, worlds};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path.as_ref()).unwrap_or_else(|e| format!("{e}"))
}

/// A session whose shell runs each line that is written to it, and says `done` after it.
struct Shell(Live);

impl Shell {
    fn start(place: &Place, script: &str) -> Self {
        let line = format!(
            "{script}\necho ready; n=0; while read -r l; do eval \"$l\"; n=$((n+1)); echo \"done $n\"; done"
        );
        let mut live = place.session(["--name", "s"], ["sh", "-c", &line]).stdin_open().start();
        live.expect("ready");
        Self(live)
    }

    fn run(&mut self, number: usize, line: &str) {
        self.0.write(format!("{line}\n").as_bytes());
        self.0.expect(&format!("done {number}"));
    }

    fn end(self) -> String {
        self.0.wait().ok().text()
    }
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn paths_of_a_running_session_land_alone_and_the_rest_waits_in_it(world) {
        let place = Place::new(world);
        let mut shell = Shell::start(&place, "echo two >> README.md; echo new > new; rm src/main.py; mkdir -p d/e; echo x > d/e/x; echo y > d/y");
        place.landbox(["land", "s", "--apply", "--yes", "--", "d/e", "src/main.py"]).output().ok();
        assert_eq!(read(place.project.join("d/e/x")), "x\n");
        assert!(!place.project.join("src/main.py").exists() && !place.project.join("d/y").exists());
        assert!(!place.project.join("new").exists() && !read(place.project.join("README.md")).contains("two"));
        let waits = [("README.md", "modified"), ("d/y", "added"), ("new", "added")].map(|(p, k)| (p.to_owned(), k.to_owned()));
        assert_eq!(place.changes(), waits);
        // What has landed it may change again, and what waits it sees still.
        shell.run(1, "echo more >> d/e/x; cat new d/y; test ! -e src/main.py");
        place.landbox(["land", "s", "--apply", "--yes", "--exclude", "new"]).output().ok();
        assert_eq!(read(place.project.join("d/e/x")), "x\nmore\n");
        assert_eq!(place.changes(), [("new".to_owned(), "added".to_owned())]);
        assert!(shell.end().contains("new\ny\n"));
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        assert_eq!(place.changes(), []);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_landed_of_a_running_session_no_longer_shows_and_later_changes_do(world) {
        let place = Place::new(world);
        let mut shell = Shell::start(&place, "echo two >> README.md; echo new > new; rm src/main.py; mkdir -p d/e; echo x > d/e/x");
        assert_eq!(place.changes().len(), 4);
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        assert!(read(place.project.join("README.md")).ends_with("two\n"));
        assert_eq!(read(place.project.join("d/e/x")), "x\n");
        assert!(!place.project.join("src/main.py").exists());
        assert_eq!(place.changes(), []);
        shell.run(1, "echo three >> README.md; cat new; rm new");
        assert_eq!(place.changes(), [("README.md".into(), "modified".into()), ("new".into(), "deleted".into())]);
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        assert!(read(place.project.join("README.md")).ends_with("two\nthree\n"));
        assert!(!place.project.join("new").exists());
        assert!(shell.end().contains("new\n"));
        assert_eq!(place.changes(), []);
        let shown = place.json(["show", "s"]);
        assert_eq!(shown["landing"]["count"], 2, "{shown:#}");
        // Equal copies are gone by the next launch, so that the owner's later edits show.
        place.write(place.project.join("README.md"), "the owner's\n");
        let out = place.landbox(["resume", "s", "--", "cat", "README.md"]).output().ok();
        assert_eq!(out.text(), "the owner's\n");
        assert_eq!(place.changes(), []);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_a_killed_command_had_made_ready_in_a_running_session_is_no_change_and_goes_with_the_next(world) {
        let place = Place::new(world);
        // So large that it takes a while to copy.
        place.write(place.project.join("large"), vec![b'x'; 16 << 20]);
        let mut shell = Shell::start(&place, "echo more >> large; echo mine > .landbox-0123456789abcdef");
        let upper = place.sessions()[0].join("layers/project/upper");
        let ready = || {
            let names = fs::read_dir(&upper).unwrap().map(|entry| entry.unwrap().file_name());
            let names = names.filter(|name| name.to_str().unwrap().starts_with(".landbox-"));
            names.filter(|name| name != ".landbox-0123456789abcdef").count()
        };
        let end = std::time::Instant::now() + std::time::Duration::from_secs(120);
        let mut times = 0;
        while ready() == 0 {
            assert!(std::time::Instant::now() < end, "no command was ever killed at it");
            let discard = place.landbox(["discard", "s", "--yes", "--", "large"]).start();
            wait_for("the copy, or the end", 60, || {
                (ready() > 0 || !Proc::read(discard.pid()).is_some_and(|p| p.alive())).then_some(())
            });
            kill_process(Pid::from_raw(discard.pid()).unwrap(), Signal::KILL).unwrap();
            discard.wait();
            times += 1;
            shell.run(times, "echo more >> large");
        }
        // `show` only looks.
        let note = read(place.sessions()[0].join("prepared"));
        let shown = place.json(["show", "s"]);
        assert_eq!((shown["changes"]["files"].as_u64(), ready()), (Some(2), 1), "{note} {shown:#}");
        let out = place.landbox(["diff", "s", "--stat"]).output().ok();
        assert!(out.errors().contains("had made ready"), "{}", out.errors());
        assert_eq!(ready(), 0);
        let changes = [(".landbox-0123456789abcdef".into(), "added".into()), ("large".into(), "modified".into())];
        assert_eq!(place.changes(), changes);
        shell.run(times + 1, "ls -A | grep -c landbox-; cat .landbox-*");
        assert!(shell.end().contains("1\nmine\n"));
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_folder_that_became_a_link_is_taken_back_with_what_it_held(world) {
        let place = Place::new(world);
        let script = "cp -a src/deep src/deep.was; rm -r src/deep; ln -s deep.was src/deep; echo more >> src/deep/er/file.txt";
        let shell = Shell::start(&place, script);
        let out = place.landbox(["discard", "s", "--yes", "--", "src/deep"]).output().ok();
        assert!(!out.errors().contains("stays"), "{}", out.errors());
        shell.end();
        let changes = place.changes();
        assert!(changes.iter().all(|(path, _)| path.starts_with("src/deep.was")), "{changes:?}");
        let out = place.landbox(["resume", "s", "--", "find", "src/deep", "-type", "f"]).output().ok();
        assert_eq!(out.text(), "src/deep/er/file.txt\n");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_is_taken_back_from_a_running_session_it_sees_at_once_and_later_writes_stay(world) {
        let place = Place::new(world);
        let script = "echo two >> README.md; echo new > new; rm src/main.py; rm -r src/deep; ln -sfn nowhere link; \
                      chmod 700 src; mkdir -p d/e; echo x > d/e/x; cd src";
        let mut shell = Shell::start(&place, script);
        assert!(place.changes().len() >= 6);
        place.write(place.project.join("README.md"), "# Project\n\nThe owner's line.\n");
        place.landbox(["discard", "s", "--yes"]).output().ok();
        assert_eq!(place.changes(), []);
        shell.run(1, "pwd; cat ../README.md main.py deep/er/file.txt ../link; ls ..; stat -c %a .");
        shell.run(2, "echo later >> ../README.md; echo again > ../new");
        let text = shell.end();
        let mode = fs::metadata(place.project.join("src")).unwrap().permissions().mode() & 0o777;
        let expected = format!(
            "# Project\n\nThe owner's line.\nprint('hello')\ndeep\nprint('hello')\nREADME.md\nlink\nsrc\n{mode:o}\n"
        );
        assert!(text.contains(&expected), "{text}");
        assert_eq!(read(place.project.join("README.md")), "# Project\n\nThe owner's line.\n");
        assert_eq!(place.changes(), [("README.md".into(), "modified".into()), ("new".into(), "added".into())]);
        let card = place.json(["diff", "--exclude", "new"]);
        assert_eq!((&card["added"], &card["deleted"]), (&1.into(), &0.into()), "{card:#}");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn paths_are_taken_back_alone_while_the_session_runs_and_when_it_has_ended(world) {
        let place = Place::new(world);
        for name in ["a", "b", "c"] {
            place.write(place.project.join("dir").join(name), format!("{name}\n"));
        }
        let script = "rm -r dir; mkdir dir; echo new > dir/a; echo z > dir/z; echo two >> README.md; echo n > n";
        let mut shell = Shell::start(&place, script);
        let all: Vec<(String, String)> = place.changes();
        let names = |place: &Place| -> Vec<String> { place.changes().into_iter().map(|c| c.0).collect() };
        assert_eq!(names(&place), ["README.md", "dir/a", "dir/b", "dir/c", "dir/z", "n"], "{all:?}");
        place.landbox(["discard", "s", "--yes", "--", "dir/b", "n"]).output().ok();
        assert_eq!(names(&place), ["README.md", "dir/a", "dir/c", "dir/z"]);
        shell.run(1, "cat dir/b; ls dir");
        let text = shell.end();
        assert!(text.contains("b\na\nb\nz\ndone"), "{text}");
        // Ended: the layer itself is changed.
        place.landbox(["discard", "s", "--yes", "--", "dir/c", "README.md"]).output().ok();
        assert_eq!(names(&place), ["dir/a", "dir/z"]);
        let out = place.landbox(["resume", "s", "--", "sh", "-c", "cat dir/b dir/c dir/a; ls dir"]).output().ok();
        assert_eq!(out.text(), "b\nc\nnew\na\nb\nc\nz\n");
        place.landbox(["discard", "s", "--yes", "--", "dir"]).output().ok();
        assert_eq!(place.changes(), []);
        let out = place.landbox(["resume", "s", "--", "sh", "-c", "cat dir/* README.md; ls dir"]).output().ok();
        assert!(out.text().starts_with("a\nb\nc\n# Project") && out.text().ends_with("a\nb\nc\n"), "{}", out.text());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_session_that_never_rests_is_held_still_or_said_to_be_busy(world) {
        let place = Place::new(world);
        let script = "echo ready; i=0; while :; do i=$((i+1)); echo $i > counter; echo $i > copy; done";
        let mut live = place.session(["--name", "s"], ["timeout", "60", "sh", "-c", script]).limit(90).start();
        live.expect("ready");
        let mut pictures = 0;
        for _ in 0..40 {
            let out = place.landbox(["land", "s", "--apply", "--yes"]).output();
            match out.code() {
                0 => pictures += 1,
                6 => assert!(out.errors().contains("busy"), "{}", out.errors()),
                4 => {}
                other => panic!("{other}: {}", out.errors()),
            }
            // The one is written right after the other, so no picture can be further apart.
            if out.code() == 0 {
                let number = |name: &str| read(place.project.join(name)).trim().parse::<i64>().unwrap_or(0);
                let apart = number("counter") - number("copy");
                assert!((0..=1).contains(&apart) || number("counter") == 0 || number("copy") == 0, "{apart}");
            }
        }
        assert!(pictures > 0);
        kill_process(Pid::from_raw(live.pid()).unwrap(), Signal::TERM).unwrap();
        live.wait();
    }

    // The test is in the place of the landing: of one that is killed no more is left than an end of the guard's input.
    [user_kernel, root_kernel]
    fn a_session_that_is_held_still_goes_on_when_whoever_holds_it_is_gone(world) {
        let place = Place::new(world);
        let script = "echo ready; i=0; while :; do i=$((i+1)); echo $i > counter; done";
        let mut live = place.session(["--name", "s"], ["sh", "-c", script]).limit(300).start();
        live.expect("ready");
        let writer = wait_for("the shell", 60, || descendants(live.pid()).into_iter().find(|p| p.name == "sh"));
        let is_stopped = || Proc::read(writer.pid).unwrap().state == 'T';
        let send = |pid, signal| kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        let mut guard = place.landbox(["util", "thaw"]).stdin_open().start();
        guard.write(format!("{} {}\n", writer.pid, writer.start).as_bytes());
        send(writer.pid, Signal::STOP);
        wait_for("the stop", 60, || is_stopped().then_some(()));
        guard.close_stdin();
        guard.wait().ok();
        wait_for("the session to wake", 60, || (!is_stopped()).then_some(()));
        let counter = || read(format!("/proc/{}/cwd/counter", writer.pid));
        let before = counter();
        wait_for("the session to go on", 60, || (counter() != before).then_some(()));
        send(live.pid(), Signal::TERM);
        live.wait();
    }

    [user_kernel]
    fn a_program_on_the_terminal_keeps_it_while_the_session_is_looked_at(world) {
        let place = Place::new(world);
        let mut terminal = place
            .session(["--name", "s"], ["bash", "--norc", "-i"])
            .terminal(80, 24);
        terminal.expect("$");
        terminal.send("n=0; echo rea''dy\n");
        let at = terminal.expect_after(0, "ready");
        terminal.send("bash --norc -c 'for i in {1..100000}; do echo $i > f; read -t 0 && read x && break; done; echo got-$x'\n");
        for _ in 0..10 {
            place.landbox(["diff", "s", "--stat"]).output();
        }
        terminal.send("word\n");
        let at = terminal.expect_after(at, "got-word");
        terminal.send("jobs; exit 0\n");
        assert_eq!(terminal.wait(), 0, "{}", terminal.shown());
        assert!(!terminal.shown()[at..].contains("Stopped"), "{}", terminal.shown());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_landed_and_was_deleted_afterwards_stays_deleted_at_the_next_launch(world) {
        let place = Place::new(world);
        let mut shell = Shell::start(&place, "mkdir -p n/m; echo x > n/m/x; echo y > n/y; echo z > z");
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        shell.run(1, "rm -r n z");
        shell.end();
        let deleted: Vec<(String, String)> = ["n/m/x", "n/y", "z"].map(|p| (p.into(), "deleted".into())).into();
        assert_eq!(place.changes(), deleted);
        let out = place.landbox(["resume", "s", "--", "ls"]).output().ok();
        assert_eq!(out.text(), "README.md\nlink\nsrc\n");
        assert_eq!(place.changes(), deleted);
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        assert!(!place.project.join("n").exists() && !place.project.join("z").exists());
        assert_eq!(place.changes(), []);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn modes_and_times_of_what_is_taken_back_are_the_real_ones(world) {
        let place = Place::new(world);
        let file = place.project.join("README.md");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let before = fs::metadata(&file).unwrap();
        let mut shell = Shell::start(&place, "chmod 777 README.md; echo x >> README.md");
        place.landbox(["discard", "s", "--yes"]).output().ok();
        shell.run(1, "stat -c '%a %Y' README.md");
        assert!(shell.end().contains(&format!("640 {}\n", before.mtime())));
        assert_eq!(place.changes(), []);
    }
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_real_folder_comes_back_in_one_that_the_running_session_made_anew(world) {
        let place = Place::new(world);
        place.write(place.project.join("k/n/o"), "o\n");
        place.write(place.project.join("k/l"), "l\n");
        let mut shell = Shell::start(&place, "rm -r k; mkdir k; echo S > k/n");
        let out = place.landbox(["discard", "s", "--yes", "--", "k/n"]).output().ok();
        assert!(!out.errors().contains("stays as it is"), "{}", out.errors());
        assert_eq!(place.changes(), [("k/l".into(), "deleted".into())]);
        shell.run(1, "cat k/n/o; ls k");
        let text = shell.end();
        assert!(text.contains("o\nn\ndone"), "{text}");
        let out = place.landbox(["resume", "s", "--", "sh", "-c", "cat k/n/o; ls k"]).output().ok();
        assert_eq!(out.text(), "o\nn\n");
        assert_eq!(place.changes(), [("k/l".into(), "deleted".into())]);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_was_not_named_stays_when_paths_below_it_are_taken_back(world) {
        for running in [true, false] {
            let place = Place::new(world);
            place.write(place.project.join("g/f"), "before\n");
            place.write(place.project.join("t"), "a file\n");
            let script = "chmod 750 g; echo 2 >> g/f; mkdir -m 750 n; echo x > n/x; rm t; mkdir t; echo in > t/in";
            let shell = Shell::start(&place, script);
            let shell = if running { Some(shell) } else { shell.end(); None };
            place.landbox(["discard", "s", "--yes", "--", "g/f", "n/x", "t/in"]).output().ok();
            let kinds = [("g", "mode"), ("n", "added"), ("t", "type")];
            let kinds = kinds.map(|(path, kind)| (path.to_owned(), kind.to_owned()));
            let changes: Vec<_> = place.changes().into_iter().collect();
            assert_eq!(changes, kinds, "running: {running}");
            if let Some(shell) = shell {
                shell.end();
            }
        }
    }
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_landed_while_the_session_ran_stays_when_more_lands_after_its_end(world) {
        for (second, left) in [
            ("echo 2 > d/x", "2\n"),
            ("rm d/x; echo 2 > d/y", "2\n"),
            ("rm -r d; mkdir d; echo 2 > d/y", "2\n"),
            ("echo 2 > d/z; echo 3 > other", "1\n2\n"),
        ] {
            let place = Place::new(world);
            let mut shell = Shell::start(&place, "mkdir d; echo 1 > d/x");
            place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
            shell.run(1, second);
            shell.end();
            // A name may count as one that the owner has deleted, where no watch saw in time what was there.
            let theirs = ["land", "s", "--apply", "--yes", "--resolve-all", "theirs"];
            place.landbox(theirs).output().ok();
            assert_eq!(place.changes(), [], "{second}");
            place.landbox(["land", "s", "--apply", "--yes"]).output().expect(4);
            let there = place.sh("cat d/*").cwd(&place.project).output().ok().text();
            assert_eq!(there, left, "{second}");
            let inside = place.landbox(["resume", "s", "--", "sh", "-c", "cat d/*"]).output().ok();
            assert_eq!(inside.text(), left, "{second}");
        }
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_deletion_that_the_records_alone_know_still_waits_after_something_else_has_landed(world) {
        let place = Place::new(world);
        let mut shell = Shell::start(&place, "mkdir d; echo 1 > d/x; echo 1 > d/w");
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        shell.run(1, "rm d/x; echo 2 > y");
        shell.end();
        place.landbox(["land", "s", "--apply", "--yes", "--resolve-all", "theirs", "--", "y"]).output().ok();
        assert_eq!(place.changes(), [("d/x".into(), "deleted".into())]);
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        assert!(!place.project.join("d/x").exists() && place.project.join("d/w").exists());
        assert_eq!(place.changes(), []);
    }
}

worlds! {
    // On the kernel's overlay the name goes with the session's next write.
    [user_fuse, root_fuse]
    fn a_name_that_the_owner_has_deleted_keeps_no_folder_of_what_landed_from_being_listed(world) {
        let place = Place::new(world);
        let mut shell = Shell::start(&place, "cat src/main.py; ls -l src; echo n > src/new; echo n > src/other");
        std::fs::remove_file(place.project.join("src/main.py")).unwrap();
        place.landbox(["land", "s", "--apply", "--yes", "--resolve-all", "theirs"]).output().ok();
        shell.run(1, "ls -l src/* > /dev/null && ls src");
        shell.run(2, "rm src/new; ls src");
        let text = shell.end();
        assert!(text.ends_with("deep\nnew\nother\ndone 1\ndeep\nother\ndone 2\n"), "{text}");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_new_file_that_landed_while_it_ran_and_is_then_deleted_stays_away(world) {
        let place = Place::new(world);
        let made = "echo new > new; echo y > src/y; mkdir -p d/e; echo x > d/e/x; echo x > d/y; ls -R; cat new src/y";
        let mut shell = Shell::start(&place, made);
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        shell.run(1, "rm new src/y; rm d/e/x d/y; rmdir d/e d");
        // Whatever else happens in the folders, and whoever looks.
        shell.run(2, "echo o > other; rm other; echo o > src/other; rm src/other; ls; ls src; ls -d new src/y d; echo looked");
        let names: Vec<String> = place.changes().into_iter().map(|(path, kind)| format!("{kind} {path}")).collect();
        assert_eq!(names, ["deleted d/e/x", "deleted d/y", "deleted new", "deleted src/y"]);
        let text = shell.end();
        assert!(text.contains("\ndone 1\nREADME.md\nlink\nsrc\ndeep\nmain.py\nlooked\n"), "{text}");
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        assert!(!place.project.join("d").exists() && !place.project.join("new").exists());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_landed_merged_or_as_the_owner_chose_is_what_the_session_goes_on_from(world) {
        let place = Place::new(world);
        let at = |name: &str| place.project.join(name);
        let eight = "1\n2\n3\n4\n5\n6\n7\n8\n";
        for name in ["both", "mode", "mine", "marked", "d/theirs"] {
            place.write(at(name), eight);
        }
        let edit = |line: &str, new: &str, name: &str| {
            let text = read(at(name)).replace(line, new);
            // In place: what was made anew the session would not see on every back end.
            fs::write(at(name), text).unwrap();
        };
        let script = "for f in both mine marked d/theirs; do sed -i s/1/one/ $f; done; chmod 600 mode";
        let mut shell = Shell::start(&place, script);
        assert_eq!(place.changes().len(), 5);
        edit("8", "eight", "both");
        edit("8", "eight", "mode");
        for name in ["mine", "marked", "d/theirs"] {
            edit("1", "mine", name);
        }
        let choices = ["mine=mine", "marked=markers", "d/theirs=theirs"].map(|choice| ["--resolve", choice]);
        let command = ["land", "s", "--apply", "--yes"].into_iter().chain(choices.into_iter().flatten());
        place.landbox(command).output().ok();
        assert_eq!(place.changes(), []);
        let names = "both mode mine marked d/theirs";
        let real: String = names.split(' ').map(|name| read(at(name))).collect();
        shell.run(1, &format!("cat {names}; stat -c %a mode"));
        assert_eq!(place.changes(), []);
        shell.run(2, "echo more >> both; echo more >> mode; echo more >> mine; rm marked");
        let modified = |name: &str| (name.to_owned(), "modified".to_owned());
        let deleted = ("marked".to_owned(), "deleted".to_owned());
        assert_eq!(place.changes(), [modified("both"), deleted, modified("mine"), modified("mode")]);
        // Nobody has changed anything since, but for one line that goes along.
        edit("5", "five", "both");
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        assert_eq!(read(at("both")), eight.replace('1', "one").replace('8', "eight").replace('5', "five") + "more\n");
        assert_eq!(read(at("mine")), eight.replace('1', "mine") + "more\n");
        assert_eq!(place.changes(), []);
        let text = shell.end();
        assert!(text.contains(&format!("{real}600\n")), "{text}\n{real}");
        assert_eq!(place.changes(), []);
    }
}

worlds! {
    // The test, which is root, may not look into a fuse-overlayfs of another user namespace.
    [user_kernel, root_kernel]
    fn a_session_goes_on_when_the_landing_that_holds_it_still_is_killed(world) {
        let place = Place::new(world);
        let script = "echo ready; i=0; while :; do i=$((i+1)); echo $i > counter; echo $i > copy; done";
        let mut live = place.session(["--name", "s"], ["sh", "-c", script]).limit(300).start();
        live.expect("ready");
        let writer = wait_for("the shell", 60, || descendants(live.pid()).into_iter().find(|p| p.name == "sh"));
        let state = || Proc::read(writer.pid).unwrap().state;
        let send = |pid, signal| kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        let mut killed = 0;
        let end = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while killed < 2 && std::time::Instant::now() < end {
            let landing = place.landbox(["land", "s", "--apply", "--yes", "--resolve-all", "theirs"]).start();
            let runs = || Proc::read(landing.pid()).is_some_and(|p| p.state != 'Z');
            while runs() && state() != 'T' {}
            if state() == 'T' && runs() {
                send(landing.pid(), Signal::KILL);
                killed += 1;
            }
            landing.wait();
            wait_for("the session to wake", 60, || (state() != 'T').then_some(()));
        }
        assert!(killed > 0, "no landing ever held the session still");
        // The next command finishes, or takes back, what was begun; and the session writes on.
        place.landbox(["ls"]).output().ok();
        let counter = || read(format!("/proc/{}/cwd/counter", writer.pid));
        let before = counter();
        wait_for("the session to go on", 60, || (counter() != before).then_some(()));
        send(live.pid(), Signal::TERM);
        live.wait();
    }
}
