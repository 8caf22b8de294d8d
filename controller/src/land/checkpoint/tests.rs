//! Checkpoints of layers that a real overlay wrote.

use super::folder::Folder;
use super::turn::{Ready, Work};
use super::*;
use crate::land::testing::{Fixture, WORLDS, World};
use landbox_shared::path::RelPath;
use std::fs;
use std::os::unix::fs::MetadataExt;

const BASE: &str = "mkdir d; echo base > d/f; echo gone > gone";

fn each(test: impl Fn(&Fixture)) {
    for world in WORLDS.into_iter().filter(|world| world.is_here()) {
        test(&Fixture::new(world, BASE));
    }
}

fn turn(fixture: &Fixture, number: u32) -> Ready {
    let session = fixture.session();
    let folder = Folder::open(&session).unwrap();
    let mut work = Work::new(&session, false);
    let ready = work.prepare(&folder, number);
    let copy = match &ready {
        Ready::Failed(why) => Ready::Failed(why.clone()),
        Ready::No => Ready::No,
        Ready::Unchanged => Ready::Unchanged,
        Ready::Next => Ready::Next,
    };
    work.begin(&folder, number, ready);
    copy
}

/// As who names no checkpoint does.
fn go_back(fixture: &Fixture) -> Result<Rewound> {
    let to = look_up(&fixture.state, &fixture.id, None)?;
    rewind(&fixture.state, &fixture.id, to.number)
}

fn numbers(fixture: &Fixture) -> Vec<(u32, Option<u32>)> {
    list(&fixture.session()).iter().map(|c| (c.number, c.turn)).collect()
}

#[test]
fn a_turn_that_finds_nothing_new_takes_no_checkpoint() {
    each(|fixture| {
        fixture.task("true");
        assert_eq!(turn(fixture, 2), Ready::Unchanged);
        fixture.task("echo 1 > d/f; rm gone");
        assert_eq!(turn(fixture, 3), Ready::Next);
        // When something was put into a folder and taken away again is no difference.
        fixture.task("touch d/x; rm d/x");
        assert_eq!(turn(fixture, 4), Ready::Unchanged);
        fixture.task("chmod 600 d/f");
        assert_eq!(turn(fixture, 5), Ready::Next);
        assert_eq!(numbers(fixture), [(1, Some(3)), (2, Some(5))]);
    });
}

#[test]
fn a_turn_keeps_what_is_unchanged_where_the_checkpoint_that_held_it_was_removed_meanwhile() {
    each(|fixture| {
        fixture.task("echo 1 > d/f; rm gone");
        assert_eq!(turn(fixture, 2), Ready::Next);
        let session = fixture.session();
        let mut work = Work::new(&session, false);
        let open = || Folder::open(&session).unwrap();
        let ready = work.prepare(&open(), 3);
        assert_eq!(ready, Ready::Unchanged);
        remove(&session, &[1]).unwrap();
        work.begin(&open(), 3, ready);
        assert_eq!(numbers(fixture), [(2, Some(3))]);
    });
}

#[test]
fn the_beginning_is_a_checkpoint_that_takes_nothing() {
    each(|fixture| {
        fixture.task("true");
        let empty = fixture.lines();
        fixture.task("echo 1 > d/f; rm gone; mkdir n; chmod 700 n; echo x > n/x");
        let changed = fixture.lines();
        assert_ne!(empty, changed);
        let gone_back = go_back(fixture).unwrap();
        assert_eq!((gone_back.back.number, gone_back.before.map(|b| b.number)), (0, Some(1)));
        assert_eq!(fixture.lines(), empty);
        assert!(go_back(fixture).unwrap().before.is_none(), "what was replaced is none to go to");
        rewind(&fixture.state, &fixture.id, 1).unwrap();
        assert_eq!(fixture.lines(), changed);
        // There already.
        let again = rewind(&fixture.state, &fixture.id, 1).unwrap();
        assert!(again.before.is_none());
    });
}

