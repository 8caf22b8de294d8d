//! What ordinary containers take away, one thing at a time: a session either runs behind the same boundary, or is refused
//! with the one thing to grant. Each container is imitated by root in a mount namespace of its own.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::net::Outer;
use landbox_tests::run::{BARE_DEV, Out, Run};
use landbox_tests::world::{self, Who, World};
use landbox_tests::{Place, worlds};
use serde_json::Value;
use std::fs;

/// What a session must be able to do, and must not do for real.
const WORK: &str = "echo inside > made && rm README.md && ls && { echo no > /etc/landbox-escape; } 2>/dev/null; \
                    test ! -e /etc/landbox-escape";

/// Starts `run` in a container that root changes by `script`.
fn contained(run: &mut Run, script: &str) -> Out {
    run.within_changed(&Outer::new(), script).output()
}

/// A session with everything behind the boundary, in such a container.
#[track_caller]
fn works(world: World, script: &str) -> Place {
    let place = Place::new(world);
    let mut run = place.landbox(["run", "--", "sh", "-c", WORK]);
    let out = contained(&mut run, script).ok();
    assert_eq!(out.text(), "link\nmade\nsrc\n", "{}", out.errors());
    assert!(place.project.join("README.md").exists() && !place.project.join("made").exists());
    place
}

/// The failing line of the doctor in such a container.
fn diagnosis(world: World, script: &str, id: &str) -> Value {
    let place = Place::new(world);
    let mut run = place.landbox(["doctor", "--json"]);
    let report: Value = contained(&mut run, script).expect(1).json();
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["id"] == id).unwrap().clone()
}

