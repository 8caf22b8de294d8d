//! The daemons of layers that the kernel's overlay can't carry: `fuse-overlayfs`, one a layer.
//!
//! A daemon runs in N's user namespace, so that it serves files as the task's own, but in the monitor's pid namespace,
//! out of the task's reach. It keeps its capabilities over N: without them the task could trace it. It gets /dev/fuse
//! already mounted by init, and lowers, upper and work folder as descriptors: no path goes into its options.

use crate::failure::{Context, Failure, Stage, failed, refused_at};
use crate::sys::fd;
use crate::sys::process::{self, Child};
use landbox_shared::bytes;
use landbox_shared::id::LayerId;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{dup2_stderr, execve, pipe2};
use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{OwnedFd, RawFd};

const PROGRAM: &str = "/usr/bin/fuse-overlayfs";
/// Numbers above all that are open here, so that moving one descriptor never closes another.
const FIRST: RawFd = 512;

/// One running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) layer: LayerId,
    pub(crate) child: Child,
    complaints: File,
}

/// Starts a daemon. `fds` are /dev/fuse, the lowers (topmost first), the upper and the work folder.
pub(crate) fn start(init: &Child, layer: LayerId, fds: &[OwnedFd]) -> Result<Daemon, Failure> {
    const STAGE: Stage = Stage::Layer;
    let (ours, theirs) = pipe2(OFlag::O_CLOEXEC).stage(STAGE, "making a pipe")?;
    // What the daemon complains about is read only if it ends: it must not wait for us when the pipe is full.
    let flags = OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let (complaints, stderr) = pipe2(flags).stage(STAGE, "making a pipe")?;
    let child = process::clone(CloneFlags::empty());
    let Some(child) = child.stage(STAGE, "making the daemon's process")? else {
        let Err(errno) = become_daemon(&init.pidfd, &stderr, fds, &theirs);
        let _ = nix::unistd::write(&theirs, &(errno as i32).to_le_bytes());
        process::leave(127)
    };
    drop((theirs, stderr));
    let daemon = Daemon { layer, child, complaints: complaints.into() };
    // The other end is closed by a successful execve.
    let mut errno = [0; 4];
    if File::from(ours).read_exact(&mut errno).is_err() {
        return Ok(daemon);
    }
    daemon.end();
    let errno = Errno::from_raw(i32::from_le_bytes(errno));
    Err(failed(STAGE, errno, PROGRAM, "starting the layer's daemon"))
}

/// In the child. Comes back only with what failed.
fn become_daemon(
    init: &OwnedFd,
    stderr: &OwnedFd,
    fds: &[OwnedFd],
    report: &OwnedFd,
) -> nix::Result<Infallible> {
    // The folders are opened by their paths, which lead to the mask folders in init's mount namespace alone.
    setns(init, CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
    // One of its own, made from it, keeps the host's /proc, in which the descriptors are named.
    unshare(CloneFlags::CLONE_NEWNS)?;
    // After setns, which clears it.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    dup2_stderr(stderr)?;
    process::default_action(Signal::SIGPIPE)?;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    let report = fcntl(report, FcntlArg::F_DUPFD_CLOEXEC(FIRST))?;
    let kept = fds.iter().map(|fd| fcntl(fd, FcntlArg::F_DUPFD(FIRST)));
    let kept = kept.collect::<nix::Result<Vec<RawFd>>>()?;
    fd::close_range(3, FIRST - 1)?;
    fd::close_range(kept.last().unwrap_or(&report) + 1, RawFd::MAX)?;
    let (mountpoint, options) = arguments(&kept).ok_or(Errno::EINVAL)?;
    let program = CString::new(PROGRAM).map_err(|_| Errno::EINVAL)?;
    let argv = [&*program, c"-f", c"-o", &options, &mountpoint];
    execve(&program, &argv, &[] as &[&CStr])
}

/// The mount point and options for descriptors of these numbers.
fn arguments(numbers: &[RawFd]) -> Option<(CString, CString)> {
    let [fuse, lowers @ .., upper, work] = numbers else { return None };
    let named = |fd: &RawFd| format!("/proc/self/fd/{fd}");
    let lowers: Vec<String> = lowers.iter().map(named).collect();
    if lowers.is_empty() {
        return None;
    }
    let (upper, work) = (named(upper), named(work));
    let options = format!("lowerdir={},upperdir={upper},workdir={work}", lowers.join(":"));
    // fsync inside answers at once, as with a volatile kernel overlay: landing makes durable.
    let options = CString::new(format!("{options},fsync=0")).ok()?;
    Some((CString::new(format!("/dev/fd/{fuse}")).ok()?, options))
}

impl Daemon {
    /// What is said of a daemon that ended by itself.
    pub(crate) fn ended(&self, stage: Stage) -> Failure {
        let mut said = [0; 512];
        let length = (&self.complaints).read(&mut said).unwrap_or(0);
        let said = bytes::escape(said.get(..length).unwrap_or_default());
        // File names reach this text, and the task chose them.
        let said = said.replace(|c: char| c.is_control() && c != '\n', "?");
        let why = said.lines().next_back().unwrap_or("without a word");
        let detail = format!("the daemon of layer {} ended: {why}", self.layer);
        refused_at(stage, PROGRAM, detail)
    }

    /// Kills the daemon and waits for its end. The layer's last user is gone by then, and the kernel has handed the
    /// daemon every write when the file was closed.
    pub(crate) fn end(&self) {
        crate::ns::end(&self.child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_hold_numbers_alone_and_the_topmost_lower_comes_first() {
        let (mountpoint, options) = arguments(&[9, 3, 4, 5, 6]).unwrap();
        assert_eq!(mountpoint.to_str(), Ok("/dev/fd/9"));
        assert_eq!(
            options.to_str().unwrap().split(",fsync").next(),
            Some(
                "lowerdir=/proc/self/fd/3:/proc/self/fd/4,upperdir=/proc/self/fd/5,workdir=/proc/self/fd/6"
            )
        );
        assert!(arguments(&[9, 5, 6]).is_none());
    }
}
