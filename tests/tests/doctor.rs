//! What `landbox doctor` says.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::Place;
use landbox_tests::world::World;
use std::os::unix::ffi::OsStrExt;
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
