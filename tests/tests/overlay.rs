//! Layers behave like the real tree, and where no unprivileged layer can, the limit is the documented one.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::world::Overlay;
use landbox_tests::{Place, worlds};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

fn kinds(place: &Place) -> Vec<String> {
    place.changes().into_iter().map(|(path, kind)| format!("{kind} {path}")).collect()
}

/// SQLite does not wait for the lock by which a database is switched to its write-ahead log: one process does that first.
const MADE: &str = "import sqlite3,os\n\
    p=os.path.expanduser('~/.agentcli'); os.makedirs(p,exist_ok=True)\n\
    c=sqlite3.connect(p+'/s.db',timeout=20); c.execute('pragma journal_mode=wal')\n\
    c.execute('create table if not exists t(x)'); c.commit(); c.execute('delete from t'); c.commit()";
const SQLITE: &str = "import sqlite3,os\n\
    p=os.path.expanduser('~/.agentcli')\n\
    c=sqlite3.connect(p+'/s.db',timeout=20); c.execute('begin immediate')\n\
    c.execute('insert into t values(1)'); c.commit(); print(c.execute('select count(*) from t').fetchone()[0])";

/// What who follows a file is shown of a line that is appended to it.
fn followed(place: &Place, first: &str) -> String {
    place.write(place.project.join("log.txt"), "1\n");
    let script = "tail -n +1 -f log.txt > out & sleep 0.5; echo 2 >> log.txt; \
                  for i in $(seq 50); do [ $(wc -l < out) = 2 ] && break; sleep 0.1; done; kill $!; cat out";
    place.sh(&format!("{first}{script}")).output().ok().text()
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_database_in_the_home_takes_its_locks_and_the_real_one_stays(world) {
        let place = Place::new(world);
        place.mkdir(place.home.join(".agentcli"));
        let twice = format!("python3 -c \"{MADE}\"; python3 -c \"{SQLITE}\" & python3 -c \"{SQLITE}\"; wait");
        let out = place.sh(&twice).limit(20).output().ok();
        let mut counts: Vec<_> = out.text().lines().map(str::to_owned).collect();
        counts.sort();
        assert_eq!(counts.last().map(String::as_str), Some("2"), "{}", out.errors());
        assert!(!place.home.join(".agentcli/s.db").exists());
        place.session(["--auth", "~/.agentcli"], ["sh", "-c", &twice]).limit(20).output().ok();
        assert!(place.home.join(".agentcli/s.db").exists());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_replaced_folder_is_its_new_content_alone(world) {
        let place = Place::new(world);
        place.write(place.project.join("dir/x"), "x\n");
        place.write(place.project.join("dir/y"), "y\n");
        place.sh("rm -rf dir; mkdir dir; touch dir/x; rm dir/x; echo n > dir/z").output().ok();
        assert_eq!(kinds(&place), ["deleted dir/x", "deleted dir/y", "added dir/z"]);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_changed_mode_is_no_changed_content(world) {
        let place = Place::new(world);
        place.write(place.project.join("run.sh"), "#!/bin/sh\n".repeat(400));
        place.sh("chmod 755 run.sh; touch README.md; cat src/main.py >/dev/null").output().ok();
        assert_eq!(kinds(&place), ["mode run.sh"]);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn writing_one_name_of_a_file_with_two_changes_that_name_alone(world) {
        let place = Place::new(world);
        place.write(place.project.join("a.txt"), "old\n");
        fs::hard_link(place.project.join("a.txt"), place.project.join("b.txt")).unwrap();
        let out = place.sh("echo new >> a.txt; cat b.txt").output().ok();
        // fuse-overlayfs knows that both names were one file and may go on showing them so; what is written is one name.
        let shown = if world.overlay == Overlay::Kernel { &["old\n"][..] } else { &["old\n", "old\nnew\n"] };
        assert!(shown.contains(&&*out.text()), "{}", out.text());
        assert_eq!(kinds(&place), ["modified a.txt"]);
        place.landbox(["land", "--apply", "--yes"]).output().ok();
        assert_eq!(fs::read_to_string(place.project.join("b.txt")).unwrap(), "old\n");
        assert_eq!(fs::read_to_string(place.project.join("a.txt")).unwrap(), "old\nnew\n");
    }

    [user_kernel, user_fuse, root_fuse]
    fn a_resumed_session_sees_what_it_wrote_to_one_name_of_a_file_with_two(world) {
        let place = Place::new(world);
        place.write(place.project.join("a.txt"), "old\n");
        fs::hard_link(place.project.join("a.txt"), place.project.join("b.txt")).unwrap();
        place.session(["--name", "s"], ["sh", "-c", "echo new > a.txt"]).output().ok();
        let out = place.landbox(["resume", "s", "--", "sh", "-c", "cat b.txt a.txt"]).output().ok();
        assert_eq!(out.text(), "old\nnew\n");
    }

    [user_kernel, root_kernel]
    fn a_follower_opened_before_the_first_write_sees_what_is_appended(world) {
        assert_eq!(followed(&Place::new(world), ""), "1\n2\n");
    }

    // There, the limit that the README names: who opened the owner's file goes on reading that.
    [user_fuse, root_fuse]
    fn a_follower_opened_after_the_first_write_sees_what_is_appended(world) {
        assert_eq!(followed(&Place::new(world), "touch log.txt; "), "1\n2\n");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn modes_of_new_and_changed_files_land_as_they_are(world) {
        let place = Place::new(world);
        for (name, mode) in [("run.sh", 0o755), ("secret.key", 0o600), ("t.txt", 0o644)] {
            place.write(place.project.join(name), "old\n");
            fs::set_permissions(place.project.join(name), PermissionsExt::from_mode(mode)).unwrap();
        }
        let script = "umask 022; echo x >> run.sh; chmod +x t.txt; echo k >> secret.key; \
                      echo '#!/bin/sh' > new.sh; chmod 755 new.sh; (umask 077; echo s > new.key)";
        place.sh(script).output().ok();
        place.landbox(["land", "--apply", "--yes"]).risks_accepted().output().ok();
        for (name, mode) in
            [("run.sh", 0o755), ("t.txt", 0o755), ("secret.key", 0o600), ("new.sh", 0o755), ("new.key", 0o600)]
        {
            let found = fs::metadata(place.project.join(name)).unwrap().mode() & 0o7777;
            assert_eq!(found, mode, "{name}: {found:o}");
        }
    }

    [user_kernel, user_fuse, root_kernel]
    fn a_umask_that_takes_from_the_owner_too_is_the_sessions_and_keeps_landbox_out_of_nothing(world) {
        let place = Place::new(world);
        let mut run = place.session(["--name", "s"], ["sh", "-c", "umask; echo x > f; stat -c %a f"]);
        let out = run.prefix("umask 777").output().ok();
        assert_eq!(out.text(), "0777\n0\n");
        for command in [&["show", "s"][..], &["diff", "s"], &["checkpoint", "s"], &["ls"]] {
            place.landbox(command).prefix("umask 777").output().ok();
        }
        let mut again = place.landbox(["resume", "s", "--", "sh", "-c", "umask; chmod 600 f"]);
        assert_eq!(again.prefix("umask 777").output().ok().text(), "0777\n");
        place.landbox(["land", "s", "--apply", "--yes"]).prefix("umask 777").output().ok();
        let mode = fs::metadata(place.project.join("f")).unwrap().mode() & 0o7777;
        assert_eq!(mode, 0o600);
    }

    // A folder that exists below can't be renamed by any unprivileged layer; tools fall back to copying.
    [user_kernel]
    fn moving_a_real_folder_copies_it(world) {
        let place = Place::new(world);
        let script = "python3 -c 'import os; os.rename(\"src\", \"lib\")' 2>&1 | grep -o 'Errno [0-9]*'; mv src lib; cat lib/main.py; ls";
        let text = place.sh(script).output().ok().text();
        assert_eq!(text, format!("Errno {}\nprint('hello')\nREADME.md\nlib\nlink\n", libc::EXDEV));
    }

    // Not on fuse-overlayfs: it reads a folder once.
    [user_kernel, root_kernel]
    fn what_the_host_adds_meanwhile_is_seen_inside(world) {
        let place = Place::new(world);
        let mut live = place.sh("echo ready; read go; cat later.txt").stdin_open().start();
        live.expect("ready");
        place.write(place.project.join("later.txt"), "later\n");
        live.write(b"\n");
        assert_eq!(live.wait().ok().text(), "ready\nlater\n");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn root_made_runtime_folders_are_shown_below_run_and_nothing_else_there(world) {
        let place = Place::new(world);
        let (uid, gid) = world.ids();
        let name = place.root().file_name().unwrap().to_str().unwrap();
        let base = std::path::PathBuf::from(format!("/run/landbox-{name}"));
        let bin = base.join("bin");
        fs::create_dir_all(&bin).unwrap();
        fs::write(base.join("secret"), "TOKEN").unwrap();
        let agent = bin.join("agent");
        fs::write(&agent, "#!/bin/sh\necho ran; cat \"${0%/*}/../secret\"; true\n").unwrap();
        fs::set_permissions(&agent, PermissionsExt::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(&agent, Some(uid), Some(gid)).unwrap();
        let path = format!("{}:/usr/bin:/bin", bin.display());
        let out = place.session::<&str, _>([], ["agent"]).env("PATH", path).output();
        fs::remove_dir_all(&base).unwrap();
        assert_eq!(out.ok().text(), "ran\n");
    }

    [user_kernel]
    fn the_programs_work_from_a_hidden_folder(world) {
        let place = Place::new(world);
        let bin = place.home.join(".local/bin");
        place.mkdir(&bin);
        for name in ["landbox", "landbox-helper"] {
            fs::copy(landbox_tests::world::bin(name), bin.join(name)).unwrap();
        }
        let python = "import socket,os\na,b=socket.socketpair(); a.send(b'1'); print(b.recv(1))\n\
                      s=socket.socket(socket.AF_UNIX); s.bind('/tmp/t.sock'); s.listen()\n\
                      c=socket.socket(socket.AF_UNIX); c.connect('/tmp/t.sock'); print('ok')";
        let out = place
            .session(["--hide", "~/.local/bin"], ["python3", "-c", python])
            .program(bin.join("landbox"))
            .output()
            .ok();
        assert_eq!(out.text(), "b'1'\nok\n");
    }
}