#[test]
fn the_oldest_of_each_sort_makes_room_for_the_next_and_for_no_other() {
    let fixture = Fixture::new(World::UserKernel, BASE);
    fixture.task("true");
    let layer = fixture.session().upper(&project(&fixture.session()).id);
    take(&fixture.state, &fixture.id, Some("mine".into())).unwrap();
    for number in 0..30 {
        fs::write(layer.join("f"), number.to_string()).unwrap();
        assert_eq!(turn(&fixture, number), Ready::Next);
    }
    let all = numbers(&fixture);
    assert_eq!(all.len(), 1 + MOST_TURNS);
    assert_eq!((all[0], all[1]), ((1, None), (12, Some(10))));
    // Content that nothing names goes, too, if not at once.
    let objects = fixture.session().dir.join("checkpoints/objects");
    assert!(fs::read_dir(&objects).unwrap().count() < MOST_TURNS + 8);
    for number in 0..MOST {
        fs::write(layer.join("f"), format!("x{number}")).unwrap();
        take(&fixture.state, &fixture.id, None).unwrap();
    }
    let all = numbers(&fixture);
    assert_eq!(all.len(), MOST + MOST_TURNS);
    assert!(all.iter().all(|one| *one != (1, None)));
    assert_eq!(fs::read_dir(&objects).unwrap().count(), MOST + MOST_TURNS);
}

fn project(session: &Session) -> &LayerPolicy {
    crate::land::layer::project_of(session).unwrap()
}

#[test]
fn what_is_unchanged_takes_no_room_again_and_is_not_read_again_once_it_has_settled() {
    let fixture = Fixture::new(World::UserKernel, BASE);
    fixture.task("head -c 300000 /dev/zero | tr '\\0' x > big; echo 1 > d/f");
    assert_eq!(turn(&fixture, 2), Ready::Next);
    let session = fixture.session();
    let before = bytes(&session);
    fixture.task("echo 2 > d/f");
    assert_eq!(turn(&fixture, 3), Ready::Next);
    assert!(bytes(&session) - before < 20_000, "{before} {}", bytes(&session));
    // As if the look had been a while after the writing: then the file is known by its stamp, and not opened.
    let folder = Folder::open(&session).unwrap();
    let mut earlier = folder.newest().unwrap().layers;
    earlier.looked.0 += 1000;
    let known = known::Known::of([&earlier]);
    let big = session.upper(&project(&session).id).join("big");
    let change =
        |mode| fs::set_permissions(&big, std::os::unix::fs::PermissionsExt::from_mode(mode));
    let meta = || crate::land::tree::meta_of(fs::File::open(&big).unwrap()).unwrap();
    assert!(known.get(&meta()).is_some());
    change(0o600).unwrap();
    assert!(known.get(&meta()).is_none());
}

#[test]
fn without_room_the_older_ones_of_its_sort_go_and_then_it_is_skipped_with_a_word() {
    let fixture = Fixture::new(World::UserKernel, BASE);
    fixture.task("true");
    let session = fixture.session();
    let layer = session.upper(&project(&session).id);
    let folder = Folder::open(&session).unwrap();
    let mut work = Work::new(&session, false);
    work.bytes = 350 << 10;
    let mut step = |number: u32, size: usize| {
        fs::write(layer.join("f"), vec![u8::try_from(number).unwrap(); size]).unwrap();
        let ready = work.prepare(&folder, number);
        work.begin(&folder, number, ready);
        numbers(&fixture)
    };
    for number in 1..=3 {
        step(number, 100 << 10);
    }
    assert_eq!(step(4, 100 << 10), [(3, Some(3)), (4, Some(4))]);
    assert_eq!(skipped(&session), None);
    let kept = step(5, 500 << 10);
    assert!(kept.iter().all(|one| one.1 != Some(5)));
    let why = skipped(&session).unwrap();
    assert!(why.turn == 5 && why.why.contains("f: there is no room for more"), "{why:?}");
    // It is over when one is taken.
    step(6, 100);
    assert_eq!(skipped(&session), None);
}

#[test]
fn what_was_made_ready_is_kept_only_if_a_turn_begins_and_its_content_outlives_a_sweep() {
    let fixture = Fixture::new(World::UserKernel, BASE);
    fixture.task("echo 1 > d/f");
    let session = fixture.session();
    let folder = Folder::open(&session).unwrap();
    let mut work = Work::new(&session, false);
    assert_eq!(work.prepare(&folder, 2), Ready::Next);
    folder.sweep().unwrap();
    assert!(numbers(&fixture).is_empty());
    drop(folder);
    take(&fixture.state, &fixture.id, None).unwrap();
    let folder = Folder::open(&session).unwrap();
    work.begin(&folder, 2, Ready::Next);
    assert_eq!(numbers(&fixture), [(1, None), (2, Some(2))]);
    fixture.task("echo 2 > d/f");
    assert_eq!(work.prepare(&folder, 3), Ready::Next);
    drop(folder);
    rewind(&fixture.state, &fixture.id, 2).unwrap();
    assert_eq!(
        fs::read_to_string(session.upper(&project(&session).id).join("d/f")).unwrap(),
        "1\n"
    );
    // What is not the present any more begins no turn.
    let folder = Folder::open(&session).unwrap();
    assert_eq!(folder.keep_next().unwrap(), None);
    work.begin(&folder, 3, Ready::Next);
    assert_eq!(numbers(&fixture), [(1, None), (2, Some(2)), (3, None), (4, Some(3))]);
}

