//! Checkpoints where the disk takes no more: none is half taken, none is lost, and going back is all or nothing.

use super::*;

/// Number of each checkpoint that `show` lists.
fn numbers(trial: &Trial) -> Vec<u64> {
    let shown: serde_json::Value = trial.landbox(&["show", "s", "--json"]).ok().json();
    let all = shown["checkpoints"].as_array().unwrap();
    all.iter().map(|one| one["number"].as_u64().unwrap()).collect()
}

fn pictures(disk: impl Fn(&Place) -> Disk) {
    let trial = Trial::new(On::State, disk);
    let began = trial.digest();
    trial.disk.leave(0);
    let out = trial.landbox(&["checkpoint", "s"]);
    assert_eq!(out.code(), 1, "{}", out.errors());
    trial.refused(&out);
    trial.disk.empty();
    assert_eq!(numbers(&trial), Vec::<u64>::new());
    trial.landbox(&["checkpoint", "s"]).ok();
    let task = "rm -r deep new*; head -c 300000 /dev/zero | tr '\\0' z | fold > large";
    trial.run(trial.place.landbox(["resume", "s", "--", "sh", "-c", task])).ok();
    let later = trial.digest();
    assert_ne!(began, later);
    // Ever more room, until what is replaced can be kept and what comes back can be made.
    let mut failed = 0;
    for room in [0, 40, 100, 300, 700, 2000, 8000, 32000] {
        trial.disk.leave(room);
        let out = trial.landbox(&["rewind", "s", "1", "--yes"]);
        trial.disk.empty();
        if out.code() == 0 {
            break;
        }
        failed += 1;
        trial.refused(&out);
        assert_eq!(trial.landbox(&["ls"]).ok().errors(), "", "with {room}");
        assert_eq!(trial.digest(), later, "with {room}");
    }
    assert!(failed > 0);
    assert_eq!(trial.digest(), began);
    // Removing one needs no room, and makes some.
    let all = numbers(&trial);
    trial.disk.leave(0);
    let last = all.last().unwrap().to_string();
    trial.landbox(&["discard", "s", "--checkpoint", &last, "--yes"]).ok();
    assert_eq!(numbers(&trial), all[..all.len() - 1]);
    trial.disk.empty();
    assert_eq!(trial.digest(), began);
    trial.landbox(&LAND).ok();
}

#[test]
fn root_checkpoints_on_a_full_ext4_are_whole_or_not_there() {
    pictures(Disk::ext4);
}

#[test]
fn root_checkpoints_at_a_quota_are_whole_or_not_there() {
    pictures(Disk::btrfs);
}
