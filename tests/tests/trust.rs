//! Which helper is used, with whose keys, and judging a session again from what it left behind.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::world::{Who, bin, helper_rights, is_installed};
use landbox_tests::{Place, World, worlds};
use std::fs;
use std::path::Path;
use std::process::Command;

/// `landbox-audit replay ID`: code and output.
fn replay(place: &Place, session: &Path) -> (i32, String) {
    let id = session.file_name().unwrap();
    let mut run = place.landbox([Path::new("replay"), Path::new(id)]);
    let out = run.program(bin("landbox-audit")).output();
    (out.code(), out.text() + &out.errors())
}

fn flip(path: &Path, at: impl Fn(usize) -> usize) {
    let mut bytes = fs::read(path).unwrap();
    let at = at(bytes.len());
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_a_session_left_behind_is_judged_again_and_holds(world) {
        let place = Place::new(world);
        place.sh("echo x >> README.md").output().ok();
        let session = place.sessions().remove(0);
        let id = session.file_name().unwrap().to_str().unwrap();
        place.landbox(["resume", id, "--", "true"]).output().ok();
        let (code, said) = replay(&place, &session);
        assert_eq!(code, 0, "{said}");
        for launch in ["launch 1: ", "launch 2: "] {
            assert!(said.contains(&format!("{launch}what the kernel said is what the plan asks for")), "{said}");
        }
        let checked = said.matches(": checked").count();
        assert_eq!(checked, if world.who == Who::User { 2 } else { 0 }, "{said}");
    }

    [user_kernel]
    fn what_was_changed_afterwards_does_not_hold(world) {
        let place = Place::new(world);
        place.sh("true").output().ok();
        let session = place.sessions().remove(0);
        let [envelope, evidence] = ["envelope", "evidence"].map(|n| session.join("launches/1").join(n));
        let state = session.join("state.json");
        let files = [&envelope, &evidence, &state];
        let kept = files.map(|path| fs::read(path).unwrap());
        type Change<'a> = (&'a str, Box<dyn Fn() + 'a>);
        let changes: [Change<'_>; 6] = [
            ("signature", Box::new(|| flip(&envelope, |length| length - 1))),
            ("digest", Box::new(|| flip(&envelope, |length| length - 90))),
            // The helper's version, which is in no other place.
            ("evidence", Box::new(|| flip(&evidence, |_| 15))),
            ("cut", Box::new(|| fs::write(&evidence, b"lbxevid\0").unwrap())),
            ("word for word in another place", Box::new(|| {
                let text = fs::read_to_string(&state).unwrap();
                let moved = text.replacen("\"evidence_digest\"", "\"another\"", 1);
                let digest = text.split("\"evidence_digest\": ").nth(1).unwrap().split(',').next().unwrap();
                fs::write(&state, moved.replacen('{', &format!("{{\"evidence_digest\": {digest},"), 1)).unwrap();
            })),
            ("other session's", Box::new(|| {
                let text = fs::read_to_string(&state).unwrap().replace("sha256:", "sha256:0");
                fs::write(&state, text).unwrap();
            })),
        ];
        for (what, change) in changes {
            change();
            let (code, said) = replay(&place, &session);
            assert!(code == 1 && !said.contains("asks for"), "{what}: {said}");
            for (path, bytes) in files.iter().zip(&kept) {
                fs::write(path, bytes).unwrap();
            }
        }
    }

    [user_kernel, root_kernel]
    fn a_bot_that_wants_the_packaged_helper_starts_with_no_other(world) {
        // Another helper than the packaged one: a copy beside a copy.
        let place = Place::new(world);
        let beside = place.root().join("beside");
        fs::create_dir(&beside).unwrap();
        for program in ["landbox", "landbox-helper"] {
            let copied = Command::new("cp").arg(bin(program)).arg(&beside).status().unwrap();
            assert!(copied.success());
        }
        let start = |bot: &str| {
            place.landbox(["run", "--bot", bot]).program(beside.join("landbox")).output().expect(125)
        };
        let bots = r#"[{"name": "a", "command": ["true"], "requirePackagedHelper": true},
                       {"name": "b", "command": ["true"], "requirePackagedHelper": true, "sandbox": false}]"#;
        place.write(place.home.join(".config/landbox/bots.json"), bots);
        let out = start("a");
        assert!(out.errors().contains("requirePackagedHelper"), "{}", out.errors());
        assert!(out.errors().contains("would be used"), "{}", out.errors());
        start("b");
        assert!(place.sessions().is_empty());
    }

    [user_kernel, root_kernel]
    fn show_and_doctor_say_with_what_rights_the_helper_runs(world) {
        let place = Place::new(world);
        place.sh("true").output().ok();
        let word = match world.who { Who::User => helper_rights(), Who::Root => "root" };
        let text = match word {
            "unprivileged" => "your own keys count",
            "capable" => "the keys in /etc/landbox/trusted.d count",
            _ => "as root",
        };
        let why = if is_installed() { "the packaged one" } else { "beside landbox" };
        assert_eq!(place.json(["show"])["boundary"]["helper"], word);
        assert!(place.landbox(["show"]).output().ok().text().contains(text));
        let report = place.json(["doctor"]);
        let line = report["checks"].as_array().unwrap().iter().find(|c| c["id"] == "helper").unwrap();
        let found = line["found"].as_str().unwrap();
        assert!(found.contains(why) && found.contains(text), "{found}");
    }
}

#[test]
fn a_session_that_is_not_there_is_named() {
    let place = Place::new(World::USUAL);
    let (code, said) = replay(&place, Path::new("/aaaaaaaaaa"));
    assert!(code == 1 && said.contains("aaaaaaaaaa"), "{said}");
    let (code, _) = replay(&place, Path::new("/NOT-AN-ID"));
    assert_eq!(code, 2);
}
