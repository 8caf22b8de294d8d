use super::*;
use crate::credentials::{Keeper, SWEEP};
use crate::session::store::StateDir;
use crate::session::testing::snapshot;
use std::time::{Duration, Instant};

/// A home, a session whose merged view is played by a plain folder, and one credential file.
struct World {
    _dir: tempfile::TempDir,
    real: PathBuf,
    upper: PathBuf,
    merged: PathBuf,
    session: Session,
}

impl World {
    fn new(host: Option<&str>) -> Self {
        Self::named(host, "token.json")
    }

    fn named(host: Option<&str>, name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let home = base.join("home");
        std::fs::create_dir_all(home.join(".cli")).unwrap();
        let real = home.join(".cli").join(name);
        if let Some(text) = host {
            std::fs::write(&real, text).unwrap();
        }
        let state = StateDir::open(&base.join("state")).unwrap();
        let mut frozen = snapshot("aaaaaaaaaa", None);
        let abs = |p: &Path| AbsPath::from_path(p).unwrap();
        frozen.policy.layers.truncate(1);
        frozen.policy.layers[0].target = abs(&home);
        frozen.policy.credentials = vec![abs(&real)];
        frozen.policy.auth.clear();
        let session = state.create(frozen).unwrap();
        let upper = session.upper(&session.snapshot.policy.layers[0].id);
        let merged = base.join("merged");
        std::fs::create_dir_all(upper.join(".cli")).unwrap();
        std::fs::create_dir_all(merged.join(".cli")).unwrap();
        Self {
            _dir: dir,
            real,
            upper: upper.join(".cli").join(name),
            merged: merged.join(".cli").join(name),
            session,
        }
    }