#[test]
fn going_back_is_gone_on_with_wherever_it_was_cut_short() {
    each(|fixture| {
        fixture.task("echo 1 > d/f");
        take(&fixture.state, &fixture.id, None).unwrap();
        let wanted = fixture.lines();
        let session = fixture.session();
        let layer = session.upper(&project(&session).id);
        for cut in 0..4 {
            fixture.task("echo 2 > d/f; rm -f gone; echo x > more");
            let folder = Folder::open(&session).unwrap();
            let manifest = folder.find(&session, Some(1)).unwrap();
            restore::make_ready(&session, &folder, &manifest).unwrap();
            restore::begin(&session, &folder, &manifest).unwrap();
            drop(folder);
            let (new, old) = (layer.with_file_name("rewound"), layer.with_file_name("replaced"));
            if cut > 0 {
                fs::rename(&layer, &old).unwrap();
            }
            if cut > 1 {
                fs::rename(&new, &layer).unwrap();
            }
            if cut > 2 {
                crate::overlay::remove::remove_tree(&old).unwrap();
            }
            let note = finish(&fixture.state, &session).unwrap().unwrap();
            assert!(note.ends_with("was on its way back to checkpoint 1, and is there now"));
            assert_eq!(fixture.lines(), wanted, "{cut}");
            assert!(!new.exists() && !old.exists());
            assert_eq!(finish(&fixture.state, &session).unwrap(), None);
        }
    });
}

#[test]
fn a_damaged_checkpoint_is_refused_and_the_session_stays_as_it_is() {
    let fixture = Fixture::new(World::UserKernel, BASE);
    fixture.task("echo 1 > d/f");
    take(&fixture.state, &fixture.id, None).unwrap();
    fixture.task("echo 2 > d/f");
    let session = fixture.session();
    let now = fixture.lines();
    let objects = session.dir.join("checkpoints/objects");
    for object in fs::read_dir(objects).unwrap() {
        fs::write(object.unwrap().path(), "x\n").unwrap();
    }
    let failure = rewind(&fixture.state, &fixture.id, 1).unwrap_err();
    assert!(failure.message.contains("damaged"), "{failure}");
    assert_eq!(fixture.lines(), now);
    assert_eq!(finish(&fixture.state, &session).unwrap(), None);
    assert!(!session.upper(&project(&session).id).with_file_name("rewound").exists());
}

#[test]
fn login_files_are_in_no_checkpoint_and_stay_what_they_are() {
    let fixture = Fixture::new(World::UserKernel, "mkdir cli; echo real > cli/token");
    fixture.task("echo old > cli/token; echo 1 > cli/notes; echo link > cli/other");
    let mut session = fixture.session();
    let layer = session.upper(&project(&session).id);
    let policy = &mut session.snapshot.policy;
    policy.credentials = ["cli/token", "cli/other"].map(|p| policy.project.join(p).unwrap()).into();
    let folder = Folder::open(&session).unwrap();
    let layers = asked(&session, &folder, false).unwrap();
    let paths: Vec<&RelPath> =
        layers.pictures[0].entries.iter().filter_map(|entry| entry.path.as_ref()).collect();
    assert_eq!(paths, [&RelPath::new("cli").unwrap(), &RelPath::new("cli/notes").unwrap()]);
    let objects = session.dir.join("checkpoints/objects");
    for object in fs::read_dir(objects).unwrap() {
        assert_eq!(fs::read_to_string(object.unwrap().path()).unwrap(), "1\n");
    }
    fs::write(layer.join("cli/token"), "new\n").unwrap();
    fs::write(layer.join("cli/notes"), "2\n").unwrap();
    fs::remove_file(layer.join("cli/other")).unwrap();
    let inode = fs::metadata(layer.join("cli/token")).unwrap().ino();
    for manifest in [
        Manifest::new(String::new(), Reason::Asked(None), layers),
        start::beginning(&session).unwrap(),
    ] {
        restore::make_ready(&session, &folder, &manifest).unwrap();
        restore::begin(&session, &folder, &manifest).unwrap();
        restore::exchange(&session, &folder).unwrap();
        restore::end(&folder).unwrap();
        assert_eq!(fs::metadata(layer.join("cli/token")).unwrap().ino(), inode);
        assert!(!layer.join("cli/other").exists());
    }
    assert!(!layer.join("cli/notes").exists());
}

