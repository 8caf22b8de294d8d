//! The first acts, before anything is read: close what was not given, forget the environment, check what we are.

use crate::channel::Events;
use crate::failure::{Context, Failure, Stage};
use crate::{caps, sys};
use landbox_shared::evidence::{HelperMode, NAMESPACES};
use landbox_shared::procfs::is_initial_map;
use landbox_shared::readback::Inodes;
use landbox_shared::trust::{self, Place};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{chdir, getegid, geteuid};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

const STAGE: Stage = Stage::Start;
const PASSWD: &str = "/etc/passwd";
/// Longest list of users read.
const PASSWD_BYTES: u64 = 1 << 20;

/// Who called, and how: read once.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// With what rights we run.
    pub(crate) mode: HelperMode,
    /// The caller's `uid_map` and `gid_map`.
    pub(crate) maps: [String; 2],
    /// The folders of keys that may sign for the caller.
    pub(crate) trusted: Vec<Place>,
    /// What the task gets back.
    pub(crate) umask: Mode,
    /// What the task gets back.
    pub(crate) core_limit: (rlim_t, rlim_t),
    /// The caller's namespaces.
    pub(crate) namespaces: Inodes,
}

/// Closes every other descriptor and takes the two: the pipe that brings the envelope, and the event socket. `None` if
/// this was not started by a controller. (0 to 2 are open: the standard library saw to it.)
pub(crate) fn inherit() -> Option<(OwnedFd, Events)> {
    sys::fd::close_range(5, i32::MAX).ok()?;
    let (envelope, events) = sys::fd::adopt()?;
    Some((envelope, Events::new(events)?))
}

/// Does the rest of the first acts.
pub(crate) fn start() -> Result<Caller, Failure> {
    let (config_home, home) = (std::env::var_os("XDG_CONFIG_HOME"), std::env::var_os("HOME"));
    // No core of it, whatever becomes of it; no look into it by another process of the caller's.
    prctl::set_dumpable(false).stage(STAGE, "closing this process's memory")?;
    sys::process::clear_environment().stage(STAGE, "clearing the environment")?;
    // Ignored, which a caller hands on, we would never hear of a child.
    sys::process::default_action(Signal::SIGCHLD).stage(STAGE, "hearing of children")?;
    let umask = umask(Mode::from_bits_truncate(0o077));
    // The fast path; EOF on the event socket is the proof of the controller's death. Executing a file with capabilities
    // cleared what the controller may have set, so it is set here. A controller that died before this line has closed
    // its end of the socket: sending the challenge fails.
    prctl::set_pdeathsig(Signal::SIGKILL).stage(STAGE, "tying this process to its caller")?;

    // A monitor that stood in the caller's folder would keep its file system busy. And pivot_root moves every process that
    // stands in the old root along: the task must not stand elsewhere.
    chdir("/").stage(STAGE, "leaving the caller's folder")?;

    let read = |path: &str| fs::read_to_string(path).at(STAGE, path, "reading a map");
    let maps = [read("/proc/self/uid_map")?, read("/proc/self/gid_map")?];
    let on_host = is_initial_map(&maps[0]);
    let mode = caps::own_mode(on_host)?;
    let limit @ (_, hard) = getrlimit(Resource::RLIMIT_CORE).stage(STAGE, "reading a limit")?;
    // Our memory holds the task's environment. Not 0, which holds back files alone: with 1 no program gets a core, either.
    // Only the soft limit: the task gets its own back.
    setrlimit(Resource::RLIMIT_CORE, hard.min(1), hard).stage(STAGE, "setting the core limit")?;

    // A list that can't be read names no home, so that fewer keys count.
    let users = (mode == HelperMode::Root).then(|| bounded(PASSWD, PASSWD_BYTES).ok()).flatten();
    let config = trust::config_folder(config_home, home);
    Ok(Caller {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        mode,
        maps,
        trusted: trust::places(mode, on_host, config, &users.unwrap_or_default()),
        umask,
        core_limit: limit,
        namespaces: namespaces("self", STAGE)?,
    })
}

fn bounded(path: &str, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit).read_to_end(&mut bytes).map(|_| bytes)
}

/// Reads which namespaces a process is in.
pub(crate) fn namespaces(process: &str, stage: Stage) -> Result<Inodes, Failure> {
    let mut inodes = [0; NAMESPACES.len()];
    for (inode, kind) in inodes.iter_mut().zip(NAMESPACES) {
        let path = format!("/proc/{process}/ns/{kind}");
        *inode = fs::metadata(&path).at(stage, &path, "reading a namespace")?.ino();
    }
    Ok(inodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::getcwd;
    use std::path::Path;
    use std::process::Command;

    const INSIDE: &str = "LANDBOX_TEST_OF_FIRST_ACTS";

    /// In a process of its own, by one thread of it: what is given up is given up for good.
    #[test]
    fn the_first_acts_forget_the_environment_and_tie_the_helper_to_its_caller() {
        if std::env::var_os(INSIDE).is_none() {
            let name = "start::tests::the_first_acts_forget_the_environment_and_tie_the_helper_to_its_caller";
            let mut inside = Command::new(std::env::current_exe().unwrap());
            inside.args([name, "--exact", "--test-threads=1", "--nocapture"]);
            let out = inside.env(INSIDE, "1").env("LD_PRELOAD_LATER", "x").output().unwrap();
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            let errors = String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success() && said.contains("1 passed"), "{said} {errors}");
            return;
        }
        let caller = start().unwrap();
        assert_eq!(std::env::vars_os().collect::<Vec<_>>(), []);
        assert_eq!(prctl::get_pdeathsig(), Ok(Some(Signal::SIGKILL)));
        assert_eq!(prctl::get_dumpable(), Ok(false));
        assert_eq!(getcwd().as_deref(), Ok(Path::new("/")));
        let (soft, hard) = getrlimit(Resource::RLIMIT_CORE).unwrap();
        assert!(soft <= 1 && hard == caller.core_limit.1, "{soft} {hard}");
        assert_eq!(umask(caller.umask).bits(), 0o077);
    }
}
