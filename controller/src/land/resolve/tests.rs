//! Owner and session meet: through a real overlay and a real landing.

use super::merge::{Merged, Merger};
use super::{Choice, Choices, Clash};
use crate::error::{Failure, Kind};
use crate::land::apply::Landed;
use crate::land::apply::tests::apply_these;
use crate::land::kind::ChangeState;
use crate::land::review::Review;
use crate::land::select::Selection;
use crate::land::testing::{Fixture, WORLDS, World, sh};
use landbox_shared::path::RelPath;
use proptest::prelude::*;
use std::path::Path;
use std::process::Command;

const LINES: &str = "printf '1\\n2\\n3\\n4\\n5\\n6\\n7\\n8\\n' > f";

fn selection(choices: &[(&str, Choice)]) -> Selection {
    let mut all = Choices::default();
    for (path, choice) in choices {
        all.set(RelPath::new(path.as_bytes()).unwrap(), *choice);
    }
    Selection { choices: all, ..Selection::default() }
}

fn land(fixture: &Fixture, choices: &[(&str, Choice)]) -> Result<Landed, Failure> {
    let digest = fixture.review().digest;
    apply_these(fixture, &selection(choices), &digest)
}

/// A session that edited, was looked at while all was clean, and whose owner then edited, too.
fn met(world: World, base: &str, task: &str, owner: &str) -> Fixture {
    let fixture = Fixture::new(world, base);
    fixture.run(task);
    drop(fixture.review());
    sh(&fixture.project, owner);
    fixture
}

fn states(fixture: &Fixture) -> Vec<(String, ChangeState)> {
    let review = Review::of(&fixture.session(), None, Selection::default()).unwrap();
    let card = review.card(&fixture.session()).unwrap();
    let name = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    card.changes.iter().map(|c| (name(&c.path), c.state)).collect()
}

#[test]
fn edits_of_other_lines_are_merged_and_then_nothing_is_left_of_the_change() {
    for world in WORLDS.into_iter().filter(|w| w.is_here()) {
        let fixture = met(world, LINES, "sed -i s/1/one/ f", "sed -i s/8/eight/ f");
        assert_eq!(states(&fixture), [("f".to_owned(), ChangeState::Merged)]);
        land(&fixture, &[]).unwrap();
        assert_eq!(fixture.real(), ["f f 644 one\n2\n3\n4\n5\n6\n7\neight\n"], "{world:?}");
        assert_eq!(fixture.lines(), [""; 0], "{world:?}");
        fixture.give_back();
        // A resumed session sees what was merged.
        assert_eq!(fixture.run("true"), fixture.real(), "{world:?}");
    }
}

#[test]
fn the_card_of_a_merge_shows_the_owners_text_changed_and_not_the_owners_edit_undone() {
    let fixture = met(World::UserKernel, LINES, "sed -i s/1/one/ f", "sed -i s/8/eight/ f");
    let review = fixture.review();
    let mut shown = Vec::new();
    let card = review.card_with_patch(&fixture.session(), &mut shown).unwrap();
    assert_eq!((card.added, card.deleted), (1, 1));
    let text = String::from_utf8(shown).unwrap();
    assert!(text.contains("-1\n+one\n") && !text.contains("eight"), "{text}");
    // The patch is made for the base.
    drop(review);
    let patch = String::from_utf8(fixture.patch()).unwrap();
    assert!(patch.contains("-1\n+one\n"), "{patch}");
}

