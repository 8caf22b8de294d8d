//! Input, from the caller to the task: keys to the terminal, or standard input to a pipe.

use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;

/// Bytes taken at once.
const BUFFER: usize = 64 << 10;

/// One way in.
#[derive(Debug)]
pub(super) struct Feed {
    from: BorrowedFd<'static>,
    /// Non-blocking. `None` once the task or the caller closed its side.
    to: Option<Arc<OwnedFd>>,
    buffer: Vec<u8>,
    start: usize,
    ended: bool,
}

impl Feed {
    pub(super) fn new(from: BorrowedFd<'static>, to: Arc<OwnedFd>) -> Self {
        Self { from, to: Some(to), buffer: Vec::new(), start: 0, ended: false }
    }

    fn is_empty(&self) -> bool {
        self.start >= self.buffer.len()
    }

    /// The descriptor to wait for, if any: the source while there is nothing to hand on, else the sink.
    pub(super) fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let to = self.to.as_ref()?;
        if !self.is_empty() {
            Some((to.as_fd(), PollFlags::OUT))
        } else if self.ended {
            None
        } else {
            Some((self.from, PollFlags::IN))
        }
    }

    /// Moves what can be moved without waiting. Call it when the descriptor of [`Feed::interest`] is ready.
    pub(super) fn advance(&mut self) {
        if self.is_empty() {
            self.buffer.resize(BUFFER, 0);
            self.start = 0;
            match rustix::io::read(self.from, &mut self.buffer) {
                Ok(n) => {
                    self.buffer.truncate(n);
                    self.ended = n == 0;
                }
                Err(Errno::AGAIN | Errno::INTR) => self.buffer.clear(),
                Err(_) => {
                    self.buffer.clear();
                    self.ended = true;
                }
            }
        }
        self.flush();
        if self.ended && self.is_empty() {
            // The end of standard input is the end of the pipe; a terminal has none to pass on.
            self.to = None;
        }
    }

    fn flush(&mut self) {
        while let (Some(to), Some(rest)) =
            (&self.to, self.buffer.get(self.start..).filter(|rest| !rest.is_empty()))
        {
            match rustix::io::write(to, rest) {
                Ok(n) => self.start += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.to = None,
            }
        }
    }

    /// Lets go of the task's side.
    pub(super) fn close(&mut self) {
        self.to = None;
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
        let mut feed = Feed::new(source.as_fd(), Arc::new(sink));
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
        assert_eq!(read.read(&mut chunk).unwrap(), 0);
    }
}
