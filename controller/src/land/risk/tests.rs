use super::*;
use crate::land::changeset::Base;
use crate::land::kind::{ChangeState, Group};
use landbox_shared::digest::Digest;
use landbox_shared::id::LayerId;

struct Both(Option<Vec<u8>>, Option<Vec<u8>>);

impl Contents for Both {
    fn new_bytes(&self) -> Option<Vec<u8>> {
        self.0.clone()
    }
    fn old_bytes(&self) -> Option<Vec<u8>> {
        self.1.clone()
    }
}

fn file(mode: u32, bytes: &[u8]) -> Node {
    Node::File { mode, size: bytes.len() as u64, digest: Digest::of("test", &[bytes]) }
}

fn change(path: &str, old: Option<Node>, new: Option<Node>) -> Change {
    let old = old.map_or(Base::Absent, Base::Known);
    Change {
        layer: LayerId::new("project").unwrap(),
        path: RelPath::new(path).unwrap(),
        kind: crate::land::rules::kind(&old, new.as_ref()),
        old_path: None,
        old,
        new,
        group: Group::Project,
        state: ChangeState::Clean,
        landable: true,
        reason: None,
    }
}

fn kinds(change: &Change, new: &[u8], old: Option<&[u8]>) -> Vec<&'static str> {
    kinds_in("/home/a/app", change, new, old)
}

fn kinds_in(project: &str, change: &Change, new: &[u8], old: Option<&[u8]>) -> Vec<&'static str> {
    let both = Both(Some(new.to_vec()), old.map(<[u8]>::to_vec));
    let (project, home) = (AbsPath::new(project).unwrap(), AbsPath::new("/home/a").unwrap());
    let site = Site { project: &project, home: &home };
    judge(change, &both, &site).into_iter().map(|r| r.kind.name()).collect()
}

/// Kinds of a file that was edited.
fn edited(path: &str, old: &[u8], new: &[u8]) -> Vec<&'static str> {
    kinds(&change(path, Some(file(0o644, old)), Some(file(0o644, new))), new, Some(old))
}

fn added(path: &str, new: &[u8]) -> Vec<&'static str> {
    kinds(&change(path, None, Some(file(0o644, new))), new, None)
}

fn link(path: &str, to: &[u8]) -> Vec<&'static str> {
    kinds(&change(path, None, Some(Node::Symlink { target: to.to_vec() })), b"", None)
}

