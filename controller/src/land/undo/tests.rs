use super::*;
use crate::land::apply::tests::{BASE, Dice, TASK, apply_these, land, quietly};
use crate::land::apply::{back, parts, recover};
use crate::land::select::{Selection, Wanted};
use crate::land::testing::{Fixture, WORLDS, World, sh};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn worlds() -> impl Iterator<Item = World> {
    WORLDS.into_iter().filter(|world| world.is_here())
}

fn undo_last(fixture: &Fixture) -> Result<Undone> {
    let target = find(&fixture.state, Some(fixture.id.as_str()), None)?;
    undo(&fixture.state, &target, &fixture.key())
}

/// All there is to say of a tree: type, mode, owner, content or target, attributes, other names, and the time of the
/// last change of content.
fn picture(root: &Path) -> Vec<String> {
    let mut names: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut lines = BTreeMap::new();
    let tree = Tree::open(root).unwrap();
    let mut todo = vec![root.to_path_buf()];
    while let Some(dir) = todo.pop() {
        let holds = Tree::open(&dir).unwrap();
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let name = landbox_shared::bytes::escape(
                path.strip_prefix(root).unwrap().as_os_str().as_bytes(),
            );
            let what = if meta.is_dir() {
                todo.push(path.clone());
                String::new()
            } else if meta.is_symlink() {
                format!("{:?}", std::fs::read_link(&path).unwrap())
            } else if meta.is_file() {
                names.entry(meta.ino()).or_default().push(name.clone());
                landbox_shared::bytes::escape(&std::fs::read(&path).unwrap())
            } else {
                String::new()
            };
            let raw = path.file_name().unwrap().as_bytes();
            let found = tree::meta_at(holds.root(), raw).unwrap().unwrap();
            let attributes = tree::attributes(holds.root(), raw, &found);
            let (mode, at) = (meta.mode(), (meta.mtime(), meta.mtime_nsec()));
            lines.insert(name, (meta.ino(), format!("{mode:o} {attributes:?} {at:?} {what}")));
        }
    }
    let at = tree::meta_of(tree.root()).unwrap().mtime;
    let all = lines.into_iter().map(|(name, (ino, line))| {
        format!("{name} {line} {:?}", names.get(&ino).map(|names| names.len()))
    });
    std::iter::once(format!("{at:?}")).chain(all).collect()
}

#[test]
fn undo_restores_the_exact_state_and_the_session_shows_its_changes_again() {
    for world in worlds() {
        let base = format!(
            "{BASE}\necho h > hard; ln hard hard2; setfattr -n user.note -v kept text; setfacl -m u:1000:r script; \
             setfattr -n user.note -v kept removed; touch -d 2001-02-03 text gone removed/r dir removed"
        );
        let fixture = Fixture::new(world, &base);
        let merged = fixture.run(&format!("{TASK}\necho more >> hard; rm hard2"));
        let (lines, before) = (fixture.lines(), picture(&fixture.project));
        land(&fixture).unwrap();
        let landed = picture(&fixture.project);
        assert_ne!(landed, before);
        let undone = undo_last(&fixture).unwrap();
        assert!(
            undone.pending && undone.kept.is_none() && undone.disturbed.is_none(),
            "{undone:?}"
        );
        assert_eq!(picture(&fixture.project), before, "{world:?}");
        assert_eq!(fixture.lines(), lines, "{world:?}");
        assert_eq!(undo_last(&fixture).unwrap_err().kind, Kind::Nothing);
        // And the session sees what it saw, and can land it again.
        if world != World::UserFuse {
            assert_eq!(fixture.run("true"), merged, "{world:?}");
        }
        land(&fixture).unwrap();
        let plain = |lines: &[String]| -> Vec<String> {
            lines
                .iter()
                .map(|l| l.split(' ').take(2).collect::<Vec<_>>().join(" "))
                .skip(1)
                .collect()
        };
        assert_eq!(plain(&picture(&fixture.project)), plain(&landed), "{world:?}");
        assert_eq!(fixture.session().state.landing.undone, [1]);
    }
}

