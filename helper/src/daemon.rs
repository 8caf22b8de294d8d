//! Programs that run beside a session for as long as it lasts: children of the monitor, in its pid namespace, out of the
//! task's reach, with an empty environment and no descriptor but those they need.

use crate::failure::{Context, Failure, Stage};
use crate::ns;
use crate::sys::fd;
use crate::sys::process::{self, Child};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sched::CloneFlags;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{dup2_stderr, execve, pipe2};
use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{OwnedFd, RawFd};

/// Numbers above all that are open here, so that moving one descriptor never closes another.
const FIRST: RawFd = 512;

/// How a program is started.
pub(crate) struct Start<'a, J, A> {
    pub(crate) stage: Stage,
    /// Most descriptors it may open.
    pub(crate) descriptors: rlim_t,
    /// What it gets beside 0, 1 and 2.
    pub(crate) fds: Vec<&'a OwnedFd>,
    /// Enters the namespaces it runs in, and says what ends it with the monitor.
    pub(crate) join: J,
    /// Its path and arguments, for these numbers of the descriptors.
    pub(crate) arguments: A,
}

/// A running program.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) child: Child,
    complaints: File,
}

impl<J, A> Start<'_, J, A>
where
    J: FnOnce() -> nix::Result<()>,
    A: FnOnce(&[RawFd]) -> Option<Vec<CString>>,
{
    /// Starts it. If it can't be executed it has ended, and says why as it would of anything else.
    pub(crate) fn start(self) -> Result<Daemon, Failure> {
        // What it complains about is read only if it ends: it must not wait for us when the pipe is full.
        let flags = OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let (complaints, stderr) = pipe2(flags).stage(self.stage, "making a pipe")?;
        let child = process::clone(CloneFlags::empty());
        let Some(child) = child.stage(self.stage, "making a daemon's process")? else {
            let Err(errno) = self.execute(&stderr);
            let _ = writeln!(std::io::stderr(), "it can't be started: {}", errno.desc());
            process::leave(127)
        };
        Ok(Daemon { child, complaints: complaints.into() })
    }

    /// In the child. Comes back only with what failed.
    fn execute(self, stderr: &OwnedFd) -> nix::Result<Infallible> {
        // First, so that what fails can be told.
        dup2_stderr(stderr)?;
        (self.join)()?;
        process::default_action(Signal::SIGPIPE)?;
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let limit = hard.min(self.descriptors);
        setrlimit(Resource::RLIMIT_NOFILE, limit, limit)?;
        let kept = self.fds.into_iter().map(|fd| fcntl(fd, FcntlArg::F_DUPFD(FIRST)));
        let kept = kept.collect::<nix::Result<Vec<RawFd>>>()?;
        let arguments = (self.arguments)(&kept).ok_or(Errno::EINVAL)?;
        fd::close_range(3, FIRST - 1)?;
        fd::close_range(kept.last().unwrap_or(&FIRST) + 1, RawFd::MAX)?;
        let program = arguments.first().ok_or(Errno::EINVAL)?;
        execve(program, &arguments, &[] as &[&CStr])
    }
}

impl Daemon {
    /// Kills it without waiting: once it was killed it can't stay. Neither failure could be helped.
    pub(crate) fn kill(&self) {
        let _ = process::signal(&self.child.pidfd, Signal::SIGKILL);
    }

    /// Kills it and waits until it is gone.
    pub(crate) fn end(&self) {
        ns::end(&self.child);
    }

    /// What it wrote before it ended by itself.
    pub(crate) fn said(&self) -> Vec<u8> {
        let mut said = vec![0; 4096];
        let length = (&self.complaints).read(&mut said).unwrap_or(0);
        said.truncate(length);
        said
    }
}
