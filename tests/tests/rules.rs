//! What a session may see and change: hidden, read-only and shared paths, layers and their places, name resolution.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::net::Outer;
use landbox_tests::snapshot::Snapshot;
use landbox_tests::world::{Who, is_root};
use landbox_tests::{Place, worlds};
use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn text(path: impl AsRef<Path>) -> String {
    path.as_ref().to_str().unwrap().to_owned()
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Lines of a session's stdout that runs `script` with `options`.
fn said(place: &Place, options: &[&str], script: &str) -> Vec<String> {
    let out = place.session(options, ["sh", "-c", script]).output().ok();
    out.text().lines().map(str::to_owned).collect()
}

/// Lets Landbox make its state and key, which are its own and no change of a session's.
fn settle(place: &Place) {
    place.sh("true").output().ok();
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse] fn hidden_paths_show_as_empty_by_every_name(world) {
        let place = Place::new(world);
        place.write(place.home.join("dots/netrc"), "token\n");
        place.symlink(place.home.join("dots/netrc"), place.home.join(".netrc"));
        let hidden = ["--hide", "~/.ssh", "--hide", "~/.netrc", "--hide", "src/main.py"];
        let script = "ls -A ~/.ssh; cat ~/.netrc ~/dots/netrc src/main.py link; echo end; \
                      echo x > ~/.ssh/new || echo refused; echo x > src/main.py || echo refused";
        assert_eq!(said(&place, &hidden, script), ["end", "refused", "refused"]);
        assert_eq!(place.changes(), []);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn a_missing_path_stays_hidden_when_it_appears_and_leaves_no_stub(world) {
        let place = Place::new(world);
        let options =
            ["--hide", ".env", "--hide", "~/.config/secret", "--hide", "/etc/landbox-test-nothing"];
        let script = "mkdir -p ~/.config/secret && echo mine > ~/.config/secret/x; echo ready; read go; \
                      cat .env; ls -A . | tr '\\n' ' '; ls /etc/landbox-test-nothing";
        settle(&place);
        let before = Snapshot::take(&[&place.home], &[place.state()]);
        let mut live = place.session(options, ["sh", "-c", script]).stdin_open().start();
        // The session is up once its folder exists and its helper holds the lock; a second is plenty.
        std::thread::sleep(Duration::from_secs(1));
        before.same_as(&Snapshot::take(&[&place.home], &[place.state()]));
        place.write(place.project.join(".env"), "TOKEN\n");
        live.write(b"go\n");
        let out = live.wait();
        assert!(out.text().contains("ready"), "{} {}", out.text(), out.errors());
        assert!(!out.text().contains("TOKEN") && !out.text().contains(".env"), "{}", out.text());
        assert_eq!(read(place.project.join(".env")), "TOKEN\n");
        assert!(!place.home.join(".config/secret").exists());
        assert!(!Path::new("/etc/landbox-test-nothing").exists());
        assert_eq!(place.changes(), []);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn a_rule_on_a_link_holds_for_its_target_and_never_stops_the_start(world) {
        let place = Place::new(world);
        place.mkdir(place.home.join("dots/agents"));
        place.symlink(place.home.join("dots/bashrc"), place.home.join(".bashrc"));
        place.symlink(place.home.join("dots/agents"), place.project.join(".agents"));
        place.symlink("/usr/share/common-licenses/GPL-3", place.home.join(".license"));
        let rules =
            ["--read-only", "~/.bashrc", "--read-only", "~/.license", "--read-only", ".agents"];
        let script = "echo ok; echo x > .agents/a || echo refused; \
                      rm .agents && mkdir .agents && echo y > .agents/a && cat .agents/a";
        assert_eq!(said(&place, &rules, script), ["ok", "refused", "y"]);
        // Replacing the link is a change of the project, and shows.
        assert!(place.changes().iter().any(|(path, _)| path.starts_with(".agents")));
        assert!(!place.home.join("dots/agents/a").exists());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn masks_win_and_then_the_deepest_rule_whatever_the_order(world) {
        let place = Place::new(world);
        for file in ["other/file", "ref/file", "ref/tokens/t", "ref/tokens/fixed/f"] {
            place.write(place.outside.join(file), "real\n");
        }
        let path = |p: &str| text(place.outside.join(p));
        let rules = [
            ("--auth", path("ref/tokens")),
            ("--hide", path("other")),
            ("--read-only", path("ref/tokens/fixed")),
            ("--read-only", path("ref")),
        ];
        let script = format!(
            "cd {}; ls other; cat ref/file; echo new > ref/file || echo refused; echo new > ref/tokens/t; \
             echo new > ref/tokens/fixed/f || echo refused",
            text(&place.outside)
        );
        for turn in 0..2 {
            place.write(place.outside.join("ref/tokens/t"), "real\n");
            let mut options: Vec<&str> = rules.iter().flat_map(|(k, v)| [*k, v.as_str()]).collect();
            if turn == 1 {
                options = rules.iter().rev().flat_map(|(k, v)| [*k, v.as_str()]).collect();
            }
            assert_eq!(said(&place, &options, &script), ["real", "refused", "refused"]);
            assert_eq!(read(place.outside.join("ref/tokens/t")), "new\n");
            assert_eq!(read(place.outside.join("ref/file")), "real\n");
        }
        // A mask above a rule that would open it again.
        let (hide, auth) = (path("ref"), path("ref/tokens"));
        let out = place.session(["--hide", &hide, "--auth", &auth], ["ls", "-A", &hide]).output().ok();
        assert_eq!(out.text(), "");
        assert!(out.errors().contains("which wins"), "{}", out.errors());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn any_name_of_a_project_works(world) {
        let place = Place::new(world);
        for name in [&b"a b"[..], b"co:lo,n", b"back\\slash\\", b"[x]*?", b"new\nline", b"\xff\xfe", b"-x", b"%s$HOME'\""] {
            let project = place.home.join(OsStr::from_bytes(name));
            place.write(project.join("kept"), "x\n");
            place.write(project.join("secret"), "x\n");
            let script = "echo y > kept; cat secret; echo z > new; cat kept new";
            let out = place.session(["--hide", "secret"], ["sh", "-c", script]).cwd(&project).output().ok();
            assert_eq!(out.text(), "y\nz\n", "{name:?}");
            assert_eq!(read(project.join("kept")), "x\n");
            assert!(!project.join("new").exists());
        }
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn a_home_reached_by_a_link_is_one_home(world) {
        let mut place = Place::new(world);
        let link = place.root().join("link-home");
        place.symlink(&place.home, &link);
        let real = place.home.clone();
        place.home = link.clone();
        let script = format!(
            "pwd -P; echo $HOME; echo a > a; cd {}/project && cat a; cd {}/project && echo b > b; cat ~/.ssh/id_ed25519",
            text(&link), text(&real)
        );
        let out = place
            .session(["--hide", &text(link.join(".ssh"))], ["sh", "-c", &script])
            .cwd(link.join("project"))
            .output();
        assert_eq!(out.text(), format!("{}\n{}\na\n", text(real.join("project")), text(&link)));
        assert!(!real.join("project/a").exists() && !real.join("project/b").exists());
        place.home = real;
        let changes: Vec<_> = place.changes().into_iter().map(|(path, _)| path).collect();
        assert_eq!(changes, ["a", "b"]);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn project_and_home_may_lie_in_each_other_or_apart(world) {
        let place = Place::new(world);
        let script = "echo x > ./new && echo x > ~/new-in-home && cat ./new ~/new-in-home";
        settle(&place);
        for project in [place.home.clone(), place.root().to_owned(), place.outside.clone()] {
            let before = Snapshot::take(&[place.root()], &[place.state()]);
            let out = place.session::<&str, _>([], ["sh", "-c", script]).cwd(&project).output().ok();
            assert_eq!(out.text(), "x\nx\n", "{}", project.display());
            before.same_as(&Snapshot::take(&[place.root()], &[place.state()]));
        }
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn a_linked_worktree_can_commit_and_the_real_repository_is_untouched(world) {
        let place = Place::new(world);
        let main = place.outside.join("main");
        place.mkdir(&main);
        let as_user = |dir: &Path, args: &[&str]| {
            let mut git = place.landbox(args);
            git.program("/usr/bin/git").cwd(dir);
            git.env("GIT_CONFIG_COUNT", "2").env("GIT_CONFIG_KEY_0", "user.name").env("GIT_CONFIG_VALUE_0", "T");
            git.env("GIT_CONFIG_KEY_1", "user.email").env("GIT_CONFIG_VALUE_1", "t@example.org");
            git.output().ok().text()
        };
        as_user(&main, &["init", "-q", "."]);
        as_user(&main, &["commit", "-q", "--allow-empty", "-m", "i"]);
        let tree = text(place.home.join("wt"));
        as_user(&main, &["worktree", "add", "-q", &tree]);
        let before = Snapshot::take(&[&main], &[]);
        let script = "echo a > f; git add f; git -c user.name=T -c user.email=t@example.org commit -qm msg; \
                      git log --format=%s";
        let out = place.session::<&str, _>([], ["sh", "-c", script]).cwd(&tree).output().ok();
        assert_eq!(out.text(), "msg\ni\n");
        before.same_as(&Snapshot::take(&[&main], &[]));
        // A forged pointer gets no layer: nothing can be written there.
        place.write(place.outside.join("victim/worktrees/x/keep"), "x");
        place.write(
            place.project.join(".git"),
            format!("gitdir: {}\n", text(place.outside.join("victim/worktrees/x"))),
        );
        let write = format!("echo x > {}/worktrees/x/new || echo refused", text(place.outside.join("victim")));
        assert_eq!(said(&place, &[], &write), ["refused"]);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn names_resolve_as_on_the_host(world) {
        let place = Place::new(world);
        let there = |path: &str| std::fs::read(path).unwrap_or_default();
        for file in ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"] {
            if Path::new(file).exists() {
                let out = place.session::<&str, _>([], ["cat", file]).output().ok();
                assert_eq!(out.stdout, there(file), "{file}");
            }
        }
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn thousands_of_rules_and_a_long_environment_are_carried(world) {
        let place = Place::new(world);
        let long = "d".repeat(60);
        let hide: Vec<String> = (0..3000).map(|i| format!("~/project/{long}/{i:04}/.env")).collect();
        let docs: Vec<String> = std::fs::read_dir("/usr/share/doc").into_iter().flatten().flatten()
            .take(500).map(|e| text(e.path())).collect();
        let bots = serde_json::json!([{
            "name": "big", "command": "x", "sandboxHidePaths": hide, "sandboxReadonlyPaths": docs,
        }]);
        place.write(place.home.join(".config/landbox/bots.json"), bots.to_string());
        let mut run = place.session(["--bot", "big"], ["sh", "-c", "echo ${#LONG}"]);
        // Thousands of mounts: a minute on a machine that is busy with much else.
        let out = run.env("LONG", "x".repeat(120_000)).limit(300).output().ok();
        assert_eq!(out.text(), "120000\n");
    }
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse] fn a_service_that_ends_takes_no_session_with_it(world) {
        let place = Place::new(world);
        let sockets = ["gone/sock", "again/sock"].map(|name| place.outside.join(name));
        let bind = |path: &Path| {
            place.mkdir(path.parent().unwrap());
            let socket = UnixListener::bind(path).unwrap();
            std::fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
            socket
        };
        let _before = sockets.each_ref().map(|path| bind(path));
        let [gone, again] = sockets.each_ref().map(text);
        let connect = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])";
        let script = format!(
            "[ -f {gone} ] && [ -f {again} ] && echo hidden; read go; [ -e {gone} ] || echo gone; \
             python3 -c '{connect}' {again} 2>/dev/null || echo refused"
        );
        let mut live = place.session::<&str, _>([], ["sh", "-c", &script]).stdin_open().start();
        live.expect("hidden");
        std::fs::remove_dir_all(place.outside.join("gone")).unwrap();
        // A folder that stays keeps hiding what comes back in it.
        std::fs::remove_file(&sockets[1]).unwrap();
        let _after = bind(&sockets[1]);
        std::thread::sleep(Duration::from_millis(300));
        live.write(b"go\n");
        assert_eq!(live.wait().ok().text(), "hidden\ngone\nrefused\n");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn a_folder_of_the_owner_s_that_stops_hiding_ends_the_session(world) {
        let place = Place::new(world);
        place.write(place.outside.join("vault/key"), "secret");
        let hide = ["--hide".to_owned(), text(place.outside.join("vault/key"))];
        let mut live = place.session(hide, ["sh", "-c", "echo ready; read go"]).stdin_open().start();
        live.expect("ready");
        std::fs::remove_dir_all(place.outside.join("vault")).unwrap();
        let out = live.wait_open().expect(125);
        assert!(out.errors().contains("vault"), "{}", out.errors());
    }
}

/// Runs a session where `set_up` has changed mounts and bound sockets that no other test's session can see: those would
/// be hidden from it too.
fn apart(place: &Place, set_up: &str, run: &[&str]) -> (String, String) {
    let (uid, gid) = place.world.ids();
    let line =
        format!("{set_up}\nexec setpriv --reuid {uid} --regid {gid} --clear-groups \"$@\"\n");
    let out = Command::new("unshare")
        .args(["--mount", "--net", "--", "bash", "-c", &line, "bash"])
        .arg(landbox_tests::world::bin("landbox"))
        .arg("run")
        .args(run)
        .env("HOME", &place.home)
        .current_dir(&place.project)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&out.stdout), text(&out.stderr))
}

/// A mount in the test's own mount namespace would not be seen by the session's user, so this one is the machine's.
struct Mounted(PathBuf);

impl Mounted {
    fn new(kind: &str, at: &Path) -> Self {
        let done = Command::new("mount").args(["-t", kind, "landbox-test"]).arg(at).status();
        assert!(done.unwrap().success(), "mounting needs root: start tests/run.sh as root");
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse] fn root_nested_mounts_are_seen_and_written_in_a_layer_of_their_own(world) {
        let place = Place::new(world);
        let volume = place.project.join("vol");
        place.mkdir(&volume);
        let _mounted = Mounted::new("tmpfs", &volume);
        std::fs::set_permissions(&volume, PermissionsExt::from_mode(0o777)).unwrap();
        place.write(volume.join("data"), "real\n");
        // Chosen by itself: the kernel's overlay can't span the mount.
        let script = "cat vol/data; echo new > vol/data; echo x > vol/more; echo y > README.md; cat vol/data";
        let out = place.landbox(["run", "--", "sh", "-c", script]).output().ok();
        assert_eq!(out.text(), "real\nnew\n");
        assert_eq!(read(volume.join("data")), "real\n");
        assert!(!volume.join("more").exists());
        let kinds: Vec<String> = place.json(["show"])["layers"].as_array().unwrap().iter()
            .map(|l| format!("{} {}", l["id"].as_str().unwrap(), l["overlay"].as_str().unwrap()))
            .collect();
        assert_eq!(kinds, ["home fuse", "project fuse", "mount-1 kernel-user"].map(|k| {
            if world.who == Who::Root { k.replace("kernel-user", "kernel-root") } else { k.to_owned() }
        }));
    }

    [user_kernel, root_kernel] fn root_a_second_proc_of_the_host_is_hidden(world) {
        let place = Place::new(world);
        let [inside, outside] = [place.home.join("chroot/proc"), place.outside.join("chroot/proc")];
        place.mkdir(&inside);
        place.mkdir(&outside);
        let mounts = format!("mount -t proc a {}; mount -t proc b {}", text(&inside), text(&outside));
        let script = format!("ls -A {} {} | grep -v :", text(&inside), text(&outside));
        let (said, errors) = apart(&place, &mounts, &["sh", "-c", &script]);
        assert_eq!(said.trim(), "", "{errors}");
        assert!(errors.contains("is hidden"), "{errors}");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn root_what_is_hidden_is_hidden_by_every_mount_of_it(world) {
        let place = Place::new(world);
        let twin = place.outside.join("twin");
        place.mkdir(&twin);
        place.write(place.project.join(".env"), "TOKEN\n");
        let socket = "import socket,sys,time; s=socket.socket(socket.AF_UNIX)";
        let mounts = format!(
            "mount --bind {} {}; python3 -c '{socket}; s.bind(\"{}/agent.sock\"); s.listen(); time.sleep(20)' >/dev/null 2>&1 & \
             until [ -S {}/agent.sock ]; do sleep 0.05; done; chmod 777 {}/agent.sock",
            text(&place.home), text(&twin), text(&place.home), text(&place.home), text(&place.home)
        );
        let script = format!(
            "cd {}; cat .ssh/id_ed25519 project/.env; ls -A .local/state/landbox .config/landbox | grep -v :; \
             python3 -c '{socket}; s.connect(sys.argv[1])' $PWD/agent.sock 2>/dev/null || echo refused; cat .profile",
            text(&twin)
        );
        let (said, errors) =
            apart(&place, &mounts, &["--hide", "~/.ssh", "--hide", ".env", "--", "sh", "-c", &script]);
        let lines: Vec<&str> = said.lines().filter(|l| !l.is_empty()).collect();
        assert_eq!(lines, ["refused", "# the owner's"], "{errors}");
    }

    [user_kernel] fn root_a_toolchain_below_run_is_found_and_the_rest_of_run_is_not(world) {
        assert!(is_root(), "making a folder below /run needs root: start tests/run.sh as root");
        let place = Place::new(world);
        let run = tempfile::Builder::new().prefix("landbox-test-").tempdir_in("/run").unwrap();
        std::fs::set_permissions(run.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let bin = run.path().join("fnm/abc/bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(run.path().join("neighbour"), "x").unwrap();
        std::fs::copy("/bin/sh", bin.join("node")).unwrap();
        std::fs::write(bin.join("agent"), format!("#!{}\n\"$1\" -c 'echo second'\n", text(bin.join("node")))).unwrap();
        std::fs::set_permissions(bin.join("agent"), PermissionsExt::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", text(&bin), std::env::var("PATH").unwrap());
        let mut agent = place.session::<&str, _>([], [OsString::from("agent"), bin.join("node").into()]);
        assert_eq!(agent.env("PATH", &path).output().ok().text(), "second\n");
        let script = format!("ls {}; ls /run", text(run.path()));
        let mut look = place.session::<&str, _>([], ["sh", "-c", &script]);
        let seen = look.env("PATH", &path).output().ok().text();
        assert!(!seen.contains("neighbour") && !seen.contains("systemd"), "{seen}");
    }

    // Version managers that put links in one folder of the search path and the programs below `/run`.
    [user_kernel] fn root_a_link_in_a_folder_of_the_search_path_that_leads_below_run_still_works(world) {
        assert!(is_root(), "making a folder below /run needs root: start tests/run.sh as root");
        let place = Place::new(world);
        let run = tempfile::Builder::new().prefix("landbox-test-").tempdir_in("/run").unwrap();
        std::fs::set_permissions(run.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let far = run.path().join("versions/7/bin");
        std::fs::create_dir_all(&far).unwrap();
        std::fs::copy("/bin/echo", far.join("node7")).unwrap();
        let near = place.home.join("bin");
        std::fs::create_dir_all(&near).unwrap();
        std::os::unix::fs::symlink(far.join("node7"), near.join("node7")).unwrap();
        let path = format!("{}:{}", text(&near), std::env::var("PATH").unwrap());
        let mut agent = place.session::<&str, _>([], ["sh", "-c", "node7 found"]);
        assert_eq!(agent.env("PATH", &path).output().ok().text(), "found\n");
    }
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse] fn a_socket_below_an_auth_path_is_reached_and_show_names_it_and_no_other(world) {
        let place = Place::new(world);
        let (uid, gid) = world.ids();
        let sockets = ["outside/shared/agent.sock", "home/.tool/agent.sock", "outside/other.sock", "home/other.sock"]
            .map(|name| place.root().join(name));
        let listeners = sockets.each_ref().map(|path| {
            place.mkdir(path.parent().unwrap());
            let listener = UnixListener::bind(path).unwrap();
            std::os::unix::fs::chown(path, Some(uid), Some(gid)).unwrap();
            listener
        });
        let shared = text(place.outside.join("shared"));
        let connect = "import socket,sys\nfor p in sys.argv[1:]:\n try: socket.socket(socket.AF_UNIX).connect(p); print(p)\n except OSError: pass";
        let mut run = place.session(["--auth", &shared, "--auth", "~/.tool"], ["python3", "-c", connect]);
        let out = run.args(&sockets).output().ok();
        let reached: Vec<String> = sockets[..2].iter().map(text).collect();
        assert_eq!(out.text().lines().collect::<Vec<_>>(), reached, "{}", out.errors());
        let mut shown: Vec<String> = serde_json::from_value(place.json(["show"])["reachable_sockets"].clone()).unwrap();
        shown.sort();
        let mut expected = reached;
        expected.sort();
        assert_eq!(shown, expected);
        let told = place.landbox(["show"]).output().ok().text();
        assert!(expected.iter().all(|path| told.contains(path)), "{told}");
        drop(listeners);
    }

    // ssh refuses files of nobody's, which root's are in a user namespace that maps the user alone.
    [user_kernel, user_fuse, root_kernel, root_fuse] fn root_s_settings_of_ssh_are_the_user_s_own_inside_and_ssh_takes_them(world) {
        let place = Place::new(world);
        let etc = place.root().join("etc");
        let script = format!(
            "cp -a /etc {0}; mkdir -p {0}/ssh/ssh_config.d {0}/ssh/more; rm -f {0}/ssh/ssh_config.d/*\n\
             printf 'Include /etc/ssh/ssh_config.d/*.conf\\n' > {0}/ssh/ssh_config\n\
             printf 'Include /etc/ssh/more/x\\nHost landbox-a\\n HostName 192.0.2.7\\n' > {0}/ssh/ssh_config.d/10-a.conf\n\
             printf 'Host landbox-b\\n HostName 192.0.2.8\\n' > {0}/ssh/more/x\n\
             chown -R 0:0 {0}/ssh; mount --bind {0} /etc",
            text(&etc)
        );
        let look = "cat /etc/ssh/ssh_config.d/10-a.conf | wc -l; stat -c %u /etc/ssh/ssh_config.d/10-a.conf /etc/ssh/more/x; \
                    echo x >> /etc/ssh/ssh_config.d/10-a.conf || echo refused; \
                    if command -v ssh >/dev/null; then for h in a b; do ssh -G landbox-$h | grep ^hostname; done; fi";
        let out = place.sh(look).within_changed(&Outer::new(), &script).output().ok();
        let uid = world.ids().0;
        let expected = format!("3\n{uid}\n{uid}\nrefused\n");
        let (files, ssh) = out.text().split_at_checked(expected.len()).map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        assert_eq!(files, expected, "{}", out.errors());
        assert!(["", "hostname 192.0.2.7\nhostname 192.0.2.8\n"].contains(&ssh.as_str()), "{ssh} {}", out.errors());
        assert_eq!(read(etc.join("ssh/ssh_config.d/10-a.conf")).lines().count(), 3);
    }
}