#[test]
fn edits_of_the_same_line_stop_everything_until_the_owner_chooses() {
    let choices = [
        (Choice::Mine, "f f 644 mine\n2\n3\n4\n5\n6\n7\n8\n", "g f 644 2\n"),
        (Choice::Theirs, "f f 644 theirs\n2\n3\n4\n5\n6\n7\n8\n", "g f 644 2\n"),
        (
            Choice::Markers,
            "f f 644 <<<<<<< mine\nmine\n=======\ntheirs\n>>>>>>> theirs\n2\n3\n4\n5\n6\n7\n8\n",
            "g f 644 2\n",
        ),
        (Choice::Skip, "f f 644 mine\n2\n3\n4\n5\n6\n7\n8\n", "g f 644 2\n"),
    ];
    for (choice, f, g) in choices {
        let base = format!("{LINES}; echo 1 > g");
        let task = "sed -i s/1/theirs/ f; echo 2 > g";
        let fixture = met(World::UserKernel, &base, task, "sed -i s/1/mine/ f");
        let before = fixture.real();
        let failure = land(&fixture, &[]).unwrap_err();
        assert_eq!(failure.kind, Kind::Conflict);
        assert!(failure.message.contains("f (you and the session edited the same lines)"));
        assert_eq!(fixture.real(), before);
        land(&fixture, &[("f", choice)]).unwrap();
        assert_eq!(fixture.real(), [f, g], "{choice:?}");
        let left = if choice == Choice::Skip { 1 } else { 0 };
        assert_eq!(fixture.lines().len(), left, "{choice:?}: {:?}", fixture.lines());
    }
}

#[test]
fn a_choice_holds_only_for_what_the_owner_saw_when_they_made_it() {
    let fixture = met(World::UserKernel, LINES, "sed -i s/1/t/ f", "sed -i s/1/m/ f");
    let review = fixture.review();
    let (item, _) = review.resolution().open().next().unwrap();
    let seen = Some(item.expect.clone());
    let mut chosen = selection(&[("f", Choice::Theirs)]);
    chosen.choices.paths.values_mut().for_each(|c| c.seen = seen.clone());
    let digest = review.digest;
    drop(review);
    sh(&fixture.project, "echo later > f");
    let failure = apply_these(&fixture, &chosen, &digest).unwrap_err();
    assert_eq!(failure.kind, Kind::Conflict);
    assert_eq!(fixture.real(), ["f f 644 later\n"]);
}

#[test]
fn one_sides_mode_and_the_other_sides_content_go_together() {
    for (task, owner) in [("chmod 755 f", "echo 9 >> f"), ("echo 9 >> f", "chmod 755 f")] {
        let fixture = met(World::UserKernel, "echo 1 > f", task, owner);
        land(&fixture, &[]).unwrap();
        assert_eq!(fixture.real(), ["f f 755 1\n9\n"], "{task}");
        assert_eq!(fixture.lines(), [""; 0]);
    }
    let fixture = met(World::UserKernel, "echo 1 > f", "chmod 755 f", "chmod 600 f");
    assert_eq!(land(&fixture, &[]).unwrap_err().kind, Kind::Conflict);
}

#[test]
fn the_same_change_on_both_sides_is_no_conflict_even_where_nobody_knows_the_base() {
    for known in [true, false] {
        let fixture = Fixture::new(World::UserKernel, "echo 1 > f; echo g > g; echo h > h");
        fixture.run("echo 2 > f; rm g; echo n > n; chmod 600 h");
        if known {
            drop(fixture.review());
        }
        sh(&fixture.project, "echo 2 > f; rm g; echo n > n; chmod 600 h");
        let before = fixture.real();
        let landed = land(&fixture, &[]).map(drop).map_err(|failure| failure.kind);
        // Where nothing is known of the base, what both sides share is no change at all.
        assert_eq!(landed, if known { Ok(()) } else { Err(Kind::Nothing) });
        assert_eq!((fixture.real(), fixture.lines()), (before, Vec::new()), "{known}");
    }
}

#[test]
fn an_edit_of_a_file_that_the_session_moved_goes_along() {
    let base = "mkdir d; printf '1\\n2\\n3\\n' > d/old";
    let fixture = met(World::UserKernel, base, "mkdir e; mv d/old e/new", "echo 4 >> d/old");
    land(&fixture, &[]).unwrap();
    assert_eq!(fixture.real(), ["d d 755", "e d 755", "e/new f 644 1\n2\n3\n4\n"]);
    assert_eq!(fixture.lines(), [""; 0]);
}

