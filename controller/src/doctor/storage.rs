//! The state folder and the two overlays.

use super::trial::Outcome;
use super::{Check, Status, from_failure, install, machine, quote, sudo, upper_problem};
use crate::host::{Facts, Fuse};
use crate::policy::layers::{fuse_refuses, kernel_refuses};
use crate::session::store::{StateDir, show};
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::path::Path;

/// The state folder, and whether sessions can be kept there.
pub(super) fn state_dir(facts: &Facts) -> (Check, bool) {
    const ID: &str = "state";
    if let Err(failure) = StateDir::open(facts.state_dir.as_path()) {
        return (from_failure(ID, failure), false);
    }
    if let Some((found, fix)) = unwritable(facts.state_dir.as_path()) {
        let fix = format!("{fix}, or export LANDBOX_STATE_DIR=DIR    (another folder)");
        return (Check::bad(ID, Status::Failed, found, "no session can be run", Some(fix)), false);
    }
    let check = match upper_problem(facts) {
        None => Check::ok(ID, facts.state_dir.to_string()),
        Some(why) => Check::bad(
            ID,
            Status::Warning,
            why,
            "the kernel's overlay can't keep layers there; sessions use fuse-overlayfs, which is slower",
            Some("export LANDBOX_STATE_DIR=DIR    (a folder on a disk of its own, in a container a volume)".into()),
        ),
    };
    (check, true)
}

/// Why nothing can be written in a folder of the caller's, and what helps.
fn unwritable(dir: &Path) -> Option<(String, String)> {
    let stat = statvfs(dir).ok()?;
    let shown = show(dir);
    if stat.f_flag.contains(StatVfsMountFlags::RDONLY) {
        let fix = format!("{}mount -o remount,rw \"$(stat -c %m {})\"", sudo(), quote(dir));
        return Some((format!("{shown} lies on a file system that is mounted read-only"), fix));
    }
    // Some file systems have no number of files to run out of.
    let full =
        (stat.f_blocks > 0 && stat.f_bavail == 0) || (stat.f_files > 0 && stat.f_favail == 0);
    full.then(|| (format!("{shown} lies on a file system that is full"), "landbox gc".to_owned()))
}

pub(super) fn kernel_overlay(facts: &Facts, kernel: &Outcome, fuse: Option<&Outcome>) -> Check {
    const ID: &str = "kernel_overlay";
    if kernel.works() {
        return match kernel_refuses(facts, &facts.home) {
            None => Check::ok(ID, "mounted on the state folder and tried"),
            // Fine in itself, but not for this home: worth a line, as it decides the speed.
            Some(why) => Check::ok(
                ID,
                format!("mounted on the state folder and tried; your home needs fuse: {why}"),
            ),
        };
    }
    if let Some(check) = blocked(ID, kernel, fuse) {
        return check;
    }
    let falls_back = fuse.is_some_and(Outcome::works);
    let (status, cost) = if falls_back {
        (Status::Warning, "sessions use fuse-overlayfs, which is slower")
    } else {
        (Status::Failed, "no session can be run")
    };
    let found = upper_problem(facts).map_or_else(|| kernel.reason(), str::to_owned);
    Check::bad(ID, status, found, cost, None)
}

/// Both fail for one reason, which is not theirs: the line about sessions has it.
fn blocked(id: &'static str, kernel: &Outcome, fuse: Option<&Outcome>) -> Option<Check> {
    let same = fuse.filter(|fuse| !fuse.works() && fuse.reason() == kernel.reason());
    same.map(|_| {
        let cost = "unknown until sessions run";
        Check::bad(id, Status::Warning, "not reached, see session", cost, None)
    })
}

pub(super) fn fuse_overlay(facts: &Facts, kernel: &Outcome, fuse: Option<&Outcome>) -> Check {
    const ID: &str = "fuse";
    if fuse.is_some_and(Outcome::works) {
        return Check::ok(ID, "fuse-overlayfs mounted on the state folder and tried");
    }
    if let Some(check) = blocked(ID, kernel, fuse) {
        return check;
    }
    let (status, cost) = if !kernel.works() {
        (Status::Failed, "no session can be run")
    } else if kernel_refuses(facts, &facts.home).is_some() {
        (Status::Failed, "no session can be run: your home folder needs it")
    } else {
        (Status::Warning, "folders that contain other mounts can't be run in")
    };
    let found = match (fuse_refuses(facts), fuse) {
        (Some(why), _) => why.to_owned(),
        (None, Some(outcome)) => outcome.reason(),
        (None, None) => "not tried".to_owned(),
    };
    let fix = match facts.fuse {
        Fuse::NoProgram => Some(install::command()),
        Fuse::NoDevice if machine::exists("/dev/fuse") => {
            Some(format!("{}chmod 666 /dev/fuse", sudo()))
        }
        Fuse::NoDevice => Some(format!(
            "{}modprobe fuse    (in a container: docker run --device /dev/fuse)",
            sudo()
        )),
        Fuse::Yes => None,
    };
    Check::bad(ID, status, found, cost, fix)
}
