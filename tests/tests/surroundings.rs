//! Odd surroundings: what the caller lacks is said in a sentence with what to type, or is no obstacle.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::net::Outer;
use landbox_tests::{Place, procs, world, worlds};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} in {text}");
    assert!(text.contains("hint: "), "{text}");
}

worlds! {
    [user_kernel, root_kernel]
    fn a_current_folder_that_is_gone_stops_only_what_needs_it(world) {
        let place = Place::new(world);
        let bin = world::bin("landbox").display().to_string();
        let gone = |script: &str| {
            let line = format!("mkdir ../gone && cd ../gone && rmdir ../gone && {script}");
            place.landbox(["-c", &line]).program("/bin/sh").output()
        };
        let project = place.project.display();
        let run = format!("{bin} run --workdir {project} --name s -- sh -c 'echo new > new; pwd'");
        assert_eq!(gone(&run).ok().text(), format!("{project}\n"));
        for command in ["ls", "show s", "diff s", "resume s -- true", "land s --apply --yes", "undo s", "gc"] {
            gone(&format!("{bin} {command}")).ok();
        }
        says(&gone(&format!("{bin} run -- true")).expect(125).errors(), &["current folder is gone", "cd ~"]);
        for command in ["diff", "land", "undo"] {
            says(&gone(&format!("{bin} {command}")).expect(1).errors(), &["current folder is gone", "landbox ls"]);
        }
    }

    [user_kernel, user_fuse]
    fn a_project_that_can_t_be_looked_into_is_refused_before_anything_is_made(world) {
        let place = Place::new(world);
        for mode in [0o000, 0o100, 0o300, 0o400] {
            fs::set_permissions(&place.project, Permissions::from_mode(mode)).unwrap();
            let workdir = place.project.to_str().unwrap();
            let mut run = place.session(["--workdir", workdir], ["true"]);
            let out = run.cwd(&place.home).output().expect(125);
            says(&out.errors(), &["you can't look into", "chmod u+rx"]);
        }
        fs::set_permissions(&place.project, Permissions::from_mode(0o755)).unwrap();
        assert!(place.sessions().is_empty());
    }

    [user_kernel, user_fuse]
    fn a_session_that_closes_its_own_project_says_how_it_is_opened_again(world) {
        let place = Place::new(world);
        place.session(["--name", "s"], ["sh", "-c", "echo new > new; chmod 000 ."]).output().ok();
        let said = place.landbox(["diff", "s"]).output().expect(1).errors();
        assert!(said.contains("resume the session and chmod it"), "{said}");
        let project = place.project.to_str().unwrap();
        let mut run = place.landbox(["resume", "s", "--", "sh", "-c"]);
        run.args([format!("chmod 755 {project}")]).cwd(&place.home).output().ok();
        let card = place.landbox(["diff", "s"]).output().ok();
        assert!(card.text().contains("new"), "{}", card.text());
    }

    [user_kernel, root_kernel]
    fn limits_of_files_and_processes_are_named(world) {
        let place = Place::new(world);
        for files in [8, 12, 16, 24, 32] {
            let mut run = place.landbox(["run", "--", "true"]);
            let out = run.prefix(&format!("ulimit -n {files}")).output().expect(125);
            says(&out.errors(), &["Too many open files", "ulimit -n 1024"]);
            assert!(!out.errors().contains("fuse-overlayfs"), "{}", out.errors());
        }
        assert!(place.sessions().is_empty());
        let mut run = place.landbox(["run", "--", "true"]);
        run.prefix("ulimit -n 64").output().ok();
        if world.who == world::Who::User {
            let mut run = place.landbox(["run", "--", "true"]);
            let out = run.prefix("ulimit -u 1").output().expect(125);
            says(&out.errors(), &["no more processes", "ulimit -u"]);
        }
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn who_does_not_wait_for_the_count_of_the_changes_loses_none(world) {
        let place = Place::new(world);
        let mut run = place.sh("echo new > new; echo ready; read go");
        let mut live = run.stdin_open().start();
        live.expect("ready");
        let session = place.sessions().remove(0);
        let held = session.join("base/lock");
        procs::wait_for("the watch", 20, || session.join("base").is_dir().then_some(()));
        place.write(&held, "");
        // As long as this is held, whoever looks at the layer waits.
        let held = File::open(&held).unwrap();
        rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
        live.close_stdin();
        procs::wait_for("the end", 20, || {
            fs::read_to_string(session.join("state.json")).unwrap().contains("\"exited\"").then_some(())
        });
        let pid = rustix::process::Pid::from_raw(live.pid()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert_eq!(live.wait_open().code(), 1000 + 15);
        drop(held);
        assert_eq!(place.changes(), [("new".to_owned(), "added".to_owned())]);
    }

    [user_kernel]
    fn root_makes_the_state_folder_read_only_and_its_sessions_can_be_looked_at(world) {
        let place = Place::new(world);
        place.sh("echo new > new").output().ok();
        let state = place.state().display().to_string();
        let script = format!("mount --bind {state} {state}; mount -o remount,bind,ro {state}");
        for (command, said) in [("ls", "1 (+1 -0)"), ("show", "1 file, +1 -0")] {
            let out = place.landbox([command]).within_changed(&Outer::new(), &script).output().ok();
            assert!(out.text().contains(said), "{}", out.text());
        }
    }

    [user_kernel, user_fuse]
    fn root_mounts_a_home_that_knows_no_files_without_names_and_what_was_done_there_lands(world) {
        let place = Place::new(world);
        let (home, root) = (place.home.display(), place.root().display());
        ["upper", "work"].iter().for_each(|name| fs::create_dir(place.root().join(name)).unwrap());
        let mount = format!(
            "fuse-overlayfs -o allow_other,lowerdir={home},upperdir={root}/upper,workdir={root}/work {home}; cd {}",
            place.project.display()
        );
        let bin = world::bin("landbox").display().to_string();
        let overlay = world.overlay_name();
        let script = format!(
            "set -e; {bin} run --overlay {overlay} --name s -- sh -c 'echo more >> README.md; rm src/main.py; echo new > new'; \
             {bin} land s --apply --yes; tail -1 README.md; cat new; ls -A src; ls -A ~/.config/landbox"
        );
        let mut run = place.landbox(["-c", &script]);
        run.program("/bin/sh").env("LANDBOX_STATE_DIR", place.outside.join("state"));
        let out = run.within_changed(&Outer::new(), &mount).output().ok();
        assert_eq!(out.text(), "more\nnew\ndeep\nkeys\ntrusted.d\n", "{}", out.errors());
    }

    [user_kernel]
    fn root_mounts_below_the_home_what_does_not_answer_and_the_start_says_so(world) {
        let place = Place::new(world);
        let (away, root) = (place.home.join("away"), place.root().display());
        place.mkdir(&away);
        ["upper", "work", "lower"].iter().for_each(|name| fs::create_dir(place.root().join(name)).unwrap());
        // It is ended with what it keeps waiting.
        let quiet = ">/dev/null 2>&1 </dev/null &";
        let script = format!(
            "fuse-overlayfs -f -o allow_other,lowerdir={root}/lower,upperdir={root}/upper,workdir={root}/work {0} {quiet}\n\
             server=$!; until mountpoint -q {0}; do sleep 0.1; done; kill -STOP $server\n\
             {{ while kill -0 $$; do sleep 0.1; done; kill -KILL $server; }} {quiet}",
            away.display()
        );
        let mut run = place.landbox(["run", "--", "true"]);
        let out = run.within_changed(&Outer::new(), &script).output().expect(125);
        let at = away.display().to_string();
        says(&out.errors(), &["has not answered", &at, "umount -l"]);
        assert!(place.sessions().is_empty());
    }

    [user_kernel]
    fn a_home_that_is_none_is_said_with_the_one_that_is_listed(world) {
        let place = Place::new(world);
        for (home, why) in [("", "HOME is not set"), ("/", "system folder"), ("here", "absolute"), ("/no/where", "not a folder")] {
            let out = place.landbox(["run", "--", "true"]).env("HOME", home).output().expect(125);
            says(&out.errors(), &[why, "export HOME="]);
        }
    }

    [user_kernel]
    fn a_state_folder_that_can_t_be_made_is_said_and_a_relative_base_is_ignored(world) {
        let place = Place::new(world);
        let file = place.project.join("README.md");
        let out = place.landbox(["run", "--", "true"]).env("LANDBOX_STATE_DIR", &file).output().expect(125);
        says(&out.errors(), &["can't make the state folder", "LANDBOX_STATE_DIR=DIR"]);
        place.landbox(["run", "--", "true"]).env("XDG_STATE_HOME", "relative").output().ok();
        assert_eq!(place.sessions().len(), 1);
    }
}
