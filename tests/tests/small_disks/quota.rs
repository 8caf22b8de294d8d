//! A real quota: that of a subvolume of Btrfs, which every kernel that has Btrfs can hold (those of ext4 and tmpfs need
//! options that few kernels are built with). The error is the same: EDQUOT.

use super::*;

impl Disk {
    /// Fails where the kernel has no Btrfs, or btrfs-progs is missing: tests/run.sh installs it.
    pub(super) fn btrfs(place: &Place) -> Self {
        let image = place.root().join("image");
        fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
        let path = image.to_str().unwrap();
        system("mkfs.btrfs", &["-q", "-f", path]);
        let top = place.root().join("top");
        fs::create_dir(&top).unwrap();
        system("mount", &["-o", "loop", path, top.to_str().unwrap()]);
        // Apart from the whole, whose limit could not be raised any more once it is reached.
        let volume = top.join("volume");
        let volume = volume.to_str().unwrap();
        system("btrfs", &["-q", "subvolume", "create", volume]);
        system("btrfs", &["quota", "enable", volume]);
        system("btrfs", &["quota", "rescan", "-w", volume]);
        let mut disk = Self::mounted(place, &["--bind", volume]);
        let found = Command::new("btrfs").args(["inspect-internal", "rootid", volume]).output();
        let id = String::from_utf8(found.unwrap().stdout).unwrap();
        disk.quota = Some(Quota { top, group: format!("0/{}", id.trim()) });
        disk
    }
}

/// The quota of a disk's owner.
pub(super) struct Quota {
    top: PathBuf,
    group: String,
}

impl Quota {
    /// Lets so many KiB more be written; `None`, as many as fit.
    pub(super) fn limit(&self, kib: Option<u64>) {
        let most = kib.map_or("none".to_owned(), |kib| (self.used() + (kib << 10)).to_string());
        system("btrfs", &["qgroup", "limit", &most, &self.group, self.top.to_str().unwrap()]);
    }

    /// Bytes that count.
    fn used(&self) -> u64 {
        let show = ["qgroup", "show", "--raw", "--sync"];
        let shown = Command::new("btrfs").args(show).arg(&self.top).output().unwrap();
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        let row = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut row = row.filter(|row| row.first() == Some(&self.group.as_str()));
        row.next()
            .and_then(|row| row.get(1)?.parse().ok())
            .unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&shown.stderr)))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.top).status();
    }
}

#[test]
fn root_a_quota_on_project_and_state_leaves_all_or_nothing() {
    full(On::Both, Disk::btrfs);
}

#[test]
fn root_a_quota_on_the_project_leaves_all_or_nothing() {
    full(On::Project, Disk::btrfs);
}

#[test]
fn root_a_quota_on_the_state_leaves_all_or_nothing() {
    full(On::State, Disk::btrfs);
}

#[test]
fn root_a_session_that_meets_its_quota_is_told_and_goes_on_once_there_is_more() {
    let trial = Trial::new(On::Both, Disk::btrfs);
    trial.disk.leave(2000);
    let task =
        "head -c 40000000 /dev/urandom > large; echo wrote $?; echo small > small; rm -f large";
    let out = trial.run(trial.place.landbox(["resume", "s", "--", "sh", "-c", task]));
    let said = format!("{} {}", out.text(), out.errors());
    assert!(said.contains("wrote 1") && said.contains("Disk quota exceeded"), "{said}");
    trial.disk.empty();
    let task = "head -c 4000000 /dev/urandom > large && echo wrote $?";
    let out = trial.run(trial.place.landbox(["resume", "s", "--", "sh", "-c", task])).ok();
    assert!(out.text().contains("wrote 0"), "{}", out.errors());
    trial.landbox(&LAND).ok();
    assert_eq!(fs::metadata(trial.project.join("large")).unwrap().len(), 4_000_000);
}

#[test]
fn root_a_session_whose_owner_has_no_quota_left_is_looked_at_and_discarded() {
    for on in [On::Both, On::State, On::Project] {
        let trial = Trial::new(on, Disk::btrfs);
        let (before, digest) = (trial.tree(), trial.digest());
        trial.disk.leave(0);
        for look in
            [&["diff", "s"][..], &["diff", "s", "--json"], &["land", "s"], &["show", "s"], &["ls"]]
        {
            trial.landbox(look).ok();
        }
        // Btrfs takes not even a change of name then, by which a discard is recorded where nothing else can be written.
        let out = trial.landbox(&["discard", "s", "--yes"]);
        trial.disk.empty();
        if out.code() != 0 {
            assert!(on != On::Project, "{}", out.errors());
            trial.refused(&out);
            assert_eq!(trial.digest(), digest);
            trial.landbox(&["discard", "s", "--yes"]).ok();
        }
        let shown: serde_json::Value = trial.landbox(&["show", "s", "--json"]).ok().json();
        assert!(shown["landing"]["discarded_at"].is_string(), "{shown:#}");
        trial.landbox(&["gc"]).ok();
        assert_eq!(trial.tree(), before);
    }
}

/// Whatever is typed where nothing can be written works, or says why not and has changed nothing.
fn nothing_left(disk: impl Fn(&Place) -> Disk) {
    let trial = Trial::new(On::Both, disk);
    let patch = trial.place.outside.join("patch");
    let patch = patch.to_str().unwrap();
    for (command, failed) in [
        (&["run", "--name", "other", "--", "true"][..], 125),
        (&["resume", "s", "--", "true"], 125),
        (&["checkpoint", "s"], 1),
        (&["discard", "s", "--yes", "--", "new1"], 1),
        (&["land", "s", "--apply", "--yes", "--", "large"], 1),
        (&["land", "s", "--patch", patch], 1),
        (&["rewind", "s", "0", "--yes"], 1),
        (&["gc"], 1),
    ] {
        let (before, digest) = (trial.tree(), trial.digest());
        trial.disk.leave(0);
        let out = trial.landbox(command);
        trial.disk.empty();
        let when = format!("{command:?}: {} {}", out.code(), out.errors());
        if out.code() != 0 {
            assert_eq!(out.code(), failed, "{when}");
            trial.refused(&out);
            assert_eq!(trial.landbox(&["ls"]).ok().errors(), "", "{when}");
            assert_eq!(trial.digest(), digest, "{when}");
            assert_eq!(trial.tree(), before, "{when}");
            trial.landbox(command).ok();
        }
    }
}

#[test]
fn root_no_command_does_a_half_where_a_quota_leaves_nothing() {
    nothing_left(Disk::btrfs);
}

#[test]
fn root_no_command_does_a_half_where_a_disk_leaves_nothing() {
    nothing_left(Disk::ext4);
}