    fn pair(&self, recorded: &Agreed) -> Option<Pair> {
        let root = self.merged.parent().unwrap().parent().unwrap();
        let fd = fs::open(root, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let id = self.session.snapshot.policy.layers[0].id.clone();
        Maker::new(&self.session, &[(id, fd)].into_iter().collect()).declared(recorded).pop()
    }

    /// The whole, where the upper plays the merged view too.
    fn keeper(&self) -> Keeper {
        let root = self.upper.parent().unwrap().parent().unwrap();
        let fd = fs::open(root, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let id = self.session.snapshot.policy.layers[0].id.clone();
        Keeper::start(&self.session, vec![(id, fd)]).unwrap().unwrap()
    }

    /// Waits until the host's file is that.
    fn becomes(&self, wanted: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.host() != wanted {
            assert!(Instant::now() < end, "still {}", self.host());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn host(&self) -> String {
        std::fs::read_to_string(&self.real).unwrap()
    }
}

fn settle(pair: &mut Pair) {
    for _ in 0..3 {
        pair.check(false);
    }
}

#[test]
fn a_refresh_inside_reaches_the_real_disk_with_mode_0600_and_the_rest_stays() {
    let world = World::new(Some("{\"t\":1}"));
    let mut pair = world.pair(&Agreed::new()).unwrap();
    settle(&mut pair);
    std::fs::write(&world.upper, "{\"t\":2}").unwrap();
    std::fs::write(world.upper.with_file_name("other"), "x").unwrap();
    settle(&mut pair);
    assert_eq!(world.host(), "{\"t\":2}");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&world.real).unwrap());
    assert_eq!(mode & 0o7777, 0o600);
    assert_eq!(std::fs::read_dir(world.real.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn half_a_file_a_link_and_a_deletion_are_not_passed_on() {
    let world = World::new(Some("{\"t\":1}"));
    let mut pair = world.pair(&Agreed::new()).unwrap();
    settle(&mut pair);
    for broken in ["{\"t\":", ""] {
        std::fs::write(&world.upper, broken).unwrap();
        settle(&mut pair);
        assert_eq!(world.host(), "{\"t\":1}");
    }
    std::fs::remove_file(&world.upper).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &world.upper).unwrap();
    settle(&mut pair);
    std::fs::remove_file(&world.upper).unwrap();
    std::fs::write(&world.upper, vec![b'1'; (1 << 20) + 1]).unwrap();
    settle(&mut pair);
    pair.check(true);
    assert_eq!(world.host(), "{\"t\":1}");
}

#[test]
fn a_link_in_place_of_a_folder_leads_nowhere() {
    let world = World::new(Some("{\"t\":1}"));
    let mut pair = world.pair(&Agreed::new()).unwrap();
    settle(&mut pair);
    let evil = world.upper.parent().unwrap();
    std::fs::remove_dir(evil).unwrap();
    let target = world.real.parent().unwrap().parent().unwrap().join("elsewhere");
    std::fs::create_dir(&target).unwrap();
    std::fs::write(target.join("token.json"), "{\"t\":9}").unwrap();
    std::os::unix::fs::symlink(&target, evil).unwrap();
    settle(&mut pair);
    assert_eq!(world.host(), "{\"t\":1}");
}

#[test]
fn a_refresh_on_the_host_is_written_into_the_merged_view() {
    let world = World::new(Some("{\"t\":1}"));
    std::fs::write(&world.merged, "{\"t\":1}").unwrap();
    let mut pair = world.pair(&Agreed::new()).unwrap();
    settle(&mut pair);
    std::fs::write(&world.real, "{\"t\":2}").unwrap();
    settle(&mut pair);
    assert_eq!(std::fs::read_to_string(&world.merged).unwrap(), "{\"t\":2}");
    assert_eq!(std::fs::read_dir(world.merged.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn of_two_changes_at_once_the_newer_wins_and_the_older_is_kept() {
    let world = World::new(Some("{\"t\":1}"));
    let mut pair = world.pair(&Agreed::new()).unwrap();
    settle(&mut pair);
    std::fs::write(&world.real, "{\"t\":\"host\"}").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    std::fs::write(&world.upper, "{\"t\":\"inside\"}").unwrap();
    settle(&mut pair);
    assert_eq!(world.host(), "{\"t\":\"inside\"}");
    let kept = world.session.dir.join("credentials/1-token.json");
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "{\"t\":\"host\"}");
}

#[test]
fn a_first_login_inside_creates_the_real_file() {
    let world = World::new(None);
    std::fs::remove_dir(world.real.parent().unwrap()).unwrap();
    let mut pair = world.pair(&Agreed::new()).unwrap();
    settle(&mut pair);
    std::fs::write(&world.upper, "{\"t\":1}").unwrap();
    settle(&mut pair);
    assert_eq!(world.host(), "{\"t\":1}");
}

#[test]
fn a_resumed_session_knows_who_moved() {
    let world = World::new(Some("{\"t\":1}"));
    let mut pair = world.pair(&Agreed::new()).unwrap();
    std::fs::write(&world.upper, "{\"t\":2}").unwrap();
    settle(&mut pair);
    let recorded: Agreed = [(pair.declared.clone(), pair.agreed)].into_iter().collect();
    drop(pair);
    std::fs::write(&world.real, "{\"t\":3}").unwrap();
    let mut pair = world.pair(&recorded).unwrap();
    settle(&mut pair);
    assert_eq!(world.host(), "{\"t\":3}");
    assert_eq!(std::fs::read_to_string(&world.merged).unwrap(), "{\"t\":3}");
}

#[test]
fn nothing_is_copied_at_exit_unless_the_inside_changed() {
    let world = World::new(Some("{\"t\":1}"));
    let mut pair = world.pair(&Agreed::new()).unwrap();
    settle(&mut pair);
    std::fs::write(&world.real, "{\"t\":2}").unwrap();
    pair.check(true);
    assert_eq!(world.host(), "{\"t\":2}");
    assert!(!world.merged.exists());
}

#[test]
fn what_is_still_being_written_is_waited_for_also_where_a_part_of_it_looks_whole() {
    use std::io::Write;
    let world = World::named(Some("old"), "token");
    let keeper = world.keeper();
    // From here on the watch is there.
    std::fs::write(&world.upper, "first").unwrap();
    world.becomes("first");
    let mut file = std::fs::File::create(&world.upper).unwrap();
    file.write_all(b"half").unwrap();
    std::thread::sleep(3 * SWEEP);
    assert_eq!(world.host(), "first");
    file.write_all(b" and half").unwrap();
    drop(file);
    world.becomes("half and half");
    keeper.finish();
}

#[test]
fn what_is_still_being_written_at_the_end_is_the_last_there_will_be() {
    use std::io::Write;
    let world = World::named(Some("old"), "token");
    let keeper = world.keeper();
    std::fs::write(&world.upper, "first").unwrap();
    world.becomes("first");
    let mut file = std::fs::File::create(&world.upper).unwrap();
    file.write_all(b"last").unwrap();
    keeper.finish();
    assert_eq!(world.host(), "last");
}

#[test]
fn a_folder_of_login_files_is_kept_in_step_file_by_file() {
    let world = World::named(None, "credentials");
    std::fs::create_dir(&world.real).unwrap();
    let host = |name: &str| std::fs::read_to_string(world.real.join(name)).ok();
    std::fs::write(world.real.join("a.json"), "{\"t\":1}").unwrap();
    std::fs::create_dir(&world.upper).unwrap();
    let keeper = world.keeper();
    std::fs::write(world.upper.join("a.json"), "{\"t\":2}").unwrap();
    std::fs::write(world.upper.join("b.json"), "{\"t\":3}").unwrap();
    std::fs::create_dir(world.upper.join("c.json")).unwrap();
    std::fs::write(world.upper.join("c.json/d.json"), "{\"t\":4}").unwrap();
    std::os::unix::fs::symlink("b.json", world.upper.join("e.json")).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while host("a.json").as_deref() != Some("{\"t\":2}") || host("b.json").is_none() {
        assert!(Instant::now() < end, "{:?}", [host("a.json"), host("b.json")]);
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::write(world.real.join("b.json"), "{\"t\":5}").unwrap();
    let inside = world.upper.join("b.json");
    while std::fs::read_to_string(&inside).ok().as_deref() != Some("{\"t\":5}") {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::write(world.upper.join("f"), "at the end").unwrap();
    keeper.finish();
    assert_eq!(host("f").as_deref(), Some("at the end"));
    let mut names: Vec<_> =
        std::fs::read_dir(&world.real).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.json", "b.json", "f"]);
}

#[test]
fn of_a_folder_of_login_files_only_so_many_are_kept_and_of_another_none() {
    let world = World::named(None, "credentials");
    std::fs::create_dir(&world.upper).unwrap();
    for number in 0..100 {
        std::fs::write(world.upper.join(format!("{number}")), "x").unwrap();
    }
    world.keeper().finish();
    assert_eq!(std::fs::read_dir(&world.real).unwrap().count(), 32);
    let world = World::named(None, "auth.json");
    std::fs::create_dir(&world.upper).unwrap();
    std::fs::write(world.upper.join("x.json"), "{}").unwrap();
    world.keeper().finish();
    assert!(!world.real.exists());
}

#[test]
fn a_mask_beats_it() {
    let mut world = World::new(Some("{\"t\":1}"));
    let path = world.session.snapshot.policy.credentials[0].clone();
    let kind = landbox_shared::policy::MaskKind::File;
    world.session.snapshot.policy.masks = vec![landbox_shared::policy::Mask { path, kind }];
    assert!(world.pair(&Agreed::new()).is_none());
}
