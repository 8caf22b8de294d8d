//! Several sessions of one project, and what lands when.

use super::{kinds, read};
use landbox_tests::run::Live;
use landbox_tests::{Place, procs, worlds};
use std::fs;

worlds! {
    // The second landing must not take the first for its base.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn the_second_session_to_land_on_a_file_is_a_conflict_and_lands_nothing(world) {
        let place = Place::new(world);
        place.write(place.project.join("f"), "base\n");
        place.session(["--name", "a"], ["sh", "-c", "echo A >> f"]).output().ok();
        place.session(["--name", "b"], ["sh", "-c", "echo B >> f; echo b > g"]).output().ok();
        place.landbox(["land", "a", "--apply", "--yes"]).output().ok();
        let out = place.landbox(["land", "b", "--apply", "--yes"]).output().expect(3);
        assert!(out.errors().contains('f'), "{}", out.errors());
        assert_eq!(read(place.project.join("f")), "base\nA\n");
        assert!(!place.project.join("g").exists());
    }

    [user_kernel, root_fuse]
    fn landings_of_two_sessions_on_one_project_wait_for_each_other(world) {
        let place = Place::new(world);
        for name in ["first", "a", "b"] {
            let script = format!("echo {name} > {name}; echo {name} >> log-{name}");
            place.session(["--name", name], ["sh", "-c", &script]).output().ok();
        }
        place.landbox(["land", "first", "--apply", "--yes"]).output().ok();
        // As a landing holds it for as long as it takes.
        let locks = fs::read_dir(place.state().join("landings")).unwrap().map(|e| e.unwrap().path());
        let locks: Vec<_> = locks.filter(|path| path.extension().is_some_and(|end| end == "lock")).collect();
        let [lock] = &locks[..] else { panic!("{locks:?}") };
        let held = fs::File::open(lock).unwrap();
        held.lock().unwrap();
        let both = ["a", "b"].map(|name| place.landbox(["land", name, "--apply", "--yes"]).limit(120).start());
        for live in &both {
            let waits = |line: &str| line.contains("-> FLOCK") && line.contains(&format!(" {} ", live.pid()));
            procs::wait_for("the landing to wait", 60, || {
                read("/proc/locks").lines().any(waits).then_some(())
            });
        }
        assert!(["a", "b"].iter().all(|name| !place.project.join(name).exists()));
        drop(held);
        for live in both {
            live.wait().ok();
        }
        for name in ["first", "a", "b"] {
            assert_eq!(read(place.project.join(name)), format!("{name}\n"));
            let landing = place.json(["show", name])["landing"].clone();
            assert_eq!((&landing["count"], &landing["pending"]), (&1.into(), &false.into()), "{name}");
        }
    }

    [user_kernel]
    fn landing_one_session_twice_at_once_lands_it_once(world) {
        let place = Place::new(world);
        place.sh("echo more >> README.md; echo new > new").output().ok();
        let both: Vec<Live> =
            (0..2).map(|_| place.landbox(["land", "--apply", "--yes"]).start()).collect();
        let mut codes: Vec<i32> = both.into_iter().map(|live| live.wait().code()).collect();
        codes.sort();
        assert_eq!(codes, [0, 4]);
        assert_eq!(read(place.project.join("README.md")), "# Project\n\nOne line.\nmore\n");
        assert_eq!(read(place.project.join("new")), "new\n");
    }

    // The loser of a race must not clean up what the winner uses.
    [user_kernel, root_kernel]
    fn of_many_starts_of_one_name_one_runs_and_the_others_remove_nothing(world) {
        let place = Place::new(world);
        let script = "echo mine > kept.txt; echo ready; read go; cat kept.txt";
        let mut all: Vec<Live> = (0..12)
            .map(|_| place.session(["--name", "s"], ["sh", "-c", script]).stdin_open().start())
            .collect();
        let mut refused = 0;
        let tree = procs::wait_for("all but one to give up", 50, || {
            let running: Vec<_> = all.iter().map(|l| procs::Proc::read(l.pid())).collect();
            refused = running.iter().filter(|p| p.as_ref().is_none_or(|p| p.state == 'Z')).count();
            (refused == all.len() - 1).then_some(running)
        });
        let winner = tree.iter().position(|p| p.as_ref().is_some_and(|p| p.state != 'Z')).unwrap();
        let mut winner = all.swap_remove(winner);
        for loser in all {
            loser.wait().expect(125);
        }
        winner.expect("ready");
        winner.write(b"\n");
        assert_eq!(winner.wait().ok().text(), "ready\nmine\n");
        assert_eq!(kinds(&place), ["added kept.txt"]);
        assert_eq!(place.sessions().len(), 1);
    }
}
