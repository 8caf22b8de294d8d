//! Starting the helper.

use super::events::EventSocket;
use crate::error::{Context, Result};
use crate::session::store::show;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::SigSet;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// A child of ours, until it is reaped: then its number may be somebody else's.
#[derive(Debug)]
pub struct Process(Option<Pid>);

impl Process {
    /// The child of this number.
    pub(super) fn new(pid: i32) -> Self {
        Self(Pid::from_raw(pid))
    }

    /// Whether it has ended; reaps it then.
    pub(super) fn has_ended(&mut self) -> bool {
        self.reap(WaitOptions::NOHANG);
        self.0.is_none()
    }

    /// Kills it and waits until it is gone.
    pub(super) fn kill(&mut self) {
        if let Some(pid) = self.0 {
            // A child that is not reaped can be signalled, whatever has become of it.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            self.reap(WaitOptions::empty());
        }
    }

    /// Becomes readable when it ends; nothing where it is reaped, or the kernel has no such thing.
    pub(super) fn pidfd(&self) -> Option<OwnedFd> {
        self.0.and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok())
    }

    fn reap(&mut self, options: WaitOptions) {
        while let Some(pid) = self.0 {
            match rustix::process::waitpid(Some(pid), options) {
                Err(Errno::INTR) => {}
                Ok(None) => return,
                Ok(Some(_)) | Err(_) => self.0 = None,
            }
        }
    }
}

/// The helper's process and both channels to it.
#[derive(Debug)]
pub struct Helper {
    /// The monitor.
    pub(super) child: Process,
    /// Where the envelope and the exec frame go, until they have gone.
    pub(super) frames: Option<File>,
    /// Where the events come from.
    pub(super) events: EventSocket,
}

impl Helper {
    /// Ends it: the end of the channels ends the helper, and waiting makes sure that nothing of it is left.
    pub fn abandon(self) {
        let Self { mut child, frames, events } = self;
        // The end of the frames alone would tell it to go on.
        drop((events, frames));
        super::reap(&mut child);
    }
}

/// Starts the helper with the task's descriptors 0 to 2, the frames on 3 and the event socket on 4. Call it from the
/// main thread: the helper's death signal fires when the thread that forked it ends. It gets ready while the caller
/// prepares the session, and waits for [`super::launch`].
///
/// By posix_spawn(3), which copies nothing of this process: a fork would copy its page tables, and both sides would
/// then copy every page they touch.
pub fn start(helper: &Path, stdio: [OwnedFd; 3]) -> Result<Helper> {
    let what = || format!("can't start the helper {}", show(helper));
    let (frames_in, frames_out) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).context(what)?;
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .context(what)?;
    let [stdin, stdout, stderr] = stdio;
    let child = spawn(helper, [stdin, stdout, stderr, frames_in, theirs]).context(what);
    let child = child.map_err(|failure| match failure.errno.and_then(super::no_process) {
        Some(hint) => failure.hint(hint),
        None => failure,
    })?;
    Ok(Helper { child, frames: Some(File::from(frames_out)), events: EventSocket::new(ours) })
}

/// Executes `program` with nothing but these descriptors, from 0 on, and the two variables it reads, in a group of its
/// own: Ctrl-C at the outer terminal is ours to forward, it must not end the monitor.
fn spawn(program: &Path, descriptors: [OwnedFd; 5]) -> std::io::Result<Process> {
    // Out of the way of the numbers they get, so that none is overwritten before it is moved.
    let above = descriptors.len().try_into().unwrap_or(RawFd::MAX);
    let descriptors = descriptors.map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, above));
    let mut actions = PosixSpawnFileActions::init()?;
    let mut kept = Vec::new();
    for (number, fd) in (0..).zip(descriptors) {
        let fd = fd?;
        actions.add_dup2(fd.as_raw_fd(), number)?;
        kept.push(fd);
    }
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETPGROUP | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK,
    )?;
    attributes.set_pgroup(nix::unistd::Pid::from_raw(0))?;
    // What we block to read it, the helper is not to miss.
    attributes.set_sigmask(&SigSet::empty())?;
    let text = |bytes| CString::new(bytes).map_err(|_| std::io::Error::from(Errno::INVAL));
    let name = text(program.as_os_str().to_owned().into_vec())?;
    let mut env = Vec::new();
    for name in ["HOME", "XDG_CONFIG_HOME"] {
        if let Some(value) = std::env::var_os(name) {
            env.push(text([name.as_bytes(), b"=", &value.into_vec()].concat())?);
        }
    }
    let pid = posix_spawn(program, &actions, &attributes, &[name], &env)?;
    Ok(Process::new(pid.as_raw()))
}