#[test]
fn going_back_goes_on_although_a_power_cut_took_the_number_from_its_marker() {
    each(|fixture| {
        fixture.task("echo 1 > d/f");
        let then = fixture.lines();
        take(&fixture.state, &fixture.id, None).unwrap();
        fixture.task("echo 2 > d/f; rm gone");
        let session = fixture.session();
        let folder = Folder::open(&session).unwrap();
        let manifest = folder.find(&session, Some(1)).unwrap();
        restore::make_ready(&session, &folder, &manifest).unwrap();
        fs::write(folder.marker(), "").unwrap();
        let upper = session.upper(&project(&session).id);
        fs::rename(&upper, upper.with_file_name("replaced")).unwrap();
        drop(folder);
        let told = finish(&fixture.state, &session).unwrap().unwrap();
        assert!(told.ends_with("was on its way back to a checkpoint, and is there now"), "{told}");
        assert_eq!(fixture.lines(), then);
        assert!(!upper.with_file_name("replaced").exists());
        assert_eq!(finish(&fixture.state, &session).unwrap(), None);
    });
}

#[test]
fn what_looks_that_came_to_nothing_have_put_away_makes_room() {
    let fixture = Fixture::new(World::UserKernel, BASE);
    fixture.task("head -c 100000 /dev/zero | tr '\\0' x > f");
    let session = fixture.session();
    let folder = Folder::open(&session).unwrap();
    let junk = folder.object(&crate::land::content::digest_of(b"junk"));
    fs::write(&junk, vec![1; 300 << 10]).unwrap();
    let bounds = Bounds { bytes: 350 << 10, ..ASKED };
    let layers = within(&session, &folder, false, &bounds).unwrap();
    assert!(layers.entries() > 0 && !junk.exists());
    let none = Bounds { bytes: 50 << 10, ..ASKED };
    fs::remove_dir_all(session.dir.join("checkpoints/objects")).unwrap();
    fs::create_dir(session.dir.join("checkpoints/objects")).unwrap();
    let refused = within(&session, &folder, false, &none).unwrap_err();
    assert!(refused.message.contains("f: there is no room for more checkpoints"), "{refused}");
}

#[test]
fn a_pipe_comes_back_with_its_mode_and_the_beginning_with_the_mode_of_the_real_folder() {
    each(|fixture| {
        fixture.task("true");
        let session = fixture.session();
        let upper = session.upper(&project(&session).id);
        let mode = |path: &std::path::Path| fs::symlink_metadata(path).unwrap().mode() & 0o7777;
        let began = mode(&upper);
        fixture.task("umask 0; mkfifo p; chmod 666 p; chmod 711 .");
        rewind(&fixture.state, &fixture.id, 0).unwrap();
        assert_eq!(mode(&upper), began);
        let again = rewind(&fixture.state, &fixture.id, 0).unwrap();
        assert!(again.before.is_none());
        rewind(&fixture.state, &fixture.id, 1).unwrap();
        assert_eq!((mode(&upper), mode(&upper.join("p"))), (0o711, 0o666));
    });
}

#[test]
fn the_checkpoint_that_is_gone_back_to_makes_no_room_for_what_it_replaces() {
    let fixture = Fixture::new(World::UserKernel, BASE);
    fixture.task("true");
    let layer = fixture.session().upper(&project(&fixture.session()).id);
    for number in 0..=MOST {
        fs::write(layer.join("f"), format!("x{number}")).unwrap();
        if number < MOST {
            take(&fixture.state, &fixture.id, None).unwrap();
        }
    }
    rewind(&fixture.state, &fixture.id, 1).unwrap();
    let all = numbers(&fixture);
    assert_eq!((all[0].0, all.len()), (1, MOST + 1));
    assert_eq!(fs::read(layer.join("f")).unwrap(), b"x0");
}