#[test]
fn ordinary_edits_have_no_flag() {
    for path in [
        "src/main.rs",
        "lib/app.py",
        "README.md",
        "docs/build/index.md",
        "tests/test_app.py",
        "a/b/c.ts",
        "src/build/mod.rs",
        "Cargo.toml",
        "package.json",
        "pyproject.toml",
        "go.mod",
        "src/config",
        "x.json",
        "src/ignore.rs",
        "shell/agent.rs",
        "images/logo.svg",
        "src/git/mod.rs",
        "workspace/a.c",
    ] {
        let text = "one line\nfn main() { let sk = \"sk-short\"; }\n\tnaïve – “quoted” — 日本語 👩‍👩‍👧 می‌خواهم\u{a0}!\r\n";
        let json = br#"{"dependencies": {"left": "1"}, "scripts": {"test": "x"}}"#;
        let (old, new): (&[u8], &[u8]) = match path {
            "package.json" => {
                (json, br#"{"dependencies": {"left": "2"}, "scripts": {"test": "x"}}"#)
            }
            "Cargo.toml" | "pyproject.toml" => {
                (b"[dependencies]\na = 1\n", b"[dependencies]\na = 2\nb = 1\n")
            }
            _ => (b"", text.as_bytes()),
        };
        assert_eq!(edited(path, old, new), Vec::<&str>::new(), "{path}");
    }
}

#[test]
fn what_runs_by_itself_is_flagged_by_its_path_in_any_case_and_depth() {
    for (path, kind) in [
        ("sub/.git/hooks/pre-commit", "git"),
        (".gitmodules", "git"),
        (".husky/pre-push", "git"),
        ("hooks/post-checkout", "git"),
        (".envrc", "startup"),
        ("a/.ENVRC", "startup"),
        (".zshenv", "startup"),
        ("x/sitecustomize.py", "startup"),
        (".vscode/tasks.json", "editor"),
        ("a/.idea/x.xml", "editor"),
        (".devcontainer/devcontainer.json", "editor"),
        (".nvim.lua", "editor"),
        (".claude/settings.local.json", "agent"),
        (".mcp.json", "agent"),
        ("AGENTS.md", "agent"),
        ("pkg/.Cursor/mcp.json", "agent"),
        ("opencode.json", "agent"),
        (".github/workflows/ci.yml", "ci"),
        ("Jenkinsfile.release", "ci"),
        (".gitlab-ci.yml", "ci"),
        ("setup.py", "install"),
        ("build.rs", "install"),
        (".npmrc", "install"),
        ("a/.yarnrc.yml", "install"),
        ("Gemfile", "install"),
        ("x/pip.conf", "install"),
        (".cargo/config.toml", "install"),
        ("Makefile", "build"),
        ("justfile", "build"),
        ("src/CMakeLists.txt", "build"),
        ("app/vite.config.ts", "build"),
        ("Dockerfile.dev", "build"),
        ("build.gradle.kts", "build"),
        ("Cargo.lock", "generated"),
        ("app.min.js", "generated"),
        (".gitignore", "ignore-rules"),
        ("a/.gitattributes", "ignore-rules"),
        (".rgignore", "ignore-rules"),
    ] {
        assert!(added(path, b"x\n").contains(&kind), "{path}: {:?}", added(path, b"x\n"));
    }
}

#[test]
fn what_is_deleted_runs_nothing_but_rules_that_are_gone_count() {
    let gone = |path| kinds(&change(path, Some(file(0o755, b"x")), None), b"", None);
    assert_eq!(gone("Makefile"), Vec::<&str>::new());
    assert_eq!(gone(".gitignore"), ["ignore-rules"]);
}

#[test]
fn a_renamed_file_is_flagged_by_where_it_comes_and_by_rules_it_takes_away() {
    let mut to = change(".envrc", Some(file(0o644, b"x")), Some(file(0o644, b"x")));
    (to.kind, to.old_path) = (ChangeKind::Renamed, Some(RelPath::new("a").unwrap()));
    assert_eq!(kinds(&to, b"x", Some(b"x")), ["startup"]);
    (to.path, to.old_path) =
        (RelPath::new("a").unwrap(), Some(RelPath::new(".gitignore").unwrap()));
    assert_eq!(kinds(&to, b"x", Some(b"x")), ["ignore-rules"]);
}

#[test]
fn links_are_judged_by_where_they_lead() {
    for to in [
        &b"/etc/passwd"[..],
        b"..",
        b"../x",
        b"../../a",
        b"a/../../..",
        b"b/../c",
        b"/home/a/apple",
        b"/home/a/app/../x",
    ] {
        assert_eq!(link("l", to), ["outside-link"], "{}", String::from_utf8_lossy(to));
    }
    for to in [&b"a"[..], b"./a/b", b"/home/a/app/x", b"a//b/"] {
        assert_eq!(link("l", to), Vec::<&str>::new());
    }
    assert_eq!(link("d/l", b"../a"), Vec::<&str>::new());
    assert_eq!(link("d/l", b"../../a"), ["outside-link"]);
    assert_eq!(link("l", b".GIT/hooks"), ["git"]);
    assert_eq!(link(".github/workflows", b"../../w"), ["ci", "outside-link"]);
    assert_eq!(link(".vscode", b"w"), ["editor"]);
}

#[test]
fn modes_that_let_a_file_run_are_flagged_where_they_are_new() {
    let mode = |old, new| {
        kinds(&change("a", Some(file(old, b"a")), Some(file(new, b"b"))), b"b", Some(b"a"))
    };
    assert_eq!(mode(0o644, 0o755), ["executable"]);
    assert_eq!(mode(0o644, 0o654), ["executable"]);
    assert_eq!(mode(0o755, 0o755), Vec::<&str>::new());
    assert_eq!(mode(0o755, 0o644), Vec::<&str>::new());
    assert_eq!(mode(0o4755, 0o4755), ["set-id"]);
    assert_eq!(kinds(&change("a", None, Some(file(0o755, b"b"))), b"b", None), ["executable"]);
}

#[test]
fn manifests_are_flagged_for_what_they_run_and_not_for_what_they_need() {
    let scripts = br#"{"scripts": {"postinstall": "sh x"}}"#;
    assert_eq!(added("package.json", scripts), ["install"]);
    assert_eq!(added("package.json", br#"{"dependencies": {}}"#), Vec::<&str>::new());
    assert_eq!(edited("p/package.json", b"{}", scripts), ["install"]);
    assert_eq!(edited("p/package.json", scripts, b"not json"), ["install"]);
    assert_eq!(added("pyproject.toml", b"[build-system]\nrequires = ['x']\n"), ["install"]);
    assert_eq!(edited("Cargo.toml", b"[package]\n", b"[package]\nbuild = 'x.rs'\n"), ["install"]);
    assert_eq!(
        edited("Cargo.toml", b"[package]\n", b"[package]\n[ patch . 'a' ]\nx = 1\n"),
        ["install"]
    );
}

#[test]
fn secrets_are_flagged_where_they_are_new() {
    // In two pieces, so that nobody takes this file for one that holds secrets.
    let samples = [
        ["-----BEGIN OPENSSH ", "PRIVATE KEY-----"].concat(),
        ["-----BEGIN ", "PRIVATE KEY-----"].concat(),
        ["key = AKIA", "IOSFODNN7EXAMPLE"].concat(),
        ["ghp", "_0123456789abcdefghijABCDEFGHIJ012345"].concat(),
        ["sk-ant", "-api03-0123456789abcdefghijABCDEFGHIJ"].concat(),
        ["postgres://app:", "hunter2hunter2@db.example/x"].concat(),
        ["\"refresh", "Token\": \"0123456789abcdefghijABCDEFGHIJ\""].concat(),
    ];
    for secret in &samples {
        let text = format!("{}\u{fffd}one\n x={secret}\n", "\0".repeat(40));
        assert_eq!(added("a.txt", text.as_bytes()), ["secret"], "{secret}");
        let old = format!("{secret}\n");
        assert_eq!(
            edited("a.txt", old.as_bytes(), format!("new\n{secret}\n").as_bytes()),
            Vec::<&str>::new()
        );
    }
    for plain in [
        "https://user@host/x",
        "https://$USER:$PASSWORD@host/",
        "sk-",
        "-----BEGIN CERTIFICATE-----",
        "eyJ0",
    ] {
        assert_eq!(added("a.txt", plain.as_bytes()), Vec::<&str>::new(), "{plain}");
    }
}

#[test]
fn characters_that_the_eye_does_not_see_are_flagged_in_names_and_in_new_lines() {
    for text in [
        "a\u{202e}b",
        "a\u{200b}",
        "\u{1b}[2J",
        "x\u{3164}",
        "a\u{200d}b",
        "a\u{feff}b",
        "\u{9b}1m",
        "\u{e0041}",
    ] {
        assert_eq!(added("a.c", text.as_bytes()), ["hidden-text"], "{text:?}");
        assert_eq!(added(&format!("d/{text}"), b"x"), ["hidden-text"], "{text:?}");
        assert_eq!(link("l", format!("to{text}").as_bytes()), ["hidden-text"], "{text:?}");
        let old = format!("{text}\nb\n");
        assert_eq!(
            edited("a.c", old.as_bytes(), format!("{text}\nc\n").as_bytes()),
            Vec::<&str>::new()
        );
    }
    assert_eq!(added("a.c", "\u{feff}int a;\r\n".as_bytes()), Vec::<&str>::new());
    assert_eq!(added("a\nb", b""), ["hidden-text"]);
    assert_eq!(added("a.bin", b"\0\x1b\x01\x02"), Vec::<&str>::new());
}

#[test]
fn files_nobody_reads_are_flagged() {
    assert_eq!(added("a.js", &[b'x'; 6000]), ["generated"]);
    assert_eq!(added("a.go", b"// Code generated by x. DO NOT EDIT.\n"), ["generated"]);
    let node = Node::File { mode: 0o644, size: LARGE + 1, digest: Digest::of("t", &[]) };
    assert_eq!(kinds(&change("a", None, Some(node)), b"x", None), ["large"]);
}

#[test]
fn a_folder_that_git_would_take_for_a_repository_is_flagged() {
    // Every one of these is a HEAD to git.
    let id = [b'a'; 40];
    for head in
        [&b"ref: refs/heads/main\n"[..], b"ref:refs/heads/x", b"ref: \t refs/x", &id, &[b'0'; 70]]
    {
        assert_eq!(added("x/HEAD", head), ["git"], "{}", String::from_utf8_lossy(head));
    }
    assert_eq!(link("x/HEAD", b"refs/heads/main"), ["git"]);
    assert_eq!(added("x/HEAD", b"heads up\n"), Vec::<&str>::new());
    let padded = [&b"#\n".repeat(6000)[..], b"[include]path=x\n"].concat();
    for text in [
        &b"[core]\n\tfsmonitor = sh\n"[..],
        b" [diff \"x\"] command = sh\n",
        b"[ALIAS]\nst=!sh\n",
        b"[filter.x]\n",
        &padded,
    ] {
        assert_eq!(added("x/config", text), ["git"], "{}", String::from_utf8_lossy(text));
        assert_eq!(edited("x/config.worktree", b"[user]\n", text), ["git"]);
    }
    for text in [&b"port = 1\n"[..], b"[default]\nregion = x\n", b"x = [core]\n"] {
        assert_eq!(added("x/config", text), Vec::<&str>::new());
    }
    let text = b"ref: refs/heads/main\n";
    let mut moved = change("x/HEAD", Some(file(0o644, text)), Some(file(0o644, text)));
    (moved.kind, moved.old_path) = (ChangeKind::Renamed, RelPath::new("head.txt").ok());
    assert_eq!(kinds(&moved, text, Some(text)), ["git"]);
}

/// Kinds of a file that only moved.
fn moved(from: &str, to: &str, bytes: &[u8]) -> Vec<&'static str> {
    let mut change = change(to, Some(file(0o644, bytes)), Some(file(0o644, bytes)));
    (change.kind, change.old_path) = (ChangeKind::Renamed, RelPath::new(from).ok());
    kinds(&change, bytes, Some(bytes))
}

#[test]
fn a_file_that_moves_to_a_name_with_a_meaning_is_judged_as_a_new_one() {
    let scripts = br#"{"scripts": {"postinstall": "sh x"}}"#;
    assert_eq!(moved("x/data.json", "x/package.json", scripts), ["install"]);
    assert_eq!(moved("a/package.json", "b/package.json", scripts), ["install"]);
    assert_eq!(moved("t.toml", "sub/pyproject.toml", b"[tool.x]\na = 1\n"), ["install"]);
    assert_eq!(moved("r", "requirements.txt", b"--index-url https://x.example/\n"), ["install"]);
    assert_eq!(moved("x/data.json", "x/package.json", b"{}"), Vec::<&str>::new());
    assert_eq!(moved("a.rs", "b.rs", b"fn main() {}\n"), Vec::<&str>::new());
}

#[test]
fn a_link_that_stands_for_a_file_with_a_meaning_is_flagged() {
    for name in [
        "w/package.json",
        "deno.json",
        "deno.jsonc",
        "composer.json",
        "pyproject.toml",
        "Cargo.toml",
        "setup.cfg",
        "requirements-dev.txt",
    ] {
        assert_eq!(link(name, b"q"), ["install"], "{name}");
    }
    assert_eq!(link("w/package.json", b"../q.json"), ["install"]);
    assert_eq!(link("x/config", b"q"), ["git"]);
    // A folder on the way to one that has a meaning.
    assert_eq!(link(".github", b"w"), ["agent", "ci"]);
    assert_eq!(link("a/systemd", b"../w"), ["startup"]);
    assert_eq!(link("src/lib.rs", b"other.rs"), Vec::<&str>::new());
}

#[test]
fn a_carriage_return_that_ends_no_line_is_flagged() {
    for text in ["# harmless\rimport os\n", "a\r\r\nb\n", "a\r", "\rb\n", "a\r\nb\rc\r\n", "a\n\r"]
    {
        assert_eq!(added("a.py", text.as_bytes()), ["hidden-text"], "{text:?}");
    }
    assert_eq!(edited("a.py", b"a\r\n", b"a\r\nb\r\n"), Vec::<&str>::new());
    assert_eq!(edited("a.py", b"a\rb\n", b"a\rb\nc\n"), Vec::<&str>::new());
}

#[test]
fn a_form_feed_is_a_page_break_only_at_the_start_of_a_line() {
    assert_eq!(added("a.py", b"a\n\x0c\nb\n\x0cclass A:\n"), Vec::<&str>::new());
    assert_eq!(added("a.py", b"if a:\n  \x0cb()\n"), ["hidden-text"]);
    assert_eq!(added("a.py", b"# a\x0cb\n"), ["hidden-text"]);
}

#[test]
fn a_nul_does_not_keep_text_from_being_searched() {
    let padded = [&b"/*"[..], &[0; 9000], b"*/ run()\n"].concat();
    for (path, bytes) in [
        ("run", &b"#!/bin/sh\n#\0\necho x\n"[..]),
        ("run", &[&b"#!/bin/sh\n#"[..], &[0; 9000], b"\necho x\n"].concat()),
        ("notes", b"some ordinary words\0 and more of them\n"),
        ("a.js", &padded),
        ("src/A.PY", &padded),
    ] {
        assert!(added(path, bytes).contains(&"hidden-text"), "{path}");
    }
    let image = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89";
    let wide: Vec<u8> = "plain words\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for bytes in [&b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0>\0"[..], image, &wide, &[0; 64]] {
        assert_eq!(added("a.bin", bytes), Vec::<&str>::new(), "{bytes:?}");
    }
}

#[test]
fn what_a_login_a_shell_or_a_tool_obeys_is_flagged_wherever_it_lies() {
    for (path, kind) in [
        (".ssh/authorized_keys", "startup"),
        (".ssh/config", "startup"),
        (".ssh/rc", "startup"),
        (".gnupg/gpg-agent.conf", "startup"),
        (".config/nvim/init.lua", "editor"),
        (".config/git/config", "git"),
        (".vim/plugin/x.vim", "editor"),
        (".local/bin/ls", "startup"),
        (".bun/bin/node", "startup"),
        (".config/autostart/x", "startup"),
        (".config/systemd/user/x.service", "startup"),
        (".config/environment.d/x.conf", "startup"),
        (".config/sway/config", "startup"),
        ("cron.d/x", "startup"),
        ("crontab", "startup"),
        (".aws/config", "startup"),
        (".psqlrc", "startup"),
        (".ipython/profile_default/startup/a.py", "startup"),
        (".direnv/bin/x", "startup"),
        (".nvmrc", "startup"),
        (".tool-versions", "startup"),
        (".python-version", "startup"),
        (".ruby-version", "startup"),
        (".node-version", "startup"),
        ("rust-toolchain.toml", "startup"),
        (".htaccess", "startup"),
        ("ansible.cfg", "startup"),
        (".openhands/setup.sh", "agent"),
        ("skills/x/SKILL.md", "agent"),
        (".rspec", "build"),
        (".rubocop.yml", "build"),
        ("karma.conf.js", "build"),
        ("Guardfile", "build"),
        ("Snakefile", "build"),
        ("workflow/rules/a.smk", "build"),
        ("phpunit.xml", "build"),
        ("phpunit.xml.dist", "build"),
        (".php-cs-fixer.php", "build"),
        (".php-cs-fixer.dist.php", "build"),
        (".storybook/main.js", "build"),
        (".coveragerc", "build"),
        ("mypy.ini", "build"),
        ("mkdocs.yml", "build"),
        (".golangci.yml", "build"),
        ("Pipfile", "install"),
        ("environment.yml", "install"),
        ("cpanfile", "install"),
        ("renovate.json", "ci"),
        (".builds/x.yml", "ci"),
        ("firebase.json", "ci"),
    ] {
        assert!(added(path, b"x\n").contains(&kind), "{path}: {:?}", added(path, b"x\n"));
    }
}

#[test]
fn a_list_of_requirements_is_flagged_for_where_packages_come_from_and_not_for_which() {
    let pinned = "a==1.0 ; python_version < '3'\nb[x]>=2 \\\n    --hash=sha256:00\n# see https://x.example/\n";
    for name in
        ["requirements.txt", "dev-requirements.txt", "requirements/test.txt", "constraints.txt"]
    {
        assert_eq!(added(name, pinned.as_bytes()), Vec::<&str>::new(), "{name}");
        for line in [
            "--index-url https://x.example/",
            "-e .",
            "-r other.txt",
            "a @ https://x.example/a.whl",
            "git+https://x.example/a",
            "./a",
            "a.whl",
            "a==1 --config-settings=x=y",
            "a==1\r--index-url x",
            "# -*- coding: utf-7 -*-",
        ] {
            let text = format!("{pinned}{line}\n");
            let found = edited(name, pinned.as_bytes(), text.as_bytes());
            assert!(found.contains(&"install"), "{name} {line:?}: {found:?}");
            assert!(
                !edited(name, text.as_bytes(), format!("c==1\n{text}").as_bytes())
                    .contains(&"install")
            );
        }
    }
    assert!(added("requirements.txt", b"\xff\xfe-\0e\0 \0.\0").contains(&"install"));
}

#[test]
fn a_manifest_is_read_as_the_tool_reads_it_and_not_by_its_usual_shape() {
    for (name, text) in [
        ("pyproject.toml", "build-system = { requires = ['x'] }\n"),
        ("pyproject.toml", "tool.x.a = 1\n"),
        ("pyproject.toml", "[\"\\u0074ool\".x]\na = 1\n"),
        ("Cargo.toml", "patch.a.b = { path = 'x' }\n"),
        ("Cargo.toml", "[package]\n\"\\u0062uild\" = 'x.rs'\n"),
        ("global.json", "{\"sdk\": {\"version\": \"1\"}}"),
        ("setup.cfg", "[a]\r[options]\rx = 1\r"),
    ] {
        assert!(added(name, text.as_bytes()).contains(&"install"), "{name} {text:?}");
    }
}

#[test]
fn a_home_that_is_the_project_is_flagged_for_its_hidden_files_and_its_programs() {
    let in_home = |project, path| {
        kinds_in(project, &change(path, None, Some(file(0o644, b"x\n"))), b"x\n", None)
    };
    for path in [".ssh/rc", ".anything", ".tool/settings", "bin/ls", "go/bin/gofmt", "sbin/x"] {
        assert_eq!(in_home("/home/a", path), ["startup"], "{path}");
        let link = change(path, None, Some(Node::Symlink { target: b"x".to_vec() }));
        assert_eq!(kinds_in("/home/a", &link, b"", None), ["startup"], "{path}");
    }
    assert_eq!(in_home("/home", "a/.anything"), ["startup"]);
    assert_eq!(in_home("/home/a/go", "bin/gofmt"), ["startup"]);
    assert_eq!(in_home("/home/a/.config", "autostart/x"), ["startup"]);
    for (project, path) in [
        ("/home/a", "src/bin/main.rs"),
        ("/home/a", "notes.txt"),
        ("/home/a/app", "bin/ls"),
        ("/home/a/app", ".anything"),
        ("/home/a/.trees/app", "src/lib.rs"),
        ("/home/a/bin", "x"),
        ("/home/b", ".anything"),
    ] {
        assert_eq!(in_home(project, path), Vec::<&str>::new(), "{project}/{path}");
    }
}

#[test]
fn source_files_with_telling_names_are_only_source_files() {
    for path in [
        "src/config/mod.rs",
        "src/conf.js",
        "src/arc.js",
        "bin/main.rs",
        "lib/local/a.py",
        "src/version.py",
        "docs/ssh.md",
        "app/services/user.service.ts",
        "src/cron.rs",
        "tests/requirements_test.py",
        "requirements.md",
        "src/skills.md",
        "src/vim.rs",
        "app/models/guard.rb",
        "go/bin.go",
        "a/environment.ts",
    ] {
        assert_eq!(added(path, b"x\n"), Vec::<&str>::new(), "{path}");
    }
}

#[test]
fn kinds_are_named_once_and_read_back() {
    for kind in KINDS {
        assert_eq!(RiskKind::parse(kind.name()), Some(kind));
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
    }
    let mut sorted = KINDS;
    sorted.sort();
    assert_eq!(sorted, KINDS);
}
