//! Starting the helper.

use super::events::EventSocket;
use super::reap;
use crate::error::{Context, Result};
use crate::session::store::show;
use command_fds::{CommandFdExt, FdMapping};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The helper's process and both channels to it.
#[derive(Debug)]
pub struct Helper {
    /// The monitor.
    pub(super) child: Child,
    /// Where the envelope and the exec frame go, until they have gone.
    pub(super) frames: Option<File>,
    /// Where the events come from.
    pub(super) events: EventSocket,
}

impl Helper {
    /// Ends it: the end of the channels ends the helper, and waiting makes sure that nothing of it is left.
    pub fn abandon(self) {
        let Self { mut child, frames, events } = self;
        drop((frames, events));
        reap(&mut child);
    }
}

/// Starts the helper with the task's descriptors 0 to 2, the frames on 3 and the event socket on 4. Call it from the
/// main thread: the helper's death signal fires when the thread that forked it ends. It gets ready while the caller
/// prepares the session, and waits for [`super::launch`].
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
    let mut command = Command::new(helper);
    command.env_clear();
    for name in ["HOME", "XDG_CONFIG_HOME"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
        .current_dir("/")
        // A group of its own: Ctrl-C at the outer terminal is ours to forward, it must not end the monitor.
        .process_group(0)
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::from(stdout))
        .stderr(Stdio::from(stderr))
        .fd_mappings(vec![
            FdMapping { parent_fd: frames_in, child_fd: 3 },
            FdMapping { parent_fd: theirs, child_fd: 4 },
        ])
        .context(what)?;
    let child = command.spawn().context(what)?;
    Ok(Helper { child, frames: Some(File::from(frames_out)), events: EventSocket::new(ours) })
}
