//! What went wrong, for the person at the terminal: a kind (which decides the exit code), a sentence, and what to type next.

use std::any::Any;
use std::{fmt, io};

/// The kinds of failure that callers can tell apart by exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Something failed that should have worked.
    Failed,
    /// Usage or invalid input.
    Usage,
    /// The owner's tree changed meanwhile.
    Conflict,
    /// There is nothing to do.
    Nothing,
    /// A boundary or a back end cannot be had here.
    Unavailable,
    /// Refused: policy, ownership, a running session, a digest that differs.
    Refused,
}

impl Kind {
    /// The exit code of commands other than `run` and `resume` (those use 125).
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Conflict => 3,
            Self::Nothing => 4,
            Self::Unavailable => 5,
            Self::Refused => 6,
        }
    }
}

/// A failure with its kind and hints.
#[derive(Debug)]
pub struct Failure {
    /// Which kind.
    pub kind: Kind,
    /// One sentence without control characters.
    pub message: String,
    /// What to type next.
    pub hints: Vec<String>,
    /// What the system said, where it said something.
    pub cause: Option<io::ErrorKind>,
    /// The number that it gave that.
    pub errno: Option<i32>,
}

/// The result of everything a command does.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// Makes a failure without hints.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hints: Vec::new(), cause: None, errno: None }
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Whether it is for want of room on a disk, or of its owner's quota there.
    pub fn is_for_room(&self) -> bool {
        matches!(self.cause, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Turns any error into a [`Failure`] that says what was being done.
pub trait Context<T> {
    /// `what` is a clause: "can't read the snapshot /path".
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display + 'static> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| {
            let (cause, errno) = (cause(&e), errno(&e));
            Failure { cause, errno, ..Failure::new(Kind::Failed, format!("{}: {e}", what())) }
        })
    }
}

fn cause(error: &dyn Any) -> Option<io::ErrorKind> {
    let io = error.downcast_ref::<io::Error>().map(io::Error::kind);
    let errno = || error.downcast_ref::<rustix::io::Errno>().map(|e| io::Error::from(*e).kind());
    let beside = || error.downcast_ref::<tempfile::PersistError>().map(|e| e.error.kind());
    io.or_else(errno).or_else(beside)
}

fn errno(error: &dyn Any) -> Option<i32> {
    let io = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
    io.or_else(|| error.downcast_ref::<rustix::io::Errno>().map(|e| e.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_said_is_known_in_whatever_form_it_came() {
        let errno = rustix::io::Errno::ROFS;
        let read_only = Some(io::ErrorKind::ReadOnlyFilesystem);
        let number = rustix::io::Errno::MFILE.raw_os_error();
        let many = Err::<(), _>(io::Error::from_raw_os_error(number)).context(String::new);
        assert_eq!(many.unwrap_err().errno, Some(number));
        let of = |failure: Failure| failure.cause;
        assert_eq!(of(Err::<(), _>(errno).context(String::new).unwrap_err()), read_only);
        let io = io::Error::from(errno);
        assert_eq!(of(Err::<(), _>(io).context(String::new).unwrap_err()), read_only);
        assert_eq!(of(Err::<(), _>("text").context(String::new).unwrap_err()), None);
    }
}
