//! Faults that people reported of systems doing parts of this job, each tried here in the smallest form that could happen
//! to Landbox. What other files of the suite already hold (replaced folders, masks, deaths, job control, the system-call
//! filter) is not repeated: `tests/REPORTS.md` says which test holds what.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

mod boundary;
mod landing;
mod lifecycle;
mod names;
mod overlays;
mod patches;
mod rules;
mod setup;
mod table;

use landbox_tests::Place;
use landbox_tests::run::{Out, Run};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What a file holds.
#[track_caller]
fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Permission bits.
fn mode(path: impl AsRef<Path>) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// Another program, run as the session's user with the session's home.
fn host(place: &Place, program: &str, args: &[&str], cwd: &Path) -> Run {
    let mut run = place.landbox(args);
    run.program(program).cwd(cwd);
    for (n, (name, value)) in
        [("user.name", "T"), ("user.email", "t@example.org"), ("protocol.file.allow", "always")]
            .into_iter()
            .enumerate()
    {
        run.env(format!("GIT_CONFIG_KEY_{n}"), name).env(format!("GIT_CONFIG_VALUE_{n}"), value);
    }
    run.env("GIT_CONFIG_COUNT", "3");
    run
}

/// Git on the host, which must succeed.
#[track_caller]
fn git(place: &Place, dir: &Path, args: &[&str]) -> String {
    host(place, "/usr/bin/git", args, dir).output().ok().text()
}

/// A copy of the project as it is, for what git makes of the patch.
fn copy_of(place: &Place, name: &str) -> PathBuf {
    let copy = place.outside.join(name);
    let [from, to] = [&place.project, &copy].map(|p| p.to_str().unwrap());
    host(place, "/bin/cp", &["-a", from, to], &place.outside).output().ok();
    copy
}

/// The newest session's patch, as a file of the user's.
fn patch(place: &Place) -> PathBuf {
    let path = place.outside.join("changes.patch");
    place.landbox(["land", "--patch", path.to_str().unwrap()]).output().ok();
    path
}

/// Applies everything.
#[track_caller]
fn land(place: &Place) -> Out {
    place.landbox(["land", "--apply", "--yes"]).risks_accepted().output().ok()
}

/// Kinds and paths of the newest session's changes.
fn kinds(place: &Place) -> Vec<String> {
    place.changes().into_iter().map(|(path, kind)| format!("{kind} {path}")).collect()
}

/// The change of `path` on a card.
#[track_caller]
fn change<'a>(card: &'a Value, path: &str) -> &'a Value {
    let changes = card["changes"].as_array().unwrap();
    let found = changes.iter().find(|c| c["path"] == path);
    found.unwrap_or_else(|| panic!("{path} is not on {card:#}"))
}

/// Fails the test if `text` could drive a terminal. (Tabs belong to text, and to what a patch puts behind a name with blanks.)
#[track_caller]
fn harmless_to_a_terminal(text: &str) {
    let bad = text.chars().find(|c| c.is_control() && !['\n', '\t'].contains(c));
    assert_eq!(bad, None, "{text:?}");
}
