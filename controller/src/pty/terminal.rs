//! The caller's terminal: raw while the task runs, and as it was on any exit.

use super::feed::Side;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io;
use rustix::process::Signal;
use rustix::termios::{
    self, InputModes, LocalModes, OptionalActions, OutputModes, QueueSelector, Termios,
};
use std::sync::{Arc, Mutex, Once};

/// What to put back, for every way this process may end (a panic aborts in release builds, so that no destructor runs).
static SAVED: Mutex<Option<Termios>> = Mutex::new(None);
static HOOK: Once = Once::new();

/// An escape sequence without an end would swallow what is printed next, a scrolling region, colours or a line-drawing
/// character set would disguise it, and a mouse mode would type into the shell. So: cancel; save the cursor, whole screen,
/// ordinary screen, restore the cursor (in the ordinary screen, leaving the alternate one would move it to where an editor
/// of long ago was started); soft reset; plain ASCII text; wrap lines and show
/// the cursor; no mouse, focus or paste reports. The title and the palette stay: they may be the owner's.
const CALM: &[u8] = b"\x18\x1b\\\x1b7\x1b[r\x1b[?1049l\x1b8\x1b[!p\x1b[0m\x0f\x1b(B\x1b[?7;25h\
    \x1b[?1000;1002;1003;1004;1006;2004l";

/// The terminal of the caller, found behind one of descriptors 0 to 2.
#[derive(Debug)]
pub struct Terminal {
    fd: BorrowedFd<'static>,
    initial: Termios,
    shared: bool,
    keyboard_is_stdin: bool,
}

fn stdio() -> [BorrowedFd<'static>; 3] {
    [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()]
}

/// Whether this process may use the terminal. In the background the kernel would stop it for trying.
fn is_foreground(fd: BorrowedFd<'_>) -> bool {
    // An error means that it is not our controlling terminal: then job control does not apply.
    termios::tcgetpgrp(fd).map_or(true, |group| group == rustix::process::getpgrp())
}

fn is_pipe(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|st| rustix::fs::FileType::from_raw_mode(st.st_mode).is_fifo())
}

impl Terminal {
    /// The terminal of the caller, if one of descriptors 0 to 2 is one.
    pub fn find() -> Option<Self> {
        let fd = stdio().into_iter().find(|fd| termios::isatty(fd))?;
        let mut initial = termios::tcgetattr(fd).ok()?;
        if !is_foreground(fd) {
            // What the shell set for its own prompt is not what it gives to a job.
            initial.local_modes |=
                LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN;
            initial.input_modes |= InputModes::ICRNL | InputModes::IXON;
            initial.output_modes |= OutputModes::OPOST | OutputModes::ONLCR;
        }
        let keyboard_is_stdin = termios::isatty(stdio()[0]);
        // In a pipeline another program may be using the same terminal (`| less`, `ssh .. |`).
        let shared = is_pipe(stdio()[0]) || is_pipe(stdio()[1]);
        Some(Self { fd, initial, shared, keyboard_is_stdin })
    }

