//! When a command on a terminal rests, and when its owner begins a turn.

use std::time::{Duration, Instant};

/// Silence after which a command rests.
const REST: Duration = Duration::from_secs(1);
/// Output that follows a key so closely is its echo.
const ECHO: Duration = Duration::from_millis(300);

/// Gets told.
pub trait Pace {
    /// The command has come to rest.
    fn rest(&mut self);
    /// Its owner sent a line to it while it rested.
    fn turn(&mut self);
}

/// Follows one command.
#[derive(Debug)]
pub(super) struct Rhythm {
    /// The last output or key.
    moved: Instant,
    /// The last key.
    key: Option<Instant>,
    /// Whether it rests: it has said nothing of its own accord since.
    rests: bool,
}

impl Rhythm {
    pub(super) fn new(now: Instant) -> Self {
        Self { moved: now, key: None, rests: false }
    }

    /// Output came.
    pub(super) fn output(&mut self, now: Instant) {
        self.moved = now;
        let echo = self.key.is_some_and(|key| now.saturating_duration_since(key) < ECHO);
        self.rests &= echo;
    }

    /// Keys went in, with a line's end or without. Whether a turn begins with it.
    pub(super) fn keys(&mut self, line: bool, now: Instant) -> bool {
        (self.moved, self.key) = (now, Some(now));
        let begins = self.rests && line;
        self.rests &= !line;
        begins
    }

    /// When it will have come to rest, if nothing moves; `None` while it rests.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.rests).then(|| self.moved + REST)
    }

    /// Whether it has come to rest just now.
    pub(super) fn comes_to_rest(&mut self, now: Instant) -> bool {
        let rests = self.due().is_some_and(|due| due <= now);
        self.rests |= rests;
        rests
    }
}

/// Whether a program takes these keys for the end of a line: the enter key, as terminals write it.
pub(super) fn ends_line(keys: &[u8]) -> bool {
    const OTHERS: [&[u8]; 3] = [b"\x1bOM", b"\x1b[13u", b"\x1b[13;"];
    keys.iter().any(|key| matches!(key, b'\r' | b'\n'))
        || OTHERS.iter().any(|other| keys.windows(other.len()).any(|found| found == *other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_begins_with_a_line_for_a_command_that_rests_however_fast_it_was_typed() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut rhythm = Rhythm::new(start);
        assert!(!rhythm.keys(true, at(100)), "it has hardly begun");
        rhythm.output(at(200));
        assert_eq!(rhythm.due(), Some(at(1200)));
        assert!(!rhythm.comes_to_rest(at(1199)) && rhythm.comes_to_rest(at(1200)));
        assert_eq!(rhythm.due(), None);
        for key in 0..20 {
            assert!(!rhythm.keys(false, at(5000 + 50 * key)));
            rhythm.output(at(5010 + 50 * key));
        }
        assert!(rhythm.keys(true, at(6000)));
        // What it does now is work, and what is typed meanwhile begins nothing.
        rhythm.output(at(6100));
        assert!(!rhythm.keys(true, at(6200)));
        assert!(!rhythm.comes_to_rest(at(7199)) && rhythm.comes_to_rest(at(7200)));
        // It goes on by itself.
        rhythm.output(at(9000));
        assert!(!rhythm.keys(true, at(9001)));
    }

    #[test]
    fn enter_is_known_as_every_terminal_writes_it() {
        for keys in [&b"\r"[..], b"ls\n", b"\x1bOM", b"\x1b[13u", b"x\x1b[13;1:1u"] {
            assert!(ends_line(keys), "{keys:?}");
        }
        for keys in [&b"a"[..], b"\x1b[A", b"\x1b[113u", b"\x03", b""] {
            assert!(!ends_line(keys), "{keys:?}");
        }
    }
}
