//! Numbers and words that may not grow unseen. Raising one is a visible change with its reason in the commit.

#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Third-party crates in the helper, everything it links counted.
const HELPER_CRATES: usize = 40;
/// Lines of the helper that hold code and are no tests. Comments are free: they are what the reader reads first.
const HELPER_LINES: usize = 3000;
/// The same of `landbox-audit`, the second program of the crate, which has no privilege and is not the helper's to link.
const AUDIT_LINES: usize = 450;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The part of a file before its test module.
fn product(text: &str) -> &str {
    text.split_once("#[cfg(test)]\n").map_or(text, |(before, _)| before)
}

/// A line without its comment.
fn code(line: &str) -> &str {
    line.split_once("//").map_or(line, |(before, _)| before)
}

/// Everything the helper is made of, ours included, as names and versions.
fn tree_of_helper(edges: &str) -> BTreeSet<(String, String)> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args(["tree", "--locked", "--edges", edges, "--prefix", "none"]);
    cargo.args(["--format", "{p}", "--package", "landbox-helper"]);
    let out = cargo.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let tree = String::from_utf8(out.stdout).unwrap();
    let words = tree.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    words.map(|w| (w[0].to_owned(), w[1].to_owned())).collect()
}

fn crates_of_helper(edges: &str) -> BTreeSet<(String, String)> {
    let mut crates = tree_of_helper(edges);
    crates.retain(|(name, _)| !name.starts_with("landbox"));
    crates
}

fn helper_crates() -> BTreeSet<(String, String)> {
    crates_of_helper("normal")
}

#[test]
fn the_helper_links_at_most_forty_crates_of_others() {
    let crates = helper_crates();
    assert!(crates.len() <= HELPER_CRATES, "{} crates: {crates:#?}", crates.len());
}

#[test]
fn the_helper_is_built_and_tested_with_nothing_of_ours_but_what_its_auditor_reads() {
    let all = tree_of_helper("normal,build,dev");
    let ours: Vec<&str> = all.iter().map(|(name, _)| &**name).collect();
    let ours: Vec<&str> = ours.into_iter().filter(|name| name.starts_with("landbox")).collect();
    assert_eq!(ours, ["landbox-helper", "landbox-seccomp", "landbox-shared"]);
}

#[test]
fn the_helper_carries_no_crate_twice() {
    // What only runs while compiling is in no program.
    let crates = crates_of_helper("normal,no-proc-macro");
    let names: BTreeSet<_> = crates.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), crates.len(), "{crates:#?}");
}

#[test]
fn the_helper_has_none_of_the_crates_it_must_not_have() {
    for (name, _) in helper_crates() {
        for banned in ["clap", "tokio", "serde_json", "regex", "rustix", "landlock", "rayon"] {
            assert_ne!(name, banned);
        }
    }
}

#[test]
fn the_helper_stays_small_enough_to_read_in_an_hour() {
    let count = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (product(&text).lines().filter(|line| !code(line).trim().is_empty()).count(), path)
    };
    let is_in = |path: &PathBuf, name: &str| path.components().any(|c| c.as_os_str() == name);
    let files = rust_files(&root().join("helper/src")).into_iter();
    let files = files.filter(|p| !is_in(p, "tests") && !p.ends_with("tests.rs"));
    let (audit, helper): (Vec<_>, Vec<_>) =
        files.partition(|p| is_in(p, "audit") || is_in(p, "bin"));
    for (files, limit) in [(helper, HELPER_LINES), (audit, AUDIT_LINES)] {
        let counts: Vec<_> = files.into_iter().map(count).collect();
        let lines: usize = counts.iter().map(|(lines, _)| lines).sum();
        assert!(lines <= limit, "{lines} lines: {counts:#?}");
    }
}

#[test]
fn nothing_of_the_helper_leads_to_the_program_for_people() {
    let files = rust_files(&root().join("helper/src")).into_iter();
    let helper = files.filter(|path| !path.to_string_lossy().contains("src/audit/"));
    for path in helper.filter(|path| !path.ends_with("bin/landbox-audit.rs")) {
        let text = fs::read_to_string(&path).unwrap();
        let uses = text.lines().filter(|line| code(line).contains("audit")).collect::<Vec<_>>();
        let named = path.ends_with("src/lib.rs");
        let expected: &[&str] = if named { &["mod audit;", "pub use audit::audit;"] } else { &[] };
        assert_eq!(uses, expected, "{}", path.display());
    }
}

#[test]
fn one_file_alone_knows_how_the_frames_are_encoded() {
    for dir in ["shared", "seccomp", "helper", "controller"] {
        for path in rust_files(&root().join(dir).join("src")) {
            let text = fs::read_to_string(&path).unwrap();
            let knows = text.lines().any(|line| code(line).contains("bincode"));
            assert_eq!(knows, path.ends_with("shared/src/wire.rs"), "{}", path.display());
        }
    }
}

#[test]
fn unsafe_code_stays_in_the_files_made_for_it() {
    let word = concat!("uns", "afe");
    for dir in ["shared/src", "seccomp/src", "helper/src", "controller/src"] {
        for path in rust_files(&root().join(dir)) {
            let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
            let allowed = name == "seccomp/src/install.rs"
                || name == "helper/src/sys.rs"
                || name.starts_with("helper/src/sys/");
            let text = fs::read_to_string(&path).unwrap();
            // The attributes that forbid it, and lint names, have the word in another form.
            let used = |line: &&str| {
                code(line).split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == word)
            };
            if let Some(line) = text.lines().find(used).filter(|_| !allowed) {
                panic!("{name}: {line}");
            }
        }
    }
}

#[test]
fn the_safe_crates_say_so_themselves() {
    let attribute = concat!("#![forbid(uns", "afe_code)]");
    for path in ["shared/src/lib.rs", "controller/src/lib.rs", "controller/src/main.rs"] {
        assert!(fs::read_to_string(root().join(path)).unwrap().contains(attribute), "{path}");
    }
}

#[test]
fn a_sum_that_does_not_fit_ends_the_released_programs() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let release = manifest.split_once("\n[profile.release]\n").unwrap().1;
    let release: Vec<&str> = release.lines().take_while(|line| !line.starts_with('[')).collect();
    assert!(release.contains(&"overflow-checks = true"), "{release:?}");
    assert!(release.contains(&"panic = \"abort\""), "{release:?}");
    assert_eq!(manifest.matches("[profile.release").count(), 1, "a package may have others");
}

#[test]
fn nothing_is_left_for_later() {
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
        concat!("todo", "!("),
        concat!("unimple", "mented!("),
        concat!("#[ig", "nore"),
    ];
    for dir in ["shared", "seccomp", "helper", "controller", "tests"] {
        for path in rust_files(&root().join(dir)) {
            let text = fs::read_to_string(&path).unwrap();
            for word in words {
                assert!(!text.contains(word), "{}: {word}", path.display());
            }
        }
    }
}

#[test]
fn the_two_halves_do_not_import_each_other() {
    let uses = |dir: &str, name: &str| {
        let manifest = fs::read_to_string(root().join(dir).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split_once("[dependencies]").unwrap().1;
        dependencies.lines().any(|l| l.starts_with(name))
    };
    assert!(!uses("helper", "landbox."));
    assert!(!uses("controller", "landbox-helper"));
    assert!(!uses("shared", "landbox"));
    assert!(!uses("seccomp", "landbox"));
}
