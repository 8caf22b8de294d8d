//! Beginnings and ends: whatever dies, nothing is left running or mounted, and nothing written is lost.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::net::Outer;
use landbox_tests::procs::{self, Proc};
use landbox_tests::run::Live;
use landbox_tests::snapshot::Snapshot;
use landbox_tests::world::Overlay;
use landbox_tests::{Place, worlds};
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// A session that has written `kept.txt` and goes on running, and its processes.
fn running(place: &Place) -> (Live, Vec<Proc>) {
    let script = "setsid sleep 888 & setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' & \
                  echo kept > kept.txt; echo ready; while :; do sleep 1; done";
    let live = place.sh(script).start();
    let tree = procs::wait_for("the session and its children", 20, || {
        let tree = procs::descendants(live.pid());
        (tree.iter().filter(|p| p.name == "sleep").count() >= 3).then_some(tree)
    });
    (live, tree)
}

/// Nothing runs, nothing is mounted, and the change is still there.
#[track_caller]
fn all_is_over(place: &Place, tree: &[Proc]) {
    procs::gone(tree, 5);
    assert_eq!(procs::mounts_below(place.root()), Vec::<String>::new());
    assert!(!place.project.join("kept.txt").exists());
    assert_eq!(place.changes(), [("kept.txt".to_owned(), "added".to_owned())]);
}

