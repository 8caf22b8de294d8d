//! Homes and projects of every shape.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::{Place, World, world, worlds};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const NAMES: [&[u8]; 10] = [
    b"sp ace",
    b"co:lon,com\\ma",
    b"[brackets]*?",
    b"new\nline",
    b"tab\tquote'\"",
    b"bytes\xff\xfe",
    b"-dash",
    b"$(touch pwned)",
    b" lead and trail ",
    "\u{e9}\u{1f980}".as_bytes(),
];

/// Runs a script in `folder` that adds `made` and changes `kept`, and expects exactly that in the changeset and nothing
/// in the real folder.
#[track_caller]
fn works_in(place: &Place, folder: &Path) {
    place.write(folder.join("kept"), "old\n");
    let script = "pwd -P; cat kept; echo new >> kept; echo made > made";
    let out = place.sh(script).cwd(folder).output().ok();
    let canonical = fs::canonicalize(folder).unwrap();
    let expected = [canonical.as_os_str().as_bytes(), b"\nold\n"].concat();
    assert_eq!(OsStr::from_bytes(&out.stdout), OsStr::from_bytes(&expected));
    assert_eq!(fs::read_to_string(folder.join("kept")).unwrap(), "old\n");
    assert!(!folder.join("made").exists());
    let card: serde_json::Value =
        place.landbox(["diff", "--json"]).cwd(folder).output().ok().json();
    let changes = card["changes"].as_array().unwrap();
    let paths: Vec<_> = changes.iter().map(|c| c["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["kept", "made"], "{card}");
    let session = card["session"].as_str().unwrap_or_default();
    place.landbox(["land", "--apply", "--yes"]).cwd(folder).output().ok();
    assert_eq!(fs::read_to_string(folder.join("kept")).unwrap(), "old\nnew\n", "{session}");
    assert_eq!(fs::read_to_string(folder.join("made")).unwrap(), "made\n");
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn every_name_of_a_project_works(world) {
        let place = Place::new(world);
        for name in NAMES {
            let folder = place.home.join(OsStr::from_bytes(name));
            place.mkdir(&folder);
            works_in(&place, &folder);
        }
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn every_name_of_a_hidden_path_works(world) {
        let place = Place::new(world);
        for name in NAMES {
            let path = place.project.join(OsStr::from_bytes(name));
            place.write(&path, "TOKEN");
            let out = place
                .session([OsStr::new("--hide"), path.as_os_str()], ["grep", "-r", "TOKEN", "."])
                .output();
            assert_eq!((out.code(), out.text()), (1, String::new()), "{path:?} {}", out.errors());
            fs::remove_file(&path).unwrap();
        }
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_home_behind_a_link_works_by_both_names(world) {
        let place = Place::new(world);
        let link = place.root().join("u");
        symlink(&place.home, &link).unwrap();
        let script = format!(
            "pwd -P; cd {0}/project && echo a > a; cd {1}/project && echo b > b; cat {0}/.profile; ls {0}/.ssh",
            link.display(),
            place.home.display()
        );
        let text = place
            .session(["--hide", "~/.ssh"], ["sh", "-c", &script])
            .env("HOME", &link)
            .cwd(link.join("project"))
            .output()
            .ok()
            .text();
        assert_eq!(text, format!("{}\n# the owner's\n", place.project.display()));
        assert_eq!(place.changes().iter().map(|c| c.0.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(!place.project.join("a").exists() && !place.project.join("b").exists());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn the_home_itself_can_be_the_project(world) {
        let place = Place::new(world);
        works_in(&place, &place.home);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_project_outside_the_home_works(world) {
        let place = Place::new(world);
        works_in(&place, &place.outside);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_project_that_holds_the_home_works(world) {
        let mut place = Place::new(world);
        let above = place.root().join("above");
        let home = above.join("deep/home");
        place.mkdir(&home);
        place.write(home.join(".rc"), "rc\n");
        place.write(above.join("kept"), "old\n");
        place.move_home(home.clone());
        let text = place
            .sh("cat ~/.rc; echo x >> ~/.rc; echo new >> kept; cat ~/.rc kept")
            .cwd(&above)
            .output()
            .ok()
            .text();
        assert_eq!(text, "rc\nrc\nx\nold\nnew\n");
        assert_eq!(fs::read_to_string(home.join(".rc")).unwrap(), "rc\n");
        assert_eq!(fs::read_to_string(above.join("kept")).unwrap(), "old\n");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_project_below_the_private_tmp_works(world) {
        let place = Place::new(world);
        let folder = tempfile::Builder::new().prefix("landbox-test-").tempdir_in("/tmp").unwrap();
        let (uid, gid) = world.ids();
        std::os::unix::fs::chown(folder.path(), Some(uid), Some(gid)).unwrap();
        let project = folder.path().join("project");
        fs::create_dir(&project).unwrap();
        std::os::unix::fs::chown(&project, Some(uid), Some(gid)).unwrap();
        fs::write(project.join("kept"), "old\n").unwrap();
        std::os::unix::fs::chown(project.join("kept"), Some(uid), Some(gid)).unwrap();
        let name = folder.path().file_name().unwrap().to_str().unwrap();
        let private = format!("/tmp/{name}-inside");
        let script = format!("cat kept; echo new >> kept; echo t > {private}; ls /tmp");
        let text = place.sh(&script).cwd(&project).output().ok().text();
        assert_eq!(text, format!("old\n{name}\n{name}-inside\n"));
        assert_eq!(fs::read_to_string(project.join("kept")).unwrap(), "old\n");
        assert!(!Path::new(&private).exists());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn root_gave_a_folder_below_run_and_it_holds_a_project_or_a_home(world) {
        assert!(world::is_root(), "making a folder below /run needs root: start tests/run.sh as root");
        let mut place = Place::new(world);
        let folder = tempfile::Builder::new().prefix("landbox-test-").tempdir_in("/run").unwrap();
        let (uid, gid) = world.ids();
        let own = |path: &Path| std::os::unix::fs::chown(path, Some(uid), Some(gid)).unwrap();
        own(folder.path());
        let [project, home] = ["project", "home"].map(|name| folder.path().join(name));
        for path in [&project, &home] {
            fs::create_dir(path).unwrap();
            own(path);
            fs::write(path.join("kept"), "old\n").unwrap();
            own(&path.join("kept"));
        }
        fs::write(folder.path().join("neighbour"), "x").unwrap();
        let name = folder.path().file_name().unwrap().to_str().unwrap();
        // Of the rest of /run nothing shows, not even what lies beside.
        let script = format!("cat kept; echo new >> kept; echo made > made; ls {}; ls /run | grep -c {name}", folder.path().display());
        let text = place.sh(&script).cwd(&project).output().ok().text();
        assert_eq!(text, "old\nproject\n1\n");
        assert_eq!(fs::read_to_string(project.join("kept")).unwrap(), "old\n");
        place.landbox(["land", "--apply", "--yes"]).cwd(&project).output().ok();
        assert_eq!(fs::read_to_string(project.join("kept")).unwrap(), "old\nnew\n");
        assert_eq!(fs::read_to_string(project.join("made")).unwrap(), "made\n");

        let state = place.outside.join("state");
        place.move_home(home.clone());
        let script = "cat ~/kept; echo new >> ~/kept; cat ~/kept; echo $HOME; echo made > made; ls -A ~";
        let text = place.sh(script).env("LANDBOX_STATE_DIR", &state).output().ok().text();
        assert!(text.starts_with(&format!("old\nold\nnew\n{}\n", home.display())), "{text}");
        assert_eq!(fs::read_to_string(home.join("kept")).unwrap(), "old\n");
        place.landbox(["land", "--apply", "--yes"]).env("LANDBOX_STATE_DIR", &state).output().ok();
        assert_eq!(fs::read_to_string(place.project.join("made")).unwrap(), "made\n");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_project_given_by_a_link_or_with_dots_is_the_same_project(world) {
        let place = Place::new(world);
        place.symlink(&place.project, place.home.join("shortcut"));
        for way in ["shortcut", "project/./src/..", "./project"] {
            let dir = place.home.join(way);
            let text = place
                .session(["--workdir", dir.to_str().unwrap()], ["pwd", "-P"])
                .cwd(&place.home)
                .output()
                .ok()
                .text();
            assert_eq!(text, format!("{}\n", place.project.display()), "{way}");
        }
    }

    [user_kernel]
    fn system_folders_are_refused_as_projects(world) {
        let place = Place::new(world);
        for folder in ["/", "/etc", "/usr", "/proc", "/sys", "/dev", "/tmp"] {
            let out = place.sh("true").cwd(folder).output();
            assert_eq!(out.code(), 125, "{folder}");
            assert!(out.errors().contains(folder), "{}", out.errors());
        }
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_git_worktree_can_commit_inside_and_the_real_repository_stays(world) {
        let place = Place::new(world);
        let git = |dir: &Path, args: &[&str]| {
            let me = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"];
            place.git_in(dir, &[&me, args].concat())
        };
        let main = place.outside.join("main");
        place.mkdir(&main);
        git(&main, &["init", "--quiet"]);
        git(&main, &["commit", "--quiet", "--allow-empty", "-m", "first"]);
        let tree = place.home.join("tree");
        git(&main, &["worktree", "add", "--quiet", tree.to_str().unwrap()]);
        let script = "echo a > f; git add f; git -c user.name=t -c user.email=t@example.invalid commit -qm inside; git log --format=%s";
        let text = place.sh(script).cwd(&tree).output().ok().text();
        assert_eq!(text, "inside\nfirst\n");
        assert_eq!(git(&main, &["log", "--all", "--format=%s"]), "first\n");
        assert!(!tree.join("f").exists());
    }
}

/// Unmounts when a test ends, however it ends.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn nested_mount(world: World) {
    assert!(world::is_root(), "this test mounts on the host: start tests/run.sh as root");
    let place = Place::new(world);
    let point = place.project.join("mounted");
    place.mkdir(&point);
    let done = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&point).status().unwrap();
    assert!(done.success());
    let _mounted = Mounted(point.clone());
    let (uid, gid) = world.ids();
    std::os::unix::fs::chown(&point, Some(uid), Some(gid)).unwrap();
    place.write(point.join("below"), "of the mount\n");
    let script = "cat mounted/below README.md; echo new >> mounted/below; echo new > mounted/added; cat mounted/below";
    let text =
        place.landbox(["run", "--overlay", "auto", "--", "sh", "-c", script]).output().ok().text();
    assert_eq!(text, "of the mount\n# Project\n\nOne line.\nof the mount\nnew\n");
    assert_eq!(fs::read_to_string(point.join("below")).unwrap(), "of the mount\n");
    assert!(!point.join("added").exists());
}

#[test]
fn root_mounts_below_a_user_s_project_and_the_mount_gets_a_layer() {
    nested_mount(World::USUAL);
}

#[test]
fn root_mounts_below_its_own_project_and_the_mount_gets_a_layer() {
    nested_mount(world::root_kernel());
}

worlds! {
    // What the kernel asks of a mount it asks of the overlay's own, not of those below.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn root_mounts_folders_where_nothing_may_be_executed_and_inside_nothing_is(world) {
        assert!(world::is_root(), "this test mounts on the host: start tests/run.sh as root");
        let place = Place::new(world);
        let (uid, gid) = world.ids();
        let [project, hidden, nested] = ["project", "hidden", "nested"].map(|name| place.outside.join(name));
        let mounted = [&project, &hidden, &nested.join("mounted")].map(|at| {
            place.mkdir(at);
            let options = format!("noexec,mode=755,uid={uid},gid={gid}");
            let done = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(at).status();
            assert!(done.unwrap().success());
            let program = at.join("program");
            place.write(&program, fs::read("/bin/true").unwrap());
            fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            Mounted(at.clone())
        });
        // In the layer, copied up, new; by the loader; and in a folder of which a part is hidden.
        let tries = format!(
            "p=/bin/true; ./program; echo $?; touch program; ./program; echo $?; cp $p new; ./new; echo $?; \
             for l in /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1; do [ ! -e $l ] || $l ./new; done; \
             {}/program; echo $?; cp $p ~/new && ~/new; echo $?",
            hidden.display()
        );
        let hide = ["--hide".to_owned(), hidden.join("missing").display().to_string()];
        let out = place.session(hide, ["sh", "-c", &tries]).cwd(&project).output().ok();
        assert_eq!(out.text(), "126\n126\n126\n126\n0\n", "{}", out.errors());
        assert!(out.errors().contains("failed to map segment"), "{}", out.errors());
        // A mount below has a layer of its own, and its own say.
        let script = "mounted/program; echo $?; cp /bin/true mounted/new; mounted/new; echo $?; cp /bin/true new; ./new; echo $?";
        let mut run = place.landbox(["run", "--overlay", "auto", "--", "sh", "-c", script]);
        let out = run.cwd(&nested).output().ok();
        assert_eq!(out.text(), "126\n126\n0\n", "{}", out.errors());
        drop(mounted);
    }
}
