//! System-call filters: data with a reason a line ([`table`]), compiled to BPF ([`compile`]), put on the calling thread
//! ([`install`]).
//!
//! One filter of seccompiler has one answer for everything it matches and can't test a bit of the call number, so a
//! profile becomes several programs that are installed one on top of the other. The kernel runs all of them and takes
//! the strictest answer, so their order has no meaning.
// `forbid` in every module but the one that makes the system calls.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod compile;
mod install;
pub mod table;

pub use compile::{base, init, monitor, recorder, restricted};
pub use install::install;

use std::{fmt, io};

/// A processor architecture that filters can be compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Arch {
    /// The architecture this program was built for; `None` where there are no filters for it.
    pub fn host() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }
}

/// One BPF program.
pub type Program = Vec<libc::sock_filter>;

/// Compiles a profile ([`base`], [`restricted`], [`monitor`], [`recorder`] or [`init`]) for the architecture this program
/// was built for.
pub fn for_host(
    profile: impl FnOnce(Arch) -> Result<Vec<Program>, Error>,
) -> Result<Vec<Program>, Error> {
    profile(Arch::host().ok_or(Error::Arch)?)
}

/// Why there is no filter.
#[derive(Debug)]
pub enum Error {
    /// There are no filters for this architecture.
    Arch,
    /// A rule did not compile.
    Compile(seccompiler::BackendError),
    /// A program has no instruction, or more than the kernel takes.
    Size(usize),
    /// The calling thread may still gain privileges; the kernel would refuse, or worse, root would get away with it.
    NoNewPrivs,
    /// The kernel refused a program.
    Install(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arch => f.write_str("no filter for this machine"),
            Self::Compile(error) => write!(f, "filter does not compile: {error}"),
            Self::Size(length) => write!(f, "filter of {length} instructions can't be loaded"),
            Self::NoNewPrivs => f.write_str("no_new_privs is not set on this thread"),
            Self::Install(error) => write!(f, "kernel refused the filter: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Compile(error) => Some(error),
            Self::Install(error) => Some(error),
            Self::Arch | Self::Size(_) | Self::NoNewPrivs => None,
        }
    }
}
