use super::super::changeset::{Base, Node};
use super::super::kind::{ChangeKind, ChangeState};
use super::*;
use landbox_shared::digest::Digest;
use landbox_shared::id::LayerId;
use landbox_shared::path::RelPath;
use proptest::collection::vec;
use proptest::prelude::*;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

fn change(path: &str) -> Change {
    let node = if path.ends_with('/') {
        Node::Dir { mode: 0o755 }
    } else {
        Node::File { mode: 0o644, size: 0, digest: Digest::of("test", &[]) }
    };
    Change {
        layer: LayerId::new("project").unwrap(),
        path: RelPath::new(path.trim_end_matches('/')).unwrap(),
        kind: ChangeKind::Added,
        old_path: None,
        old: Base::Absent,
        new: Some(node),
        group: Group::Project,
        state: ChangeState::Clean,
        landable: true,
        reason: None,
    }
}

struct Machine {
    /// Goes when the test ends.
    _scratch: TempDir,
    owner: Owner,
}

impl Machine {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let home = scratch.path().canonicalize().unwrap().join("home");
        fs::create_dir_all(home.join("app")).unwrap();
        let git = Owner::from_env(Path::new("/nonexistent")).git;
        assert!(git.is_some(), "these tests compare with git");
        Self { owner: Owner { git, home: Some(home), config_home: None }, _scratch: scratch }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.owner.home.as_ref().unwrap().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    fn git(&self, args: &[&str], input: &[u8]) -> Vec<u8> {
        let mut child = Command::new("git")
            .arg("-C")
            .arg(self.path("app"))
            .args(["-c", "user.name=a", "-c", "user.email=a@example.org"])
            .args(args)
            .env("HOME", self.path(""))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env_remove("XDG_CONFIG_HOME")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap().stdout
    }

    fn groups_in(&self, target: &str, paths: &[&str]) -> (Vec<Group>, Option<String>) {
        let mut changes: Vec<Change> = paths.iter().map(|p| change(p)).collect();
        let target = AbsPath::from_path(&self.path(target)).unwrap();
        let note = assign_groups(&target, LayerKind::Project, &mut changes, &self.owner);
        (changes.iter().map(|c| c.group).collect(), note)
    }

    #[track_caller]
    fn expect(&self, wanted: &[(&str, Group)]) {
        let paths: Vec<&str> = wanted.iter().map(|w| w.0).collect();
        let (groups, note) = self.groups_in("app", &paths);
        assert_eq!(note, None);
        for ((path, wanted), got) in wanted.iter().zip(groups) {
            assert_eq!(got, *wanted, "{path}");
        }
    }
}

use Group::{Git, Ignored, Project};

#[test]
fn without_a_repository_nothing_is_ignored() {
    let machine = Machine::new();
    machine.write("app/.gitignore", "target\n");
    machine.write(".config/git/ignore", "target\n");
    machine.expect(&[("target/a", Project), ("x/.Git/config", Git)]);
    fs::create_dir(machine.path("app/.git")).unwrap();
    machine.expect(&[("target/a", Project)]);
}

#[test]
fn rules_of_every_level_decide_and_the_deepest_wins() {
    let machine = Machine::new();
    machine.git(&["init", "-q"], b"");
    machine.write("app/.gitignore", "target/\n*.log\n/only-top\n!keep.log\n");
    machine.write("app/deep/.gitignore", "!a.log\nlocal\n");
    machine.write("app/target/.gitignore", "!*\n");
    machine.write("app/.git/info/exclude", "excluded\n");
    machine.write("own-excludes", "*.swp\n");
    machine.write(".gitconfig", "[core]\n excludesFile = ~/own-excludes\n");
    machine.expect(&[
        ("src/main.rs", Project),
        ("target/debug/x", Ignored),
        ("new/target/y", Ignored),
        ("target/", Ignored),
        ("target", Project),
        ("a.log", Ignored),
        ("keep.log", Project),
        ("deep/a.log", Project),
        ("deep/b.log", Ignored),
        ("deep/local", Ignored),
        ("local", Project),
        ("only-top", Ignored),
        ("deep/only-top", Project),
        ("excluded/new/file", Ignored),
        ("x.swp", Ignored),
        (".git/hooks/pre-commit", Git),
        ("deep/.GIT", Git),
    ]);
}