#[test]
fn whatever_a_session_did_undo_gives_back_the_project_as_it_was() {
    for seed in 100..109 {
        let mut dice = Dice(seed);
        let here: Vec<World> = worlds().collect();
        let world = here[usize::try_from(seed).unwrap() % here.len()];
        let fixture = Fixture::new(world, &dice.script(40));
        let mut pictures = Vec::new();
        for _ in 0..3 {
            fixture.run(&dice.script(20));
            if fixture.review().has_landable() {
                pictures.push((picture(&fixture.project), fixture.lines()));
                land(&fixture).unwrap();
                // The owner's, in between: nobody's landing.
                sh(&fixture.project, "echo o >> owners; touch -d 2001-01-01 owners .");
                fixture.give_back();
            }
        }
        let content = |lines: &[String]| -> Vec<String> {
            let lines = lines.iter().skip(1).filter(|l| !l.starts_with("owners "));
            // Given back to the user meanwhile, and with the times of folders that somebody else has changed.
            lines
                .map(|l| {
                    l.split(' ')
                        .filter(|w| !w.starts_with("Some(sha256"))
                        .collect::<Vec<_>>()
                        .join(" ")
                })
                .map(|l| {
                    if l.contains(" 4") && l.split(' ').nth(1).is_some_and(|m| m.len() == 5) {
                        l.split(' ').take(2).collect::<Vec<_>>().join(" ")
                    } else {
                        l
                    }
                })
                .collect()
        };
        for (before, lines) in pictures.iter().rev() {
            undo_last(&fixture).unwrap_or_else(|f| panic!("{seed} {world:?}: {f}"));
            assert_eq!(content(&picture(&fixture.project)), content(before), "{seed} {world:?}");
            // What a later launch made of it is still there.
            let now = fixture.lines();
            assert!(now.len() >= lines.len().min(1), "{seed} {world:?} {now:#?}");
        }
    }
}

#[test]
fn paths_that_changed_since_are_named_and_nothing_is_undone() {
    let edits = [
        ("echo owner >> f", "f"),
        ("chmod 600 f", "f"),
        ("setfattr -n user.note -v x f", "f"),
        ("rm f", "f"),
        ("rm new; ln -s f new", "new"),
        ("echo back > gone", "gone"),
        ("echo more > d/n/more", "d/n/more"),
        ("mv d elsewhere", "d/n"),
        ("chmod 700 d/n", "d/n"),
        ("rm l; ln -s g l", "l"),
        ("chmod 644 m", "m"),
    ];
    let fixture = Fixture::new(
        World::UserKernel,
        "echo 1 > f; echo g > gone; mkdir d; echo d > d/keep; ln -s f l; echo m > m",
    );
    fixture.run(
        "echo 2 >> f; rm gone; echo n > new; mkdir d/n; echo x > d/n/x; ln -sfn new l; chmod 755 m",
    );
    land(&fixture).unwrap();
    let landed = picture(&fixture.project);
    sh(fixture.dir.path(), "cp -a project landed");
    for (edit, path) in edits {
        sh(&fixture.project, edit);
        let before = picture(&fixture.project);
        let failure = undo_last(&fixture).unwrap_err();
        assert_eq!(failure.kind, Kind::Conflict, "{edit}");
        let named = failure.message.split(": ").nth(1).unwrap().split(", ").any(|p| p == path);
        assert!(named, "{edit}: {}", failure.message);
        assert_eq!(picture(&fixture.project), before, "{edit}");
        sh(fixture.dir.path(), "cd project; find . -mindepth 1 -delete; cp -a ../landed/. .");
    }
    assert_eq!(picture(&fixture.project), landed);
    undo_last(&fixture).unwrap();
    assert_eq!(fixture.real().len(), 6);
}

