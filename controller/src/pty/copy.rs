//! Output to anything but a terminal: one thread per stream, so that a slow reader holds up nothing else.

use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// Bytes taken at once.
const BUFFER: usize = 64 << 10;
/// The thread needs its buffer (on the heap) and a few frames.
const STACK: usize = 64 << 10;

/// The copy of one stream.
#[derive(Debug)]
pub(super) struct Copy {
    to: BorrowedFd<'static>,
    state: State,
    /// Why its thread could not be started.
    error: Option<Errno>,
}

#[derive(Debug)]
enum State {
    /// Nothing has come yet. Many programs never say anything on one of the two: a thread is started with the first byte.
    Silent(OwnedFd),
    /// A thread copies; `done` becomes readable when it has ended.
    Running { done: OwnedFd, progress: Arc<Progress> },
}

#[derive(Debug, Default)]
struct Progress {
    bytes: AtomicU64,
    writing: AtomicBool,
    /// Error number of the write that failed.
    error: AtomicI32,
}

impl Copy {
    /// Will copy `from` (non-blocking) to `to` until the end of either.
    pub(super) fn new(from: OwnedFd, to: BorrowedFd<'static>) -> Self {
        Self { to, state: State::Silent(from), error: None }
    }

    /// What [`Copy::advance`] wants to know about.
    pub(super) fn watched(&self) -> [(BorrowedFd<'_>, PollFlags); 2] {
        match &self.state {
            // The reader's end, too: that a reader is gone must reach even a task that is silent.
            State::Silent(from) => [(from.as_fd(), PollFlags::IN), (self.to, PollFlags::empty())],
            State::Running { done, .. } => {
                [(done.as_fd(), PollFlags::IN), (done.as_fd(), PollFlags::empty())]
            }
        }
    }

    /// Goes on with what was seen of the two that are watched. Whether the copy has ended.
    pub(super) fn advance(&mut self, [first, second]: [PollFlags; 2]) -> bool {
        match &self.state {
            State::Silent(_) if first.contains(PollFlags::IN) => self.run().is_err(),
            State::Silent(_) => {
                !first.is_empty() || second.intersects(PollFlags::ERR | PollFlags::NVAL)
            }
            State::Running { .. } => !first.is_empty(),
        }
    }

    fn run(&mut self) -> Result<(), Errno> {
        let State::Silent(from) = &self.state else { return Ok(()) };
        let to = self.to;
        let start = || {
            let from = rustix::io::fcntl_dupfd_cloexec(from, 0)?;
            let (done, ended) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
            let progress = Arc::new(Progress::default());
            let shared = Arc::clone(&progress);
            let thread = std::thread::Builder::new().name("output".into()).stack_size(STACK);
            let started = thread.spawn(move || {
                copy(&from, to, &shared);
                // First the stream, so that the task meets SIGPIPE; then the word that it is over.
                drop(from);
                drop(ended);
            });
            let number = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::AGAIN);
            started.map(|_| State::Running { done, progress }).map_err(number)
        };
        match start() {
            Ok(running) => {
                self.state = running;
                Ok(())
            }
            Err(errno) => {
                self.error = Some(errno);
                Err(errno)
            }
        }
    }

    /// Why bytes were lost, once it is done. A reader that went away wanted no more: that is none.
    pub(super) fn lost(&self) -> Option<Errno> {
        match &self.state {
            State::Silent(_) => self.error,
            State::Running { progress, .. } => match progress.error.load(Ordering::Relaxed) {
                0 => None,
                number => Some(Errno::from_raw_os_error(number)).filter(|e| *e != Errno::PIPE),
            },
        }
    }

    /// How far it is, and whether it waits for the reader on our side rather than for the task.
    pub(super) fn progress(&self) -> (u64, bool) {
        match &self.state {
            State::Silent(_) => (0, false),
            State::Running { progress, .. } => {
                (progress.bytes.load(Ordering::Relaxed), progress.writing.load(Ordering::Relaxed))
            }
        }
    }
}

fn copy(from: &OwnedFd, to: BorrowedFd<'_>, progress: &Progress) {
    let mut buffer = vec![0; BUFFER];
    loop {
        let (filled, ended) = gather(from, &mut buffer);
        if filled > 0 {
            progress.writing.store(true, Ordering::Relaxed);
            let written = write_all(to, buffer.get(..filled).unwrap_or_default());
            progress.writing.store(false, Ordering::Relaxed);
            progress.bytes.fetch_add(filled as u64, Ordering::Relaxed);
            if let Err(e) = written {
                progress.error.store(e.raw_os_error(), Ordering::Relaxed);
                return;
            }
        }
        if ended || !wait(from, to) {
            return;
        }
    }
}

