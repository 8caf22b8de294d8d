//! What must be shown again below the private `/run`: a file that `/etc` points to, a folder of executables.

use super::files::{Files, Kind, Located};
use landbox_shared::path::AbsPath;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A real path and the place below `/run` where it is shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shown {
    /// The real path.
    pub source: AbsPath,
    /// Where it is needed; differs from the source where a link below `/run` led there.
    pub target: AbsPath,
}

/// Whether `path` is hidden by the private `/run`.
pub fn is_in_run(path: &AbsPath) -> bool {
    path.as_bytes().starts_with(b"/run/")
}

/// What makes `path` reachable although `/run` is private. Nothing if it does not lead through `/run`.
pub fn shown_again(files: &Files, path: &Path) -> Vec<Shown> {
    let Some(end) = files.locate(path) else { return Vec::new() };
    if !matches!(end.kind, Kind::Dir | Kind::File) {
        return Vec::new();
    }
    let mut shown: Vec<Shown> = Vec::new();
    let is_covered =
        |shown: &[Shown], path: &AbsPath| shown.iter().any(|s| path.is_within(&s.target));
    for hop in &end.hops {
        if !is_in_run(&hop.link) || is_covered(&shown, &hop.link) {
            continue;
        }
        // A link out of /run is replaced by the whole folder it leads to, so that neighbours which the executables
        // reach by relative links are there too; a link within /run shows no more than the path itself.
        match files.locate(hop.link.as_path()) {
            Some(led) if leaves_run(&led) => {
                shown.push(Shown { source: led.path, target: hop.link.clone() });
            }
            Some(_) | None => {
                if let Some(walked) = &hop.walked {
                    shown.push(Shown { source: end.path.clone(), target: walked.clone() });
                }
            }
        }
    }
    if is_in_run(&end.path) && !is_broad(&end.path) && !is_covered(&shown, &end.path) {
        shown.push(Shown { source: end.path.clone(), target: end.path });
    }
    shown
}

fn leaves_run(led: &Located) -> bool {
    led.kind == Kind::Dir && !is_in_run(&led.path) && led.path.depth() > 1
}

/// Folders that hold everybody's sockets: never shown as a whole.
fn is_broad(path: &AbsPath) -> bool {
    let bytes = path.as_bytes();
    bytes == b"/run/user" || bytes == b"/run/lock" || {
        bytes.starts_with(b"/run/user/") && path.depth() == 3
    }
}

/// What the links of `/etc` need from `/run` (name resolution above all).
pub fn needed_by_etc(files: &Files) -> Vec<Shown> {
    let Ok(entries) = std::fs::read_dir("/etc") else { return Vec::new() };
    let mut shown = Vec::new();
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|t| t.is_symlink()) {
            let path = Path::new("/etc").join(entry.file_name());
            shown.extend(shown_again(files, &path));
        }
    }
    shown.sort();
    shown.dedup();
    shown
}

/// The folders of `search_path`, and the folders of `programs`, that lead through `/run`.
pub fn folders(
    files: &Files,
    search_path: &OsStr,
    programs: impl IntoIterator<Item = AbsPath>,
) -> Vec<AbsPath> {
    let entries = search_path
        .as_bytes()
        .split(|b| *b == b':')
        .filter_map(|entry| normal(OsStr::from_bytes(entry)));
    let mut found = Vec::new();
    for folder in entries.chain(programs.into_iter().filter_map(|p| p.parent())) {
        if !found.contains(&folder)
            && files.locate(folder.as_path()).is_some_and(|l| l.kind == Kind::Dir)
            && !shown_again(files, folder.as_path()).is_empty()
        {
            found.push(folder);
        }
    }
    found
}

/// A path without empty and `.` parts; `None` if it is relative or has a `..`.
fn normal(path: &OsStr) -> Option<AbsPath> {
    if !path.as_bytes().starts_with(b"/") {
        return None;
    }
    let mut out = Vec::new();
    for part in path.as_bytes().split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".") {
        out.push(b'/');
        out.extend_from_slice(part);
    }
    AbsPath::new(out).ok()
}
