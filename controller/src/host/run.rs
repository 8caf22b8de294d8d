//! What must be shown again below the private `/run`: a file that `/etc` points to, a folder of executables.

use super::files::{Files, Kind};
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
    below(b"/run", files, path)
}

/// [`shown_again`] for another folder than `/run`.
fn below(run: &[u8], files: &Files, path: &Path) -> Vec<Shown> {
    let in_run = |path: &AbsPath| {
        path.as_bytes().strip_prefix(run).is_some_and(|rest| rest.first() == Some(&b'/'))
    };
    let Some(end) = files.locate(path) else { return Vec::new() };
    if !matches!(end.kind, Kind::Dir | Kind::File) {
        return Vec::new();
    }
    let mut shown: Vec<Shown> = Vec::new();
    let is_covered =
        |shown: &[Shown], path: &AbsPath| shown.iter().any(|s| path.is_within(&s.target));
    for hop in &end.hops {
        if !in_run(&hop.link) || is_covered(&shown, &hop.link) {
            continue;
        }
        // A link out of /run is replaced by the whole folder it leads to, so that neighbours which the executables
        // reach by relative links are there too; a link within /run shows no more than the path itself.
        let led = files.locate(hop.link.as_path());
        match led.filter(|led| led.kind == Kind::Dir && !in_run(&led.path) && led.path.depth() > 1)
        {
            Some(led) => shown.push(Shown { source: led.path, target: hop.link.clone() }),
            None => {
                if let Some(walked) = hop.walked.as_ref().filter(|w| !is_broad(run, w)) {
                    shown.push(Shown { source: end.path.clone(), target: walked.clone() });
                }
            }
        }
    }
    if in_run(&end.path) && !is_covered(&shown, &end.path) {
        shown.push(Shown { source: end.path.clone(), target: end.path });
    }
    shown.retain(|shown| !is_broad(run, &shown.source));
    shown
}

/// Folders that hold everybody's sockets: never shown as a whole.
fn is_broad(run: &[u8], path: &AbsPath) -> bool {
    path.as_bytes().strip_prefix(run).is_some_and(|rest| {
        let mut parts = rest.split(|b| *b == b'/').skip(1);
        match (parts.next(), parts.next(), parts.next()) {
            (None, _, _) | (Some(b"user" | b"lock" | b"systemd" | b"dbus"), None, _) => true,
            (Some(b"user"), Some(_), None) => true,
            (Some(_), _, _) => false,
        }
    })
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
    let linked = links(search_path);
    let programs = programs.into_iter().chain(linked).filter_map(|program| program.parent());
    let mut found = Vec::new();
    for folder in entries.chain(programs) {
        // A session's own folder is made by the plan.
        if !super::is_below(&folder, super::INSIDE)
            && !found.contains(&folder)
            && files.locate(folder.as_path()).is_some_and(|l| l.kind == Kind::Dir)
            && !shown_again(files, folder.as_path()).is_empty()
        {
            found.push(folder);
        }
    }
    found
}

/// Most entries of one folder that are looked at: the start must not wait for a huge one.
const ENTRIES: usize = 1024;

/// What the links in the caller's own folders of `search_path` lead to below `/run`: version managers put the links in
/// one folder and the programs in another. A distribution's folders have hundreds of links, and none of that kind.
fn links(search_path: &OsStr) -> Vec<AbsPath> {
    let system = |folder: &AbsPath| {
        ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/games"]
            .iter()
            .any(|path| folder.as_bytes() == path.as_bytes())
    };
    let folders = search_path.as_bytes().split(|b| *b == b':').map(OsStr::from_bytes);
    let mut found = Vec::new();
    for folder in folders.filter_map(normal).filter(|folder| !system(folder)) {
        let Ok(entries) = std::fs::read_dir(folder.as_path()) else { continue };
        for entry in entries.take(ENTRIES).flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                continue;
            }
            let Ok(target) = std::fs::read_link(entry.path()) else { continue };
            let through = |run: &str| target.starts_with(run);
            if through("/run") || through("/var/run") {
                found.extend(normal(target.as_os_str()));
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_what_is_needed_of_run_is_shown_and_links_keep_their_neighbours() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let make = |path: &str| std::fs::create_dir_all(root.join(path)).unwrap();
        for folder in
            ["run/user/1000/own/bin", "run/user/1000/multi", "store/v20/bin", "run/resolve", "etc"]
        {
            make(folder);
        }
        std::fs::write(root.join("run/resolve/stub.conf"), "x").unwrap();
        symlink(root.join("store/v20"), root.join("run/user/1000/multi/7")).unwrap();
        symlink("../run/first.conf", root.join("etc/resolv.conf")).unwrap();
        symlink("resolve/stub.conf", root.join("run/first.conf")).unwrap();
        symlink("/nowhere/at/all", root.join("run/dangling")).unwrap();
        symlink(root.join("run"), root.join("var-run")).unwrap();
        symlink("user", root.join("run/everybody")).unwrap();
        let run = [root.to_str().unwrap(), "/run"].concat().into_bytes();
        let strip = |p: &AbsPath| p.as_path().strip_prefix(&root).unwrap().display().to_string();
        let shown = |path: &str| -> Vec<String> {
            below(&run, &Files::default(), &root.join(path))
                .iter()
                .map(|s| format!("{} on {}", strip(&s.source), strip(&s.target)))
                .collect()
        };
        let own = "run/user/1000/own/bin";
        assert_eq!(shown(own), [format!("{own} on {own}")]);
        assert_eq!(shown("var-run/user/1000/own/bin"), [format!("{own} on {own}")]);
        // The whole version, so that bin/npm -> ../lib/… leads somewhere.
        assert_eq!(shown("run/user/1000/multi/7/bin"), ["store/v20 on run/user/1000/multi/7"]);
        assert_eq!(
            shown("etc/resolv.conf"),
            [
                "run/resolve/stub.conf on run/first.conf",
                "run/resolve/stub.conf on run/resolve/stub.conf"
            ]
        );
        for nothing in [
            "store/v20/bin",
            "run/dangling",
            "run",
            "run/user",
            "run/user/1000",
            "run/everybody",
            "run/no",
        ] {
            assert_eq!(shown(nothing), [""; 0], "{nothing}");
        }
    }
}
