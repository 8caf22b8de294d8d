//! Files in which other programs are told of a proxy. Read for a warning alone: what a proxy variable does is decided by
//! the environment, and what any proxy can do by the kernel's rules.

use std::io::Read;
use std::path::{Path, PathBuf};

/// Below the home folder.
const FILES: &[&str] = &[
    ".gitconfig",
    ".config/git/config",
    ".npmrc",
    ".yarnrc",
    ".curlrc",
    ".wgetrc",
    ".config/pip/pip.conf",
    ".cargo/config.toml",
    ".claude/settings.json",
    ".codex/config.toml",
    ".gemini/settings.json",
];
/// Names that such a file gives a proxy, whatever their case.
const KEYS: &[&str] =
    &["proxy", "http-proxy", "https-proxy", "http_proxy", "https_proxy", "all_proxy"];
/// More is not read of any.
const MAX_BYTES: u64 = 256 << 10;

/// The files below `home` that name a proxy.
pub fn named_below(home: &Path) -> Vec<PathBuf> {
    FILES.iter().map(|name| home.join(name)).filter(|path| names_one(path)).collect()
}

fn names_one(path: &Path) -> bool {
    // What is no regular file could keep us waiting.
    if !std::fs::metadata(path).is_ok_and(|meta| meta.is_file()) {
        return false;
    }
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|f| f.take(MAX_BYTES).read_to_end(&mut bytes));
    read.is_ok() && String::from_utf8_lossy(&bytes).lines().any(sets_one)
}

/// Whether a line gives one of the keys a value: `proxy = x`, `--proxy x`, `"HTTPS_PROXY": "x"`.
fn sets_one(line: &str) -> bool {
    let line = line.trim_start();
    if line.starts_with(['#', ';', '/']) {
        return false;
    }
    let is_mark = |c: char| c.is_whitespace() || matches!(c, '=' | ':' | '"' | '\'' | ',' | '{');
    let mut words = line.split(is_mark).filter(|word| !word.is_empty());
    let is_key = |word: &str| {
        let word = word.trim_start_matches("--").to_ascii_lowercase();
        KEYS.contains(&word.as_str())
    };
    words.any(is_key) && words.next().is_some_and(|value| !matches!(value, "}" | "null" | "false"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_for_a_proxy_is_noticed_and_nothing_else() {
        for line in [
            "\tproxy = http://p:1",
            "https-proxy=http://p:1",
            "--proxy http://p:1",
            "  \"env\": {\"HTTPS_PROXY\": \"http://p:1\"},",
            "http_proxy = 'http://p:1'",
        ] {
            assert!(sets_one(line), "{line}");
        }
        for line in
            ["# proxy = x", "proxy =", "noproxy = x", "\"proxy\": null", "[http]", "", "# x"]
        {
            assert!(!sets_one(line), "{line}");
        }
    }

    #[test]
    fn only_files_that_name_one_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".npmrc"), "registry=x\nproxy=http://p:1\n").unwrap();
        std::fs::write(dir.path().join(".curlrc"), "silent\n").unwrap();
        std::fs::create_dir(dir.path().join(".wgetrc")).unwrap();
        assert_eq!(named_below(dir.path()), [dir.path().join(".npmrc")]);
    }
}