#[test]
fn nothing_the_owner_deleted_comes_back_and_nothing_they_put_there_goes_unasked() {
    let rows = [
        // Task, owner, what "theirs" gives (empty: it can't be had).
        ("echo 2 > d/f", "rm d/f", "d d 755|d/f f 644 2\n|d/g f 644 g\n"),
        ("echo 2 > d/f", "rm d/f; mkdir d/f; echo x > d/f/x", ""),
        ("echo 2 > d/f", "rm d/f; ln -s g d/f", "d d 755|d/f f 644 2\n|d/g f 644 g\n"),
        ("echo 2 > d/f", "rm -r d", "d d 755|d/f f 644 2\n"),
        ("echo 2 > d/f", "rm -r d; echo file > d", ""),
        ("rm d/f", "echo 2 > d/f", "d d 755|d/g f 644 g\n"),
        ("rm -r d", "echo 2 > d/f", ""),
        ("echo n > d/n", "rm -r d", "d d 755|d/n f 644 n\n"),
        ("echo n > d/n", "echo m > d/n", "d d 755|d/f f 644 f\n|d/g f 644 g\n|d/n f 644 n\n"),
        ("rm -r d; echo file > d", "echo new > d/new", ""),
        ("mkdir n; echo n > n/n", "echo file > n", ""),
    ];
    for (task, owner, theirs) in rows {
        let fixture = met(World::UserKernel, "mkdir d; echo f > d/f; echo g > d/g", task, owner);
        let before = fixture.real();
        let failure = land(&fixture, &[]).unwrap_err();
        assert_eq!(failure.kind, Kind::Conflict, "{task}; {owner}");
        assert_eq!(fixture.real(), before, "{task}; {owner}");
        let digest = fixture.review().digest;
        let chosen = |choice| Selection {
            choices: Choices { all: Some(choice), ..Choices::default() },
            ..Selection::default()
        };
        if task == "rm -r d" {
            // The folder's other file goes; what it was deleted with is asked for.
            apply_these(&fixture, &chosen(Choice::Theirs), &digest).unwrap();
            assert_eq!(fixture.real(), [""; 0]);
        } else if theirs.is_empty() {
            let tried = apply_these(&fixture, &chosen(Choice::Theirs), &digest);
            assert_eq!(tried.unwrap_err().kind, Kind::Conflict, "{task}; {owner}");
            assert_eq!(fixture.real(), before, "{task}; {owner}");
            apply_these(&fixture, &chosen(Choice::Mine), &digest).unwrap();
            assert_eq!(fixture.lines(), [""; 0], "{task}; {owner}");
            assert_eq!(fixture.real(), before, "{task}; {owner}");
        } else {
            apply_these(&fixture, &chosen(Choice::Theirs), &digest).unwrap();
            assert_eq!(fixture.real().join("|"), theirs, "{task}; {owner}");
            assert_eq!(fixture.lines(), [""; 0], "{task}; {owner}");
        }
    }
}

#[test]
fn binary_content_and_links_are_never_merged() {
    let base = "printf '\\0\\1' > b; ln -s x l; mkdir m";
    let task = "printf '\\0\\2' > b; ln -sfn y l; chmod 700 m";
    let fixture =
        met(World::UserKernel, base, task, "printf '\\0\\3' > b; ln -sfn z l; chmod 711 m");
    let states = states(&fixture);
    assert_eq!(states.len(), 3);
    assert!(states.iter().all(|(_, state)| *state == ChangeState::Conflict), "{states:?}");
    assert_eq!(land(&fixture, &[]).unwrap_err().kind, Kind::Conflict);
    let all = [("b", Choice::Theirs), ("l", Choice::Mine), ("m", Choice::Theirs)];
    land(&fixture, &all).unwrap();
    assert_eq!(fixture.real(), ["b f 644 \0\u{2}", "l l \"z\"", "m d 700"]);
}

fn merger(dir: &Path) -> Merger {
    Merger::new(dir, Path::new("/nonexistent"))
}

#[test]
fn no_configuration_around_the_scratch_folder_has_a_say() {
    let dir = tempfile::tempdir().unwrap();
    sh(
        dir.path(),
        "git init -q .; git config merge.conflictStyle diff3; echo '* merge=evil' > .gitattributes; \
                    git config merge.evil.driver 'touch ran'; git config core.fsmonitor 'touch ran'",
    );
    let merged = merger(dir.path()).merge(b"1\n", b"2\n", b"3\n").unwrap();
    let text = b"<<<<<<< mine\n2\n=======\n3\n>>>>>>> theirs\n".to_vec();
    assert_eq!(merged, Merged::Marked(text));
    assert!(!dir.path().join("ran").exists());
    let names = |dir: &Path| -> Vec<_> {
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect()
    };
    let left = names(dir.path());
    assert_eq!(left.len(), 3, "{left:?}");
    assert_eq!(names(&dir.path().join("scratch")).len(), 0);
}

