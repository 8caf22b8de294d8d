//! Which changes a selection picks.

use super::*;
use crate::land::changeset::{Base, Node};
use crate::land::kind::{ChangeKind, ChangeState};
use landbox_shared::digest::Digest;
use landbox_shared::id::LayerId;
use landbox_shared::path::AbsPath;

fn file() -> Node {
    Node::File { mode: 0o644, size: 1, digest: Digest::of("test", &[]) }
}

fn folder() -> Node {
    Node::Dir { mode: 0o700 }
}

fn change(path: &str, old: Option<Node>, new: Option<Node>) -> Change {
    Change {
        layer: LayerId::new("project").unwrap(),
        path: RelPath::new(path).unwrap(),
        kind: ChangeKind::Modified,
        old_path: None,
        old: old.map_or(Base::Absent, Base::Known),
        new,
        group: Group::Project,
        state: ChangeState::Clean,
        landable: true,
        reason: None,
    }
}

fn set(mut changes: Vec<Change>) -> Changeset {
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    Changeset {
        layer: LayerId::new("project").unwrap(),
        target: AbsPath::new("/p").unwrap(),
        changes,
        folders: Vec::new(),
    }
}

fn at(paths: &[&str], cwd: &str) -> Selection {
    let cwd = AbsPath::new(cwd).ok();
    let wanted = |p: &&str| Wanted::new(p.as_bytes().to_vec(), cwd.clone());
    Selection { paths: paths.iter().map(wanted).collect(), ..Selection::default() }
}

fn id() -> SessionId {
    SessionId::new("aaaaaaaaaa").unwrap()
}

fn picked(selection: &Selection, set: &Changeset) -> Vec<String> {
    let picked = selection.pick(set, &id()).unwrap();
    set.changes.iter().filter(|c| picked.holds(c)).map(|c| c.path.to_string()).collect()
}

#[test]
fn paths_are_read_from_where_the_owner_stands_and_then_from_the_project() {
    let set = set(vec![
        change("a/x", None, Some(file())),
        change("x", None, Some(file())),
        change("b/y", None, Some(file())),
    ]);
    assert_eq!(picked(&at(&["x"], "/p/a"), &set), ["a/x"]);
    assert_eq!(picked(&at(&["../x"], "/p/a"), &set), ["x"]);
    assert_eq!(picked(&at(&["b"], "/p/a"), &set), ["b/y"]);
    assert_eq!(picked(&at(&["./b/"], "/elsewhere"), &set), ["b/y"]);
    assert_eq!(picked(&at(&["/p/b/y", "x"], "/p"), &set), ["b/y", "x"]);
    assert_eq!(picked(&at(&["."], "/p"), &set).len(), 3);
    assert_eq!(picked(&at(&["."], "/p/a"), &set), ["a/x"]);
}

#[test]
fn a_path_at_which_nothing_changed_is_named() {
    let set = set(vec![change("a", None, Some(file()))]);
    let failure = at(&["a", "nope\n"], "/p").pick(&set, &id()).unwrap_err();
    assert!(failure.message.contains("nope\\n"), "{}", failure.message);
    assert!(failure.hints[0].starts_with("landbox diff aaaaaaaaaa --stat"), "{:?}", failure.hints);
    assert!(at(&["../other"], "/p").pick(&set, &id()).is_err());
    assert!(at(&["/other"], "/p").pick(&set, &id()).is_err());
}

#[test]
fn a_rename_goes_by_either_of_its_names() {
    let mut renamed = change("new", Some(file()), Some(file()));
    renamed.kind = ChangeKind::Renamed;
    renamed.old_path = RelPath::new("old").ok();
    let set = set(vec![renamed, change("z", None, Some(file()))]);
    assert_eq!(picked(&at(&["old"], "/p"), &set), ["new"]);
    let exclude = Exclude::new(&["/old".into()]).unwrap();
    assert_eq!(picked(&Selection { exclude, ..Selection::default() }, &set), ["z"]);
}

#[test]
fn what_a_chosen_change_needs_comes_with_it() {
    let set = set(vec![
        change("d", None, Some(folder())),
        change("d/e", None, Some(folder())),
        change("d/e/f", None, Some(file())),
        change("d/g", None, Some(file())),
        change("h", Some(folder()), Some(file())),
        change("h/i", Some(file()), None),
    ]);
    assert_eq!(picked(&at(&["d/e/f"], "/p"), &set), ["d", "d/e", "d/e/f"]);
    let exclude = Exclude::new(&["i".into(), "d/**".into(), "/d".into()]).unwrap();
    assert_eq!(picked(&Selection { exclude, ..Selection::default() }, &set), ["h", "h/i"]);
}

#[test]
fn one_group_alone_can_be_asked_for() {
    let mut built = change("target/a", None, Some(file()));
    built.group = Group::Ignored;
    let mut git = change(".git/index", None, Some(file()));
    git.group = Group::Git;
    let set = set(vec![built, git, change("src", None, Some(file()))]);
    let only = |only| Selection { only, ..Selection::default() };
    assert_eq!(picked(&only(None), &set), ["src"]);
    assert_eq!(picked(&only(Some(Group::Ignored)), &set), ["target/a"]);
    assert_eq!(picked(&only(Some(Group::Git)), &set), [".git/index"]);
    let with = Selection { with_ignored: true, ..Selection::default() };
    assert_eq!(picked(&with, &set), ["src", "target/a"]);
}
