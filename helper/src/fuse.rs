//! The daemons of layers that the kernel's overlay can't carry: `fuse-overlayfs`, one a layer.
//!
//! A daemon runs in N's user namespace, so that it serves files as the task's own, but in the monitor's pid namespace,
//! out of the task's reach. It keeps its capabilities over N: without them the task could trace it. It gets /dev/fuse
//! already mounted by init, and lowers, upper and work folder as descriptors: no path goes into its options.

use crate::failure::{Context, Failure, Stage, refused};
use crate::sys::fd;
use crate::sys::process::{self, Child};
use landbox_shared::id::LayerId;
use landbox_shared::{bytes, overlay};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{dup2_stderr, execve, pipe2};
use std::convert::Infallible;
use std::ffi::CStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{OwnedFd, RawFd};

const PROGRAM: &CStr = c"/usr/bin/fuse-overlayfs";
/// Numbers above all that are open here, so that moving one descriptor never closes another.
const FIRST: RawFd = 512;

/// One running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) layer: LayerId,
    pub(crate) child: Child,
    complaints: File,
}

/// Starts a daemon. `fds` are /dev/fuse, the lowers (topmost first), the upper and the work folder. If it can't be
/// executed it has ended, and says why as it would of anything else.
pub(crate) fn start(init: &Child, layer: LayerId, fds: &[OwnedFd]) -> Result<Daemon, Failure> {
    const STAGE: Stage = Stage::Layer;
    // What the daemon complains about is read only if it ends: it must not wait for us when the pipe is full.
    let flags = OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let (complaints, stderr) = pipe2(flags).stage(STAGE, "making a pipe")?;
    let child = process::clone(CloneFlags::empty());
    let Some(child) = child.stage(STAGE, "making the daemon's process")? else {
        let Err(errno) = become_daemon(&init.pidfd, &stderr, fds);
        let _ = writeln!(std::io::stderr(), "fuse-overlayfs can't be started: {}", errno.desc());
        process::leave(127)
    };
    Ok(Daemon { layer, child, complaints: complaints.into() })
}

/// In the child. Comes back only with what failed.
fn become_daemon(init: &OwnedFd, stderr: &OwnedFd, fds: &[OwnedFd]) -> nix::Result<Infallible> {
    // First, so that what fails can be told.
    dup2_stderr(stderr)?;
    // The folders are opened by their paths, which lead to the mask folders in init's mount namespace alone.
    setns(init, CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
    // One of its own, made from it, keeps the host's /proc, in which the descriptors are named.
    unshare(CloneFlags::CLONE_NEWNS)?;
    // After setns, which clears it.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    process::default_action(Signal::SIGPIPE)?;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    let kept = fds.iter().map(|fd| fcntl(fd, FcntlArg::F_DUPFD(FIRST)));
    let kept = kept.collect::<nix::Result<Vec<RawFd>>>()?;
    let [options, mountpoint] = overlay::fuse_program(&kept).ok_or(Errno::EINVAL)?;
    fd::close_range(3, FIRST - 1)?;
    fd::close_range(kept.last().unwrap_or(&FIRST) + 1, RawFd::MAX)?;
    execve(PROGRAM, &[PROGRAM, c"-f", c"-o", &options, &mountpoint], &[] as &[&CStr])
}

impl Daemon {
    /// What is said of a daemon that ended by itself.
    pub(crate) fn ended(&self, stage: Stage) -> Failure {
        let mut said = [0; 512];
        let length = (&self.complaints).read(&mut said).unwrap_or(0);
        // File names reach this text, and the task chose them.
        let why = bytes::last_line(said.get(..length).unwrap_or_default());
        let why = why.as_deref().unwrap_or("without a word");
        let detail = format!("the daemon of layer {} ended: {why}", self.layer);
        refused(stage, detail)
    }

    /// Kills the daemon and waits for its end. The layer's last user is gone by then, and the kernel has handed the
    /// daemon every write when the file was closed.
    pub(crate) fn end(&self) {
        crate::ns::end(&self.child);
    }
}
