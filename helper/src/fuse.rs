//! The daemons of layers that the kernel's overlay can't carry: `fuse-overlayfs`, one a layer.
//!
//! A daemon runs in N's user namespace, so that it serves files as the task's own, but in the monitor's pid namespace,
//! out of the task's reach. It keeps its capabilities over N: without them the task could trace it. It gets /dev/fuse
//! already mounted by init, and lowers, upper and work folder as descriptors: no path goes into its options.

use crate::daemon::{Daemon as Running, Start};
use crate::failure::{Failure, Stage, refused};
use crate::sys::process::Child;
use landbox_shared::id::LayerId;
use landbox_shared::{bytes, overlay};
use nix::sched::{CloneFlags, setns, unshare};
use std::os::fd::OwnedFd;

/// One running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) layer: LayerId,
    pub(crate) running: Running,
}

/// Starts a daemon. `fds` are /dev/fuse, the lowers (topmost first), the upper and the work folder.
pub(crate) fn start(init: &Child, layer: LayerId, fds: &[OwnedFd]) -> Result<Daemon, Failure> {
    let join = || {
        // The folders are opened by their paths, which lead to the mask folders in init's mount namespace alone.
        setns(&init.pidfd, CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
        // One of its own, made from it, keeps the host's /proc, in which the descriptors are named.
        unshare(CloneFlags::CLONE_NEWNS)
    };
    let (fds, arguments) = (fds.iter().collect(), overlay::fuse_program);
    let start = Start { stage: Stage::Layer, descriptors: u64::MAX, fds, join, arguments };
    Ok(Daemon { layer, running: start.start()? })
}

impl Daemon {
    /// What is said of a daemon that ended by itself.
    pub(crate) fn ended(&self, stage: Stage) -> Failure {
        // File names reach this text, and the task chose them.
        let why = bytes::last_line(&self.running.said());
        // What it says as it starts is no reason for its end.
        let why = why.filter(|line| !line.starts_with("unknown argument ignored"));
        let why = why.as_deref().unwrap_or("without a word");
        refused(stage, format!("the daemon of layer {} ended: {why}", self.layer))
    }
}