/// Reads until nothing is left for now, the buffer is full, or the end.
fn gather(from: &OwnedFd, buffer: &mut [u8]) -> (usize, bool) {
    let mut filled = 0;
    while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
        match rustix::io::read(from, room) {
            Ok(0) => return (filled, true),
            Ok(n) => filled += n,
            Err(Errno::AGAIN) => return (filled, false),
            Err(Errno::INTR) => {}
            Err(_) => return (filled, true),
        }
    }
    (filled, false)
}

fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            // Somebody else made the caller's descriptor non-blocking.
            Err(Errno::AGAIN) => {
                let mut fds = [PollFd::from_borrowed_fd(to, PollFlags::OUT)];
                match rustix::event::poll(&mut fds, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(e) => return Err(e),
                }
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Waits for more. False where the reader is gone: the task should learn it now, not at its next write but one.
fn wait(from: &OwnedFd, to: BorrowedFd<'_>) -> bool {
    let mut fds =
        [PollFd::new(from, PollFlags::IN), PollFd::from_borrowed_fd(to, PollFlags::empty())];
    loop {
        match rustix::event::poll(&mut fds, None) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    fds[0].revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
        || !fds[1].revents().intersects(PollFlags::ERR | PollFlags::NVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::Timespec;
    use std::io::{Read, Write};

    fn pipe() -> (OwnedFd, OwnedFd) {
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap()
    }

    fn leak(fd: OwnedFd) -> BorrowedFd<'static> {
        let fd: &'static OwnedFd = Box::leak(Box::new(fd));
        fd.as_fd()
    }

    /// Waits until the copy goes on; whether it has ended then.
    fn ends(copy: &mut Copy) -> bool {
        let mut fds = copy.watched().map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags));
        let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
        assert!(rustix::event::poll(&mut fds, Some(&limit)).unwrap() > 0);
        let seen = fds.each_ref().map(PollFd::revents);
        copy.advance(seen)
    }

    #[test]
    fn every_byte_arrives_in_order_before_the_copy_says_it_is_done() {
        let (task_read, task_write) = pipe();
        let (out_read, out_write) = pipe();
        rustix::fs::fcntl_setfl(&task_read, rustix::fs::OFlags::NONBLOCK).unwrap();
        let mut copy = Copy::new(task_read, leak(out_write));
        let sent: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
        let expected = sent.clone();
        let writer = std::thread::spawn(move || {
            std::fs::File::from(task_write).write_all(&sent).unwrap();
        });
        assert!(!ends(&mut copy));
        let mut got = vec![0; expected.len()];
        std::fs::File::from(out_read).read_exact(&mut got).unwrap();
        writer.join().unwrap();
        assert!(got == expected);
        assert!(ends(&mut copy));
    }

    #[test]
    fn a_reader_that_is_gone_closes_the_tasks_pipe_even_while_the_task_is_silent() {
        let (task_read, task_write) = pipe();
        let (out_read, out_write) = pipe();
        rustix::fs::fcntl_setfl(&task_read, rustix::fs::OFlags::NONBLOCK).unwrap();
        let mut copy = Copy::new(task_read, leak(out_write));
        drop(out_read);
        assert!(ends(&mut copy));
        drop(copy);
        let failed = std::fs::File::from(task_write).write(b"x").unwrap_err();
        assert_eq!(failed.kind(), std::io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_stream_that_ends_without_a_byte_needs_no_thread() {
        let (task_read, task_write) = pipe();
        let (_out_read, out_write) = pipe();
        let mut copy = Copy::new(task_read, leak(out_write));
        drop(task_write);
        assert!(ends(&mut copy));
        assert!(matches!(copy.state, State::Silent(_)));
        assert_eq!((copy.lost(), copy.progress()), (None, (0, false)));
    }

    #[test]
    fn a_reader_that_leaves_while_bytes_come_closes_the_tasks_pipe() {
        let (task_read, task_write) = pipe();
        let (out_read, out_write) = pipe();
        rustix::fs::fcntl_setfl(&task_read, rustix::fs::OFlags::NONBLOCK).unwrap();
        let mut copy = Copy::new(task_read, leak(out_write));
        let mut task = std::fs::File::from(task_write);
        task.write_all(b"x").unwrap();
        assert!(!ends(&mut copy));
        drop(out_read);
        assert!(ends(&mut copy));
        assert_eq!(task.write(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    }
}
