//! Landing and undo where the disk is full, at one point or another, or read-only, or its owner's quota is used up: all
//! of it or nothing, said so, and the next command goes on from there.
#![allow(clippy::unwrap_used)] // tests

mod pictures;
mod quota;

use landbox_tests::run::{Out, Run};
use landbox_tests::{Place, World};
use quota::Quota;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

/// A small file system of the test's own, unmounted with it.
struct Disk {
    at: PathBuf,
    /// Whether it is full by a quota, not by what lies on it.
    quota: Option<Quota>,
}

fn system(program: &str, args: &[&str]) {
    let done = Command::new(program).args(args).output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {args:?}: {errors} (start tests/run.sh as root)");
}

impl Disk {
    fn ext4(place: &Place) -> Self {
        let image = place.root().join("image");
        fs::File::create(&image).unwrap().set_len(48 << 20).unwrap();
        let path = image.to_str().unwrap();
        // Nothing is kept back for root, and inodes run out only where the test says so.
        system("mkfs.ext4", &["-q", "-F", "-b", "1024", "-m", "0", "-N", "4096", path]);
        Self::mounted(place, &["-o", "loop", path])
    }

    fn tmpfs(place: &Place) -> Self {
        Self::mounted(place, &["-t", "tmpfs", "-o", "size=24m,nr_inodes=4000", "small"])
    }

    fn mounted(place: &Place, args: &[&str]) -> Self {
        let at = place.root().join("disk");
        place.mkdir(&at);
        system("mount", &[args, &[at.to_str().unwrap()]].concat());
        let (uid, gid) = place.world.ids();
        std::os::unix::fs::chown(&at, Some(uid), Some(gid)).unwrap();
        Self { at, quota: None }
    }

    /// What the system says when it takes no more.
    fn refusal(&self) -> &'static str {
        if self.quota.is_some() { "Disk quota exceeded" } else { "No space left" }
    }

    fn ballast(&self) -> PathBuf {
        self.at.join("ballast")
    }

    /// Fills the disk until about that many KiB are left.
    fn leave(&self, kib: u64) {
        if let Some(quota) = &self.quota {
            return quota.limit(Some(kib));
        }
        let mut file = fs::File::create(self.ballast()).unwrap();
        let stat = rustix::fs::statvfs(&self.at).unwrap();
        let fill = (stat.f_bavail * stat.f_frsize).saturating_sub(kib << 10);
        let block = vec![b'x'; 64 << 10];
        for at in (0..fill).step_by(block.len()) {
            let part = usize::try_from((fill - at).min(64 << 10)).unwrap();
            if file.write_all(&block[..part]).is_err() {
                break;
            }
        }
        file.sync_all().unwrap();
    }

    /// Uses up the inodes but for about that many.
    fn leave_names(&self, count: u64) {
        let folder = self.at.join("names");
        fs::create_dir_all(&folder).unwrap();
        let left = || rustix::fs::statvfs(&self.at).unwrap().f_favail;
        let make = |at: &u32| fs::File::create(folder.join(at.to_string())).is_ok();
        let _made = (0..).take_while(|_| left() > count).take_while(make).count();
    }

    /// Makes room again.
    fn empty(&self) {
        if let Some(quota) = &self.quota {
            quota.limit(None);
        }
        let _ = fs::remove_file(self.ballast());
        let _ = fs::remove_dir_all(self.at.join("names"));
    }

    fn remount(&self, how: &str) {
        // Busy as long as the kernel still undoes what a session had mounted of it.
        let how = format!("remount,{how}");
        landbox_tests::procs::wait_for("the disk to be idle", 60, || {
            let done = Command::new("mount").args(["-o", &how]).arg(&self.at).output().unwrap();
            let errors = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.success() || errors.contains("busy"), "{errors}");
            done.status.success().then_some(())
        });
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

const TASK: &str = "for i in $(seq 40); do head -c 3000 /dev/zero | tr '\\0' $((i % 10)) | fold > new$i; done; \
                    head -c 60000 /dev/zero | tr '\\0' y | fold > large; echo more >> README.md; rm src/main.py; \
                    mkdir -p deep/er; echo d > deep/er/d; chmod 700 src";

/// A session that has changed a project of which one part or the other lies on a small disk.
struct Trial {
    disk: Disk,
    project: PathBuf,
    state: PathBuf,
    place: Place,
}

/// What lies on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Project,
    State,
    Both,
}

impl Trial {
    fn new(on: On, disk: impl Fn(&Place) -> Disk) -> Self {
        let place = Place::new(World::USUAL);
        let disk = disk(&place);
        let project = if on == On::State { place.project.clone() } else { disk.at.join("project") };
        let state = if on == On::Project { place.state() } else { disk.at.join("state") };
        place.write(project.join("README.md"), "# Project\n");
        place.write(project.join("src/main.py"), "print('hello')\n");
        let (uid, gid) = place.world.ids();
        std::os::unix::fs::chown(&project, Some(uid), Some(gid)).unwrap();
        std::os::unix::fs::chown(project.join("src"), Some(uid), Some(gid)).unwrap();
        let trial = Self { disk, project, state, place };
        trial.run(trial.place.session(["--name", "s"], ["sh", "-c", TASK])).ok();
        trial
    }

