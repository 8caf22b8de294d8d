//! What `landbox doctor` says.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::Place;
use landbox_tests::net::Outer;
use landbox_tests::run::Out;
use landbox_tests::world::{World, root_kernel};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

#[test]
fn every_line_of_the_doctor_is_well_on_a_machine_that_runs_the_suite() {
    let place = Place::new(World::USUAL);
    let report = place.json(["doctor"]);
    let checks = report["checks"].as_array().unwrap();
    for check in checks {
        let id = check["id"].as_str().unwrap();
        // An old Landlock is a warning, and a machine without git is none of the suite's.
        if id != "landlock" {
            assert_eq!(check["status"], "ok", "{check}");
            assert!(check["cost"].is_null() && check["fix"].is_null());
        }
    }
    assert_eq!(report["ok"], true);
    let ids: Vec<&str> = checks.iter().filter_map(|c| c["id"].as_str()).collect();
    for id in [
        "kernel",
        "user_namespaces",
        "session",
        "kernel_overlay",
        "fuse",
        "proc",
        "state",
        "owners",
        "slirp4netns",
        "tun",
        "network_policy",
        "landlock",
        "git",
    ] {
        assert!(ids.contains(&id), "{id}");
    }
    let left: Vec<_> =
        std::fs::read_dir(place.state()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.as_bytes().starts_with(b".doctor")), "{left:?}");
    assert_eq!(place.sessions(), [] as [PathBuf; 0]);
}

#[test]
fn the_doctor_says_what_is_wrong_what_it_costs_and_what_to_type() {
    let place = Place::new(World::USUAL);
    place.mkdir(place.state());
    std::fs::set_permissions(place.state(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let out = place.landbox(["doctor"]).output().expect(1);
    assert!(out.text().contains("FAIL  state"), "{}", out.text());
    assert!(out.text().contains("fix:   chmod 700"), "{}", out.text());
    let home = place.landbox(["doctor"]).env("HOME", "relative").output().expect(1);
    assert!(home.text().contains("HOME must be an absolute path"), "{}", home.text());
}

/// `doctor --fix` on a machine without fuse-overlayfs, on which these programs come first. What they were called with
/// is in the place's `called`.
fn fixed(place: &Place, programs: &[(&str, String)]) -> Out {
    let bin = place.outside.join("bin");
    for (name, script) in programs {
        place.write(
            bin.join(name),
            format!(
                "#!/bin/sh\necho \"${{0##*/}} $*\" >> {}/called\n{script}\n",
                place.outside.display()
            ),
        );
        fs::set_permissions(bin.join(name), Permissions::from_mode(0o755)).unwrap();
    }
    let layer = place.root().join("usr");
    fs::create_dir_all(layer.join("upper")).unwrap();
    fs::create_dir_all(layer.join("work")).unwrap();
    let layer = layer.display();
    let script = format!(
        "cp -a /usr/bin/fuse-overlayfs {layer}/saved\n\
         mount -t overlay -o lowerdir=/usr/bin,upperdir={layer}/upper,workdir={layer}/work none /usr/bin\n\
         rm /usr/bin/fuse-overlayfs"
    );
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut run = place.landbox(["doctor", "--fix", "--json"]);
    run.env("PATH", path).within_changed(&Outer::new(), &script).output()
}

fn called(place: &Place) -> String {
    fs::read_to_string(place.outside.join("called")).unwrap_or_default()
}

const INSTALL: &str = "apt-get install -y --no-install-recommends fuse-overlayfs\n";

#[test]
fn root_has_the_doctor_install_what_is_missing_and_then_it_is_there() {
    let place = Place::new(root_kernel());
    // Fresh images have no lists of packages yet: the first try finds none.
    let lists = place.outside.join("lists");
    let script = format!(
        "case $1 in update) : > {0};; install) test -e {0} && cp -a {1}/usr/saved /usr/bin/fuse-overlayfs;; esac",
        lists.display(),
        place.root().display()
    );
    let out = fixed(&place, &[("apt-get", script)]).ok();
    assert_eq!(called(&place), format!("{INSTALL}apt-get update\n{INSTALL}"));
    let report: Value = out.json();
    let fuse = report["checks"].as_array().unwrap().iter().find(|c| c["id"] == "fuse").unwrap();
    assert_eq!(fuse["status"], "ok", "{fuse}");
    assert!(out.errors().contains("installing fuse-overlayfs"), "{}", out.errors());
}

#[test]
fn root_is_who_installs_and_a_user_without_a_password_is_told_what_to_type() {
    let place = Place::new(World::USUAL);
    let fails = || "echo a password is required >&2; exit 1".to_owned();
    let out = fixed(&place, &[("apt-get", fails()), ("sudo", fails())]).expect(5);
    assert_eq!(called(&place), "sudo -n true\n");
    assert!(
        out.errors().contains("type: sudo apt-get install -y fuse-overlayfs"),
        "{}",
        out.errors()
    );
    assert_eq!(out.text(), "");
}

#[test]
fn root_rights_by_sudo_are_used_where_no_password_is_asked() {
    let place = Place::new(World::USUAL);
    // It can't really install: what matters is that it is asked, and believed only when the program is there.
    let programs = [("sudo", "shift; \"$@\"".to_owned()), ("apt-get", String::new())];
    let out = fixed(&place, &programs);
    assert_eq!(called(&place), format!("sudo -n true\nsudo -n {INSTALL}{INSTALL}"));
    let report: Value = out.json();
    let fuse = report["checks"].as_array().unwrap().iter().find(|c| c["id"] == "fuse").unwrap();
    assert_ne!(fuse["status"], "ok", "{fuse}");
    assert!(fuse["fix"].as_str().unwrap().contains("apt-get install"), "{fuse}");
}

#[test]
fn with_nothing_to_install_the_fix_calls_nobody() {
    let place = Place::new(World::USUAL);
    let bin = place.outside.join("bin");
    for name in ["apt-get", "sudo"] {
        place.write(bin.join(name), format!("#!/bin/sh\n: > {}/called\n", place.outside.display()));
        fs::set_permissions(bin.join(name), Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    place.landbox(["doctor", "--fix"]).env("PATH", path).output().ok();
    assert!(!place.outside.join("called").exists());
}
