//! State that was damaged, cut short or removed by hand: clear refusals, nothing else spoilt, nothing lost.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::world::World;
use landbox_tests::{Place, worlds};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Makes a session of that name that changed one file; gives its folder.
fn changed(place: &Place, name: &str) -> PathBuf {
    let script = "echo by the session >> README.md";
    place.session(["--name", name], ["sh", "-c", script]).output().ok();
    let id = place.json(["show", name])["id"].as_str().unwrap().to_owned();
    place.state().join("sessions").join(id)
}

fn id_of(session: &Path) -> &str {
    session.file_name().unwrap().to_str().unwrap()
}

/// Every file below `dir` with its content and every folder, sorted.
fn content(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(content(&path));
            found.push((path, Vec::new()));
        } else {
            let bytes = fs::read(&path).unwrap_or_default();
            found.push((path, bytes));
        }
    }
    found.sort();
    found
}

fn refused(place: &Place, args: &[&str], code: i32, why: &str) -> String {
    let errors = place.landbox(args).output().expect(code).errors();
    assert!(errors.contains(why) && errors.contains("hint: "), "{args:?}: {errors}");
    errors
}

#[test]
fn a_session_that_cannot_be_read_is_named_spoils_no_other_and_goes_only_when_told() {
    let place = Place::new(World::USUAL);
    let broken = changed(&place, "broken");
    changed(&place, "whole");
    fs::write(broken.join("state.json"), "{\n  \"version\": 1,").unwrap();
    let id = id_of(&broken);
    for command in ["show", "diff", "land"] {
        refused(&place, &[command, id], 1, "state.json");
    }
    refused(&place, &["resume", id, "--", "true"], 125, "state.json");
    let list = place.landbox(["ls"]).output().ok();
    assert!(list.text().contains("whole") && list.errors().contains(id), "{}", list.errors());
    for args in [&["gc"][..], &["gc", "--expired"]] {
        place.landbox(args).output().ok();
        assert!(broken.join("layers/project/upper/README.md").exists());
    }
    refused(&place, &["discard", id], 2, "no terminal");
    place.landbox(["discard", id, "--yes"]).output().ok();
    assert!(!broken.exists());
    place.landbox(["land", "whole", "--apply", "--yes"]).output().ok();
}

#[test]
fn a_session_without_a_lock_is_never_removed_and_spoils_no_list() {
    for lock in ["lock", "controller"] {
        let place = Place::new(World::USUAL);
        let broken = changed(&place, "broken");
        changed(&place, "whole");
        fs::remove_file(broken.join(lock)).unwrap();
        assert!(place.landbox(["ls"]).output().ok().text().contains("whole"));
        place.landbox(["gc", "--expired"]).output().ok();
        refused(&place, &["land", id_of(&broken), "--apply", "--yes"], 6, "is missing");
        refused(&place, &["discard", id_of(&broken), "--yes"], 6, "nothing proves");
        assert!(broken.join("layers/project/upper/README.md").exists());
    }
}

#[test]
fn a_session_whose_layer_is_gone_is_not_resumed_as_if_it_were_empty() {
    let place = Place::new(World::USUAL);
    let session = changed(&place, "s");
    fs::rename(session.join("layers/project/upper"), session.join("elsewhere")).unwrap();
    refused(&place, &["resume", "s", "--", "true"], 125, "is missing");
    fs::rename(session.join("elsewhere"), session.join("layers/project/upper")).unwrap();
    place.landbox(["resume", "s", "--", "true"]).output().ok();
    assert_eq!(place.changes(), [("README.md".into(), "modified".into())]);
}

#[test]
fn a_session_that_is_named_needs_no_current_folder() {
    let place = Place::new(World::USUAL);
    changed(&place, "s");
    let gone = place.outside.join("gone");
    place.mkdir(&gone);
    let script = format!("cd {0}; rmdir {0}", gone.display());
    for args in [&["diff", "s"][..], &["land", "s", "--apply", "--yes"]] {
        place.landbox(args).prefix(&script).output().ok();
    }
}

