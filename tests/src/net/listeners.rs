//! The counting listeners of a test's network.

use super::Flow;
use crate::procs;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Running listeners on every address; ended with this value.
#[derive(Debug)]
pub struct Listeners {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Listeners {
    pub(super) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("can't start {command:?}: {e}"));
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut listeners = Self { child, answers };
        assert_eq!(listeners.line(), "listening\n", "the listeners did not start");
        listeners
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line
    }

    /// How often each destination was reached so far, by `tcp ADDRESS PORT`.
    pub fn counts(&mut self) -> BTreeMap<String, u64> {
        self.child.stdin.as_mut().unwrap().write_all(b"counts\n").unwrap();
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("counts: {e}: {line:?}"))
    }

    /// How often this destination was reached so far.
    pub fn count(&mut self, flow: &Flow) -> u64 {
        self.counts().get(&flow.name()).copied().unwrap_or(0)
    }

    /// Waits until something was reached at this destination.
    #[track_caller]
    pub fn wait_for(&mut self, flow: &Flow) {
        procs::wait_for(&flow.to_string(), 30, || (self.count(flow) > 0).then_some(()));
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.child.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
