//! Every line of the doctor, with the fault that it is there for: what is said to be wrong, how badly, and what to type.
//! Lines with tests of their own: `doctor.rs` (the state folder's mode, fuse-overlayfs not installed), `packaged.rs` (trust).
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::Place;
use landbox_tests::net::Outer;
use landbox_tests::run::{BARE_DEV, Out, Run};
use landbox_tests::world::{self, World};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

const BAD: (&str, i32) = ("failed", 1);
const POOR: (&str, i32) = ("warning", 0);

/// The doctor on a machine that root has changed by `script`.
fn changed(place: &Place, script: &str) -> Out {
    place.landbox(["doctor", "--json"]).within_changed(&Outer::new(), script).output()
}

/// Finds line `id` of a report that is as bad as said, checks it, and gives it.
#[track_caller]
fn line(out: Out, id: &str, (status, code): (&str, i32), parts: &[&str]) -> Value {
    let report: Value = out.expect(code).json();
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["id"] == id);
    let check = check.unwrap_or_else(|| panic!("no line {id} in {report}")).clone();
    assert_eq!(check["status"], status, "{check}");
    assert!(check["cost"].is_string(), "{check}");
    let text = check.to_string();
    assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} in {text}");
    assert_eq!(report["ok"], code == 0, "{report}");
    check
}

