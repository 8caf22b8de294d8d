//! Naming a failed step of the helper.

pub use crate::event::{Failure, Stage};
use std::ffi::OsStr;
use std::fmt::Display;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

// Error numbers, the same on every architecture of Linux that we build for.
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
/// What an error without a number of its own counts as.
const EIO: i32 = 5;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const ENOSYS: i32 = 38;
const EMSGSIZE: i32 = 90;
const EPROTONOSUPPORT: i32 = 93;
const EOPNOTSUPP: i32 = 95;
const EAFNOSUPPORT: i32 = 97;
const ENOBUFS: i32 = 105;

/// Turns the error of a system call into a [`Failure`] of a named step.
pub trait Context<T> {
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
        self.map_err(|e| failed(stage, e, path, doing))
    }
}

/// A system call that failed.
pub fn failed(
    stage: Stage,
    error: impl Into<io::Error>,
    path: impl AsRef<Path>,
    doing: &str,
) -> Failure {
    let errno = error.into().raw_os_error().unwrap_or(EIO);
    Failure { errno, ..refused_at(stage, path, doing) }
}

/// Something that was judged and refused, without a system call that failed.
pub fn refused(stage: Stage, why: impl Display) -> Failure {
    refused_at(stage, "", why)
}

/// A path that was judged and refused.
pub fn refused_at(stage: Stage, path: impl AsRef<Path>, why: impl Display) -> Failure {
    let path: &OsStr = path.as_ref().as_os_str();
    Failure { stage, errno: 0, path: path.as_bytes().to_vec(), detail: why.to_string() }
}

/// Refuses unless `truth`.
pub fn require(truth: bool, stage: Stage, why: impl Display) -> Result<(), Failure> {
    require_at(truth, stage, "", why)
}

/// Refuses a path unless `truth`.
pub fn require_at(
    truth: bool,
    stage: Stage,
    path: impl AsRef<Path>,
    why: impl Display,
) -> Result<(), Failure> {
    if truth { Ok(()) } else { Err(refused_at(stage, path, why)) }
}

/// What an error number means where namespaces were to be made.
pub fn why_no_namespace(errno: i32) -> &'static str {
    match errno {
        ENOSPC => ": a limit of /proc/sys/user/max_*_namespaces is 0 or used up",
        // Filters of containers answer also as if there were no such call.
        EPERM | EACCES | ENOSYS => {
            ": this host or container forbids user namespaces to you (kernel.unprivileged_userns_clone, \
             kernel.apparmor_restrict_unprivileged_userns, a chroot, or a container's filter, which \
             --security-opt seccomp=unconfined takes away)"
        }
        EINVAL => ": this kernel lacks one of them",
        _ => "",
    }
}

/// What an error number means where the rules of the packet filter were to be loaded.
pub fn why_no_rules(errno: i32) -> &'static str {
    match errno {
        ENOENT | EAFNOSUPPORT | EOPNOTSUPP | EPROTONOSUPPORT => {
            ": the kernel lacks a part of its packet filter (modprobe nf_tables nft_reject_inet)"
        }
        EPERM | EACCES => ": this host or container forbids it to you",
        EMSGSIZE | ENOBUFS => ": they are more than this host's socket buffers take",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_carries_the_number_of_the_error_and_a_refusal_none() {
        let missing: io::Result<()> = Err(io::Error::from_raw_os_error(2));
        let failure = missing.at(Stage::Lock, "/a", "opening it").unwrap_err();
        assert_eq!((failure.stage, failure.errno, &*failure.path), (Stage::Lock, 2, &b"/a"[..]));
        let unnamed: io::Result<()> = Err(io::Error::other("words"));
        assert_eq!(unnamed.stage(Stage::Lock, "doing").unwrap_err().errno, 5);
        assert_eq!(require(false, Stage::Watch, "no").unwrap_err(), refused(Stage::Watch, "no"));
        assert!(require(true, Stage::Watch, "no").is_ok());
    }
}