    fn run(&self, mut run: Run) -> Out {
        run.env("LANDBOX_STATE_DIR", &self.state).cwd(&self.project).output()
    }

    fn landbox(&self, args: &[&str]) -> Out {
        self.run(self.place.landbox(args))
    }

    fn tree(&self) -> Vec<(PathBuf, u32, Vec<u8>)> {
        let mut found = Vec::new();
        let mut todo = vec![self.project.clone()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path: PathBuf = entry.unwrap().path();
                let meta = fs::symlink_metadata(&path).unwrap();
                let bytes = if meta.is_dir() {
                    todo.push(path.clone());
                    Vec::new()
                } else {
                    // The project has a link, which may lead nowhere by then.
                    fs::read_link(&path).map_or_else(
                        |_| fs::read(&path).unwrap(),
                        |to| to.into_os_string().into_encoded_bytes(),
                    )
                };
                found.push((path, meta.mode(), bytes));
            }
        }
        found.sort();
        found
    }

    fn digest(&self) -> String {
        let card: serde_json::Value = self.landbox(&["diff", "s", "--json"]).ok().json();
        card["digest"].as_str().unwrap().to_owned()
    }

    /// What failed says why, and what to do.
    fn refused(&self, out: &Out) {
        let errors = out.errors();
        assert!(errors.contains(self.disk.refusal()), "{errors}");
        assert!(errors.contains("hint: ") && errors.contains("make room"), "{errors}");
    }

    /// Does `command` with ever more room, until it succeeds. Whatever failed has changed nothing, or all, where it says so.
    fn until_it_fits(
        &self,
        command: &[&str],
        rooms: impl IntoIterator<Item = u64>,
        leave: &dyn Fn(u64),
    ) {
        let before = self.tree();
        for (failed, room) in rooms.into_iter().enumerate() {
            leave(room);
            let out = self.landbox(command);
            let when = format!("{command:?} with {room} left: {} {}", out.code(), out.errors());
            // All but the note of it: the next command makes up for that.
            let unnoted = out.errors().contains("all of it has landed");
            if out.code() == 0 || unnoted {
                let after = self.tree();
                assert!(after != before, "{when}");
                self.disk.empty();
                if unnoted {
                    self.refused(&out);
                    self.landbox(&["ls"]).ok();
                    assert!(self.tree() == after, "{when}");
                    assert_eq!(self.landbox(&["land", "s"]).code(), 4, "{when}");
                }
                // Nothing is left to be finished.
                assert_eq!(self.landbox(&["ls"]).ok().errors(), "", "{when}");
                assert!(failed > 0, "{when}");
                return;
            }
            assert_eq!(out.code(), 1, "{when}");
            self.refused(&out);
            assert!(self.tree() == before, "{when}");
            self.disk.empty();
            self.landbox(&["ls"]).ok();
            assert!(self.tree() == before, "{when}");
            assert_eq!(self.landbox(&["ls"]).ok().errors(), "", "{when}");
        }
        panic!("{command:?} never had room enough");
    }
}

const LAND: [&str; 4] = ["land", "s", "--apply", "--yes"];

fn rooms() -> impl Iterator<Item = u64> {
    (0..40).step_by(6).chain((40..400).step_by(45)).chain([1000, 4000, 16000])
}

fn full(on: On, disk: impl Fn(&Place) -> Disk) {
    let trial = Trial::new(on, disk);
    let (before, digest) = (trial.tree(), trial.digest());
    let leave = |kib| trial.disk.leave(kib);
    trial.until_it_fits(&LAND, rooms(), &leave);
    let landed = trial.tree();
    // An undo moves names and little else: it may well have room enough in the end.
    trial.disk.leave(0);
    let out = trial.landbox(&["undo", "s"]);
    let when = format!("{} {}", out.code(), out.errors());
    let there = trial.tree();
    assert!(there == if out.code() == 0 { before.clone() } else { landed.clone() }, "{when}");
    trial.disk.empty();
    trial.landbox(&["ls"]).ok();
    if out.code() != 0 {
        trial.refused(&out);
        assert_eq!(trial.tree(), landed, "{when}");
        trial.landbox(&["undo", "s"]).ok();
    }
    assert_eq!(trial.tree(), before);
    assert_eq!(trial.digest(), digest);
    trial.landbox(&LAND).ok();
    assert_eq!(trial.tree(), landed);
}

#[test]
fn root_a_full_ext4_of_project_and_state_leaves_all_or_nothing() {
    full(On::Both, Disk::ext4);
}

#[test]
fn root_a_full_ext4_of_the_project_leaves_all_or_nothing() {
    full(On::Project, Disk::ext4);
}

#[test]
fn root_a_full_ext4_of_the_state_leaves_all_or_nothing() {
    full(On::State, Disk::ext4);
}