    /// The descriptor of the terminal.
    pub(super) fn fd(&self) -> BorrowedFd<'static> {
        self.fd
    }

    /// Where its output goes: the first of standard output, error and input that is a terminal. Opened anew, so that it
    /// can be non-blocking without being so for everybody who shares the caller's descriptor; where that is not allowed
    /// (a terminal of another user's), the caller's own.
    pub(super) fn screen(&self) -> Side {
        let [stdin, stdout, stderr] = stdio();
        let fd = [stdout, stderr, stdin].into_iter().find(|fd| termios::isatty(fd));
        let fd = fd.unwrap_or(self.fd);
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(own) if termios::isatty(&own) => Side::Ours(Arc::new(own)),
            Ok(_) | Err(_) => Side::Caller(fd),
        }
    }

    /// Whether the terminal is used together with other programs of a pipeline, so that it must be asked again and
    /// again whose turn it is.
    pub(super) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Gives the task's terminal the settings and the size of the caller's.
    pub(super) fn dress(&self, slave: impl rustix::fd::AsFd) -> io::Result<()> {
        termios::tcsetattr(&slave, OptionalActions::Now, &self.initial)?;
        self.resize(slave)
    }

    /// Gives the task's terminal the size of the caller's. The kernel tells the foreground job inside.
    pub(super) fn resize(&self, task: impl rustix::fd::AsFd) -> io::Result<()> {
        termios::tcsetwinsize(task, termios::tcgetwinsize(self.fd)?)
    }

    /// Whether keys are to be forwarded now; sets the terminal raw or back accordingly. `task` is the task's terminal.
    pub(super) fn turn(&self, task: impl rustix::fd::AsFd) -> bool {
        if !is_foreground(self.fd) {
            return false;
        }
        if !self.shared {
            self.raw();
            return true;
        }
        // A full-screen program or a password prompt inside wants keys, unechoed: no other program of the pipeline can
        // want them at the same time. Otherwise the terminal stays as it is, and lines go inside where our standard
        // input is the terminal and nobody else has taken it over.
        let wants = |t: &Termios| !t.local_modes.contains(LocalModes::ICANON | LocalModes::ECHO);
        if termios::tcgetattr(task).is_ok_and(|inner| wants(&inner)) {
            self.raw();
            return true;
        }
        restore();
        let canonical = |t: Termios| t.local_modes.contains(LocalModes::ICANON);
        self.keyboard_is_stdin && termios::tcgetattr(self.fd).is_ok_and(canonical)
    }

    fn raw(&self) {
        let Ok(mut saved) = SAVED.lock() else { return };
        if saved.is_some() {
            return;
        }
        let Ok(now) = termios::tcgetattr(self.fd) else { return };
        let mut raw = now.clone();
        raw.make_raw();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                restore();
                before(info);
            }));
        });
        if termios::tcsetattr(self.fd, OptionalActions::Now, &raw).is_ok() {
            *saved = Some(now);
        }
    }

    /// Ends what the task's output may have left of its own in the caller's terminal.
    pub(super) fn calm(&self) {
        // Without waiting: a terminal that takes nothing shows nothing either.
        let _ = rustix::io::write(self.screen(), CALM);
    }

    /// Stops this process as the shell's job control wants it, with the terminal as it was.
    pub(super) fn suspend(&self) {
        restore();
        stop();
    }
}

/// Throws away keys that came while the terminal was raw and were not read: they were meant for the task, or are the
/// terminal's answer to a question of the task's, which must not end up in the shell.
fn drop_unread_keys() {
    let raw = SAVED.try_lock().is_ok_and(|saved| saved.is_some());
    let terminal = stdio().into_iter().find(|fd| termios::isatty(fd));
    if let Some(fd) = terminal.filter(|fd| raw && is_foreground(*fd)) {
        let _ = termios::tcflush(fd, QueueSelector::IFlush);
    }
}

/// Puts the terminal back. Does nothing where it is as it was.
pub(super) fn restore() {
    // From the panic hook the lock may be held by the very thread that panicked.
    let Ok(mut saved) = SAVED.try_lock() else { return };
    let Some(termios) = saved.take() else { return };
    let terminal = stdio().into_iter().find(|fd| termios::isatty(fd));
    if let Some(fd) = terminal.filter(|fd| is_foreground(*fd)) {
        let _ = termios::tcsetattr(fd, OptionalActions::Now, &termios);
    }
}

/// Stops this process until somebody continues it.
pub(super) fn stop() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}

/// Forgets what was saved, if a shell has set the terminal up anew while this process was stopped.
pub(super) fn forget() {
    let Some(fd) = stdio().into_iter().find(|fd| termios::isatty(fd)) else { return };
    let ours = termios::tcgetattr(fd)
        .is_ok_and(|now| !now.local_modes.intersects(LocalModes::ICANON | LocalModes::ISIG));
    if !ours && let Ok(mut saved) = SAVED.lock() {
        *saved = None;
    }
}

/// Puts the terminal back when it goes out of scope.
#[derive(Debug)]
pub(super) struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        drop_unread_keys();
        restore();
    }
}
