//! Naming a failed step.

use landbox_shared::event::{Failure, Stage};
use nix::errno::Errno;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::{io, path::Path};

/// Turns the error of a system call into a [`Failure`] of a named step.
pub(crate) trait Context<T> {
    /// Names the stage, and what was being done in it.
    fn stage(self, stage: Stage, doing: &str) -> Result<T, Failure>;
    /// Names the stage, the path, and what was being done in it.
    fn at(self, stage: Stage, path: impl AsRef<Path>, doing: &str) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn stage(self, stage: Stage, doing: &str) -> Result<T, Failure> {
        self.at(stage, "", doing)
    }

    fn at(self, stage: Stage, path: impl AsRef<Path>, doing: &str) -> Result<T, Failure> {
        self.map_err(|e| {
            let errno = Errno::from_raw(e.into().raw_os_error().unwrap_or(libc::EIO));
            failed(stage, errno, path, doing)
        })
    }
}

/// A system call that failed.
pub(crate) fn failed(stage: Stage, errno: Errno, path: impl AsRef<Path>, doing: &str) -> Failure {
    Failure { errno: errno as i32, ..refused_at(stage, path, doing) }
}

/// Something that was judged and refused, without a system call that failed.
pub(crate) fn refused(stage: Stage, why: impl Display) -> Failure {
    refused_at(stage, "", why)
}

/// A path that was judged and refused.
pub(crate) fn refused_at(stage: Stage, path: impl AsRef<Path>, why: impl Display) -> Failure {
    let path = path.as_ref().as_os_str().as_bytes().to_vec();
    Failure { stage, errno: 0, path, detail: why.to_string() }
}

/// Refuses unless `truth`.
pub(crate) fn require(truth: bool, stage: Stage, why: impl Display) -> Result<(), Failure> {
    require_at(truth, stage, "", why)
}

/// Refuses a path unless `truth`.
pub(crate) fn require_at(
    truth: bool,
    stage: Stage,
    path: impl AsRef<Path>,
    why: impl Display,
) -> Result<(), Failure> {
    if truth { Ok(()) } else { Err(refused_at(stage, path, why)) }
}