#[test]
fn the_standard_excludes_file_counts_where_none_is_configured() {
    let mut machine = Machine::new();
    machine.git(&["init", "-q"], b"");
    machine.write(".config/git/ignore", "a\n");
    machine.expect(&[("a", Ignored), ("b", Project)]);
    machine.write("xdg/git/ignore", "b\n");
    machine.owner.config_home = Some(machine.path("xdg"));
    machine.expect(&[("a", Project), ("b", Ignored)]);
}

#[test]
fn what_git_tracks_is_never_ignored() {
    let machine = Machine::new();
    machine.git(&["init", "-q"], b"");
    machine.write("app/.gitignore", "vendor/\n*.bin\n");
    machine.write("app/vendor/kept/a", "");
    machine.write("app/logo.bin", "");
    machine.git(&["add", "-f", "vendor/kept/a", "logo.bin"], b"");
    machine.expect(&[
        ("vendor/kept/a", Project),
        ("vendor/kept/", Project),
        ("vendor/kept/b", Ignored),
        ("logo.bin", Project),
        ("other.bin", Ignored),
    ]);
}

#[test]
fn a_rename_is_ignored_only_if_both_ends_are() {
    let machine = Machine::new();
    machine.git(&["init", "-q"], b"");
    machine.write("app/.gitignore", "target/\n");
    let renamed = |from: &str, to: &str| Change {
        old_path: Some(RelPath::new(from).unwrap()),
        kind: ChangeKind::Renamed,
        ..change(to)
    };
    let mut changes = [
        renamed("target/a", "target/b"),
        renamed("src/a", "target/b"),
        renamed("target/a", "src/b"),
        renamed(".git/a", "src/b"),
    ];
    let target = AbsPath::from_path(&machine.path("app")).unwrap();
    assign_groups(&target, LayerKind::Project, &mut changes, &machine.owner);
    assert_eq!(changes.map(|c| c.group), [Ignored, Project, Project, Git]);
}

#[test]
fn a_project_inside_a_repository_obeys_the_rules_above_it() {
    let machine = Machine::new();
    machine.git(&["init", "-q"], b"");
    machine.write("app/.gitignore", "/sub/out\nsub/in/x\n");
    machine.write("app/sub/in/tracked", "");
    let (groups, note) = machine.groups_in("app/sub", &["out/a", "in/x", "in/y", "sub/out"]);
    assert_eq!((groups, note), (vec![Ignored, Ignored, Project, Project], None));
}

#[test]
fn a_repository_inside_the_project_has_rules_of_its_own() {
    let machine = Machine::new();
    machine.git(&["init", "-q"], b"");
    machine.git(&["init", "-q", "lib"], b"");
    machine.write("app/.gitignore", "build\n");
    machine.write("app/lib/.gitignore", "out\n");
    machine.expect(&[
        ("build", Ignored),
        ("out", Project),
        ("lib/build", Project),
        ("lib/out", Ignored),
        ("lib/.git/config", Git),
    ]);
}

#[test]
fn the_common_folder_of_linked_worktrees_belongs_to_git() {
    let machine = Machine::new();
    machine.git(&["init", "-q", "--bare", "repo.git"], b"");
    machine.git(&["init", "-q", "--bare", "plain.git"], b"");
    let tree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
    machine.git(&["-C", "repo.git", "hash-object", "-t", "tree", "-w", "--stdin"], b"");
    let commit = machine.git(&["-C", "repo.git", "commit-tree", tree, "-m", "x"], b"");
    let commit = String::from_utf8(commit).unwrap();
    machine.git(&["-C", "repo.git", "worktree", "add", "../wt", commit.trim()], b"");
    machine.write("app/repo.git/info/exclude", "skipped\n");
    machine.expect(&[
        ("repo.git/hooks/post-commit", Git),
        ("repo.git/", Git),
        ("plain.git/config", Project),
        ("wt/skipped", Ignored),
        ("wt/.git", Git),
        ("wt/a", Project),
    ]);
    let mut all = [change("anything")];
    let target = AbsPath::from_path(&machine.path("app/repo.git")).unwrap();
    assign_groups(&target, LayerKind::Worktree, &mut all, &machine.owner);
    assert_eq!(all[0].group, Git);
}

