//! One way through the loop: from a descriptor to another without ever waiting. Keys and standard input go in this way,
//! the terminal's output comes out.

use super::pace::Keys;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;

/// Bytes taken at once. A pseudo-terminal hands out at most a page at a time: several are gathered before one write.
const BUFFER: usize = 64 << 10;

/// Bytes taken first: many a session never has input, and memory that is touched for nothing costs its start.
const FIRST: usize = 4 << 10;

/// One end of a way.
#[derive(Clone, Debug)]
pub(super) enum Side {
    /// A descriptor of the caller's, which stays open and keeps its settings.
    Caller(BorrowedFd<'static>),
    /// A non-blocking one of ours.
    Ours(Arc<OwnedFd>),
}

impl AsFd for Side {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Caller(fd) => *fd,
            Self::Ours(fd) => fd.as_fd(),
        }
    }
}

/// One way. It is over when its source has ended and everything was handed on, or when its sink is gone.
#[derive(Debug)]
pub(super) struct Feed {
    from: Side,
    to: Option<Side>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    ended: bool,
    moved: u64,
    commanded: bool,
    /// Of keys: what was typed.
    keys: Option<Keys>,
}

impl Feed {
    pub(super) fn new(from: Side, to: Side) -> Self {
        Self {
            from,
            to: Some(to),
            buffer: Vec::new(),
            start: 0,
            end: 0,
            ended: false,
            moved: 0,
            commanded: false,
            keys: None,
        }
    }

    /// Of keys, which are told of.
    pub(super) fn of_keys(from: Side, to: Side) -> Self {
        Self { keys: Some(Keys::default()), ..Self::new(from, to) }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether nothing will come through any more.
    pub(super) fn is_over(&self) -> bool {
        self.to.is_none()
    }

    /// How many bytes came through, and whether the sink is being waited for.
    pub(super) fn progress(&self) -> (u64, bool) {
        (self.moved, !self.is_over() && !self.is_empty())
    }

    /// Whether anything came through that a terminal takes as a command: escape, or shift out.
    pub(super) fn has_commanded(&self) -> bool {
        self.commanded
    }

    /// What was typed since this was last asked.
    pub(super) fn take_keys(&mut self) -> Keys {
        self.keys.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The descriptor to wait for, if any: the source while there is nothing to hand on, else the sink.
    pub(super) fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let to = self.to.as_ref()?;
        if self.is_empty() {
            Some((self.from.as_fd(), PollFlags::IN))
        } else {
            Some((to.as_fd(), PollFlags::OUT))
        }
    }

    /// Moves what can be moved without waiting. Call it when the descriptor of [`Feed::interest`] is ready.
    pub(super) fn advance(&mut self) {
        if self.is_empty() {
            self.fill();
        }
        self.flush();
        if self.ended && self.is_empty() {
            // The end of standard input is the end of the pipe; a terminal has none to pass on.
            self.to = None;
        }
    }

    fn fill(&mut self) {
        let larger = if self.buffer.is_empty() { FIRST } else { BUFFER };
        if self.end == self.buffer.len() {
            self.buffer.resize(larger, 0);
        }
        (self.start, self.end) = (0, 0);
        // A descriptor of the caller's may block: one read is what its readiness allows.
        let once = matches!(self.from, Side::Caller(_));
        while let Some(room) = self.buffer.get_mut(self.end..).filter(|room| !room.is_empty()) {
            match rustix::io::read(&self.from, &mut *room) {
                Ok(0) => self.ended = true,
                Ok(n) => {
                    let came = room.get(..n).unwrap_or_default();
                    self.commanded =
                        self.commanded || came.iter().any(|b| matches!(b, 0x0e | 0x1b));
                    if let Some(keys) = &mut self.keys {
                        keys.add(came);
                    }
                    self.end += n;
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return,
                // EIO is how a pseudo-terminal says that it has ended.
                Err(_) => self.ended = true,
            }
            if once || self.ended {
                return;
            }
        }
    }

    fn flush(&mut self) {
        while let (Some(to), Some(rest)) =
            (&self.to, self.buffer.get(self.start..self.end).filter(|rest| !rest.is_empty()))
        {
            match rustix::io::write(to, rest) {
                Ok(n) => {
                    self.start += n;
                    self.moved += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.to = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::PipeFlags;
    use std::io::{Read, Write};

    #[test]
    fn input_that_does_not_fit_waits_and_its_end_is_passed_on_after_the_last_byte() {
        let (source, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        let source: &'static OwnedFd = Box::leak(Box::new(source));
        let mut write = std::fs::File::from(write);
        let (read, sink) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        rustix::pipe::fcntl_setpipe_size(&sink, 4096).unwrap();
        write.write_all(&[7; 10_000]).unwrap();
        drop(write);
        let mut feed = Feed::new(Side::Caller(source.as_fd()), Side::Ours(Arc::new(sink)));
        let mut read = std::fs::File::from(read);
        let mut got = 0;
        let mut chunk = [0; 3000];
        for _ in 0..100 {
            if feed.interest().is_none() {
                break;
            }
            feed.advance();
            while let Ok(n @ 1..) = read.read(&mut chunk) {
                got += n;
            }
        }
        assert_eq!(got, 10_000);
        assert!(feed.is_over());
        assert_eq!(read.read(&mut chunk).unwrap(), 0);
    }

    #[test]
    fn a_sink_that_is_gone_ends_the_way() {
        let (source, write) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let (read, sink) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        drop(read);
        rustix::io::write(&write, b"x").unwrap();
        let mut feed = Feed::new(Side::Ours(Arc::new(source)), Side::Ours(Arc::new(sink)));
        feed.advance();
        assert!(feed.is_over());
    }
}