#[test]
fn a_nul_near_the_start_of_any_of_them_makes_it_binary() {
    let dir = tempfile::tempdir().unwrap();
    for at in 0..3 {
        let mut texts = [b"a\n".to_vec(), b"a\n".to_vec(), b"a\n".to_vec()];
        texts[at].push(0);
        let merged = merger(dir.path()).merge(&texts[0], &texts[1], &texts[2]).unwrap();
        assert!(matches!(merged, Merged::Not(Clash::Content(_))));
    }
}

#[test]
fn a_folder_goes_with_what_the_owner_has_emptied_in_it() {
    for world in WORLDS.into_iter().filter(|w| w.is_here()) {
        let base = "mkdir -p d/e/f k; echo a > d/a; echo a > d/e/f/a; echo k > k/k";
        let fixture = met(world, base, "rm -r d", "rm d/e/f/a");
        land(&fixture, &[]).unwrap();
        assert_eq!(fixture.real(), ["k d 755", "k/k f 644 k\n"]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_is_merged_is_what_git_merge_file_gives(
        texts in prop::array::uniform3(prop::collection::vec(0_u8..6, 0..12)),
        crlf in prop::array::uniform3(any::<bool>()),
        ends in prop::array::uniform3(any::<bool>()),
    ) {
        let text = |at: usize| {
            let end = if crlf[at] { "\r\n" } else { "\n" };
            let lines: Vec<String> = texts[at].iter().map(|n| format!("line {n}{end}")).collect();
            let all = lines.concat();
            if ends[at] { all } else { all.trim_end().to_owned() }.into_bytes()
        };
        let [base, mine, theirs] = [text(0), text(1), text(2)];
        let dir = tempfile::tempdir().unwrap();
        let merged = merger(dir.path()).merge(&base, &mine, &theirs).unwrap();
        for (name, bytes) in [("mine", &mine), ("base", &base), ("theirs", &theirs)] {
            std::fs::write(dir.path().join(name), bytes).unwrap();
        }
        let git = Command::new("git")
            .args(["merge-file", "-p", "-q", "-L", "mine", "-L", "base", "-L", "theirs"])
            .args(["mine", "base", "theirs"])
            .env("GIT_CEILING_DIRECTORIES", dir.path().parent().unwrap())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .current_dir(dir.path())
            .output()
            .unwrap();
        let expected = match git.status.code() {
            Some(0) => Merged::Clean(git.stdout),
            _ => Merged::Marked(git.stdout),
        };
        prop_assert_eq!(merged, expected);
    }
}

#[test]
fn an_empty_folder_of_the_owner_s_is_in_the_way_of_a_file_only_if_the_session_never_saw_it() {
    let (base, task) = ("mkdir -p d/e; echo 1 > d/f", "rm -r d; echo file > d");
    for world in WORLDS.into_iter().filter(|w| w.is_here()) {
        // What the owner did; whether it lands where the base was known before, and where it was not.
        for (owner, known, unknown) in [
            ("true", true, true),
            ("touch d/e/x; rm d/e/x", true, true),
            ("touch d/x; rm d/x", true, true),
            ("touch d/x; rm d/x; touch d/e/x; rm d/e/x", true, false),
            ("rmdir d/e; mkdir d/e", true, false),
            ("mkdir d/new", false, false),
            ("mkdir -p d/e/new", false, false),
        ] {
            for (looked, lands) in [(true, known), (false, unknown)] {
                let fixture = Fixture::new(world, base);
                fixture.run(task);
                if looked {
                    drop(fixture.review());
                }
                sh(&fixture.project, owner);
                let before = fixture.real();
                let landed = land(&fixture, &[]);
                assert_eq!(landed.is_ok(), lands, "{world:?} {owner} {looked}");
                let there = if lands { vec!["d f 644 file\n".to_owned()] } else { before };
                assert_eq!(fixture.real(), there, "{world:?} {owner} {looked}");
            }
        }
    }
}
