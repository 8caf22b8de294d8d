//! Reviews by hand, without a hand.

use super::*;
use crate::land::changeset::{Base, Change, Node};
use crate::land::content::digest_of;
use crate::land::hunks::{TextChange, Wish};
use crate::land::kind::{ChangeKind, ChangeState, Group};
use crate::land::select::Reviewed;
use landbox_shared::id::LayerId;
use landbox_shared::path::RelPath;

fn node(mode: u32, text: &str) -> Node {
    Node::File { mode, size: text.len() as u64, digest: digest_of(text.as_bytes()) }
}

fn item(path: &str, old: Option<(u32, &str)>, new: Option<(u32, &str)>) -> Item {
    let kind = match (old, new) {
        (None, _) => ChangeKind::Added,
        (_, None) => ChangeKind::Deleted,
        (Some(_), Some(_)) => ChangeKind::Modified,
    };
    let change = Change {
        layer: LayerId::new("project").unwrap(),
        path: RelPath::new(path).unwrap(),
        kind,
        old_path: None,
        old: old.map_or(Base::Absent, |(mode, text)| Base::Known(node(mode, text))),
        new: new.map(|(mode, text)| node(mode, text)),
        group: Group::Project,
        state: ChangeState::Clean,
        landable: true,
        reason: None,
    };
    let text =
        new.map(|(_, new)| TextChange::new(old.map_or("", |(_, old)| old).into(), new.into()));
    Item { change, text }
}

fn numbered(count: usize) -> String {
    (0..count).map(|n| format!("line {n}\n")).collect()
}

/// Two hunks, the first of two parts; a file that goes; a new one.
fn desk() -> Desk {
    let old = numbered(40);
    let new =
        old.replace("line 3\n", "three\n").replace("line 8\n", "").replace("line 30\n", "30\n");
    Desk::new(vec![
        item("a", Some((0o644, &old)), Some((0o755, &new))),
        item("b", Some((0o644, "x\n")), None),
        item("c", None, Some((0o600, "new\ntext\n"))),
    ])
}

fn press(desk: &mut Desk, keys: &str) -> Done {
    let mut done = Done::Moved;
    for key in keys.split(' ') {
        done = desk.press(&Key::parse(key).unwrap());
    }
    done
}

fn picked(desk: &Desk) -> (Vec<String>, Reviewed) {
    let picked = desk.picked();
    let mut paths: Vec<String> = picked.paths.keys().map(ToString::to_string).collect();
    paths.sort();
    (paths, picked)
}

fn part<'a>(reviewed: &'a Reviewed, path: &str) -> &'a crate::land::select::Part {
    &reviewed.parts[&RelPath::new(path).unwrap()]
}

#[test]
fn yes_to_everything_picks_whole_changes() {
    let mut desk = desk();
    assert_eq!(desk.questions().len(), 5);
    assert_eq!(press(&mut desk, "y y y y y"), Done::Finished);
    let (paths, reviewed) = picked(&desk);
    assert_eq!((paths, reviewed.parts.len()), (vec!["a".into(), "b".into(), "c".into()], 0));
}

#[test]
fn no_to_everything_and_stopping_at_once_pick_nothing() {
    for keys in ["n n n n n", "d d d", "q"] {
        let mut desk = desk();
        assert_eq!(press(&mut desk, keys), Done::Finished, "{keys}");
        assert!(desk.picked().paths.is_empty(), "{keys}");
    }
}

#[test]
fn a_file_can_be_decided_on_from_here_on() {
    let mut desk = desk();
    press(&mut desk, "n a d q");
    let (paths, reviewed) = picked(&desk);
    assert_eq!(paths, ["a"]);
    // All hunks, but not the mode.
    let Node::File { mode, .. } = part(&reviewed, "a").node() else { panic!() };
    assert_eq!(mode, 0o644);
    assert!(part(&reviewed, "a").bytes().windows(3).any(|w| w == b"30\n"));
}