worlds! {
    [user_kernel, root_kernel]
    fn root_reads_proc_only_in_part_and_the_run_is_refused_with_what_to_grant(world) {
        for script in [
            "mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys",
            "mount --bind /dev/null /proc/cpuinfo",
        ] {
            let place = Place::new(world);
            let mut run = place.landbox(["run", "--", "touch", "made"]);
            let out = contained(&mut run, script).expect(125);
            for part in ["fresh /proc", "systempaths=unconfined", "unmask=ALL"] {
                assert!(out.errors().contains(part), "{}", out.errors());
            }
            assert!(!place.project.join("made").exists() && place.sessions().is_empty());
            let check = diagnosis(world, script, "proc");
            assert_eq!(check["status"], "failed");
            let fix = check["fix"].as_str().unwrap();
            assert!(fix.contains("systempaths=unconfined") && fix.contains("unmask=ALL"), "{fix}");
        }
    }

    [user_kernel, root_kernel]
    fn root_has_no_fuse_device_and_the_kernel_s_overlay_is_used(world) {
        let place = works(world, BARE_DEV);
        let layers = place.json(["show"])["layers"].clone();
        assert!(layers[0]["overlay"].as_str().unwrap().starts_with("kernel"), "{layers}");
        let mut run = place.landbox(["run", "--overlay", "fuse", "--", "true"]);
        let out = contained(&mut run, BARE_DEV).expect(125);
        assert!(out.errors().contains("/dev/fuse is missing"), "{}", out.errors());
    }

    [user_kernel, root_kernel]
    fn root_has_no_tunnel_device_and_a_policy_is_refused_with_what_to_grant(world) {
        let place = works(world, BARE_DEV);
        place.write(place.root().join("none.json"), NOTHING);
        let policy = place.root().join("none.json");
        let mut run = place.landbox(["run", "--network"]);
        run.args([policy.as_os_str()]).args(["--", "true"]);
        let out = contained(&mut run, BARE_DEV).expect(125);
        assert!(out.errors().contains("docker run --device /dev/net/tun"), "{}", out.errors());
        let mut run = place.landbox(["run", "--network", "off", "--", "echo", "ran"]);
        assert_eq!(contained(&mut run, BARE_DEV).ok().text(), "ran\n");
    }

    [user_kernel, root_kernel]
    fn root_has_a_read_only_root_and_volumes_for_what_is_written(world) {
        let place = Place::new(world);
        let root = place.root().display();
        let script = format!(
            "mount --bind {root} {root}; \
             for d in / /usr /etc; do if mountpoint -q $d; then mount -o remount,bind,ro $d; fi; done; if touch /etc/landbox-probe 2>/dev/null; then exit 99; fi"
        );
        let mut run = place.landbox(["run", "--", "sh", "-c", WORK]);
        let out = contained(&mut run, &script).ok();
        assert_eq!(out.text(), "link\nmade\nsrc\n", "{}", out.errors());
        let mut run = place.landbox(["land", "--apply", "--yes"]);
        contained(&mut run, &script).ok();
        assert_eq!(fs::read_to_string(place.project.join("made")).unwrap(), "inside\n");
    }

    [user_kernel, root_kernel]
    fn root_is_an_overlay_and_the_layers_lie_on_fuse_or_on_a_volume(world) {
        let place = Place::new(world);
        let root = place.root().display();
        for folder in ["upper", "work", "merged", "volume"] {
            place.mkdir(place.root().join(folder));
        }
        // As a container is made: not a chroot, in which the kernel makes no user namespace for anybody; its root is root's, or no
        // key below it counts.
        let script = format!(
            "set -e; chown 0:0 {root}/upper; mount -t overlay -o lowerdir=/,upperdir={root}/upper,workdir={root}/work none {root}/merged; \
             for d in dev proc sys usr etc; do if mountpoint -q /$d; then mount --rbind /$d {root}/merged/$d; fi; done; \
             mount --bind {root}/volume {root}/merged/{root}/volume; \
             cd {root}/merged; pivot_root . mnt; umount -l /mnt; cd {}; set +e",
            place.project.display()
        );
        for (state, overlay) in [(place.state(), "fuse"), (place.root().join("volume/state"), "kernel")] {
            let report = state.with_extension("report");
            let report = place.root().join("volume").join(report.file_name().unwrap());
            let mut run = place.landbox(["run", "--report"]);
            run.args([report.as_os_str()]).args(["--", "sh", "-c", WORK]).env("LANDBOX_STATE_DIR", &state);
            let out = contained(&mut run, &script).ok();
            assert_eq!(out.text(), "link\nmade\nsrc\n", "{}", out.errors());
            let document: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
            let used = document["layers"][0]["overlay"].as_str().unwrap();
            assert!(used.starts_with(overlay), "{document}");
        }
    }

    [user_kernel, root_kernel]
    fn root_has_no_cgroups_or_only_those_of_version_1_and_a_running_session_still_lands(world) {
        let none = "umount -l /sys/fs/cgroup; mount -t tmpfs none /sys/fs/cgroup";
        let first = "umount -l /sys/fs/cgroup; mount -t tmpfs none /sys/fs/cgroup; mkdir /sys/fs/cgroup/systemd; \
                     mount -t cgroup -o none,name=landbox-test none /sys/fs/cgroup/systemd";
        for script in [none, first] {
            let place = works(world, script);
            let mut run = place.landbox(["land", "--apply", "--yes"]);
            contained(&mut run, script).ok();
            let mut session = place.landbox(["run", "--name", "live", "--"]);
            session.args(["sh", "-c", "echo live > live; echo ready; read line"]).stdin_open();
            let outer = Outer::new();
            let mut live = session.within_changed(&outer, script).start();
            live.expect("ready");
            let mut run = place.landbox(["land", "live", "--apply", "--yes"]);
            contained(&mut run, script).ok();
            assert_eq!(fs::read_to_string(place.project.join("live")).unwrap(), "live\n");
            live.wait();
        }
    }

    [user_kernel, root_kernel]
    fn root_forbids_new_privileges_and_sessions_run(world) {
        let place = Place::new(world);
        let mut run = place.landbox(["--no-new-privs"]);
        run.program("/usr/bin/setpriv").args([world::bin("landbox").as_os_str()]);
        run.args(["run", "--", "sh", "-c", WORK]);
        let out = contained(&mut run, "true");
        // With a file capability that has no effect, the helper can't be what it was installed to be.
        if world.who == Who::User && std::env::var_os("LANDBOX_TEST_KEY").is_some() {
            assert!(out.expect(125).errors().contains("no_new_privs"));
        } else {
            assert_eq!(out.ok().text(), "link\nmade\nsrc\n");
        }
    }

    [user_kernel, root_kernel]
    fn root_lets_nobody_make_user_namespaces_and_the_run_names_who_may_grant_it(world) {
        // What a container's filter of system calls answers, the kernel answers in a folder that is not the root.
        let place = Place::new(world);
        let jail = place.root().join("jail");
        place.mkdir(&jail);
        let script = format!(
            "mount --rbind / {0}; exec chroot {0} /bin/sh -c 'cd {1} && exec \"$@\"' sh \"$@\"",
            jail.display(),
            place.project.display()
        );
        let mut run = place.landbox(["run", "--", "touch", "made"]);
        let out = contained(&mut run, &script).expect(125);
        assert!(out.errors().contains("forbids user namespaces to you"), "{}", out.errors());
        assert!(!place.project.join("made").exists() && place.sessions().is_empty());
    }
}

/// A policy that lets nothing out.
const NOTHING: &str =
    r#"{"version": 1, "public": {"mode": "block"}, "private": {"mode": "block"}}"#;