#[test]
fn landings_are_undone_one_after_another_and_a_later_one_of_another_session_stands_in_the_way() {
    let fixture = Fixture::new(World::UserKernel, "echo 1 > f; echo 1 > g");
    let mut pictures = Vec::new();
    for n in 2..5 {
        pictures.push(picture(&fixture.project));
        fixture.run(&format!("echo {n} > f; echo {n} > new{n}"));
        land(&fixture).unwrap();
        fixture.give_back();
    }
    let target =
        |n: usize| Target(entry::of(&fixture.state, &abs(&fixture), Standing::Kept)[n].clone());
    let failure = undo(&fixture.state, &target(1), &fixture.key()).unwrap_err();
    assert_eq!(failure.kind, Kind::Conflict);
    assert!(failure.message.contains("landing 3"), "{}", failure.message);
    for before in pictures.iter().rev() {
        let last = find(&fixture.state, None, Some(&abs(&fixture))).unwrap();
        undo(&fixture.state, &last, &fixture.key()).unwrap();
        let names = |lines: &[String]| -> Vec<String> {
            lines.iter().skip(1).map(|l| l.split(' ').next().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&picture(&fixture.project)), names(before));
    }
    assert_eq!(fixture.real(), ["f f 644 1\n", "g f 644 1\n"]);
    // All of it is the session's again, the newest of each path.
    let lines = fixture.lines();
    assert_eq!(lines.len(), 4, "{lines:?}");
    land(&fixture).unwrap();
    assert!(fixture.real().contains(&"f f 644 4\n".to_owned()));
}

fn abs(fixture: &Fixture) -> AbsPath {
    AbsPath::from_path(&fixture.project).unwrap()
}

#[test]
fn what_had_landed_is_kept_where_the_session_is_gone() {
    for how in ["gone", "discarded"] {
        let fixture = Fixture::new(World::UserKernel, "echo 1 > f");
        fixture.run("echo 2 > f; echo n > new");
        land(&fixture).unwrap();
        if how == "gone" {
            fixture.state.remove(&fixture.session()).unwrap();
        } else {
            crate::land::discard::discard(&fixture.state, &fixture.id).unwrap();
        }
        let undone = undo_last(&fixture).unwrap();
        assert_eq!(fixture.real(), ["f f 644 1\n"]);
        let kept = undone.kept.unwrap();
        let mut held: Vec<Vec<u8>> = std::fs::read_dir(&kept)
            .unwrap()
            .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
            .collect();
        held.sort();
        assert_eq!(held, [b"2\n", b"n\n"]);
        assert!(sweep(&fixture.state, false).unwrap().is_empty());
        assert!(kept.exists());
    }
}

#[test]
fn a_failure_or_a_crash_at_any_step_of_an_undo_leaves_what_had_landed() {
    let fixture = Fixture::new(World::UserKernel, BASE);
    fixture.run(TASK);
    let (before, lines) = (picture(&fixture.project), fixture.lines());
    land(&fixture).unwrap();
    let landed = fixture.real();
    let target = find(&fixture.state, Some(fixture.id.as_str()), None).unwrap();
    let steps = target.0.detail(&fixture.state).unwrap().steps.len();
    assert!(steps > 40, "{steps}");
    for (crash, at) in (0..=steps).flat_map(|at| [(false, at), (true, at)]) {
        let mut stop = |index: usize| {
            if index != at {
                return Ok(());
            }
            assert!(!crash, "crashed on purpose");
            Err(Failure::new(Kind::Failed, "failed on purpose"))
        };
        if !crash && at == steps {
            continue;
        }
        match quietly(|| undo_with(&fixture.state, &target, &fixture.key(), &mut stop)) {
            Ok(result) => assert_eq!(result.unwrap_err().message, "failed on purpose"),
            Err(_) => assert!(recover(&fixture.state, &abs(&fixture)).unwrap().is_some()),
        }
        assert_eq!(fixture.real(), landed, "{crash} {at}");
    }
    undo_last(&fixture).unwrap();
    assert_eq!(fixture.lines(), lines);
    let without_folder_times = |lines: Vec<String>| -> Vec<String> {
        let is_folder = |l: &String| l.split(' ').nth(1).is_some_and(|mode| mode.len() == 5);
        lines.into_iter().skip(1).filter(|l| !is_folder(l)).collect()
    };
    assert_eq!(without_folder_times(picture(&fixture.project)), without_folder_times(before));
}