#[test]
fn where_git_cannot_be_asked_covered_files_stay_in_the_project_and_it_is_said() {
    let mut machine = Machine::new();
    machine.git(&["init", "-q"], b"");
    machine.write("app/.gitignore", "target\n");
    machine.owner.git = None;
    let (groups, note) = machine.groups_in("app", &["target/a", "b"]);
    assert_eq!(groups, [Project, Project]);
    assert!(note.unwrap().contains("git is not installed"));
    let (_, note) = machine.groups_in("app", &["b"]);
    assert_eq!(note, None);
    machine.owner.git = Some("/bin/false".into());
    let (groups, note) = machine.groups_in("app", &["target/a"]);
    assert_eq!((groups, note.is_some()), (vec![Project], true));
}

#[test]
fn a_link_or_pipe_in_place_of_rules_covers_nothing() {
    let machine = Machine::new();
    machine.git(&["init", "-q"], b"");
    machine.write("rules", "*\n");
    std::os::unix::fs::symlink(machine.path("rules"), machine.path("app/.gitignore")).unwrap();
    machine.write("elsewhere/.gitignore", "*\n");
    std::os::unix::fs::symlink(machine.path("elsewhere"), machine.path("app/lnk")).unwrap();
    fs::create_dir(machine.path("app/d")).unwrap();
    let pipe = machine.path("app/d/.gitignore");
    assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    machine.expect(&[("a", Project), ("lnk/a", Project), ("d/a", Project)]);
}

#[test]
fn nothing_a_repository_configures_is_run() {
    let machine = Machine::new();
    machine.git(&["init", "-q"], b"");
    machine.write("app/.gitignore", "target\n");
    machine.write("trap.sh", "#!/bin/sh\ntouch \"$HOME/sprung\"\n");
    let trap = machine.path("trap.sh");
    fs::set_permissions(&trap, fs::Permissions::from_mode(0o755)).unwrap();
    let trap = trap.to_str().unwrap();
    for key in
        ["core.fsmonitor", "core.pager", "pager.ls-files", "alias.ls-files", "core.sshCommand"]
    {
        machine.git(&["config", key, trap], b"");
    }
    machine.expect(&[("target/a", Ignored), ("b", Project)]);
    assert!(!machine.path("sprung").exists());
}

#[test]
fn git_inside_the_project_is_not_run() {
    let owner = Owner::from_env(Path::new("/"));
    assert_eq!(owner.git, None);
}

fn any_rules() -> impl Strategy<Value = String> {
    let line = "(!|/|\\*\\*/)?([ab]|\\*|\\?|\\[ab\\]|ab|\\{a,b\\}|\\[!a\\]|\\[\\^b\\]|\\[a|\\\\a)(/|/b|/\\*|/\\*\\*|\\*|/\\*\\*/a)?/? {0,2}\r?|#a|\\\\!a";
    vec(line, 0..5).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]
    #[test]
    fn the_rules_cover_what_git_says_they_cover(
        top in any_rules(), deep in any_rules(), exclude in any_rules(),
        paths in vec("[ab]{1,2}(/[ab]{1,2}){0,3}", 1..12),
    ) {
        let machine = Machine::new();
        machine.git(&["init", "-q"], b"");
        machine.write("app/.gitignore", &top);
        machine.write("app/a/.gitignore", &deep);
        machine.write("app/.git/info/exclude", &exclude);
        // Git looks at what is there, so a path must not be a folder of another.
        let files: Vec<&String> = paths
            .iter()
            .filter(|p| !paths.iter().any(|q| q.starts_with(&format!("{p}/"))) && *p != "a")
            .collect();
        for file in &files {
            machine.write(&format!("app/{file}"), "");
        }
        let input: Vec<u8> = files.iter().flat_map(|f| format!("{f}\0").into_bytes()).collect();
        let said = machine.git(&["check-ignore", "-z", "--stdin"], &input);
        let said: HashSet<&[u8]> = said.split(|b| *b == 0).filter(|p| !p.is_empty()).collect();
        let names: Vec<&str> = files.iter().map(|f| f.as_str()).collect();
        let (groups, _) = machine.groups_in("app", &names);
        for (file, group) in names.iter().zip(groups) {
            prop_assert_eq!(group == Ignored, said.contains(file.as_bytes()), "{}", file);
        }
    }
}
