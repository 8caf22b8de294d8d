//! Making the task's descriptors. None of the caller's own descriptors ever enters: a magic link in /proc re-opens them
//! through the mount they were opened on.

use super::terminal::Terminal;
use crate::error::{Context, Result};
use landbox_shared::path::AbsPath;
use landbox_shared::plan;
use rustix::fs::OFlags;
use rustix::pipe::PipeFlags;
use rustix::pty::OpenptFlags;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Our side of the task's descriptors.
#[derive(Debug)]
pub struct Stdio {
    /// What each of 0 to 2 is.
    pub kinds: [plan::Stdio; 3],
    pub(super) ours: Ours,
}

/// Both sides of the task's descriptors.
#[derive(Debug)]
pub struct Made {
    /// Our side.
    pub stdio: Stdio,
    /// The task's side.
    pub task: [OwnedFd; 3],
    /// The path of the pseudo-terminal, where there is one.
    pub console: Option<AbsPath>,
}

/// The controller's side.
#[derive(Debug)]
pub(super) struct Ours {
    /// The master and the slave of the pseudo-terminal. The slave is held open so that the master never reports the end
    /// while the task merely closed its descriptors for a moment.
    pub(super) pty: Option<Pty>,
    /// Where the task's standard input is written, if it is a pipe.
    pub(super) stdin: Option<OwnedFd>,
    /// Where the task's standard output and error are read, if they are pipes.
    pub(super) outputs: [Option<OwnedFd>; 2],
}

#[derive(Debug)]
pub(super) struct Pty {
    pub(super) master: OwnedFd,
    pub(super) slave: OwnedFd,
}

impl Stdio {
    /// Makes them for the caller's descriptors: a terminal for a terminal, a pipe for anything else.
    pub fn make(terminal: Option<&Terminal>) -> Result<Made> {
        let what = || "can't make the task's terminal".to_string();
        let (pty, console) = match terminal {
            Some(terminal) => {
                let (pty, console) = open_pty(terminal)?;
                (Some(pty), Some(console))
            }
            None => (None, None),
        };
        let fds = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        let mut kinds = [plan::Stdio::Pipe; 3];
        let mut stdin = None;
        let mut outputs = [None, None];
        let mut shared: Option<OwnedFd> = None;
        let mut side = |n: usize| -> Result<OwnedFd> {
            if let Some(pty) = pty.as_ref().filter(|_| rustix::termios::isatty(fds[n])) {
                kinds[n] = plan::Stdio::Pty;
                return pty.slave.try_clone().context(what);
            }
            if let Some(write) = shared.as_ref().filter(|_| n == 2) {
                return write.try_clone().context(what);
            }
            let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
                .context(|| "can't make a pipe for the task".into())?;
            // Each end is an open file of its own, so this does not touch what the task sees.
            let ours = if n == 0 { &write } else { &read };
            rustix::fs::fcntl_setfl(ours, OFlags::NONBLOCK).context(what)?;
            if n == 0 {
                stdin = Some(write);
                return Ok(read);
            }
            outputs[n - 1] = Some(read);
            if n == 1 && is_one_stream(fds[1], fds[2]) {
                shared = Some(write.try_clone().context(what)?);
            }
            Ok(write)
        };
        let task = [side(0)?, side(1)?, side(2)?];
        Ok(Made { stdio: Self { kinds, ours: Ours { pty, stdin, outputs } }, task, console })
    }
}

/// Whether two descriptors lead to one stream (`> log 2>&1`). Then the task gets one pipe for both: through two, what it
/// wrote to one before the other could come out after it.
fn is_one_stream(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    let (Ok(a), Ok(b)) = (rustix::fs::fstat(one), rustix::fs::fstat(other)) else { return false };
    // The same file opened twice has two positions, as a rule.
    let position = |fd| rustix::fs::tell(fd).ok();
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino) && position(one) == position(other)
}

fn open_pty(terminal: &Terminal) -> Result<(Pty, AbsPath)> {
    let what = || "can't make a pseudo-terminal".to_string();
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags).context(what)?;
    rustix::pty::grantpt(&master).context(what)?;
    rustix::pty::unlockpt(&master).context(what)?;
    let name = rustix::pty::ptsname(&master, Vec::new()).context(what)?;
    let console = AbsPath::new(name.into_bytes()).context(what)?;
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags).context(what)?;
    // Size and settings before the first byte: the first frame a program draws is already right.
    terminal.dress(&slave).context(what)?;
    rustix::fs::fcntl_setfl(&master, OFlags::NONBLOCK).context(what)?;
    Ok((Pty { master, slave }, console))
}
