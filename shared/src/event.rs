//! What the helper says on the event socket.

use crate::bytes;
use crate::evidence::Evidence;
use crate::network::egress::Egress;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One message of the helper. The order is fixed: `Challenge`, then `Ready` or `Failed`; after `Ready` the controller
/// answers with [`crate::wire::RELEASE`], then, after any number of `Egress`, one of the others ends the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// 32 fresh random bytes that the envelope must carry.
    Challenge([u8; 32]),
    /// The boundary stands. Descriptors beside it: a pidfd of init, then the merged root of each layer (O_PATH).
    Ready(Box<Evidence>),
    /// The task's program could not be executed.
    ExecFailed {
        /// Error number of execve(2).
        errno: i32,
    },
    /// The task ended.
    Exited(Status),
    /// The boundary could not be made, or the helper met an error.
    Failed(Failure),
    /// A mount of the boundary is gone; the session was ended.
    BoundaryLost {
        /// The mount point.
        path: Vec<u8>,
    },
    /// The user-mode network ended; the session was ended.
    LinkLost,
    /// Where the session's traffic went so far: at an interval while it runs, and once more before its last word.
    Egress(Box<Egress>),
}

/// How the task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// By itself, with this code.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

impl Status {
    /// As wait(2) tells an end: a signal in the low seven bits, or a code above.
    pub fn from_wait(status: i32) -> Self {
        let [low, code, ..] = status.to_le_bytes();
        match low & 0x7f {
            0 => Self::Code(code),
            signal => Self::Signal(signal),
        }
    }
}

/// A step that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Which step.
    pub stage: Stage,
    /// Error number, or 0 where no system call failed.
    pub errno: i32,
    /// The path it concerns, or empty.
    pub path: Vec<u8>,
    /// What was being done, in a few words without secrets.
    pub detail: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.stage, self.detail)?;
        if !self.path.is_empty() {
            write!(f, ": {}", bytes::escape(&self.path))?;
        }
        if self.errno != 0 {
            write!(f, ": {}", std::io::Error::from_raw_os_error(self.errno))?;
        }
        Ok(())
    }
}

/// The steps of the helper, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Closing descriptors, clearing the environment, checking itself.
    Start,
    /// Reading the envelope and the exec frame.
    Receive,
    /// Judging signature, digest and every operation.
    Verify,
    /// Taking the session's lock.
    Lock,
    /// Making the namespaces and id maps.
    Namespaces,
    /// Mounting anything but a layer.
    Mount,
    /// Mounting a layer.
    Layer,
    /// Setting the network up.
    Network,
    /// Dropping rights and installing filters.
    Confine,
    /// Reading the boundary back.
    Evidence,
    /// Letting the task start.
    Release,
    /// Watching the running session.
    Watch,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "start",
            Self::Receive => "receive",
            Self::Verify => "verify",
            Self::Lock => "lock",
            Self::Namespaces => "namespaces",
            Self::Mount => "mount",
            Self::Layer => "layer",
            Self::Network => "network",
            Self::Confine => "confine",
            Self::Evidence => "evidence",
            Self::Release => "release",
            Self::Watch => "watch",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_a_code_or_a_signal() {
        assert_eq!(Status::from_wait(0), Status::Code(0));
        assert_eq!(Status::from_wait(0x7d00), Status::Code(125));
        assert_eq!(Status::from_wait(9), Status::Signal(9));
        // With a core, and a real-time one.
        assert_eq!(Status::from_wait(0x8b), Status::Signal(11));
        assert_eq!(Status::from_wait(40), Status::Signal(40));
    }
}
