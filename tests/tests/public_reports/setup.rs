//! Machines on which something is missing: a plain message, no command started, nothing left behind. And machines that
//! look odd but will do.

use super::{kinds, land, read, set_mode};
use landbox_tests::net::Outer;
use landbox_tests::world::{self, World};
use landbox_tests::{Place, worlds};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mount of the machine's, gone at the end of the test.
struct Mounted(PathBuf);

impl Mounted {
    fn new(args: &[&str], at: &Path) -> Self {
        assert!(world::is_root(), "this test mounts on the host: start tests/run.sh as root");
        fs::create_dir_all(at).unwrap();
        assert!(Command::new("mount").args(args).arg(at).status().unwrap().success());
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// As the root folder of a container: an overlay, with everything of the place in it.
fn on_an_overlay(place: &Place) -> (Mounted, PathBuf) {
    let [lower, upper, work, merged] =
        ["lower", "upper", "work", "merged"].map(|name| place.outside.join(name));
    for folder in [&lower, &upper, &work, &merged] {
        place.mkdir(folder);
    }
    place.write(lower.join("project/f"), "old\n");
    place.write(lower.join("home/.rc"), "rc\n");
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    let mounted = Mounted::new(&["-t", "overlay", "-o", &options, "none"], &merged);
    (mounted, merged)
}

#[test]
fn a_state_folder_that_can_not_be_written_is_named_and_nothing_runs() {
    let place = Place::new(World::USUAL);
    let state = place.outside.join("closed/state");
    place.mkdir(state.parent().unwrap());
    set_mode(state.parent().unwrap(), 0o555);
    let mut run = place.sh("echo ran");
    let out = run.env("LANDBOX_STATE_DIR", &state).output().expect(125);
    set_mode(state.parent().unwrap(), 0o755);
    assert_eq!(out.text(), "");
    assert!(out.errors().contains(state.to_str().unwrap()), "{}", out.errors());
}

#[test]
fn root_fills_the_disk_of_the_state_folder_and_the_start_fails_by_name() {
    let place = Place::new(World::USUAL);
    let full = place.outside.join("full");
    let _mounted = Mounted::new(&["-t", "tmpfs", "-o", "size=64k,mode=0777", "none"], &full);
    let mut n = 0;
    while fs::write(full.join(format!("junk{n}")), [1; 4096]).is_ok() {
        n += 1;
    }
    let mut run = place.sh("echo ran");
    let out = run.env("LANDBOX_STATE_DIR", full.join("state")).output().expect(125);
    assert_eq!(out.text(), "");
    assert!(out.errors().contains("space"), "{}", out.errors());
    // With room again, the same start works.
    (0..n).for_each(|n| fs::remove_file(full.join(format!("junk{n}"))).unwrap());
    let mut run = place.sh("echo ran");
    assert_eq!(run.env("LANDBOX_STATE_DIR", full.join("state")).output().ok().text(), "ran\n");
}

/// As some distributions ship: nobody may make a user namespace. The switch is one of a user namespace, so no other
/// test feels it.
#[test]
fn root_forbids_user_namespaces_and_the_run_says_so_and_starts_nothing() {
    let place = Place::new(world::root_kernel());
    let script = "echo 0 > /proc/sys/user/max_user_namespaces || exit 99; \"$0\" run -- sh -c 'echo ran > ran.txt; echo ran'; \
         code=$?; \"$0\" doctor; exit $code";
    let out = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "--", "sh", "-c", script])
        .arg(world::bin("landbox"))
        .env("HOME", &place.home)
        .current_dir(&place.project)
        .output()
        .unwrap();
    let (said, errors) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(125), "{said} {errors}");
    assert!(errors.contains("/proc/sys/user/max_"), "{errors}");
    assert!(said.contains("FAIL  user namespaces") && said.contains("sysctl"), "{said}");
    assert!(!said.contains("ran\n") && !place.project.join("ran.txt").exists());
}

#[test]
fn root_gives_the_host_a_stub_of_name_servers_in_run_and_it_is_read_inside() {
    let (outer, place) = (Outer::new(), Place::new(World::USUAL));
    let script = format!(
        "cp -a /etc {0}/etc; rm -f {0}/etc/resolv.conf; mkdir -p {0}/run/systemd/resolve\n\
         echo nameserver 127.0.0.53 > {0}/run/systemd/resolve/stub-resolv.conf\n\
         ln -s ../run/systemd/resolve/stub-resolv.conf {0}/etc/resolv.conf\n\
         mount --bind {0}/run /run; mount --bind {0}/etc /etc",
        place.root().display()
    );
    let mut run = place.sh("cat /etc/resolv.conf; ls -A /run /run/systemd");
    let out = run.within_changed(&outer, &script).output().ok();
    assert!(out.text().starts_with("nameserver 127.0.0.53\n"), "{} {}", out.text(), out.errors());
    assert!(out.text().ends_with("/run/systemd:\nresolve\n"), "{}", out.text());
}

