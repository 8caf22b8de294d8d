//! How a path in a list is read, the same in every list and for every flag:
//!
//! - `~` and `~/…` stand for the home folder; `~user` is refused.
//! - A relative path is taken below the project (the bot's `workingDir`, `--workdir`, else the current folder), whatever
//!   folder Landbox was called from otherwise.
//! - Variables (`$NAME` at the start of a part) are refused; nothing expands them.
//! - `*`, `?` and `[` are ordinary characters of a name that exists. Where nothing of that name exists, the entry is
//!   refused: it was meant as a pattern, and patterns are not supported.
//! - A blank at either end is refused for the same reason, unless something of that name exists.
//! - A path below what is no folder is refused.
//! - Links are followed to their end, through the deepest part that exists.

use crate::config::Entry;
use crate::error::{Failure, Kind, Result};
use crate::host::{Facts, Kind as FileKind, Located};
use landbox_shared::path::AbsPath;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The place a list entry means.
pub(super) fn locate(entry: &Entry, project: &AbsPath, facts: &Facts) -> Result<Located> {
    let path = expand(entry, project, &facts.home)?;
    let refuse = |why: &str| Err(refusal(entry, why));
    let Some(located) = facts.files.locate(&path) else {
        return refuse("the path is too long or its links lead in a circle");
    };
    if located.path.as_bytes() == b"/proc" || located.path.as_bytes().starts_with(b"/proc/") {
        return refuse("a session has a /proc of its own, which is fixed");
    }
    if located.kind == FileKind::Missing {
        let text = entry.text.as_bytes();
        if text.iter().any(|b| matches!(b, b'*' | b'?' | b'[')) {
            return refuse("patterns are not supported here, and nothing has that very name")
                .map_err(|f| f.hint("list each path, or hide the folder they lie in"));
        }
        if text.first().is_some_and(u8::is_ascii_whitespace)
            || text.last().is_some_and(u8::is_ascii_whitespace)
        {
            return refuse("the path starts or ends with a blank, and nothing has that very name");
        }
        // To hide what is below a file would take the file away.
        if let Some(file) = file_above(&located.path, facts) {
            return refuse(&format!("{file} is not a folder, so nothing can be below it"));
        }
    }
    Ok(located)
}

/// The deepest existing part of a missing path, if it is no folder.
fn file_above(path: &AbsPath, facts: &Facts) -> Option<AbsPath> {
    let mut above = path.parent();
    while let Some(part) = above {
        match facts.files.locate(part.as_path())?.kind {
            FileKind::Missing => above = part.parent(),
            FileKind::File | FileKind::Socket | FileKind::Special | FileKind::Link => {
                return Some(part);
            }
            FileKind::Dir | FileKind::Denied => return None,
        }
    }
    None
}

/// Expands `~` and relative paths, and refuses what nothing expands.
pub(super) fn expand(entry: &Entry, base: &AbsPath, home: &AbsPath) -> Result<PathBuf> {
    let text = entry.text.as_bytes();
    let refuse = |why: &str| Err(refusal(entry, why));
    if text.is_empty() {
        return refuse("the path is empty");
    }
    if text.contains(&0) {
        return refuse("the path has a NUL byte");
    }
    if text.split(|b| *b == b'/').any(is_variable) {
        return refuse("variables are not expanded here")
            .map_err(|f| f.hint("write the path out, or start it with ~"));
    }
    let rest = |tail: &[u8]| Path::new(OsStr::from_bytes(tail)).to_path_buf();
    match text {
        b"~" => Ok(home.to_path_buf()),
        [b'~', b'/', tail @ ..] => {
            // "~//x" is below home too: joining an absolute path would leave it.
            let cut = tail.iter().take_while(|b| **b == b'/').count();
            Ok(home.as_path().join(rest(&tail[cut..])))
        }
        [b'~', ..] => refuse("~user is not supported")
            .map_err(|f| f.hint("write that user's home folder out")),
        [b'/', ..] => Ok(rest(text)),
        _ => Ok(base.as_path().join(rest(text))),
    }
}

fn is_variable(part: &[u8]) -> bool {
    matches!(part, [b'$', b'{', ..])
        || matches!(part, [b'$', first, ..] if first.is_ascii_alphabetic() || *first == b'_')
}

/// An error about one entry that says where it was written.
pub(super) fn refusal(entry: &Entry, why: &str) -> Failure {
    Failure::new(Kind::Usage, format!("{entry}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Origin;

    fn entry(text: &str) -> Entry {
        Entry { text: text.into(), origin: Origin::Flag("--hide") }
    }

    fn expanded(text: &str) -> std::result::Result<String, String> {
        let (base, home) = (AbsPath::new("/p").unwrap(), AbsPath::new("/h").unwrap());
        expand(&entry(text), &base, &home)
            .map(|p| p.to_str().unwrap().to_owned())
            .map_err(|f| f.message)
    }

    #[test]
    fn every_entry_has_one_meaning_or_is_refused_by_name() {
        for (text, path) in [
            ("~", "/h"),
            ("~/", "/h/"),
            ("~/.ssh", "/h/.ssh"),
            ("~//etc", "/h/etc"),
            ("/etc/x", "/etc/x"),
            ("secrets", "/p/secrets"),
            ("./secrets", "/p/./secrets"),
            ("../sibling/key", "/p/../sibling/key"),
            ("a$b", "/p/a$b"),
            ("$", "/p/$"),
            ("a~", "/p/a~"),
        ] {
            assert_eq!(expanded(text).as_deref(), Ok(path), "{text}");
        }
        for (text, why) in [
            ("", "empty"),
            ("~otheruser/.ssh", "~user"),
            ("$HOME/.aws", "variables"),
            ("/x/${USER}", "variables"),
            ("a\0b", "NUL"),
        ] {
            let message = expanded(text).unwrap_err();
            assert!(message.contains(why) && message.contains("--hide"), "{message}");
        }
    }
}