#[test]
fn a_split_hunk_is_decided_on_in_parts() {
    let mut desk = desk();
    assert_eq!(desk.press(&Key::Split), Done::Not("this can't be split any more"));
    press(&mut desk, "n s y n n q");
    let (paths, reviewed) = picked(&desk);
    assert_eq!(paths, ["a"]);
    let expected = numbered(40).replace("line 3\n", "three\n");
    assert_eq!(part(&reviewed, "a").bytes(), expected.as_bytes());
}

#[test]
fn an_edited_hunk_is_what_lands() {
    let mut desk = desk();
    press(&mut desk, "y");
    let (question, _) = desk.current().unwrap();
    let text = String::from_utf8(desk.hunk(question).unwrap()).unwrap();
    let wish = desk.edited(text.replace("+three", "+THREE").as_bytes()).unwrap().unwrap();
    assert!(desk.edited(text.replace("-line 3", "-line three").as_bytes()).is_err());
    desk.answer(wish);
    press(&mut desk, "n q");
    let (_, reviewed) = picked(&desk);
    let expected = numbered(40).replace("line 3\n", "THREE\n").replace("line 8\n", "");
    assert_eq!(part(&reviewed, "a").bytes(), expected.as_bytes());
}

#[test]
fn the_owner_goes_back_and_forth_and_finds_text() {
    let mut desk = desk();
    assert_eq!(press(&mut desk, "K"), Done::Not("this is the first one"));
    press(&mut desk, "/text");
    assert_eq!(desk.at(), 4);
    press(&mut desk, "/30");
    assert_eq!(desk.at(), 2);
    press(&mut desk, "y");
    assert_eq!(desk.at(), 3);
    press(&mut desk, "k");
    assert_eq!(desk.at(), 1);
    press(&mut desk, "j");
    assert_eq!(desk.at(), 3);
    press(&mut desk, "K");
    assert_eq!(desk.at(), 2);
    press(&mut desk, "g1");
    assert_eq!(desk.at(), 0);
    assert!(matches!(press(&mut desk, "g9"), Done::Not(_)));
    assert!(matches!(press(&mut desk, "/nowhere"), Done::Not(_)));
    // The last one answered leads back to the open ones.
    press(&mut desk, "g5 y");
    assert_eq!(desk.at(), 0);
}

#[test]
fn only_a_single_letter_is_an_answer() {
    for line in ["", "\n", "yes", "y n", "Y", "x", "gx", "\u{1b}[A"] {
        assert_eq!(Key::parse(line), None, "{line:?}");
    }
    assert_eq!(Key::parse(" y \n"), Some(Key::Yes));
    assert_eq!(Key::parse("/ two words\n"), Some(Key::Search(Some(" two words".into()))));
}

#[test]
fn answers_are_remembered_and_changed_content_is_asked_about_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = desk();
    press(&mut first, "n s y n");
    Memory::open(dir.path()).keep(&first).unwrap();
    let mut again = desk();
    Memory::open(dir.path()).recall(&mut again);
    let said = |desk: &Desk| desk.questions().iter().map(|q| q.answer.clone()).collect::<Vec<_>>();
    let leave = Some(Wish::Leave);
    assert_eq!(said(&again), [leave.clone(), Some(Wish::Take), leave.clone(), None, None, None]);
    assert_eq!(again.at(), 3);
    // The same hunks further down are the same; one that changed is not.
    let old = format!("top\n{}", numbered(40));
    let new = old.replace("line 3\n", "three\n").replace("line 8\n", "eight\n");
    let mut moved = Desk::new(vec![item("a", Some((0o644, &old)), Some((0o755, &new)))]);
    Memory::open(dir.path()).recall(&mut moved);
    assert_eq!(said(&moved), [leave, Some(Wish::Take), None]);
    std::fs::write(dir.path().join("review.json"), "{").unwrap();
    Memory::open(dir.path()).recall(&mut again);
    assert!(said(&again).iter().all(Option::is_none));
}