#[test]
fn a_name_that_is_the_id_of_another_session_is_refused() {
    let place = Place::new(World::USUAL);
    let session = changed(&place, "s");
    refused(&place, &["run", "--name", id_of(&session), "--", "true"], 125, "is the id of");
}

#[test]
fn nothing_starts_where_a_landing_broke_off_and_cannot_be_undone() {
    let place = Place::new(World::USUAL);
    changed(&place, "s");
    // The project's lock, whose name the journal shares.
    place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
    place.landbox(["undo", "s"]).output().ok();
    let lock = fs::read_dir(place.state().join("landings")).unwrap().next().unwrap();
    let journal = lock.unwrap().path().with_extension("json");
    fs::write(&journal, "torn").unwrap();
    for args in [&["run", "--", "true"][..], &["resume", "s", "--", "true"]] {
        refused(&place, args, 125, "a landing broke off");
    }
    for args in [&["land", "s", "--apply", "--yes"][..], &["discard", "s", "--yes"]] {
        refused(&place, args, 1, "a landing broke off");
    }
    assert_eq!(place.sessions().len(), 1);
    fs::remove_file(journal).unwrap();
    place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse] fn a_landing_that_was_killed_is_undone_or_done_before_a_session_sees_it(world) {
        let place = Place::new(world);
        let files = 150;
        for n in 0..files {
            place.write(place.project.join(format!("d{}/{n}", n % 7)), "before\n");
        }
        let script = "for f in d*/*; do echo after >> $f; done; rm -r d3; echo file > d3; mkdir new; echo n > new/n";
        place.session(["--name", "s"], ["sh", "-c", script]).output().ok();
        place.landbox(["diff", "--stat"]).output().ok();
        let before = content(&place.project);
        let landings = place.state().join("landings");
        let is_journal = |path: PathBuf| path.extension().is_some_and(|end| end == "json");
        for pause in [0, 1, 2, 4, 8] {
            let live = place.landbox(["land", "s", "--apply", "--yes"]).start();
            let end = Instant::now() + Duration::from_secs(30);
            let entries = || fs::read_dir(&landings).into_iter().flatten();
            while !entries().any(|e| is_journal(e.unwrap().path())) {
                if Instant::now() > end || !Path::new(&format!("/proc/{}/fd/0", live.pid())).exists() {
                    break;
                }
            }
            std::thread::sleep(Duration::from_millis(pause));
            let pid = rustix::process::Pid::from_raw(live.pid()).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            let out = live.wait();
            place.landbox(["resume", "s", "--", "true"]).output().ok();
            let after = content(&place.project);
            if after != before {
                // All of it landed.
                assert_eq!(place.changes(), [], "{:?}", out.status.signal());
                assert_eq!(fs::read(place.project.join("d3")).unwrap(), b"file\n");
                assert_eq!(fs::read(place.project.join("d4/4")).unwrap(), b"before\nafter\n");
                return;
            }
        }
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        assert_eq!(place.changes(), []);
    }
}

#[test]
fn what_a_session_wrote_can_be_landed_after_a_power_cut_that_emptied_its_record() {
    let place = Place::new(World::USUAL);
    let session = changed(&place, "cut");
    let script = "echo new > added";
    place.landbox(["resume", "cut", "--", "sh", "-c", script]).output().ok();
    fs::write(session.join("state.json"), "").unwrap();
    fs::remove_dir_all(session.join("base")).unwrap();
    let shown = place.json(["show", "cut"]);
    assert_eq!(shown["state"], "failed");
    for args in [&["gc"][..], &["gc", "--expired"]] {
        place.landbox(args).output().ok();
    }
    place.landbox(["diff", "cut"]).output().ok();
    // Nothing tells any more what the owner saved since: the owner decides.
    let readme = fs::read(place.project.join("README.md")).unwrap();
    refused(&place, &["land", "cut", "--apply", "--yes"], 3, "README.md");
    assert_eq!(fs::read(place.project.join("README.md")).unwrap(), readme);
    assert!(!place.project.join("added").exists());
    place.landbox(["land", "cut", "--apply", "--yes", "--resolve-all", "theirs"]).output().ok();
    let landed = fs::read_to_string(place.project.join("README.md")).unwrap();
    assert!(landed.ends_with("by the session\n"));
    assert_eq!(fs::read(place.project.join("added")).unwrap(), b"new\n");
    place.landbox(["undo", "cut"]).output().ok();
    assert_eq!(fs::read(place.project.join("README.md")).unwrap(), readme);
}