worlds! {
    // In a container the root folder is an overlay, which can't hold the layers of another.
    [user_kernel, root_kernel]
    fn root_puts_home_and_project_on_an_overlay_and_the_state_on_a_volume(world) {
        let mut place = Place::new(world);
        let (_mounted, merged) = on_an_overlay(&place);
        let volume = place.root().join("volume");
        place.mkdir(&volume);
        place.move_home(merged.join("home"));
        place.project = merged.join("project");
        let run = |args: &[&str]| {
            let mut run = place.landbox(args);
            run.env("LANDBOX_STATE_DIR", volume.join("state"));
            run
        };
        let script = "cat ~/.rc; echo new > f; rm -rf d; mkdir d; echo x > d/x; cat f; ls";
        let out = run(&["run", "--", "sh", "-c", script]).output().ok();
        assert_eq!(out.text(), "rc\nnew\nd\nf\n", "{}", out.errors());
        assert_eq!(read(place.project.join("f")), "old\n");
        run(&["land", "--apply", "--yes"]).output().ok();
        assert_eq!(read(place.project.join("f")), "new\n");
        assert_eq!(read(place.project.join("d/x")), "x\n");
    }

    // A container in a container: the kernel stacks two overlays and refuses the third, which nothing foretells.
    [user_kernel, root_kernel]
    fn root_puts_the_project_two_overlays_deep_and_fuse_takes_over_from_the_kernel(world) {
        let mut place = Place::new(world);
        let (_mounted, merged) = on_an_overlay(&place);
        let [upper, work, deep] = ["upper2", "work2", "deep"].map(|name| place.root().join(name));
        for folder in [&upper, &work, &deep] {
            place.mkdir(folder);
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            merged.join("project").display(),
            upper.display(),
            work.display()
        );
        let _deep = Mounted::new(&["-t", "overlay", "-o", &options, "none"], &deep);
        place.project = deep.clone();
        let args = ["run", "--", "sh", "-c", "cat f; echo new > f; cat f"];
        let out = place.landbox(["run", "--overlay", "kernel", "--", "true"]).output().expect(125);
        assert!(out.errors().contains("stage layer"), "{}", out.errors());
        let out = place.landbox(args).output().ok();
        assert_eq!(out.text(), "old\nnew\n", "{}", out.errors());
        assert!(out.errors().contains("using fuse-overlayfs"), "{}", out.errors());
        assert_eq!(read(deep.join("f")), "old\n");
        // What the first attempt made is gone: one session, with the back end that wrote it.
        assert_eq!(place.json(["ls"])["sessions"].as_array().unwrap().len(), 1);
        let layers = place.json(["show"]);
        let layers = layers["layers"].as_array().unwrap();
        let project = layers.iter().find(|l| l["kind"] == "project").unwrap();
        assert_eq!(project["overlay"], "fuse");
        place.landbox(["land", "--apply", "--yes"]).output().ok();
        assert_eq!(read(deep.join("f")), "new\n");
    }

    [user_kernel, root_kernel]
    fn root_puts_the_state_on_an_overlay_too_and_fuse_serves_or_the_reason_is_given(world) {
        let mut place = Place::new(world);
        let (_mounted, merged) = on_an_overlay(&place);
        place.move_home(merged.join("home"));
        place.project = merged.join("project");
        let out = place.landbox(["run", "--overlay", "kernel", "--", "sh", "-c", "echo ran > f"]).output().expect(125);
        assert!(out.errors().contains("overlay"), "{}", out.errors());
        let out = place.landbox(["run", "--", "sh", "-c", "echo new > f; cat f; ls"]).output().ok();
        assert_eq!(out.text(), "new\nf\n", "{}", out.errors());
        assert_eq!(read(place.project.join("f")), "old\n");
        assert_eq!(place.json(["show"])["layers"][0]["overlay"], "fuse");
        assert_eq!(kinds(&place), ["modified f"]);
        land(&place);
        assert_eq!(read(place.project.join("f")), "new\n");
    }
}