fn script(place: &Place, path: &Path, text: &str) {
    place.write(path, format!("#!/bin/sh\n{text}\n"));
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// The same arguments, through a program that takes what to run as its last.
fn through(place: &Place, program: impl AsRef<Path>, words: &[&str]) -> Run {
    let mut run = place.landbox(words);
    run.args([world::bin("landbox")]);
    run.args(["doctor", "--json"]).program(program);
    run
}

#[test]
fn a_home_that_is_not_known_is_the_only_line() {
    let place = Place::new(World::USUAL);
    for (home, found) in [("", "HOME is not set"), ("/nowhere/at/all", "not a folder"), ("/", "/")]
    {
        let out = place.landbox(["doctor", "--json"]).env("HOME", home).output();
        line(out, "environment", BAD, &[found]);
    }
}

#[test]
fn a_kernel_that_is_too_old_is_told_what_it_must_be() {
    let place = Place::new(World::USUAL);
    let machine = std::env::consts::ARCH;
    let out = through(&place, "/usr/bin/setarch", &[machine, "--uname-2.6"]).output();
    line(out, "kernel", BAD, &["Linux 2.6", "5.6 or newer"]);
}

#[test]
fn a_helper_of_another_version_or_one_that_can_t_be_run_is_told() {
    let place = Place::new(World::USUAL);
    let bin = place.outside.join("bin");
    place.mkdir(&bin);
    fs::copy(world::bin("landbox"), bin.join("landbox")).unwrap();
    let helper = bin.join("landbox-helper");
    let doctor = || place.landbox(["doctor", "--json"]).program(bin.join("landbox")).output();
    script(&place, &helper, "echo landbox-helper 0.0.1");
    line(doctor(), "helper", BAD, &["landbox-helper 0.0.1", "cargo build"]);
    fs::set_permissions(&helper, Permissions::from_mode(0o644)).unwrap();
    line(doctor(), "helper", BAD, &["can't be run", "chmod 755"]);
}

#[test]
fn root_forbids_user_namespaces_and_the_switch_is_named() {
    let place = Place::new(World::USUAL);
    // Stand-ins for switches that this kernel may not have, or that would be everybody's.
    let switch = |folder: &str, name: &str, value: u8| {
        let keep = "last=$(cat /proc/sys/kernel/cap_last_cap)";
        let mount = format!(
            "mount -t tmpfs none /proc/sys/{folder}; echo {value} > /proc/sys/{folder}/{name}"
        );
        let back =
            "test -e /proc/sys/kernel/cap_last_cap || echo $last > /proc/sys/kernel/cap_last_cap";
        changed(&place, &format!("{keep}\n{mount}\n{back}"))
    };
    let out = switch("user", "max_user_namespaces", 0);
    line(out, "user_namespaces", BAD, &["sudo sysctl -w user.max_user_namespaces=15000"]);
    if world::helper_rights() == "capable" {
        return;
    }
    let out = switch("kernel", "unprivileged_userns_clone", 0);
    line(out, "user_namespaces", BAD, &["sudo sysctl -w kernel.unprivileged_userns_clone=1"]);
    let out = switch("kernel", "apparmor_restrict_unprivileged_userns", 1);
    let check = line(
        out,
        "user_namespaces",
        ("warning", 1),
        &["profile landbox-helper", "apparmor_parser"],
    );
    // Where packages installed it, the tests' folder leads to it by a link.
    let helper = world::bin("landbox-helper").canonicalize().unwrap();
    assert!(check["fix"].as_str().unwrap().contains(helper.to_str().unwrap()), "{check:#}");
}

#[test]
fn root_covers_a_part_of_proc_and_the_session_line_says_that_none_can_be_run() {
    let place = Place::new(World::USUAL);
    let cover = "mount --bind /dev/null /proc/cpuinfo";
    line(changed(&place, cover), "proc", BAD, &["/proc/cpuinfo", "systempaths=unconfined"]);
    line(changed(&place, cover), "session", BAD, &["fresh /proc", "no session can be run"]);
    line(changed(&place, cover), "kernel_overlay", ("warning", 1), &["see session"]);
}

#[test]
fn root_s_state_folder_or_one_that_can_t_be_made_is_told() {
    let place = Place::new(World::USUAL);
    let state = place.root().join("state");
    let doctor = || place.landbox(["doctor", "--json"]).env("LANDBOX_STATE_DIR", &state).output();
    line(doctor(), "state", BAD, &["can't make the state folder"]);
    fs::create_dir(&state).unwrap();
    chown(&state, Some(0), None).unwrap();
    line(doctor(), "state", BAD, &["belongs to uid", "LANDBOX_STATE_DIR"]);
}

#[test]
fn root_makes_the_state_s_file_system_read_only_or_fills_it() {
    let place = Place::new(World::USUAL);
    let (uid, gid) = place.world.ids();
    place.mkdir(place.state());
    let state = place.state().display().to_string();
    let mount = |then: &str| {
        let own = format!("uid={uid},gid={gid},mode=700");
        let script = format!(
            "mount -t tmpfs -o size=64k,{own} none {state}; mkdir -m 700 {state}/sessions; chown {uid}:{gid} {state}/sessions; {then}"
        );
        changed(&place, &script)
    };
    let read_only = mount(&format!("mount -o remount,ro {state}"));
    line(read_only, "state", BAD, &["mounted read-only", "remount,rw", "LANDBOX_STATE_DIR=DIR"]);
    let full = mount(&format!("cat /dev/zero > {state}/junk 2>/dev/null || true"));
    line(full, "state", BAD, &["is full", "landbox gc", "LANDBOX_STATE_DIR=DIR"]);
}

#[test]
fn root_puts_the_state_where_the_kernel_s_overlay_can_t_write_and_the_cost_is_told() {
    let place = Place::new(World::USUAL);
    let (uid, gid) = place.world.ids();
    place.mkdir(place.state());
    let state = place.state().display().to_string();
    // Without attributes of users.
    let ramfs =
        format!("mount -t ramfs none {state}; chown {uid}:{gid} {state}; chmod 700 {state}");
    line(
        changed(&place, &ramfs),
        "state",
        POOR,
        &["without user attributes", "LANDBOX_STATE_DIR=DIR"],
    );
    line(changed(&place, &ramfs), "kernel_overlay", POOR, &["use fuse-overlayfs"]);
}

#[test]
fn root_puts_the_state_on_an_overlay_and_the_cost_is_told() {
    let place = Place::new(World::USUAL);
    let (uid, gid) = place.world.ids();
    place.mkdir(place.state());
    let (state, root) = (place.state().display().to_string(), place.root().display().to_string());
    let script = format!(
        "mkdir -p {root}/upper {root}/work; chown {uid}:{gid} {root}/upper; chmod 700 {root}/upper\n\
         mount -t overlay -o lowerdir={state},upperdir={root}/upper,workdir={root}/work none {state}"
    );
    line(changed(&place, &script), "state", POOR, &["overlay", "LANDBOX_STATE_DIR=DIR"]);
    line(changed(&place, &script), "kernel_overlay", POOR, &["use fuse-overlayfs"]);
}

#[test]
fn root_closes_the_fuse_device_and_then_takes_it_away() {
    let place = Place::new(World::USUAL);
    let node = place.root().join("fuse").display().to_string();
    let closed = format!("mknod -m 0600 {node} c 10 229; mount --bind {node} /dev/fuse");
    line(
        changed(&place, &closed),
        "fuse",
        POOR,
        &["not yours to open", "sudo chmod 666 /dev/fuse"],
    );
    line(changed(&place, BARE_DEV), "fuse", POOR, &["modprobe fuse", "--device /dev/fuse"]);
}

#[test]
fn root_takes_the_link_s_program_away_or_puts_an_old_one_in_its_place() {
    let place = Place::new(World::USUAL);
    let cover = |with: &str| changed(&place, &format!("mount --bind {with} /usr/bin/slirp4netns"));
    line(
        cover("/dev/null"),
        "slirp4netns",
        POOR,
        &["can't be used", "apt-get install -y slirp4netns"],
    );
    let old = place.outside.join("old");
    script(
        &place,
        &old,
        "echo --configure --mtu=MTU --disable-host-loopback --ready-fd=FD --exit-fd=FD",
    );
    line(cover(old.to_str().unwrap()), "slirp4netns", POOR, &["is too old", "1.1.0 or newer"]);
}

#[test]
fn root_takes_a_part_of_the_packet_filter_away_and_its_modules_are_named() {
    let place = Place::new(World::USUAL);
    let mut run = place.landbox(["doctor", "--json"]);
    let out = run.within_meddled(&Outer::new(), "part-missing").output();
    line(out, "network_policy", POOR, &["sudo modprobe -a nf_tables nft_reject_inet"]);
}

#[test]
fn a_kernel_without_landlock_costs_abstract_sockets() {
    let place = Place::new(World::USUAL);
    let out = through(&place, world::bin("prober"), &["without", "landlock"]).output();
    line(out, "landlock", POOR, &["abstract sockets can be reached", "lsm="]);
}

#[test]
fn root_s_file_in_the_project_is_named_with_the_command_that_takes_it() {
    let place = Place::new(World::USUAL);
    let path = place.project.join("src/deep/theirs");
    place.write(&path, "x");
    chown(&path, Some(0), None).unwrap();
    let found = format!("{} belongs", path.display());
    let (uid, gid) = place.world.ids();
    let fix = format!("sudo chown -R {uid}:{gid} {}", place.project.display());
    let out = place.landbox(["doctor", "--json"]).output();
    line(out, "owners", POOR, &[&found, "can be read but not changed", &fix]);
}

#[test]
fn root_takes_git_away_and_it_is_said_what_for_it_is_needed() {
    let place = Place::new(World::USUAL);
    let mut run = place.landbox(["doctor", "--json"]);
    run.env("PATH", "/usr/bin:/bin");
    let out = run.within_changed(&Outer::new(), "mount --bind /dev/null /usr/bin/git").output();
    line(out, "git", POOR, &["not found", "apt-get install"]);
}
