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

/// A command, by its words, with the long flags that its help names.
struct Told {
    words: Vec<String>,
    flags: Vec<String>,
}

/// What the command itself says of `words` and of every command below, in its help.
fn told(words: &[String], all: &mut Vec<Told>) {
    let out = Command::new(world::bin("landbox")).args(words).arg("--help").output().unwrap();
    assert!(out.status.success(), "{words:?}");
    let help = String::from_utf8(out.stdout).unwrap();
    let listed = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
    let listed = listed.lines().take_while(|line| !line.is_empty());
    let names: Vec<String> = listed
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .filter(|name| name != "help")
        .collect();
    let options = help.lines().filter(|line| line.trim_start().starts_with('-'));
    let flags =
        options.filter_map(|line| line.split_whitespace().find(|word| word.starts_with("--")));
    let flags = flags.map(|flag| flag.trim_end_matches(',').to_owned()).collect();
    all.push(Told { words: words.to_vec(), flags });
    for name in names {
        told(&[words, &[name]].concat(), all);
    }
}

/// The part of a completion script from the line `from` on that ends before the line `to`.
fn part<'a>(script: &'a str, from: &str, to: &str) -> &'a str {
    let start = script.find(from).unwrap_or_else(|| panic!("no {from}"));
    script[start..].split_once(to).unwrap().0
}

#[test]
fn every_command_and_flag_is_in_the_manual_and_in_each_shells_completions() {
    let (_dir, pages) = pages();
    let mut all = Vec::new();
    told(&[], &mut all);
    assert!(all.len() > 15 && all.iter().any(|one| one.words.len() == 2), "{}", all.len());
    let [bash, zsh, fish] = ["bash", "zsh", "fish"].map(|shell| {
        let mut command = Command::new(world::bin("landbox"));
        let out = command.args(["util", "completions", shell]).output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    });
    for Told { words, flags } in all {
        let full = [&["landbox".to_owned()], &*words].concat().join("-");
        let page = pages.iter().find(|page| name(page) == format!("{full}.1"));
        let page = page.unwrap_or_else(|| panic!("no page of {full}"));
        let page = fs::read_to_string(page).unwrap().replace("\\-", "-");
        let block = format!(
            "        landbox{})\n",
            words.iter().fold(String::new(), |all, word| {
                all + "__subcmd__" + &word.replace('-', "__subcmd__")
            })
        );
        let in_bash = part(&bash, &block, "return 0");
        let in_zsh =
            words.last().map_or(&*zsh, |last| part(&zsh, &format!("({last})\n"), "&& ret=0"));
        let of_fish = fish.lines().filter(|line| match words.last() {
            None => line.contains("__fish_landbox_needs_command"),
            Some(_) => words.iter().all(|word| line.contains(&**word)),
        });
        let in_fish: Vec<&str> = of_fish.collect();
        for flag in &flags {
            assert!(page.contains(&**flag), "{full} {flag}: manual");
            assert!(in_bash.split([' ', '"']).any(|word| word == flag), "{full} {flag}: bash");
            let ends = ['[', '=', '+'].map(|end| format!("{flag}{end}"));
            assert!(ends.iter().any(|end| in_zsh.contains(&**end)), "{full} {flag}: zsh");
            let long = format!("-l {}", flag.trim_start_matches('-'));
            let is_there =
                |line: &&str| line.ends_with(&long) || line.contains(&format!("{long} "));
            assert!(in_fish.iter().any(is_there), "{full} {flag}: fish");
        }
    }
}