#[test]
fn what_killed_commands_have_left_of_checkpoints_goes_and_what_goes_on_stays() {
    let fixture = Fixture::new(World::UserKernel, BASE);
    fixture.task("echo 1 > d/f");
    take(&fixture.state, &fixture.id, None).unwrap();
    let session = fixture.session();
    let ready = session.upper(&project(&session).id).with_file_name("rewound");
    let part = session.dir.join("checkpoints/objects/.new-x");
    let leave = || {
        fs::create_dir(&ready).unwrap();
        fs::write(&part, "x").unwrap();
    };
    leave();
    let folder = Folder::open(&session).unwrap();
    sweep(&session);
    assert!(ready.exists() && part.exists(), "somebody is at work");
    drop(folder);
    sweep(&session);
    assert!(!ready.exists() && !part.exists());
    leave();
    fs::write(session.dir.join("checkpoints/rewinding"), "1").unwrap();
    sweep(&session);
    assert!(ready.exists(), "it is gone on with");
    fs::remove_dir(&ready).unwrap();
    fs::remove_file(session.dir.join("checkpoints/rewinding")).unwrap();
    rewind(&fixture.state, &fixture.id, 0).unwrap();
}

#[test]
fn a_discarded_session_has_no_checkpoint_and_gets_no_folder_for_them() {
    let fixture = Fixture::new(World::UserKernel, BASE);
    fixture.task("echo 1 > d/f");
    crate::land::discard::discard(&fixture.state, &fixture.id).unwrap();
    let session = fixture.session();
    assert_eq!(look_up(&fixture.state, &fixture.id, Some(1)).unwrap_err().kind, Kind::Nothing);
    assert!(!session.dir.join("checkpoints").exists());
}

#[test]
fn a_checkpoint_is_removed_with_what_only_it_holds_and_its_number_is_never_anothers() {
    let fixture = Fixture::new(World::UserKernel, BASE);
    fixture.task("true");
    let session = fixture.session();
    let layer = session.upper(&project(&session).id);
    for number in 0..4 {
        fs::write(layer.join("f"), number.to_string()).unwrap();
        take(&fixture.state, &fixture.id, None).unwrap();
    }
    let left = || numbers(&fixture).iter().map(|one| one.0).collect::<Vec<_>>();
    let objects = || fs::read_dir(session.dir.join("checkpoints/objects")).unwrap().count();
    for (wrong, kind) in [(&[2, 9][..], Kind::Usage), (&[0], Kind::Usage)] {
        assert_eq!(remove(&session, wrong).unwrap_err().kind, kind);
        assert_eq!((left(), objects()), (vec![1, 2, 3, 4], 4), "all or nothing");
    }
    remove(&session, &[2, 4, 2]).unwrap();
    assert_eq!((left(), objects()), (vec![1, 3], 2));
    assert_eq!(rewind(&fixture.state, &fixture.id, 4).unwrap_err().kind, Kind::Usage);
    assert_eq!(take(&fixture.state, &fixture.id, None).unwrap().0.number, 5);
    remove(&session, &[5]).unwrap();
    // What is made ready for a turn gets no number of another's either.
    fs::write(layer.join("f"), "x").unwrap();
    assert_eq!(turn(&fixture, 2), Ready::Next);
    assert_eq!(left(), [1, 3, 6]);
    remove(&session, &[1, 3, 6]).unwrap();
    assert_eq!((left(), objects()), (vec![], 0));
    assert_eq!(take(&fixture.state, &fixture.id, None).unwrap().0.number, 7);
}

#[test]
fn going_back_that_finds_no_room_for_the_present_names_what_makes_some() {
    let fixture = Fixture::new(World::UserKernel, BASE);
    fixture.task("head -c 100000 /dev/zero | tr '\\0' x > f");
    let session = fixture.session();
    let folder = Folder::open(&session).unwrap();
    let none = Bounds { bytes: 50 << 10, ..ASKED };
    let refused = within(&session, &folder, false, &none).unwrap_err();
    let hints = refused.hints.join("\n");
    let id = &fixture.id;
    assert!(hints.contains(&format!("landbox discard {id} --checkpoint N")), "{hints}");
    assert!(hints.contains(&format!("landbox resume {id} -- rm FILE")), "{hints}");
}

