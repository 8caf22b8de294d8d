//! The link: `slirp4netns`, started by the monitor. It carries what passes the rules between the session's network
//! namespace and ordinary sockets of the caller's on the host.
//!
//! It runs in the monitor's pid namespace, out of the task's reach, with an empty environment and no descriptor but its
//! own three. It joins N by init's number, the one way in which it also shuts itself in (`--enable-sandbox`), and ends
//! when its exit descriptor is closed: by us, or by the monitor's death.

use crate::daemon::{Daemon, Start};
use crate::failure::{Context, Failure, Stage, refused_at, require_at};
use crate::sys::process::Child;
use landbox_shared::network::link::{PROGRAM, arguments, ended_early};
use nix::fcntl::OFlag;
use nix::sys::{prctl, signal::Signal};
use nix::unistd::{AccessFlags, access, pipe2, read, setsid};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

const STAGE: Stage = Stage::Network;
const TUN: &str = "/dev/net/tun";
/// How long it may take until it is ready; usually a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to end; usually 30 ms.
const FAREWELL: u16 = 2000;
/// Most descriptors: one for each connection of the task's, which might try to use them all up.
const DESCRIPTORS: u64 = 4096;

/// A running link.
#[derive(Debug)]
pub(crate) struct Link {
    daemon: Daemon,
    /// Becomes readable when it is ready; taken by then.
    ready: Option<OwnedFd>,
    /// Closed to end it.
    exit: OwnedFd,
    since: Instant,
}

/// Whether what the link needs is there. Before anything is made.
pub(crate) fn probe() -> Result<(), Failure> {
    let tun = access(TUN, AccessFlags::R_OK | AccessFlags::W_OK);
    let how = "opening it for the link (modprobe tun; in a container, pass this device in)";
    tun.at(STAGE, TUN, how)?;
    let program = access(PROGRAM, AccessFlags::X_OK);
    program.at(STAGE, PROGRAM, "looking for the link's program (install the package slirp4netns)")
}

impl Link {
    /// Starts it for the network namespace of `init`.
    pub(crate) fn start(init: &Child, sandboxed: bool) -> Result<Self, Failure> {
        let pipe = || pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).stage(STAGE, "making a pipe");
        let ((ready, its_ready), (its_exit, exit)) = (pipe()?, pipe()?);
        let start = Start {
            stage: STAGE,
            descriptors: DESCRIPTORS,
            fds: vec![&its_ready, &its_exit],
            // It joins N itself. Out of the terminal's reach.
            join: || setsid().and_then(|_| prctl::set_pdeathsig(Signal::SIGKILL)),
            arguments: |fds: &[i32]| arguments(init.pid.as_raw(), sandboxed, fds),
        };
        Ok(Self { daemon: start.start()?, ready: Some(ready), exit, since: Instant::now() })
    }

    /// What becomes readable when it has ended, and, until it is ready, when it is.
    pub(crate) fn watched(&self) -> [BorrowedFd<'_>; 2] {
        let ended = self.daemon.child.pidfd.as_fd();
        [ended, self.ready.as_ref().map_or(ended, AsFd::as_fd)]
    }

    /// Whether it is ready; a failure if it ended or took too long.
    pub(crate) fn is_ready(&mut self) -> Result<bool, Failure> {
        let Some(ready) = &self.ready else { return Ok(true) };
        let mut word = [0; 8];
        match read(ready, &mut word) {
            Ok(length) if length > 0 => self.ready = None,
            // Closed without a word.
            Ok(_) => return Err(self.ended()),
            Err(_) => {
                let late = self.since.elapsed() > PATIENCE;
                require_at(!late, STAGE, PROGRAM, "the link did not become ready in 10 seconds")?;
            }
        }
        Ok(self.ready.is_none())
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.daemon.child.ends_within(0)
    }

    /// What is said of a link that ended before the task began.
    pub(crate) fn ended(&self) -> Failure {
        // Its last words come with its end.
        self.daemon.child.ends_within(FAREWELL);
        refused_at(STAGE, PROGRAM, ended_early(&self.daemon.said()))
    }

    /// Ends it. What is left of it then does nothing any more but give back what it had, most of all the interface, for
    /// which the kernel takes 20 ms.
    pub(crate) fn close(self) -> Daemon {
        let Self { daemon, ready: _ready, exit, since: _ } = self;
        drop(exit);
        daemon.kill();
        daemon
    }
}
