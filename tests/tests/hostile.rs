//! What a hostile program, or the host at a bad moment, may try: folders moved from under a mask, sockets under names that
//! no table holds, doors that are opened later, a terminal left in disguise, a disk filled to the last byte.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::procs;
use landbox_tests::world::is_root;
use landbox_tests::{Place, worlds};
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn text(path: impl AsRef<Path>) -> String {
    path.as_ref().to_str().unwrap().to_owned()
}

/// A process of the session's user, ended with the test.
struct Service(Child);

impl Service {
    fn start(place: &Place, script: &str) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", script]).stdin(Stdio::null()).current_dir(place.root());
        if is_root() {
            let (uid, gid) = place.world.ids();
            command.uid(uid).gid(gid);
        }
        Self(command.spawn().unwrap())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A small file system, unmounted with the test.
struct Small(PathBuf);

impl Small {
    fn new(place: &Place, size: &str) -> Self {
        let at = place.root().join("small");
        place.mkdir(&at);
        let (uid, gid) = place.world.ids();
        let options = format!("size={size},mode=755,uid={uid},gid={gid}");
        let mut mount = Command::new("mount");
        let done = mount.args(["-t", "tmpfs", "-o", &options, "small"]).arg(&at).status();
        assert!(done.unwrap().success(), "mounting needs root: start tests/run.sh as root");
        Self(at)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_full_disk_is_an_error_to_whoever_writes(world) {
        let place = Place::new(world);
        let small = Small::new(&place, "6m");
        // Told at once: what was stored is what the program was told.
        let script = "
import os
file, stored = os.open('file', os.O_CREAT | os.O_WRONLY), 0
try:
    while stored < 9000000: stored += os.write(file, bytes(100000))
except OSError as e: print(e.strerror, stored == os.stat('file').st_size)";
        let mut run = place.session(["--name", "full"], ["python3", "-c", script]);
        let out = run.env("LANDBOX_STATE_DIR", small.0.join("state")).output();
        assert_eq!(out.text(), "No space left on device True\n", "{}", out.errors());
    }
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_takes_the_place_of_a_hidden_path_that_was_moved_away_stays_hidden(world) {
        let place = Place::new(world);
        // Below a folder with a mount of the session's own, where only a plain mount can hide; and below one without.
        for project in [place.outside.join("project"), place.project.clone()] {
            let vault = place.outside.join("vault");
            let _ = std::fs::remove_dir_all(&vault);
            place.mkdir(&project);
            place.write(vault.join("key"), "old secret");
            for hidden in [vault.clone(), vault.join("key")] {
                let hide = ["--hide".to_owned(), text(&hidden)];
                let script = format!("cat {0}/key 2>/dev/null; echo ready; read end; cat {0}/key", text(&vault));
                let mut run = place.session(hide, ["sh", "-c", &script]);
                let mut live = run.cwd(&project).stdin_open().start();
                live.expect("ready");
                let away = place.outside.join("away");
                let _ = std::fs::remove_dir_all(&away);
                std::fs::rename(&vault, &away).unwrap();
                place.write(vault.join("key"), "new secret");
                std::thread::sleep(Duration::from_millis(500));
                let out = live.wait();
                assert!(!out.text().contains("secret"), "{}", out.text());
                // It has ended, unless the mask lies on a folder above and so has not moved.
                assert!([0, 1, 125].contains(&out.code()), "{}", out.code());
            }
        }
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_project_moved_away_ends_the_session_and_keeps_its_changes(world) {
        let place = Place::new(world);
        let project = place.outside.join("project");
        place.write(project.join("a"), "a");
        let mut run = place.sh("echo new > b; echo ready; read go");
        let mut live = run.cwd(&project).stdin_open().start();
        live.expect("ready");
        std::fs::rename(&project, place.outside.join("moved")).unwrap();
        let out = live.wait_open().expect(125);
        assert!(out.errors().contains("boundary"), "{}", out.errors());
        std::fs::rename(place.outside.join("moved"), &project).unwrap();
        let card = place.landbox(["diff", "--stat"]).cwd(&project).output().ok();
        assert!(card.text().contains('b'), "{}", card.text());
        assert!(!project.join("b").exists());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn sockets_are_hidden_by_whatever_name_they_were_bound(world) {
        let place = Place::new(world);
        let [relative, moved] = ["relative", "moved"].map(|name| place.outside.join(name));
        place.mkdir(&relative);
        place.mkdir(&moved);
        let _service = Service::start(&place, &format!(
            "import os,socket,time\nos.chdir('{}')\na=socket.socket(socket.AF_UNIX); a.bind('sock'); a.listen()\n\
             b=socket.socket(socket.AF_UNIX); b.bind('{1}/new'); b.listen(); os.rename('{1}/new','{1}/sock')\n\
             open('ready','w'); time.sleep(60)",
            text(&relative), text(&moved),
        ));
        procs::wait_for("the sockets", 10, || relative.join("ready").exists().then_some(()));
        let connect = "import socket,sys\nfor p in sys.argv[1:]:\n try: socket.socket(socket.AF_UNIX).connect(p); print('connected',p)\n except OSError: pass";
        let paths = [relative, moved].map(|folder| text(folder.join("sock")));
        let out = place.session::<&str, _>([], ["python3", "-c", connect, &paths[0], &paths[1]]).output().ok();
        assert_eq!(out.text(), "");
    }

    // The kernel asks no mount, so what of it the README says is held here, too.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_named_pipe_outside_is_a_door_until_it_or_its_folder_is_hidden(world) {
        let place = Place::new(world);
        let pipe = place.outside.join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        fs::set_permissions(&pipe, Permissions::from_mode(0o666)).unwrap();
        let flags = libc::O_NONBLOCK;
        let mut reader = File::options().read(true).custom_flags(flags).open(&pipe).unwrap();
        let mut passes = |options: &[&str]| {
            let script = format!("timeout 20 sh -c 'echo through > {}'; true", text(&pipe));
            place.session(options, ["sh", "-c", &script]).output().ok();
            matches!(reader.read(&mut [0; 64]), Ok(1..))
        };
        assert!(passes(&[]));
        assert!(!passes(&["--hide", &text(&pipe)]) && !passes(&["--hide", &text(&place.outside)]));
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_socket_made_later_is_a_door_unless_its_folder_had_one_or_is_hidden(world) {
        let place = Place::new(world);
        let [had, had_none] = ["had", "none"].map(|name| place.outside.join(name));
        let bind = |folder: &Path, name: &str| {
            place.mkdir(folder);
            let listener = UnixListener::bind(folder.join(name)).unwrap();
            fs::set_permissions(folder.join(name), Permissions::from_mode(0o666)).unwrap();
            listener
        };
        let _old = bind(&had, "old");
        place.mkdir(&had_none);
        let connect = "import socket,sys\nprint('ready',flush=True); sys.stdin.readline()\nfor p in sys.argv[1:]:\n \
                       try: socket.socket(socket.AF_UNIX).connect(p); print('connected',p)\n except OSError: pass";
        let paths = [&had, &had_none].map(|folder| text(folder.join("late")));
        for (options, connected) in [(vec![], true), (vec!["--hide".to_owned(), text(&had_none)], false)] {
            let mut live = place.session(options, ["python3", "-c", connect, &paths[0], &paths[1]]).stdin_open().start();
            live.expect("ready");
            let _late = [&had, &had_none].map(|folder| bind(folder, "late"));
            live.write(b"go\n");
            let said = live.wait().ok().text();
            assert!(!said.contains(&paths[0]), "{said}");
            assert_eq!(said.contains(&paths[1]), connected, "{said}");
            paths.iter().for_each(|path| fs::remove_file(path).unwrap());
        }
    }

    [user_kernel]
    fn the_terminal_is_never_left_in_disguise(world) {
        let place = Place::new(world);
        // Another screen, hidden text, a region of two lines, line drawing, mouse reports, a title without an end.
        let script = r"printf '\033[?1049h\033[8m\033[1;2r\033(0\033[?1003h\033]0;title'";
        let mut terminal = place.sh(script).terminal(80, 24);
        assert_eq!(terminal.wait(), 0);
        let shown = terminal.shown();
        let (_, after) = shown.split_once("title").unwrap();
        let (undone, _) = after.split_once("landbox: ").unwrap();
        for sequence in ["\x18", "\x1b\\", "\x1b[?1049l", "\x1b[r", "\x1b[0m", "\x1b(B", "\x1b[!p"] {
            assert!(undone.contains(sequence), "{sequence:?} is not in {undone:?}");
        }
        // What is no command to a terminal needs no answer.
        let mut terminal = place.sh("echo plain").terminal(80, 24);
        assert_eq!(terminal.wait(), 0);
        assert!(!terminal.shown().contains('\x1b'), "{:?}", terminal.shown());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn root_a_session_that_fills_the_disk_is_kept_and_can_be_discarded(world) {
        let place = Place::new(world);
        let small = Small::new(&place, "6m");
        let state = small.0.join("state");
        let on_small = |args: &[&str]| {
            let mut run = place.landbox(args);
            run.env("LANDBOX_STATE_DIR", &state);
            run
        };
        let script = "echo kept > kept; head -c 20M /dev/zero > big; exit 7";
        let args = ["run", "--overlay", world.overlay_name(), "--name", "full", "--", "sh", "-c", script];
        on_small(&args).output().expect(7);
        let upper = |name: &str| {
            let session = std::fs::read_dir(state.join("sessions")).unwrap().next().unwrap();
            session.unwrap().path().join("layers/project/upper").join(name)
        };
        assert_eq!(std::fs::read_to_string(upper("kept")).unwrap(), "kept\n");
        let started = Instant::now();
        on_small(&["discard", "full", "--yes"]).output().ok();
        assert!(!upper("").exists());
        assert!(started.elapsed() < Duration::from_secs(20));
        // There is room again, and the name is free.
        let args = ["run", "--overlay", world.overlay_name(), "--name", "full", "--", "true"];
        on_small(&args).output().ok();
    }
}