#[test]
fn old_and_too_much_undo_data_goes_and_the_last_landing_s_never_for_its_size() {
    let fixture = Fixture::new(World::UserKernel, "echo 1 > f");
    for n in 2..5 {
        fixture.run(&format!("echo {n} > f"));
        land(&fixture).unwrap();
        fixture.give_back();
    }
    let entries = || entry::of(&fixture.state, &abs(&fixture), Standing::Kept);
    assert!(sweep(&fixture.state, false).unwrap().is_empty());
    let mut big = entries()[1].clone();
    big.bytes = KEPT_BYTES;
    entry::write(&big.path(&fixture.state, Standing::Kept), &big).unwrap();
    assert_eq!(sweep(&fixture.state, true).unwrap().len(), 2);
    assert_eq!(entries().len(), 3);
    assert_eq!(sweep(&fixture.state, false).unwrap().len(), 2);
    let last = entries().pop().unwrap();
    assert_eq!(summary(&fixture.state, &fixture.id).unwrap().count, 1);
    let path = last.path(&fixture.state, Standing::Kept);
    sh(fixture.dir.path(), &format!("touch -d '31 days ago' {}", path.display()));
    assert_eq!(sweep(&fixture.state, false).unwrap().len(), 1);
    assert!(!last.store.as_path().exists());
    assert_eq!(summary(&fixture.state, &fixture.id), None);
    assert_eq!(undo_last(&fixture).unwrap_err().kind, Kind::Nothing);
}

#[test]
fn a_receipt_of_a_landing_and_one_of_its_undo_can_be_checked() {
    let fixture = Fixture::new(World::UserKernel, "echo 1 > f; echo g > g");
    fixture.run("echo 2 > f; rm g; mv f moved");
    let digest = fixture.review().digest;
    let landed = land(&fixture).unwrap();
    let undone = undo_last(&fixture).unwrap();
    let keys = crate::seal::trusted(&fixture.dir.path().join("config")).unwrap();
    let read = |path: &Path| {
        let verdict = crate::land::receipt::verify(&std::fs::read(path).unwrap(), &keys).unwrap();
        assert_eq!(verdict.fault, None);
        verdict.receipt.unwrap()
    };
    let (there, back) = (read(&landed.receipt), read(&undone.receipt));
    assert_eq!((there.changeset_digest, back.changeset_digest), (digest, digest));
    assert_eq!(there.changes.len(), back.changes.len());
    for (a, b) in there.changes.iter().zip(&back.changes) {
        assert_eq!((&a.path, &a.old, &a.new), (&b.path, &b.new, &b.old));
    }
    let listed = crate::land::receipt::of(&fixture.state, &fixture.id);
    assert_eq!(listed, [landed.receipt, undone.receipt]);
}