#[test]
fn what_a_look_that_was_killed_has_left_open_is_closed_again_unless_it_was_changed_since() {
    let fixture = Fixture::new(World::UserKernel, BASE);
    fixture.task("mkdir c; echo 1 > c/f; echo 1 > g; chmod 500 c; chmod 400 c/f; chmod 600 g");
    let session = fixture.session();
    let upper = session.upper(&project(&session).id);
    drop(Folder::open(&session).unwrap());
    let line = |path: &str, is: u32| {
        let line = serde_json::json!({"layer": "project", "path": path, "was": 0, "is": is});
        format!("{line}\n")
    };
    let noted = session.dir.join("checkpoints/lifted");
    let text =
        [line("c", 0o500), line("c/f", 0o400), line("g", 0o400), line("gone", 0o400)].concat();
    fs::write(&noted, text + "{\"layer\": \"proj").unwrap();
    let mode = |path: &str| fs::symlink_metadata(upper.join(path)).unwrap().mode() & 0o7777;
    assert_eq!(finish(&fixture.state, &session).unwrap(), None);
    assert_eq!((mode("c"), mode("c/f"), mode("g")), (0, 0, 0o600));
    assert!(!noted.exists());
}

#[cfg(target_arch = "x86_64")] // the registers of a call
const CLOSED: &str = "LANDBOX_TEST_CLOSED";

/// Goes back to the first checkpoint, in the process of its own.
#[cfg(target_arch = "x86_64")]
#[test]
fn closed_child() {
    let Some(place) = std::env::var_os(CLOSED) else { return };
    let place = std::path::PathBuf::from(place);
    let state = StateDir::open(&place.join("state")).unwrap();
    let session = with_login(state.load(&SessionId::new("aaaaaaaaaa").unwrap()).unwrap());
    fs::write(place.join("tid"), rustix::thread::gettid().as_raw_nonzero().to_string()).unwrap();
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP).unwrap();
    let folder = Folder::open(&session).unwrap();
    let manifest = folder.find(&session, Some(1)).unwrap();
    restore::make_ready(&session, &folder, &manifest).unwrap();
    restore::begin(&session, &folder, &manifest).unwrap();
    restore::exchange(&session, &folder).unwrap();
    restore::end(&folder).unwrap();
}

#[cfg(target_arch = "x86_64")]
fn with_login(mut session: Session) -> Session {
    let policy = &mut session.snapshot.policy;
    policy.credentials = vec![policy.project.join("cli/token").unwrap()];
    session
}

#[cfg(target_arch = "x86_64")]
#[test]
fn killed_before_any_call_that_writes_going_back_leaves_no_folder_open_that_it_had_opened_up() {
    use crate::land::apply::trace::{Act, run};
    let fixture = Fixture::new(World::UserKernel, "mkdir cli; echo real > cli/token");
    fixture.task("echo old > cli/token; echo 1 > cli/notes; chmod 500 cli");
    let session = with_login(fixture.session());
    let folder = Folder::open(&session).unwrap();
    let layers = asked(&session, &folder, false).unwrap();
    keep(&folder, layers, Reason::Asked(None), None).unwrap();
    drop(folder);
    let cli = session.upper(&project(&session).id).join("cli");
    let (mut at, mut open) = (0, 0);
    loop {
        fixture.task("chmod 700 cli; echo 2 > cli/notes; echo new > cli/token");
        let (mut count, mut last) = (0, None);
        let place = fixture.dir.path().to_str().unwrap();
        let ended = run("land::checkpoint::tests::closed_child", CLOSED, place, &mut |call| {
            count += 1;
            last = Some(call.clone());
            if count > at { Act::Kill } else { Act::Go }
        });
        let when = format!("killed at {at}, before {last:?}");
        let mode = || fs::metadata(&cli).unwrap().mode() & 0o777;
        let notes = || fs::read_to_string(cli.join("notes")).unwrap();
        open += usize::from(cli.exists() && notes() == "1\n" && mode() == 0o700);
        let begun = folder::is_rewinding(&session);
        let folder = Folder::open(&session).unwrap();
        if begun {
            restore::exchange(&session, &folder).unwrap();
            restore::end(&folder).unwrap();
        } else {
            restore::give_up(&session);
        }
        let back = begun || notes() == "1\n";
        let expected = if back { (0o500, "1\n") } else { (0o700, "2\n") };
        assert_eq!((mode(), notes().as_str()), expected, "{when}");
        assert_eq!(fs::read_to_string(cli.join("token")).unwrap(), "new\n", "{when}");
        assert!(!folder::is_lifting(&session), "{when}");
        if !ended.killed {
            assert!(ended.success, "{}", ended.output);
            break;
        }
        at += 1;
    }
    assert!(at > 15 && open > 0, "{at} {open}");
}
