//! The helper's page for auditors names what is there.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn rust_files(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// What stands between back quotes, outside of blocks of commands.
fn quoted() -> Vec<String> {
    let page = fs::read_to_string(root().join("helper/AUDIT.md")).unwrap();
    let prose: String = page.split("```").step_by(2).collect();
    prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// A test's name: at least three words in small letters.
fn is_test(word: &str) -> bool {
    let plain = word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    plain && word.matches('_').count() >= 3
}

#[test]
fn every_test_the_page_names_exists() {
    let mut files = Vec::new();
    for part in ["helper", "shared", "seccomp", "tests", "controller"] {
        rust_files(&root().join(part), &mut files);
    }
    let text: String = files.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let named: Vec<String> = quoted().into_iter().filter(|word| is_test(word)).collect();
    assert!(named.len() > 40, "{named:?}");
    for name in named {
        assert!(text.contains(&format!("fn {name}(")), "there is no {name}");
    }
}

#[test]
fn every_file_the_page_names_exists_and_every_file_of_the_helper_is_named() {
    let words = quoted();
    let files = words.iter().filter(|word| word.ends_with(".rs") || word.starts_with("src/"));
    for name in files {
        let found =
            [root().join(name), root().join("helper").join(name)].iter().any(|p| p.exists());
        assert!(found, "there is no {name}");
    }
    let mut sources = Vec::new();
    rust_files(&root().join("helper/src"), &mut sources);
    // Unit tests lie beside what they test.
    for path in sources.into_iter().filter(|path| !path.ends_with("tests.rs")) {
        let name = path.strip_prefix(root().join("helper")).unwrap().to_str().unwrap();
        let by_folder = ["src/sys/", "src/net/", "src/audit/", "src/bin/", "src/mount/tests/"];
        // What holds the rest together is met on the way.
        let plain = ["src/channel.rs", "src/daemon.rs"].contains(&name);
        let named = words.iter().any(|word| word == name);
        assert!(
            named || plain || by_folder.iter().any(|folder| name.starts_with(folder)),
            "{name}"
        );
    }
}

#[test]
fn every_operation_is_argued() {
    let plan = fs::read_to_string(root().join("shared/src/plan.rs")).unwrap();
    let operations = plan.split_once("pub enum Op {").unwrap().1.split_once("\n}").unwrap().0;
    let names = operations.lines().filter_map(|line| line.strip_prefix("    "));
    let names = names.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    let words = quoted();
    for line in names {
        let name: String = line.chars().take_while(char::is_ascii_alphanumeric).collect();
        assert!(words.contains(&name), "{name}");
    }
}