#[test]
fn what_comes_back_finds_its_folder_in_a_layer_that_lost_it() {
    for world in worlds() {
        let base = "mkdir -p d/sub; echo 1 > d/sub/f; echo 1 > d/g; setfattr -n user.note -v kept d; chmod 750 d/sub";
        let fixture = Fixture::new(world, base);
        let seen = fixture.run("echo 2 > d/sub/f; mkdir d/new; echo 2 > d/g");
        let (before, lines) = (fixture.real(), fixture.lines());
        let wanted = ["d/sub/f", "d/new"].map(|path| Wanted::new(path, None));
        let some = Selection { paths: wanted.to_vec(), ..Selection::default() };
        let review =
            crate::land::review::Review::of(&fixture.session(), None, some.clone()).unwrap();
        let shown = review.digest;
        drop(review);
        apply_these(&fixture, &some, &shown).unwrap();
        // The rest goes, and with it the last folder that the layer held on the way.
        land(&fixture).unwrap();
        let session = fixture.session();
        let layer = crate::land::layer::project_of(&session).unwrap();
        crate::land::apply::prune_equal(&fixture.state, &session, layer).unwrap();
        assert_eq!(std::fs::read_dir(session.upper(&layer.id)).unwrap().count(), 0, "{world:?}");
        let first = Target(entry::of(&fixture.state, &abs(&fixture), Standing::Kept)[0].clone());
        let undone = undo(&fixture.state, &first, &fixture.key()).unwrap();
        assert!(undone.pending && undone.kept.is_none(), "{world:?}: {undone:?}");
        undo_last(&fixture).unwrap();
        assert_eq!(fixture.real(), before, "{world:?}");
        assert_eq!(fixture.lines(), lines, "{world:?}");
        fixture.give_back();
        assert_eq!(fixture.run("true"), seen, "{world:?}");
    }
}

#[test]
fn what_a_landing_cut_short_left_in_the_layer_comes_back_with_its_undo_although_the_session_went_on()
 {
    for world in worlds() {
        let fixture = Fixture::new(world, "echo 1 > f; echo g > gone; mkdir d; echo x > d/x");
        let seen =
            fixture.run("echo 2 > f; rm gone; rm -r d; mkdir d; echo n > d/n; echo new > new");
        let (before, lines) = (picture(&fixture.project), fixture.lines());
        land(&fixture).unwrap();
        // As if it had been killed before the layer was looked at.
        let session = fixture.session();
        let layer = crate::land::layer::project_of(&session).unwrap();
        let upper = Tree::open(&session.upper(&layer.id)).unwrap();
        let parts = parts::parts_of(&fixture.state.sessions_dir(), &fixture.id, 1);
        back::put_back(&parts, &upper, layer.backend, &Tree::open(&fixture.project).unwrap())
            .unwrap();
        crate::land::forget_landed(&fixture.state, &session);
        fixture.give_back();
        assert_eq!(fixture.lines(), [""; 0], "{world:?}");
        let undone = undo_last(&fixture).unwrap();
        assert!(undone.pending && undone.kept.is_none(), "{world:?}: {undone:?}");
        assert_eq!(picture(&fixture.project), before, "{world:?}");
        assert_eq!(fixture.lines(), lines, "{world:?}");
        fixture.give_back();
        assert_eq!(fixture.run("true"), seen, "{world:?}");
    }
}

#[test]
fn a_folder_that_left_the_layer_as_one_comes_back_into_the_one_that_the_session_has_made_since() {
    for world in worlds() {
        let base = "mkdir -p d/sub; echo 1 > d/sub/x; echo 1 > d/sub/y; echo 1 > d/k";
        let fixture = Fixture::new(world, base);
        fixture.run("echo 2 > d/sub/x; rm d/sub/y; echo n > d/new; mkdir -p o/p; echo o > o/p/q");
        let lines = fixture.lines();
        land(&fixture).unwrap();
        let parts = parts::parts_of(&fixture.state.sessions_dir(), &fixture.id, 1);
        let left = std::fs::read(parts.join("names")).unwrap();
        assert_eq!(String::from_utf8(left).unwrap(), "d\0o\0", "{world:?}");
        fixture.give_back();
        fixture.run("echo 3 > d/sub/z; echo 4 > d/k");
        let undone = undo_last(&fixture).unwrap();
        assert!(undone.pending && undone.kept.is_none(), "{world:?}: {undone:?}");
        let found = fixture.lines();
        let new: Vec<&String> = found.iter().filter(|line| !lines.contains(line)).collect();
        assert!(lines.iter().all(|line| found.contains(line)), "{world:?}: {found:?}");
        assert_eq!(new.len(), 2, "{world:?}: {found:?}");
        fixture.give_back();
        let seen = fixture.run("cat d/sub/x d/sub/z d/k d/new o/p/q > all; ls d/sub > names");
        assert!(!seen.iter().any(|line| line.starts_with("d/sub/y ")), "{world:?}: {seen:?}");
        fixture.run("test \"$(cat all)\" = \"$(printf '2\\n3\\n4\\nn\\no')\" && test \"$(cat names)\" = \"$(printf 'x\\nz')\"");
    }
}

