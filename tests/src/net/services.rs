//! Small services in a test's network, that log each request.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Running services; ended with this value.
#[derive(Debug)]
pub struct Services {
    child: Child,
    log: PathBuf,
}

impl Services {
    pub(super) fn start(mut command: Command, log: PathBuf) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("can't start {command:?}: {e}"));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "serving\n", "the services did not start");
        Self { child, log }
    }

    /// What was asked so far, a line each: the service's name, then what it was asked.
    pub fn asked(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The same of one service.
    pub fn asked_of(&self, name: &str) -> Vec<String> {
        let of = |line: &String| line.split(' ').next() == Some(name);
        self.asked().into_iter().filter(of).collect()
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
