//! Where a session is started from: by whom, and on a terminal or between pipes. For promises that must hold in all
//! four, and on either overlay.

use crate::net::{Answer, Flow, Outer};
use crate::run::{Live, Run};
use crate::terminal::Terminal;
use crate::{Place, World, world};

/// By whom a session is started, and from what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Whose session, and on which overlay.
    pub world: World,
    /// Whether its descriptors are a terminal.
    pub terminal: bool,
}

impl Seat {
    /// Starts it here.
    pub fn start(self, run: &mut Run) -> Seated {
        if self.terminal {
            Seated::Terminal(run.terminal(500, 50))
        } else {
            Seated::Piped(run.stdin_open().start())
        }
    }

    /// Runs it here to its end, without input.
    pub fn output(self, run: &mut Run) -> Said {
        if self.terminal { self.start(run).wait() } else { Said::of(run.output()) }
    }

    /// Starts a session under `policy` that tries every flow; how each went, in order.
    #[track_caller]
    pub fn probe(
        self,
        outer: &Outer,
        place: &Place,
        policy: &serde_json::Value,
        flows: &[Flow],
    ) -> Vec<Answer> {
        let list = place.flows(flows);
        let prober = world::bin("prober");
        let words = [prober.as_os_str(), "net".as_ref(), list.as_os_str()];
        let answers = self.output(&mut outer.session(place, policy, words)).expect(0).answers();
        assert_eq!(answers.len(), flows.len());
        answers
    }
}

/// A session that runs.
#[derive(Debug)]
pub enum Seated {
    /// Between pipes.
    Piped(Live),
    /// On a terminal.
    Terminal(Terminal),
}

impl Seated {
    /// The process that was started.
    pub fn pid(&self) -> i32 {
        match self {
            Self::Piped(live) => live.pid(),
            Self::Terminal(terminal) => terminal.pid(),
        }
    }

    /// Waits until it has said `text`.
    #[track_caller]
    pub fn expect(&mut self, text: &str) {
        match self {
            Self::Piped(live) => live.expect(text),
            Self::Terminal(terminal) => terminal.expect(text),
        }
    }

    /// Ends its input.
    pub fn end_input(&mut self) {
        match self {
            Self::Piped(live) => live.close_stdin(),
            Self::Terminal(terminal) => terminal.send([4]),
        }
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(self) -> Said {
        match self {
            Self::Piped(live) => Said::of(live.wait_open()),
            Self::Terminal(mut terminal) => {
                let code = terminal.wait();
                let shown = terminal.shown().replace("\r\n", "\n");
                // Ours come by the same way.
                let is_ours = |line: &&str| line.starts_with("landbox: ");
                let text = shown.split_inclusive('\n').filter(|line| !is_ours(line)).collect();
                Said { code, text, errors: shown }
            }
        }
    }
}

/// How a session ended and what it said, wherever that was.
#[derive(Clone, Debug)]
pub struct Said {
    /// Exit code, or 1000 + the signal that ended it.
    pub code: i32,
    /// What the command said; on a terminal its errors, too.
    pub text: String,
    /// What Landbox said, among the rest where it was on a terminal.
    pub errors: String,
}

impl Said {
    fn of(out: crate::run::Out) -> Self {
        Self { code: out.code(), text: out.text(), errors: out.errors() }
    }

    /// Fails the test unless the exit code is `code`.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}\n{}", self.text, self.errors);
        self
    }

    /// The prober's answers, whatever else was said.
    #[track_caller]
    pub fn answers(&self) -> Vec<Answer> {
        let (start, end) = (self.text.find("[{").unwrap(), self.text.rfind("}]").unwrap());
        let list = &self.text[start..end + 2];
        serde_json::from_str(list).unwrap_or_else(|e| panic!("{e}: {list:?}"))
    }
}

/// Makes four tests of each function: as an ordinary user and as root, between pipes and on a terminal, on the kernel's
/// overlay: `seats! { fn name(seat) {..} }`.
#[macro_export]
macro_rules! seats {
    ($(fn $name:ident($s:ident) $body:block)+) => {
        $(
            mod $name {
                #[allow(unused_imports)]
                use super::*;

                fn promise($s: $crate::seat::Seat) $body

                $crate::seats!(@ user_between_pipes, user_kernel, false);
                $crate::seats!(@ user_on_a_terminal, user_kernel, true);
                $crate::seats!(@ root_between_pipes, root_kernel, false);
                $crate::seats!(@ root_on_a_terminal, root_kernel, true);
                $crate::seats!(@ user_on_fuse, user_fuse, false);
                $crate::seats!(@ root_on_fuse, root_fuse, true);
            }
        )+
    };
    (@ $test:ident, $world:ident, $terminal:literal) => {
        #[test]
        fn $test() {
            let world = $crate::world::$world();
            promise($crate::seat::Seat { world, terminal: $terminal });
        }
    };
}