#[test]
fn root_a_full_tmpfs_leaves_all_or_nothing() {
    full(On::Both, Disk::tmpfs);
}

#[test]
fn root_a_disk_without_inodes_leaves_all_or_nothing() {
    let trial = Trial::new(On::Both, Disk::tmpfs);
    let leave = |count| trial.disk.leave_names(count);
    trial.until_it_fits(&LAND, (0..120).step_by(8), &leave);
}

/// What failed, where, why, and what to do.
fn refused_read_only(trial: &Trial, command: &[&str], code: i32, hint: &str) {
    let out = trial.landbox(command);
    let errors = out.errors();
    let when = format!("{command:?}: {} {errors}", out.code());
    assert_eq!(out.code(), code, "{when}");
    assert!(errors.contains("Read-only file system"), "{when}");
    let lines = errors.lines().filter(|line| line.trim_start().starts_with("hint:"));
    assert!(lines.filter(|line| line.contains(hint)).count() == 1, "{when}");
}

#[test]
fn root_a_read_only_disk_takes_nothing_and_says_so() {
    for (on, kind) in [(On::Project, Disk::ext4 as fn(&Place) -> Disk), (On::State, Disk::tmpfs)] {
        let trial = Trial::new(on, kind);
        let before = trial.tree();
        for command in [&LAND[..], &["undo", "s"]] {
            let there = trial.tree();
            trial.disk.remount("ro");
            if on == On::State {
                for look in [&["show", "s"][..], &["ls"]] {
                    trial.landbox(look).ok();
                }
                for command in [&["diff", "s"][..], &["discard", "s", "--yes"]] {
                    refused_read_only(&trial, command, 1, "LANDBOX_STATE_DIR");
                }
                refused_read_only(&trial, &["run", "--", "true"], 125, "LANDBOX_STATE_DIR");
            }
            let hint = match on {
                On::State => "LANDBOX_STATE_DIR",
                On::Project | On::Both if command == &LAND[..] => "writable",
                On::Project | On::Both => "mount",
            };
            refused_read_only(&trial, command, 1, hint);
            let when = format!("{on:?} {command:?}");
            assert_eq!(trial.tree(), there, "{when}");
            trial.disk.remount("rw");
            trial.landbox(command).ok();
            assert_ne!(trial.tree(), there, "{when}");
        }
        assert_eq!(trial.tree(), before);
    }
}

#[test]
fn root_a_full_disk_is_looked_at_and_a_session_discarded_that_frees_nothing() {
    let trial = Trial::new(On::State, Disk::tmpfs);
    trial.landbox(&["discard", "s", "--yes"]).ok();
    let task = "rm README.md; chmod 600 src/main.py";
    let mut session = trial.place.session(["--name", "t"], ["sh", "-c", task]);
    session.env("LANDBOX_STATE_DIR", &trial.state).cwd(&trial.project).output().ok();
    let before = trial.tree();
    trial.disk.leave(0);
    let card: serde_json::Value = trial.landbox(&["diff", "t", "--json"]).ok().json();
    assert_eq!(card["files"], 2, "{card:#}");
    for look in [&["diff", "t"][..], &["land", "t"], &["show", "t"], &["ls"]] {
        trial.landbox(look).ok();
    }
    trial.landbox(&["discard", "t", "--yes"]).ok();
    let shown: serde_json::Value = trial.landbox(&["show", "t", "--json"]).ok().json();
    assert!(shown["landing"]["discarded_at"].is_string(), "{shown:#}");
    trial.landbox(&["land", "t", "--apply", "--yes"]).expect(4);
    trial.landbox(&["resume", "t", "--", "true"]).expect(125);
    trial.disk.empty();
    let shown: serde_json::Value = trial.landbox(&["show", "t", "--json"]).ok().json();
    assert!(shown["landing"]["discarded_at"].is_string(), "{shown:#}");
    let again = trial.landbox(&["discard", "t", "--yes"]);
    assert!([0, 4].contains(&again.code()), "{}", again.errors());
    trial.landbox(&["discard", "t", "--yes"]).expect(4);
    trial.landbox(&["gc"]).ok();
    assert_eq!(trial.tree(), before);
}

#[test]
fn root_a_session_that_fills_its_disk_is_looked_at_while_it_runs_and_discarded_after_it() {
    let trial = Trial::new(On::State, Disk::tmpfs);
    let task = "echo more > README.md; head -c 40000000 /dev/zero > large; echo full; read end";
    let mut session = trial.place.session(["--name", "t"], ["sh", "-c", task]);
    session.stdin_open();
    let mut live = session.env("LANDBOX_STATE_DIR", &trial.state).cwd(&trial.project).start();
    live.expect("full");
    let out = trial.landbox(&["diff", "t", "--stat", "--json"]);
    let card: serde_json::Value = out.ok().json();
    assert_eq!(card["files"], 2, "{card:#}");
    live.write(b"\n");
    live.wait();
    trial.landbox(&["discard", "t", "--yes"]).ok();
    trial.landbox(&["ls"]).ok();
}
