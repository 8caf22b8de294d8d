//! Naming a failed step.

use landbox_shared::event::{Failure, Stage};
use nix::errno::Errno;
use std::fmt::Display;
use std::io;

/// Turns an error number into a [`Failure`] of a named step.
pub(crate) trait Context<T> {
    /// Names the stage, and what was being done in it.
    fn stage(self, stage: Stage, detail: &str) -> Result<T, Failure>;
    /// Names the stage, the path, and what was being done in it.
    fn at(self, stage: Stage, path: &[u8], detail: &str) -> Result<T, Failure>;
}

impl<T> Context<T> for nix::Result<T> {
    fn stage(self, stage: Stage, detail: &str) -> Result<T, Failure> {
        self.at(stage, b"", detail)
    }

    fn at(self, stage: Stage, path: &[u8], detail: &str) -> Result<T, Failure> {
        self.map_err(|errno| failed(stage, errno, path, detail))
    }
}

impl<T> Context<T> for io::Result<T> {
    fn stage(self, stage: Stage, detail: &str) -> Result<T, Failure> {
        self.at(stage, b"", detail)
    }

    fn at(self, stage: Stage, path: &[u8], detail: &str) -> Result<T, Failure> {
        self.map_err(|e| {
            let errno = Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO));
            failed(stage, errno, path, detail)
        })
    }
}

/// A system call that failed.
pub(crate) fn failed(stage: Stage, errno: Errno, path: &[u8], detail: &str) -> Failure {
    Failure { stage, errno: errno as i32, path: path.to_vec(), detail: detail.to_owned() }
}

/// Something that was judged and refused, without a system call that failed.
pub(crate) fn refused(stage: Stage, detail: impl Display) -> Failure {
    refused_at(stage, b"", detail)
}

/// A path that was judged and refused.
pub(crate) fn refused_at(stage: Stage, path: &[u8], detail: impl Display) -> Failure {
    Failure { stage, errno: 0, path: path.to_vec(), detail: detail.to_string() }
}
