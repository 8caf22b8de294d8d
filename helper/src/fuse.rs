//! The daemons of layers that the kernel's overlay can't carry: `fuse-overlayfs`, one a layer.
//!
//! A daemon runs in N's user namespace, so that it serves files as the task's own, but in the monitor's pid namespace,
//! out of the task's reach. It keeps its capabilities over N: without them the task could trace it. It gets /dev/fuse
//! already mounted by init, and lowers, upper and work folder as descriptors: no path goes into its options.
//!
//! It outlives the monitor. When that is killed the task goes down with init, and as its files and maps are closed the
//! kernel still hands over what was written to them; then the mount is gone, and with it the daemon. Until then it holds
//! the session's lock, so that nobody mounts the layer anew.

use crate::daemon::{Daemon as Running, Start};
use crate::failure::{Failure, Stage, refused};
use crate::sys::process::Child;
use landbox_shared::id::LayerId;
use landbox_shared::overlay;
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::setsid;
use std::os::fd::OwnedFd;

/// One running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) layer: LayerId,
    pub(crate) running: Running,
}

/// Starts a daemon. `fds` are /dev/fuse, the lowers (topmost first), the upper and the work folder, and the session's lock.
pub(crate) fn start(init: &Child, layer: LayerId, fds: &[OwnedFd]) -> Result<Daemon, Failure> {
    let join = || {
        // The folders are opened by their paths, which lead to the mask folders in init's mount namespace alone.
        setns(&init.pidfd, CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
        // One of its own, made from it, keeps the host's /proc, in which the descriptors are named.
        // Its own mount must not be in there yet: it would keep itself.
        unshare(CloneFlags::CLONE_NEWNS)?;
        // A terminal that hangs up would end it before the task is gone.
        setsid().map(drop)
    };
    let (fds, arguments) = (fds.iter().collect(), overlay::fuse_program);
    let start = Start { stage: Stage::Layer, descriptors: u64::MAX, fds, join, arguments };
    Ok(Daemon { layer, running: start.start()? })
}

impl Daemon {
    /// What is said of a daemon that ended by itself.
    pub(crate) fn ended(&self, stage: Stage) -> Failure {
        refused(stage, overlay::ended(&self.layer, &self.running.said()))
    }
}
