//! What the task is started with. It travels in a frame of its own, never on disk and never in an argument list.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Arguments and environment of the task.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// The argument vector; the first one names the program, looked up in `PATH` of [`Exec::env`] if it has no slash.
    pub argv: Vec<Vec<u8>>,
    /// `NAME=value` strings.
    pub env: Vec<Vec<u8>>,
}

// The environment holds secrets: debug output shows counts alone.
impl fmt::Debug for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exec {{ argv: {} strings, env: {} strings }}", self.argv.len(), self.env.len())
    }
}
