//! Man pages and completions, as packages get them: made by the command, or written by hand in `packaging/man`.

#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::world;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// What clap_mangen writes around lists of values, which changes nothing that is seen.
const HARMLESS: &str = "WARNING: skipping paragraph macro: br ";

/// All pages, as they are installed but for compression.
fn pages() -> (TempDir, Vec<PathBuf>) {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(world::bin("landbox"));
    command.args(["util", "man"]).arg(dir.path()).env("SOURCE_DATE_EPOCH", "1796000000");
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    for entry in fs::read_dir(by_hand()).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let text = text.replace("@DATE@", "2026-11-30").replace("@VERSION@", "0.1.0");
        fs::write(dir.path().join(path.file_name().unwrap()), text).unwrap();
    }
    let mut pages: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
    pages.sort();
    (dir, pages)
}

fn by_hand() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("packaging/man")
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn every_page_is_without_fault() {
    let (_dir, pages) = pages();
    let out = Command::new("mandoc").args(["-Tlint", "-Wwarning"]).args(&pages).output().unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    let faults: Vec<_> = said.lines().filter(|line| !line.contains(HARMLESS)).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn every_page_of_ours_that_a_page_names_is_there() {
    let (_dir, pages) = pages();
    let there: BTreeSet<_> = pages.iter().map(|page| name(page)).collect();
    let mut named = BTreeSet::new();
    for page in &pages {
        let text = fs::read_to_string(page).unwrap().replace("\\-", "-");
        for line in text.lines() {
            let words = line.trim_start_matches(".BR ").replace(" (", "(");
            let ours = words.split([' ', ',']).filter(|word| {
                word.starts_with("landbox")
                    || word.ends_with(".json(5)")
                    || word.contains("policy(5)")
            });
            for word in ours {
                if let Some((page, section)) = word.split_once('(') {
                    let section = section.trim_end_matches([')', ':', '.', ';']);
                    named.insert(format!("{page}.{section}"));
                }
            }
        }
    }
    for page in [
        "landbox-run.1",
        "landbox-helper.8",
        "bots.json.5",
        "landbox-json.5",
        "sandbox-network-policy.5",
    ] {
        assert!(named.contains(page), "{page}: {named:?}");
    }
    let missing: Vec<_> = named.difference(&there).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn completions_are_understood_by_their_shells() {
    for (shell, check) in
        [("bash", &["-n", "-s"][..]), ("zsh", &["-n"]), ("fish", &["--no-execute"])]
    {
        let mut command = Command::new(world::bin("landbox"));
        let script = command.args(["util", "completions", shell]).output().unwrap();
        assert!(script.status.success(), "{shell}");
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &script.stdout).unwrap();
        let mut command = Command::new(shell);
        command.args(check).stdin(fs::File::open(file.path()).unwrap()).stderr(Stdio::piped());
        if shell == "fish" {
            command.arg(file.path());
        }
        let out = command.output().unwrap_or_else(|e| panic!("{shell}: {e}"));
        assert!(out.status.success(), "{shell}: {}", String::from_utf8_lossy(&out.stderr));
    }
}
