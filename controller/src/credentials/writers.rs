//! Who is seen writing a file: a change begins with a write and is complete when the writer closes the file, or another
//! takes its name.

use rustix::fs::inotify::ReadFlags;

/// What the watches say of one side of a pair.
#[derive(Debug, Default)]
pub(super) struct Writers {
    /// The watches that see the file, each with the name it has there.
    watches: Vec<(i32, Vec<u8>)>,
    /// Written and not closed since.
    open: bool,
}

impl Writers {
    /// Another watch sees the file, by that name.
    pub(super) fn add(&mut self, watch: i32, name: &[u8]) {
        if !self.sees(watch, name) {
            self.watches.push((watch, name.to_vec()));
        }
    }

    /// Whether no watch sees the file.
    pub(super) fn are_unwatched(&self) -> bool {
        self.watches.is_empty()
    }

    /// Whether such an event is about the file.
    pub(super) fn sees(&self, watch: i32, name: &[u8]) -> bool {
        self.watches.iter().any(|(seen, known)| *seen == watch && known == name)
    }

    /// Takes an event. What one watch sees closed is closed.
    pub(super) fn notice(&mut self, watch: i32, name: &[u8], events: ReadFlags) {
        if !self.sees(watch, name) {
            return;
        }
        let over = ReadFlags::CLOSE_WRITE
            | ReadFlags::MOVED_TO
            | ReadFlags::MOVED_FROM
            | ReadFlags::DELETE;
        if events.intersects(over) {
            self.open = false;
        } else if events.contains(ReadFlags::MODIFY) {
            self.open = true;
        }
    }

    /// After events were lost.
    pub(super) fn forget(&mut self) {
        self.open = false;
    }

    /// Whether somebody is in the middle of it.
    pub(super) fn are_at_it(&self) -> bool {
        self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_complete_when_any_watch_sees_it_closed_or_replaced() {
        for over in [ReadFlags::CLOSE_WRITE, ReadFlags::MOVED_TO, ReadFlags::DELETE] {
            let mut writers = Writers::default();
            writers.add(1, b"token");
            writers.add(2, b"token");
            writers.notice(1, b"history", ReadFlags::MODIFY);
            writers.notice(3, b"token", ReadFlags::MODIFY);
            assert!(!writers.are_at_it());
            writers.notice(1, b"token", ReadFlags::MODIFY);
            writers.notice(2, b"history", over);
            assert!(writers.are_at_it());
            writers.notice(2, b"token", over);
            assert!(!writers.are_at_it());
        }
    }
}