fn named<'a>(tree: &'a [Proc], name: &str) -> Vec<&'a Proc> {
    tree.iter().filter(|p| p.name.starts_with(name)).collect()
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_caller_that_ignores_the_end_of_its_children_gets_the_end_of_a_session(world) {
        let place = Place::new(world);
        let ignore = "import signal,os,sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); \
                      os.execvp(sys.argv[1], sys.argv[1:])";
        let mut run = place.sh("sleep 0.1 & echo in; exit 3");
        let out = run.prefix(&format!("exec python3 -c '{ignore}' \"$0\" \"$@\"")).limit(20).output();
        assert_eq!((out.code(), out.text().as_str()), (3, "in\n"), "{}", out.errors());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn killing_the_controller_ends_everything(world) {
        let place = Place::new(world);
        let (live, tree) = running(&place);
        procs::kill(live.pid(), Signal::KILL);
        assert_eq!(live.wait().code(), 1009);
        all_is_over(&place, &tree);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn killing_any_process_of_the_helper_ends_everything(world) {
        let place = Place::new(world);
        let (live, tree) = running(&place);
        let helpers = named(&tree, "landbox-helper").len().max(2);
        procs::kill(live.pid(), Signal::KILL);
        live.wait();
        procs::gone(&tree, 5);
        for n in 0..helpers {
            let place = Place::new(world);
            let (live, tree) = running(&place);
            // The helper's processes, whatever they call themselves: children of the controller, and theirs, that are
            // not the task's.
            let all: Vec<&Proc> =
                tree.iter().filter(|p| !["sh", "sleep", "setsid", "fuse-overlayfs"].contains(&p.name.as_str())).collect();
            let Some(victim) = all.get(n) else { break };
            procs::kill(victim.pid, Signal::KILL);
            assert_eq!(live.wait().code(), 125, "killed {victim:?}");
            all_is_over(&place, &tree);
        }
    }

    // Stopped, neither of them sees a channel close or obeys a word: the kernel alone ends them, as it was told to.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_helper_that_is_stopped_ends_with_its_controller(world) {
        let place = Place::new(world);
        let (live, tree) = running(&place);
        let helpers = named(&tree, "landbox-helper");
        let monitor = helpers.iter().find(|one| one.parent == live.pid()).unwrap();
        // A group that has lost its last parent would be sent SIGHUP. Theirs keeps one.
        let mut beside = Command::new("sleep").arg("600").process_group(monitor.pid).spawn().unwrap();
        // First the one that would wake the others.
        for pid in std::iter::once(live.pid()).chain(helpers.iter().map(|one| one.pid)) {
            procs::kill(pid, Signal::STOP);
            procs::wait_for("the stop", 20, || Proc::read(pid).filter(|one| one.state == 'T'));
        }
        procs::kill(live.pid(), Signal::KILL);
        live.wait();
        let over = std::panic::catch_unwind(|| all_is_over(&place, &tree));
        beside.kill().unwrap();
        beside.wait().unwrap();
        procs::kill_all(&tree);
        over.unwrap();
    }

    [user_fuse, root_fuse]
    fn killing_the_overlay_s_process_ends_everything_and_keeps_what_was_written(world) {
        let place = Place::new(world);
        let (live, tree) = running(&place);
        let overlays = named(&tree, "fuse-overlayfs");
        assert!(overlays.len() >= 2, "{tree:#?}");
        procs::kill(overlays[0].pid, Signal::KILL);
        let out = live.wait();
        assert_eq!(out.code(), 125, "{}", out.errors());
        all_is_over(&place, &tree);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_polite_end_ends_everything_too(world) {
        for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
            let place = Place::new(world);
            let (live, tree) = running(&place);
            procs::kill(live.pid(), signal);
            assert_eq!(live.wait().code(), code);
            all_is_over(&place, &tree);
        }
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn strays_end_with_the_command(world) {
        let place = Place::new(world);
        let script = "setsid sleep 887 & setsid sh -c 'trap \"\" TERM HUP INT; sleep 886' & sleep 0.5; echo kept > kept.txt; read x";
        let mut live = place.sh(script).stdin_open().start();
        let tree = procs::wait_for("the strays", 20, || {
            let tree = procs::descendants(live.pid());
            (named(&tree, "sleep").len() >= 2 && named(&tree, "sh").len() >= 2).then_some(tree)
        });
        std::thread::sleep(Duration::from_millis(600));
        live.write(b"\n");
        live.wait();
        all_is_over(&place, &tree);
    }

    [user_kernel, root_kernel]
    fn orphans_are_reaped(world) {
        let place = Place::new(world);
        let script = "for i in $(seq 300); do (sh -c 'true &'); done; sleep 0.5; \
                      cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '";
        let text = place.sh(script).output().text();
        assert_eq!(text, "0\n");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn killed_at_any_moment_of_the_start_nothing_is_left(world) {
        let place = Place::new(world);
        place.sh("true").output().ok();
        let ours = [place.state(), place.home.join(".config/landbox")];
        let look = || Snapshot::take(&[place.root()], &ours);
        let before = look();
        for n in 0..30 {
            let live = place.session(["--name", "again"], ["true"]).start();
            std::thread::sleep(Duration::from_millis(n * 4));
            let tree = procs::descendants(live.pid());
            procs::kill(live.pid(), Signal::KILL);
            live.wait();
            procs::gone(&tree, 5);
            place.landbox(["discard", "again", "--yes"]).output();
        }
        assert_eq!(procs::mounts_below(place.root()), Vec::<String>::new());
        before.same_as(&look());
        place.session(["--name", "again"], ["true"]).output().ok();
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn killed_at_any_moment_of_a_resumption_nothing_of_the_session_is_lost(world) {
        let place = Place::new(world);
        place.session(["--name", "s"], ["sh", "-c", "echo kept > kept.txt; rm README.md"]).output().ok();
        let before = place.changes();
        for n in 0..20 {
            let live = place.landbox(["resume", "s", "--", "true"]).start();
            std::thread::sleep(Duration::from_millis(n * 4));
            let tree = procs::descendants(live.pid());
            procs::kill(live.pid(), Signal::KILL);
            live.wait();
            procs::gone(&tree, 20);
            assert_eq!(place.changes(), before);
        }
        let out = place.landbox(["resume", "s", "--", "sh", "-c", "cat kept.txt; ls"]).output().ok();
        assert_eq!(out.text(), "kept\nkept.txt\nlink\nsrc\n");
        assert_eq!(procs::mounts_below(place.root()), Vec::<String>::new());
    }

    // What a machine that goes down leaves: nobody had the time to write anything more, and the boot id is another.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn root_reboots_and_the_session_is_reviewed_resumed_and_landed(world) {
        let place = Place::new(world);
        let (live, tree) = running(&place);
        procs::kill(live.pid(), Signal::STOP);
        tree.iter().for_each(|one| procs::kill(one.pid, Signal::STOP));
        let session = place.sessions().remove(0);
        let state = || std::fs::read_to_string(session.join("state.json")).unwrap();
        let before = state();
        // Stopped, none of them notices the end of another.
        tree.iter().for_each(|one| procs::kill(one.pid, Signal::KILL));
        procs::kill(live.pid(), Signal::KILL);
        live.wait();
        procs::gone(&tree, 5);
        assert_eq!(state(), before, "nobody wrote it down");
        assert!(before.contains("\"running\""), "{before}");
        if world.overlay == Overlay::Kernel {
            // Only its owner's with rights: the folder has no mode at all.
            assert!(session.join("layers/project/work.1/work/incompat/volatile").exists(), "no mark of a volatile mount");
        }

        let id = place.outside.join("boot_id");
        place.write(&id, "00112233-4455-6677-8899-aabbccddeeff\n");
        let script = format!("mount --bind {} /proc/sys/kernel/random/boot_id", id.display());
        let rebooted = |args: &[&str]| place.landbox(args).within_changed(&Outer::new(), &script).output();
        let shown: Value = rebooted(&["show", "--json"]).ok().json();
        assert_eq!((&shown["state"], &shown["exit"]), (&"failed".into(), &Value::Null), "{shown:#}");
        rebooted(&["gc"]).ok();
        let card: Value = rebooted(&["diff", "--json"]).ok().json();
        assert_eq!(card["changes"][0]["path"], "kept.txt", "{card:#}");
        let name = session.file_name().unwrap().to_str().unwrap();
        let resumed = place.landbox(["resume", name, "--", "sh", "-c", "cat kept.txt; echo more >> kept.txt"]).output().ok();
        assert_eq!(resumed.text(), "kept\n");
        rebooted(&["land", name, "--apply", "--yes"]).ok();
        assert_eq!(std::fs::read_to_string(place.project.join("kept.txt")).unwrap(), "kept\nmore\n");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn deletions_hold_when_the_session_is_resumed(world) {
        let place = Place::new(world);
        place
            .session(["--name", "s"], ["sh", "-c", "rm README.md; rm -rf src; mkdir src; echo n > src/new; mv link linked"])
            .output()
            .ok();
        let before = place.changes();
        let out = place.landbox(["resume", "s", "--", "sh", "-c", "ls; ls src"]).output().ok();
        assert_eq!(out.text(), "linked\nsrc\nnew\n");
        assert_eq!(place.changes(), before);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn discarding_leaves_nothing_whatever_the_modes(world) {
        let place = Place::new(world);
        place
            .session(["--name", "s"], ["sh", "-c", "mkdir -p x/y; echo 1 > x/y/z; ln -s ~/.profile x/l; chmod 000 x/y; chmod 555 x; rm README.md"])
            .output()
            .ok();
        place.landbox(["discard", "s", "--yes"]).output().ok();
        let left = place.sessions();
        let layers: Vec<_> = left.iter().map(|s| s.join("layers/project/upper")).filter(|p| p.exists()).collect();
        assert_eq!(layers, Vec::<std::path::PathBuf>::new());
        assert!(place.home.join(".profile").exists());
        place.session(["--name", "s"], ["true"]).output().ok();
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn when_the_command_s_status_is_known_nothing_of_the_session_writes_any_more(world) {
        let place = Place::new(world);
        for n in 0..10 {
            let script = format!("for i in 1 2 3; do setsid sh -c 'while :; do echo x >> f{n}; done' & done; \
                                  while ! test -s f{n}; do sleep 0.01; done; exit 7");
            place.session(["--name", &format!("s{n}")], ["sh", "-c", &script]).output().expect(7);
            let session = place.sessions().into_iter().find(|s| s.join(format!("layers/project/upper/f{n}")).exists());
            let file = session.unwrap().join(format!("layers/project/upper/f{n}"));
            let size = std::fs::metadata(&file).unwrap().len();
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(std::fs::metadata(&file).unwrap().len(), size);
        }
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_session_is_taken_up_again_the_moment_it_has_ended(world) {
        let place = Place::new(world);
        place.session(["--name", "s"], ["sh", "-c", "echo 0 > log"]).output().ok();
        let rounds = if world.overlay_name() == "fuse" { 10 } else { 50 };
        for n in 1..=rounds {
            let line = format!("echo {n} >> log; wc -l < log");
            let out = place.landbox(["resume", "s", "--", "sh", "-c", &line]).output().ok();
            assert_eq!(out.text().trim(), (n + 1).to_string());
        }
        assert_eq!(place.json(["show"])["state"], Value::from("exited"));
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        assert_eq!(std::fs::read_to_string(place.project.join("log")).unwrap().lines().count(), rounds + 1);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_session_can_be_thrown_away_and_collected_the_moment_it_has_ended(world) {
        let place = Place::new(world);
        for _ in 0..15 {
            place.session(["--name", "s"], ["sh", "-c", "echo kept > kept.txt; rm -r src"]).output().ok();
            place.landbox(["discard", "s", "--yes"]).output().ok();
            place.landbox(["gc"]).output().ok();
            assert_eq!(place.sessions(), Vec::<std::path::PathBuf>::new());
        }
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn the_session_s_lock_is_held_until_its_mounts_are_gone(world) {
        let place = Place::new(world);
        for _ in 0..15 {
            let mut live = place.session(["--name", "s"], ["sh", "-c", "echo ready; read go; echo kept > kept.txt"]).stdin_open().start();
            live.expect("ready");
            let tree = procs::descendants(live.pid());
            let of = |parent: i32| tree.iter().filter(move |p| p.parent == parent);
            let monitor = of(live.pid()).next().unwrap();
            // The last process with the session's mounts: it ends when they are undone.
            let init = of(monitor.pid).find(|p| p.name != "fuse-overlayfs").unwrap();
            live.write(b"\n");
            live.wait().ok();
            let lock = std::fs::File::open(place.sessions()[0].join("lock")).unwrap();
            lock.lock().unwrap();
            assert!(!init.alive());
            drop(lock);
            procs::gone(&tree, 5);
            assert_eq!(place.changes(), [("kept.txt".to_owned(), "added".to_owned())]);
            place.landbox(["discard", "s", "--yes"]).output().ok();
            place.landbox(["gc"]).output().ok();
        }
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn two_sessions_on_one_project_see_nothing_of_each_other(world) {
        let place = Place::new(world);
        let mut first = place
            .session(["--name", "a"], ["sh", "-c", "echo A > f; echo ready; read go; cat f; ls"])
            .stdin_open()
            .start();
        first.expect("ready");
        let second = place.session(["--name", "b"], ["sh", "-c", "ls; echo B > f; echo B > g"]).output().ok();
        assert_eq!(second.text(), "README.md\nlink\nsrc\n");
        first.write(b"\n");
        let first = first.wait().ok();
        assert_eq!(first.text(), "ready\nA\nREADME.md\nf\nlink\nsrc\n");
    }

    [user_kernel, root_kernel]
    fn a_name_in_use_is_refused_and_its_session_unharmed(world) {
        let place = Place::new(world);
        let mut first = place
            .session(["--name", "s"], ["sh", "-c", "echo mine > kept.txt; echo ready; read go; cat kept.txt"])
            .stdin_open()
            .start();
        first.expect("ready");
        for _ in 0..5 {
            let out = place.session(["--name", "s"], ["true"]).output();
            assert_eq!(out.code(), 125);
            assert!(out.errors().contains("s"), "{}", out.errors());
        }
        first.write(b"\n");
        assert_eq!(first.wait().ok().text(), "ready\nmine\n");
        assert_eq!(place.changes(), [("kept.txt".to_owned(), "added".to_owned())]);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_running_session_can_be_looked_at(world) {
        let place = Place::new(world);
        let (live, tree) = running(&place);
        assert_eq!(place.changes(), [("kept.txt".to_owned(), "added".to_owned())]);
        let state = place.json(["show"])["state"].clone();
        assert_eq!(state, Value::from("running"));
        procs::kill(live.pid(), Signal::KILL);
        live.wait();
        all_is_over(&place, &tree);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn many_sessions_start_at_once(world) {
        let place = Place::new(world);
        let all: Vec<Live> = (0..12).map(|n| place.sh(&format!("echo {n} > n; cat n")).start()).collect();
        for (n, live) in all.into_iter().enumerate() {
            assert_eq!(live.wait().ok().text(), format!("{n}\n"));
        }
        assert_eq!(place.sessions().len(), 12);
    }
}