#[test]
fn a_session_with_another_ones_policy_is_not_resumed_and_lands_as_before() {
    let place = Place::new(World::USUAL);
    let hiding = place.home.join(".ssh").display().to_string();
    let script = "echo by the session >> README.md";
    place.session(["--name", "closed", "--hide", &hiding], ["sh", "-c", script]).output().ok();
    let open = changed(&place, "open");
    let id = place.json(["show", "closed"])["id"].as_str().unwrap().to_owned();
    let closed = place.state().join("sessions").join(id);
    let read = |dir: &Path| -> serde_json::Value {
        serde_json::from_slice(&fs::read(dir.join("snapshot.json")).unwrap()).unwrap()
    };
    let mut swapped = read(&closed);
    let other = read(&open);
    for key in ["policy", "policy_digest"] {
        swapped[key] = other[key].clone();
    }
    let path = closed.join("snapshot.json");
    fs::remove_file(&path).unwrap();
    fs::write(&path, swapped.to_string()).unwrap();
    refused(&place, &["resume", "closed", "--", "true"], 125, "was changed after it was frozen");
    // Whoever takes care of that, too, has not signed a launch of it.
    swapped.as_object_mut().unwrap().remove("digest");
    fs::write(&path, swapped.to_string()).unwrap();
    refused(&place, &["resume", "closed", "--", "true"], 125, "not the one that was signed");
    place.landbox(["land", "closed", "--apply", "--yes"]).output().ok();
    place.landbox(["resume", "open", "--", "true"]).output().ok();
}

/// Leaves a landing broken off in the middle: killed at one of its exchanges.
fn break_off(place: &Place) {
    let landbox = landbox_tests::world::bin("landbox");
    let trace = "-f -qq -o /dev/null -e trace=renameat2 -e inject=renameat2:signal=KILL:when=4";
    let land = ["land", "s", "--apply", "--yes"];
    let args = trace.split(' ').chain([landbox.to_str().unwrap()]).chain(land);
    place.landbox(args).program("/usr/bin/strace").output();
}

#[test]
fn the_next_command_puts_a_landing_right_that_broke_off_and_says_so() {
    let place = Place::new(World::USUAL);
    for n in 0..9 {
        place.write(place.project.join(format!("f{n}")), "before\n");
    }
    let script = "for f in f*; do echo after >> $f; done";
    place.session(["--name", "s"], ["sh", "-c", script]).output().ok();
    place.landbox(["diff", "--stat"]).output().ok();
    let before = content(&place.project);
    let elsewhere = place.root().join("elsewhere");
    place.mkdir(&elsewhere);
    let policy = elsewhere.join("policy.json");
    place.write(&policy, "{\"version\":1,\"public\":\"block\",\"private\":\"block\"}");
    let check = ["sandbox-network-policy", "check", policy.to_str().unwrap()];
    for args in [
        &["ls"][..],
        &["doctor"],
        &["diff", "s"],
        &["undo", "--json"],
        &["run", "--", "true"],
        &check,
    ] {
        break_off(&place);
        assert_ne!(content(&place.project), before, "the landing was not under way");
        let out = place.landbox(args).cwd(&elsewhere).output();
        assert!(out.errors().contains("was rolled back"), "{args:?}: {}", out.errors());
        assert_eq!(content(&place.project), before, "{args:?}");
        assert!(!place.landbox(["ls"]).output().ok().errors().contains("broke off"));
    }
}
