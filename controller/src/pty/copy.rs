//! Output to anything but a terminal: one thread per stream, so that a slow reader holds up nothing else.

use crate::error::{Context, Result};
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

/// A running copy.
#[derive(Debug)]
pub(super) struct Copy {
    done: OwnedFd,
    progress: Arc<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    bytes: AtomicU64,
    writing: AtomicBool,
    /// Error number of the write that failed.
    error: AtomicI32,
}

impl Copy {
    /// Starts copying `from` (non-blocking) to `to` until the end of either.
    pub(super) fn start(from: OwnedFd, to: BorrowedFd<'static>) -> Result<Self> {
        let what = || "can't start copying output".to_string();
        let (done, ended) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).context(what)?;
        let progress = Arc::new(Progress::default());
        let shared = Arc::clone(&progress);
        std::thread::Builder::new()
            .name("output".into())
            .stack_size(STACK)
            .spawn(move || {
                copy(&from, to, &shared);
                // First the stream, so that the task meets SIGPIPE; then the word that it is over.
                drop(from);
                drop(ended);
            })
            .context(what)?;
        Ok(Self { done, progress })
    }

    /// Becomes readable when the copy has ended.
    pub(super) fn done(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }

    /// Why bytes were lost, once it is done. A reader that went away wanted no more: that is none.
    pub(super) fn lost(&self) -> Option<Errno> {
        match self.progress.error.load(Ordering::Relaxed) {
            0 => None,
            number => Some(Errno::from_raw_os_error(number)).filter(|e| *e != Errno::PIPE),
        }
    }

    /// How far it is, and whether it waits for the reader on our side rather than for the task.
    pub(super) fn progress(&self) -> (u64, bool) {
        (self.progress.bytes.load(Ordering::Relaxed), self.progress.writing.load(Ordering::Relaxed))
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

    fn ends(copy: &Copy) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(copy.done(), PollFlags::IN)];
        let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&limit)).unwrap() == 1
    }

    #[test]
    fn every_byte_arrives_in_order_before_the_copy_says_it_is_done() {
        let (task_read, task_write) = pipe();
        let (out_read, out_write) = pipe();
        rustix::fs::fcntl_setfl(&task_read, rustix::fs::OFlags::NONBLOCK).unwrap();
        let copy = Copy::start(task_read, leak(out_write)).unwrap();
        let sent: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
        let expected = sent.clone();
        let writer = std::thread::spawn(move || {
            std::fs::File::from(task_write).write_all(&sent).unwrap();
        });
        let mut got = vec![0; expected.len()];
        std::fs::File::from(out_read).read_exact(&mut got).unwrap();
        writer.join().unwrap();
        assert!(got == expected);
        assert!(ends(&copy));
    }

    #[test]
    fn a_reader_that_is_gone_closes_the_tasks_pipe_even_while_the_task_is_silent() {
        let (task_read, task_write) = pipe();
        let (out_read, out_write) = pipe();
        rustix::fs::fcntl_setfl(&task_read, rustix::fs::OFlags::NONBLOCK).unwrap();
        let copy = Copy::start(task_read, leak(out_write)).unwrap();
        drop(out_read);
        assert!(ends(&copy));
        let failed = std::fs::File::from(task_write).write(b"x").unwrap_err();
        assert_eq!(failed.kind(), std::io::ErrorKind::BrokenPipe);
    }
}
