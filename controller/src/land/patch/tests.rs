//! The patch against git itself: what `git apply` makes of it is the wanted tree.

use super::super::kind::{ChangeKind, ChangeState, EntryType, Group};
use super::*;
use landbox_shared::digest::Digest;
use landbox_shared::id::LayerId;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::Seek;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    File { mode: u32, content: Vec<u8> },
    Link(Vec<u8>),
}

type Tree = BTreeMap<Vec<u8>, Item>;

fn file(content: &[u8]) -> Item {
    Item::File { mode: 0o644, content: content.to_vec() }
}

fn script(content: &[u8]) -> Item {
    Item::File { mode: 0o755, content: content.to_vec() }
}

fn link(target: &[u8]) -> Item {
    Item::Link(target.to_vec())
}

fn tree<const N: usize>(items: [(&[u8], Item); N]) -> Tree {
    items.into_iter().map(|(path, item)| (path.to_vec(), item)).collect()
}

impl Item {
    fn node(&self) -> Node {
        match self {
            Self::File { mode, content } => Node::File {
                mode: *mode,
                size: content.len() as u64,
                digest: Digest::of("test", &[content]),
            },
            Self::Link(target) => Node::Symlink { target: target.clone() },
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::File { content, .. } => content.clone(),
            Self::Link(target) => target.clone(),
        }
    }

    fn open(&self) -> File {
        let Self::File { content, .. } = self else { panic!("a link has no bytes") };
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file.rewind().unwrap();
        file
    }
}

struct Trees<'a> {
    old: &'a Tree,
    new: &'a Tree,
}

impl Bodies for Trees<'_> {
    fn old_bytes(&self, change: &Change) -> Result<Option<OldBytes>> {
        let path = change.old_path.as_ref().unwrap_or(&change.path);
        // As the base store gives small files, and the real tree large ones.
        let object = &self.old[path.as_bytes()];
        Ok(Some(match object {
            Item::File { content, .. } if content.len() < 4096 => OldBytes::Kept(content.clone()),
            Item::File { .. } | Item::Link(_) => OldBytes::Real(object.open()),
        }))
    }

    fn new_bytes(&self, change: &Change) -> Result<File> {
        Ok(self.new[change.path.as_bytes()].open())
    }
}

fn change(path: &[u8], kind: ChangeKind, old: Base, new: Option<Node>) -> Change {
    Change {
        layer: LayerId::new("project").unwrap(),
        path: RelPath::new(path).unwrap(),
        kind,
        old_path: None,
        old,
        new,
        group: Group::Project,
        state: ChangeState::Clean,
        landable: true,
        reason: None,
    }
}

fn changes(old: &Tree, new: &Tree) -> Vec<Change> {
    let paths: BTreeSet<&Vec<u8>> = old.keys().chain(new.keys()).collect();
    paths
        .into_iter()
        .filter(|path| old.get(*path) != new.get(*path))
        .map(|path| {
            let base = old.get(path).map_or(Base::Absent, |item| Base::Known(item.node()));
            change(path, ChangeKind::Modified, base, new.get(path).map(Item::node))
        })
        .collect()
}

fn patch_of(changes: &[Change], bodies: &dyn Bodies) -> (Vec<u8>, Vec<Figures>) {
    let mut out = Vec::new();
    let mut writer = PatchWriter::new(&mut out);
    let figures = changes.iter().map(|c| writer.add(c, bodies).unwrap()).collect();
    writer.finish().unwrap();
    (out, figures)
}

fn lay(root: &Path, tree: &Tree) {
    for (path, item) in tree {
        let path = root.join(OsStr::from_bytes(path));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match item {
            Item::File { mode, content } => {
                fs::write(&path, content).unwrap();
                fs::set_permissions(&path, Permissions::from_mode(*mode)).unwrap();
            }
            Item::Link(target) => symlink(OsStr::from_bytes(target), &path).unwrap(),
        }
    }
}

