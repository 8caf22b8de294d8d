//! When a command on a terminal rests, and when its owner begins a turn.
//!
//! A command that shows a clock, say, never rests. With such a one it is the owner who tells: who types writes the next
//! line, and the line's end begins the turn.

use std::time::{Duration, Instant};

/// Silence after which a command rests.
const REST: Duration = Duration::from_secs(1);
/// Output that follows a key so closely is its echo.
const ECHO: Duration = Duration::from_millis(300);
/// A command that has not rested for so long is not waited for any more.
const RESTLESS: Duration = Duration::from_secs(10);
/// After so long what was seen when its owner began to type is old.
const AGAIN: Duration = Duration::from_secs(5);

/// Gets told.
pub trait Pace {
    /// The command has come to rest.
    fn rest(&mut self);
    /// It does not, but its owner types: what they were told of before counts no more.
    fn typing(&mut self);
    /// Its owner sent a line to it while it rested, or typed one.
    fn turn(&mut self);
}

/// What was typed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Keys {
    /// A line has ended.
    pub(super) line: bool,
    /// Text, or a line's end: no report of the terminal's own.
    pub(super) text: bool,
}

impl Keys {
    /// Of these bytes, and of what came before.
    pub(super) fn add(&mut self, keys: &[u8]) {
        let line = ends_line(keys);
        self.line |= line;
        self.text |= line || is_text(keys);
    }
}

/// What keys mean for a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Meaning {
    /// Somebody types to a command that does not rest.
    pub(super) typing: bool,
    /// A turn begins.
    pub(super) turn: bool,
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
    /// Since when it has not rested, or the last turn.
    busy: Instant,
    /// When its owner was last seen to type while it did not rest.
    typed: Option<Instant>,
}

impl Rhythm {
    pub(super) fn new(now: Instant) -> Self {
        Self { moved: now, key: None, rests: false, busy: now, typed: None }
    }

    /// Output came.
    pub(super) fn output(&mut self, now: Instant) {
        self.moved = now;
        let echo = self.key.is_some_and(|key| now.saturating_duration_since(key) < ECHO);
        if self.rests && !echo {
            (self.rests, self.busy) = (false, now);
        }
    }

    /// Keys went in.
    pub(super) fn keys(&mut self, keys: Keys, now: Instant) -> Meaning {
        (self.moved, self.key) = (now, Some(now));
        let mut meaning = Meaning { typing: false, turn: self.rests && keys.line };
        if !self.rests && keys.text && now.saturating_duration_since(self.busy) >= RESTLESS {
            let is_new = |typed: Instant| now.saturating_duration_since(typed) < AGAIN;
            meaning = Meaning { typing: !self.typed.is_some_and(is_new), turn: keys.line };
            if meaning.typing {
                self.typed = Some(now);
            }
        }
        if meaning.turn {
            (self.rests, self.busy, self.typed) = (false, now, None);
        }
        meaning
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

/// Whether these are keys of text: what a terminal says by itself, and keys that move, begin with an escape.
fn is_text(keys: &[u8]) -> bool {
    const PASTE: &[u8] = b"\x1b[200~";
    keys.starts_with(PASTE) || keys.first().is_some_and(|key| *key != 0x1b)
}

/// Whether a program takes these keys for the end of a line: the enter key, as terminals write it.
fn ends_line(keys: &[u8]) -> bool {
    const OTHERS: [&[u8]; 3] = [b"\x1bOM", b"\x1b[13u", b"\x1b[13;"];
    keys.iter().any(|key| matches!(key, b'\r' | b'\n'))
        || OTHERS.iter().any(|other| keys.windows(other.len()).any(|found| found == *other))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: Keys = Keys { line: false, text: true };
    const ENTER: Keys = Keys { line: true, text: true };

    #[test]
    fn a_turn_begins_with_a_line_for_a_command_that_rests_however_fast_it_was_typed() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut rhythm = Rhythm::new(start);
        let nothing = Meaning::default();
        assert_eq!(rhythm.keys(ENTER, at(100)), nothing, "it has hardly begun");
        rhythm.output(at(200));
        assert_eq!(rhythm.due(), Some(at(1200)));
        assert!(!rhythm.comes_to_rest(at(1199)) && rhythm.comes_to_rest(at(1200)));
        assert_eq!(rhythm.due(), None);
        for key in 0..20 {
            assert_eq!(rhythm.keys(TEXT, at(5000 + 50 * key)), nothing);
            rhythm.output(at(5010 + 50 * key));
        }
        assert_eq!(rhythm.keys(ENTER, at(6000)), Meaning { typing: false, turn: true });
        // What it does now is work, and what is typed meanwhile begins nothing.
        rhythm.output(at(6100));
        assert_eq!(rhythm.keys(ENTER, at(6200)), nothing);
        assert!(!rhythm.comes_to_rest(at(7199)) && rhythm.comes_to_rest(at(7200)));
        // It goes on by itself.
        rhythm.output(at(9000));
        assert_eq!(rhythm.keys(ENTER, at(9001)), nothing);
    }

    #[test]
    fn a_line_for_a_command_that_never_rests_begins_a_turn_and_its_first_key_is_told_of() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut rhythm = Rhythm::new(start);
        let mut clock = 0;
        let mut tick = |rhythm: &mut Rhythm, until: u64| {
            while clock < until {
                rhythm.output(at(clock));
                assert!(!rhythm.comes_to_rest(at(clock)));
                clock += 100;
            }
        };
        let (typing, turn) =
            (Meaning { typing: true, turn: false }, Meaning { typing: false, turn: true });
        tick(&mut rhythm, 9_000);
        assert_eq!(rhythm.keys(ENTER, at(9_000)), Meaning::default(), "it may be at work");
        tick(&mut rhythm, 11_000);
        let report = Keys { line: false, text: false };
        assert_eq!(rhythm.keys(report, at(11_000)), Meaning::default());
        assert_eq!(rhythm.keys(TEXT, at(11_000)), typing);
        assert_eq!(rhythm.keys(TEXT, at(12_000)), Meaning::default());
        tick(&mut rhythm, 17_000);
        assert_eq!(rhythm.keys(TEXT, at(17_000)), typing, "what was seen is old");
        assert_eq!(rhythm.keys(ENTER, at(17_100)), turn);
        // The next one no sooner than after as long again.
        tick(&mut rhythm, 27_000);
        assert_eq!(rhythm.keys(ENTER, at(27_000)), Meaning::default());
        tick(&mut rhythm, 28_000);
        assert_eq!(rhythm.keys(ENTER, at(28_000)), Meaning { typing: true, turn: true });
    }

    #[test]
    fn what_a_terminal_says_by_itself_is_not_typed() {
        let of = |parts: &[&[u8]]| {
            let mut keys = Keys::default();
            parts.iter().for_each(|part| keys.add(part));
            (keys.line, keys.text)
        };
        assert_eq!(of(&[b"\x1b[I", b"\x1b[<35;1;1M", b"\x1b[24;80R", b"\x1b[A"]), (false, false));
        assert_eq!(of(&[b"\x1b[I", b"a"]), (false, true));
        assert_eq!(of(&[b"\x1b[200~text\x1b[201~"]), (false, true));
        assert_eq!(of(&[b"\x1bOM"]), (true, true));
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