/// Lands while the session counts as running.
fn land_live(fixture: &Fixture) {
    let session = fixture.session();
    let running = session.attend().unwrap().unwrap();
    land(fixture).unwrap();
    drop(running);
    fixture.give_back();
}

#[test]
fn what_was_deleted_made_again_and_removed_stays_deleted_when_its_landing_is_undone() {
    for world in worlds() {
        for (later, added) in [
            ("mkdir d; rmdir d; echo t > f; rm f; echo t > e/f; rm e/f", None),
            (
                "mkdir d; rmdir d; mkdir d; echo n > d/n; echo t > e/f; rm -r e; mkdir e",
                Some("d/n"),
            ),
        ] {
            let base = "mkdir -p d/sub e; echo 1 > d/x; echo 2 > d/sub/y; echo f > f; echo f > e/f; echo k > e/k";
            let fixture = Fixture::new(world, base);
            fixture.run("rm -r d; rm f e/f e/k; echo 2 > e/k");
            let (before, lines) = (fixture.real(), fixture.lines());
            land_live(&fixture);
            let seen = fixture.run(later);
            let undone = undo_last(&fixture).unwrap();
            assert_eq!(fixture.real(), before, "{world:?}");
            let found = fixture.lines();
            let is = |line: &&String| line.contains("deleted");
            assert!(
                lines.iter().filter(is).all(|line| found.contains(line)),
                "{world:?}: {found:#?}"
            );
            if let Some(path) = added {
                assert!(found.iter().any(|line| line.ends_with(path)), "{world:?}: {found:#?}");
            }
            assert!(undone.pending, "{world:?}: {undone:?}");
            assert_eq!(fixture.run("true"), seen, "{world:?}");
        }
    }
}

#[test]
fn a_replaced_folder_comes_back_around_what_the_session_has_made_in_it_since() {
    for world in worlds() {
        let base =
            "mkdir -p d/sub; for f in d/sub/x d/sub/y d/k d/old d/same; do echo 1 > $f; done";
        let fixture = Fixture::new(world, base);
        let replace = "rm -r d; mkdir -p d/sub d/more; echo 1 > d/same; for f in d/sub/x d/k d/new d/gone d/more/m; do echo 2 > $f; done";
        fixture.run(replace);
        let lines = fixture.lines();
        land(&fixture).unwrap();
        let parts = parts::parts_of(&fixture.state.sessions_dir(), &fixture.id, 1);
        let left = std::fs::read(parts.join("names")).unwrap();
        assert_eq!(String::from_utf8(left).unwrap(), "d\0", "{world:?}");
        fixture.give_back();
        let seen = fixture.run(
            "echo 3 > d/sub/z; echo 3 > d/k; rm d/gone; mkdir -p d/deep/er; echo 3 > d/deep/er/f",
        );
        undo_last(&fixture).unwrap();
        let mut expected: Vec<String> =
            lines.into_iter().filter(|line| !line.ends_with(" d/gone")).collect();
        expected.extend(
            ["d/sub/z", "d/deep/er/f"].map(|path| format!("added -:- -> file:0644 {path}")),
        );
        let mut found = fixture.lines();
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{world:?}");
        fixture.give_back();
        assert_eq!(fixture.run("true"), seen, "{world:?}");
        // Once more, and it is what the session left.
        land(&fixture).unwrap();
        assert_eq!(fixture.real(), seen, "{world:?}");
    }
}