fn read(root: &Path, at: &Path, tree: &mut Tree) {
    for entry in fs::read_dir(root.join(at)).unwrap() {
        let name = at.join(entry.unwrap().file_name());
        let path = root.join(&name);
        let meta = fs::symlink_metadata(&path).unwrap();
        let item = if meta.is_symlink() {
            Item::Link(fs::read_link(&path).unwrap().into_os_string().into_vec())
        } else if meta.is_dir() {
            if name != Path::new(".git") {
                read(root, &name, tree);
            }
            continue;
        } else {
            let mode = if meta.mode() & 0o100 == 0 { 0o644 } else { 0o755 };
            Item::File { mode, content: fs::read(&path).unwrap() }
        };
        tree.insert(name.into_os_string().into_vec(), item);
    }
}

fn git(root: &Path, args: &[&str], input: &[u8]) -> Result<Vec<u8>, String> {
    let mut child = Command::new("git")
        .args(args)
        .current_dir(root)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", root.parent().unwrap())
        .env("GIT_CEILING_DIRECTORIES", root.parent().unwrap())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Small patches only: git reads all of its input before it writes.
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Applies the patch from `old` to `new` and back and gives the patch.
fn check(old: &Tree, new: &Tree) -> Result<String, String> {
    let (patch, figures) = patch_of(&changes(old, new), &Trees { old, new });
    let text = String::from_utf8_lossy(&patch).into_owned();
    for (change, with_text) in changes(old, new).iter().zip(figures) {
        let alone = super::figures(change, &Trees { old, new }).unwrap();
        assert_eq!(alone, with_text, "figures depend on the patch being written");
    }
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("project");
    fs::create_dir(&root).unwrap();
    lay(&root, old);
    if patch.is_empty() {
        return if old == new { Ok(text) } else { Err("the patch is empty".into()) };
    }
    let explain = |what: &str, e: String| format!("{what}: {e}\n{text}");
    git(&root, &["apply", "--check", "-"], &patch).map_err(|e| explain("check", e))?;
    git(&root, &["apply", "-"], &patch).map_err(|e| explain("apply", e))?;
    let mut got = Tree::new();
    read(&root, Path::new(""), &mut got);
    if got != *new {
        return Err(explain("tree differs", format!("{got:?}\nwanted {new:?}")));
    }
    git(&root, &["apply", "-R", "-"], &patch).map_err(|e| explain("reverse", e))?;
    let mut got = Tree::new();
    read(&root, Path::new(""), &mut got);
    // Git itself brings a deleted executable or link back as a plain file, so the way back is compared by bytes.
    let bytes = |tree: &Tree| -> Vec<Vec<u8>> { tree.values().map(Item::bytes).collect() };
    if bytes(&got) == bytes(old) {
        Ok(text)
    } else {
        Err(explain("reversed tree differs", format!("{got:?}")))
    }
}

#[track_caller]
fn holds<const O: usize, const N: usize>(
    old: [(&[u8], Item); O],
    new: [(&[u8], Item); N],
) -> String {
    check(&tree(old), &tree(new)).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn text_without_a_final_line_end_applies() {
    holds([(b"a", file(b"x\ny"))], [(b"a", file(b"x\nz"))]);
    holds([(b"a", file(b"x\ny"))], [(b"a", file(b"x\ny\n"))]);
    holds([(b"a", file(b"x\ny\n"))], [(b"a", file(b"x\ny"))]);
    holds([(b"a", file(b"1\n2\n3\n4\nx"))], [(b"a", file(b"0\n2\n3\n4\nx"))]);
}

#[test]
fn carriage_returns_and_header_like_lines_apply() {
    holds([(b"q.sql", file(b"-- foo\r\n-- bar\r\n"))], [(b"q.sql", file(b"-- bar\r\n++ baz\n"))]);
    holds(
        [(b"a", file(b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n"))],
        [(b"a", file(b"diff --git a/b b/b\n"))],
    );
    holds([(b"a", file(b"\\ No newline at end of file\n"))], [(b"a", file(b"\\ x"))]);
    holds([(b"a", file(b"a \t\n\n"))], [(b"a", file(b"a\n \t\n\n\n\n"))]);
}

#[test]
fn empty_files_come_and_go() {
    let patch = holds([(b"gone", file(b""))], [(b"come", file(b"")), (b"run", script(b""))]);
    assert!(patch.contains("new file mode 100755\nindex 0000000000000000000000000000000000000000..e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\n"));
    holds([(b"a", file(b""))], [(b"a", file(b"x"))]);
    holds([(b"a", file(b"x\n"))], [(b"a", file(b""))]);
}

#[test]
fn modes_change_alone_and_with_content() {
    let patch = holds([(b"a", file(b"x\n"))], [(b"a", script(b"x\n"))]);
    assert_eq!(patch, "diff --git a/a b/a\nold mode 100644\nnew mode 100755\n");
    holds([(b"a", script(b"x\n"))], [(b"a", file(b"y\n"))]);
    holds([(b"a", script(b"\0"))], [(b"a", file(b"\0\0"))]);
}

#[test]
fn links_carry_their_target_and_nothing_behind_it() {
    let patch = holds(
        [(b"current", link(b"v1")), (b"old", link(b"/etc/passwd"))],
        [(b"current", link(b"v2")), (b"odd", link(b"x\nname")), (b"dangling", link(b"/nope"))],
    );
    assert!(
        patch.contains("index 2e9ba477f89e5e3d2b4f6a3b1a5b0e6d9d2f2c0a")
            || patch.contains(" 120000\n")
    );
    assert!(!patch.contains("root:"));
}

#[test]
fn types_change() {
    holds([(b"a", file(b"x\n"))], [(b"a", link(b"x"))]);
    holds([(b"a", link(b"x"))], [(b"a", script(b"x"))]);
    holds([(b"a", file(b"x\n"))], [(b"a/b", file(b"x\n")), (b"a/c", link(b"b"))]);
    holds([(b"a/b", file(b"x\n")), (b"a/c/d", file(b""))], [(b"a", file(b"x\n"))]);
    holds([(b"a", link(b"d")), (b"d/b", file(b"1"))], [(b"a/b", file(b"2")), (b"d/b", file(b"1"))]);
    holds([(b"a/b", file(b"2")), (b"d/b", file(b"1"))], [(b"a", link(b"d")), (b"d/b", file(b"1"))]);
    holds([(b"a", file(b"\0"))], [(b"a", link(b"x"))]);
}

#[test]
fn binary_content_applies_both_ways() {
    let noise: Vec<u8> =
        (0..3_000_000u32).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let patch = holds(
        [(b"logo.bin", file(b"\0\x01")), (b"gone", file(b"\0")), (b"t", file(b"text\n"))],
        [(b"logo.bin", file(&noise)), (b"new", script(b"\0\0")), (b"t", file(b"te\0xt\n"))],
    );
    assert!(patch.contains("GIT binary patch\nliteral 3000000\n"));
}

#[test]
fn names_that_need_quoting_apply() {
    let names: [&[u8]; 17] = [
        b"sp ace.txt",
        b"tab\tname",
        b"nl\nname",
        "é.txt".as_bytes(),
        b"\xff\xfe.bin",
        b"q\"q",
        b"b/ c",
        b"-rf",
        b" lead",
        b"a b/b",
        b"trail ",
        b"end /x",
        b"x b/x",
        b"back\\slash",
        b"\x7f\x1b[2J",
        b"a/a b/b a/a",
        b"\"quoted\"",
    ];
    for content in [&b"1\n"[..], b"", b"\0"] {
        let all: Tree = names.iter().map(|n| (n.to_vec(), script(content))).collect();
        check(&Tree::new(), &all).unwrap_or_else(|e| panic!("{e}"));
        check(&all, &Tree::new()).unwrap_or_else(|e| panic!("{e}"));
        let other = names.iter().map(|n| (n.to_vec(), file(content))).collect();
        check(&all, &other).unwrap_or_else(|e| panic!("{e}"));
        let other = names.iter().map(|n| (n.to_vec(), file(b"2"))).collect();
        check(&all, &other).unwrap_or_else(|e| panic!("{e}"));
        let other = names.iter().map(|n| (n.to_vec(), link(n))).collect();
        check(&all, &other).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn a_rename_is_written_as_going_and_coming_and_counts_no_lines() {
    let (old, new) = (tree([(b"a", file(b"x\ny\n"))]), tree([(b"b", file(b"x\ny\n"))]));
    let node = Some(old[&b"a"[..]].node());
    let mut renamed = change(b"b", ChangeKind::Renamed, Base::Known(node.clone().unwrap()), node);
    renamed.old_path = Some(RelPath::new("a").unwrap());
    let (patch, figures) = patch_of(&[renamed], &Trees { old: &old, new: &new });
    assert_eq!((figures[0].added, figures[0].deleted), (Some(0), Some(0)));
    let (plain, _) = patch_of(&changes(&old, &new), &Trees { old: &old, new: &new });
    assert_eq!(patch, plain);
}

#[test]
fn what_a_patch_cannot_say_is_named_and_left_out() {
    let bodies = Trees { old: &Tree::new(), new: &Tree::new() };
    let known = |node: &Node| Base::Known(node.clone());
    let dir = Node::Dir { mode: 0o755 };
    let pipe = Node::Special { kind: EntryType::Fifo, mode: 0o644 };
    let of = |mode: u32, content: &str| Node::File {
        mode,
        size: 0,
        digest: Digest::of("test", &[content.as_bytes()]),
    };
    let unreadable = Node::Unreadable { kind: EntryType::File, mode: 0 };
    let cases = [
        (Base::Absent, Some(dir.clone()), Coverage::NotType, Some(0)),
        (known(&dir), None, Coverage::NotType, Some(0)),
        (known(&dir), Some(Node::Dir { mode: 0o700 }), Coverage::NotType, Some(0)),
        (Base::Absent, Some(pipe.clone()), Coverage::NotType, Some(0)),
        (known(&of(0o644, "")), Some(pipe), Coverage::NotType, Some(0)),
        (known(&of(0o644, "")), Some(unreadable), Coverage::NotKnown, None),
        (Base::Unknown, None, Coverage::NotKnown, None),
        (known(&of(0o644, "")), Some(of(0o600, "")), Coverage::NotMode, Some(0)),
        (known(&of(0o755, "")), Some(of(0o2755, "")), Coverage::NotMode, Some(0)),
        (known(&of(0o664, "")), Some(of(0o775, "")), Coverage::Whole, Some(0)),
    ];
    for (old, new, wanted, lines) in cases {
        let change = change(b"a", ChangeKind::Mode, old, new);
        assert_eq!(coverage(&change), wanted, "{change:?}");
        let (patch, figures) = patch_of(std::slice::from_ref(&change), &bodies);
        assert_eq!(figures[0].added, lines);
        assert!(patch.is_empty() || wanted == Coverage::Whole);
    }
    let cover = |old, new| coverage(&change(b"a", ChangeKind::Modified, old, Some(new)));
    assert_eq!(cover(Base::Absent, of(0o600, "")), Coverage::NotMode);
    assert_eq!(cover(Base::Absent, of(0o664, "")), Coverage::Whole);
    assert_eq!(cover(known(&of(0o600, "a")), of(0o600, "b")), Coverage::Whole);
    assert_eq!(cover(known(&of(0o644, "a")), dir), Coverage::NotFolder);
}

#[test]
fn git_refuses_exactly_the_names_we_say_it_refuses() {
    let names: [&[u8]; 18] = [
        b".git",
        b"a/.GIT/x",
        b"git~1/x",
        b"GIT~1",
        b".git. ./x",
        b".git:x",
        b"a\\.git",
        b".git\\x",
        b".gitignore",
        b".gitmodules",
        b"a.git",
        b"git~2",
        b"...",
        b"gitmod~1",
        b"gi7eba~1",
        b".GitModules",
        b"x/.gitmodules .",
        b"gi123456",
    ];
    for name in names {
        for item in [file(b"x"), link(b"x")] {
            // Written past the check, to hear git's own word.
            let mut patch = Vec::new();
            let source = match &item {
                Item::File { .. } => (Mode::File, Source::File(item.open())),
                Item::Link(target) => (Mode::Link, Source::Bytes(target)),
            };
            entry::write(name, None, Some(source), Some(&mut patch)).unwrap();
            let scratch = tempfile::tempdir().unwrap();
            let root = scratch.path().join("project");
            fs::create_dir(&root).unwrap();
            let said = git(&root, &["apply", "--check", "-"], &patch);
            let is_link = matches!(item, Item::Link(_));
            let name = String::from_utf8_lossy(name).into_owned();
            if said.is_ok() {
                // Names that only look like a short name are left out of links for safety.
                let unsure = is_link && name.starts_with("gi") && name.contains('~');
                assert!(git_accepts(name.as_bytes(), is_link) || unsure, "{name} {is_link}");
            } else {
                assert!(!git_accepts(name.as_bytes(), is_link), "{name} {is_link} {said:?}");
            }
        }
    }
}

fn any_content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => "([abc -+@\\\\]{0,4}\r?\n){0,30}[a-c]{0,3}".prop_map(String::into_bytes),
        1 => vec(any::<u8>(), 0..600),
        1 => Just(Vec::new()),
    ]
}

fn any_item() -> impl Strategy<Value = Item> {
    prop_oneof![
        6 => (any::<bool>(), any_content()).prop_map(|(x, content)| Item::File {
            mode: if x { 0o755 } else { 0o644 },
            content,
        }),
        1 => vec(1u8..=255, 1..20).prop_map(Item::Link),
    ]
}

fn any_name() -> impl Strategy<Value = Vec<u8>> {
    vec(
        prop_oneof![4 => b'a'..=b'e', 1 => (1u8..=255).prop_filter("separator", |b| *b != b'/')],
        1..4,
    )
    .prop_filter("dots", |n| n != b"." && n != b"..")
}

/// Paths without conflicts: no path is a folder of another.
fn any_tree() -> impl Strategy<Value = Tree> {
    btree_map(vec(any_name(), 1..4).prop_map(|parts| parts.join(&b'/')), any_item(), 0..8).prop_map(
        |mut tree| {
            let paths: Vec<Vec<u8>> = tree.keys().cloned().collect();
            tree.retain(|path, _| {
                let folder = [path.as_slice(), b"/"].concat();
                !paths.iter().any(|other| other.starts_with(&folder))
            });
            tree
        },
    )
}

/// The same tree with some items replaced, dropped and added, and some texts edited.
fn edited(old: &Tree, other: Tree, edits: &[(usize, u8)]) -> Tree {
    let mut new = old.clone();
    for (index, (place, byte)) in edits.iter().enumerate() {
        if let Some((_, Item::File { content, .. })) = new.iter_mut().nth(index) {
            let at = place % (content.len() + 1);
            if *byte & 1 == 0 { content.insert(at, *byte) } else { content.truncate(at) }
        }
    }
    for (path, item) in other {
        let clash = |a: &[u8], b: &[u8]| a.starts_with(&[b, b"/"].concat());
        new.retain(|p, _| !clash(p, &path) && !clash(&path, p));
        new.insert(path, item);
    }
    new
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn git_apply_gives_the_wanted_tree(
        old in any_tree(), other in any_tree(), edits in vec((any::<usize>(), any::<u8>()), 0..6),
    ) {
        let new = edited(&old, other, &edits);
        prop_assert_eq!(check(&old, &new).map(|_| ()), Ok(()));
    }
}
