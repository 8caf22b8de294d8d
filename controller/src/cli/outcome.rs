//! How a launch ended: exit codes, what is written down, what the person reads.

use crate::error::{Failure, Kind, Result};
use crate::launch::{self, Refusal};
use crate::pty::End;
use crate::session;
use crate::session::model::{LaunchFailure, Phase};
use crate::session::store::Session;
use crate::ui::text::{counted, visible};
use landbox_shared::bytes;
use landbox_shared::event::{Event, Stage, Status};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The program was not found.
const NOT_FOUND: u8 = 127;
/// The program was found but can't be executed.
const NOT_EXECUTABLE: u8 = 126;
/// Landbox itself failed.
pub(super) const LANDBOX_FAILED: u8 = 125;

/// Why a task never started.
#[derive(Debug)]
pub(super) enum Unstarted {
    /// The boundary did not come about.
    Refused(Refusal),
    /// The program could not be executed.
    Exec(i32),
}

impl<E: Into<Refusal>> From<E> for Unstarted {
    fn from(refusal: E) -> Self {
        Self::Refused(refusal.into())
    }
}

impl Unstarted {
    /// The exit code of `run` and `resume`.
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Exec(errno) => exec_code(*errno),
            Self::Refused(Refusal::Interrupted(signal)) => signal_code(*signal),
            Self::Refused(Refusal::Helper(_) | Refusal::Other(_)) => LANDBOX_FAILED,
        }
    }

    /// What the person reads; nothing where a signal says it all.
    pub(super) fn failure(self, program: &[u8]) -> Option<Failure> {
        match self {
            Self::Exec(errno) => Some(exec_failure(program, errno)),
            Self::Refused(Refusal::Interrupted(_)) => None,
            Self::Refused(Refusal::Helper(failure)) => Some(launch::explain(&failure)),
            Self::Refused(Refusal::Other(failure)) => Some(failure),
        }
    }

    /// Writes it down as the end of the newest launch.
    pub(super) fn record(&self, session: &mut Session) -> Result<()> {
        let plain = |message: String| LaunchFailure { stage: None, path: None, message };
        let failure = match self {
            Self::Exec(errno) => plain(format!("the program can't be executed: {}", error(*errno))),
            Self::Refused(Refusal::Interrupted(signal)) => {
                plain(format!("interrupted by signal {signal}"))
            }
            Self::Refused(Refusal::Helper(failure)) => {
                stage_failure(failure.stage, &failure.path, failure.to_string())
            }
            Self::Refused(Refusal::Other(failure)) => plain(failure.message.clone()),
        };
        finish(session, None, Some(failure))
    }
}

/// Notes how a session that ran has ended, for the caller to save; gives the exit code, and what the person must read.
/// An error means that nothing ever ran.
pub(super) fn conclude(
    session: &mut Session,
    end: End,
) -> Result<(u8, Option<Failure>), Unstarted> {
    let plain = |message: String| Some(LaunchFailure { stage: None, path: None, message });
    let signal = if let End::Signal(signal) = end { Some(signal) } else { None };
    let watch = |path: &[u8], message: &str| stage_failure(Stage::Watch, path, message.to_owned());
    let (exit, failure) = match end {
        End::Event(Event::Exited(status)) => (Some(status), None),
        End::Event(Event::ExecFailed { errno }) => return Err(Unstarted::Exec(errno)),
        End::Event(Event::BoundaryLost { path }) => {
            (None, Some(watch(&path, "a mount of the boundary is gone")))
        }
        End::Event(Event::LinkLost) => {
            (None, Some(stage_failure(Stage::Network, &[], "network forwarder exited".into())))
        }
        End::Event(Event::Failed(failure)) => {
            (None, Some(stage_failure(failure.stage, &failure.path, failure.to_string())))
        }
        End::Event(Event::Challenge(_) | Event::Ready(_) | Event::Egress(_)) => {
            (None, Some(watch(&[], "the helper spoke out of order")))
        }
        End::Silent => {
            // What is left of it may still be handing over what the task wrote last.
            let _ = session.try_lock();
            (None, plain("the helper was ended from outside".into()))
        }
        End::Signal(signal) => (None, plain(format!("landbox got signal {signal}"))),
    };
    let told = failure.as_ref().map(|failure| {
        let mut text = format!("the session was ended: {}", visible(failure.message.as_bytes()));
        if let Some(path) = failure.path.as_ref().and_then(|text| bytes::unescape(text)) {
            text = format!("{text}: {}", visible(&path));
        }
        let id = &session.snapshot.id;
        Failure::new(Kind::Failed, text)
            .hint(format!("what it wrote is kept: landbox diff {id}; landbox resume {id}"))
    });
    let code = match exit {
        Some(Status::Code(code)) => code,
        Some(Status::Signal(signal)) => 128u8.saturating_add(signal),
        None => signal.map_or(LANDBOX_FAILED, signal_code),
    };
    close(session, exit, failure);
    Ok((code, told))
}

fn stage_failure(stage: Stage, path: &[u8], message: String) -> LaunchFailure {
    let path = (!path.is_empty()).then(|| bytes::escape(path));
    LaunchFailure { stage: Some(stage), path, message }
}

/// Writes the end of the newest launch down.
pub(super) fn finish(
    session: &mut Session,
    exit: Option<Status>,
    failure: Option<LaunchFailure>,
) -> Result<()> {
    close(session, exit, failure);
    session.save_run()
}

fn close(session: &mut Session, exit: Option<Status>, failure: Option<LaunchFailure>) {
    session.state.state = if failure.is_some() { Phase::Failed } else { Phase::Exited };
    if let Some(launch) = session.state.launches.last_mut() {
        launch.ended_at = Some(session::now());
        launch.exit = exit;
        launch.failure = failure;
    }
}

fn error(errno: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno)
}

/// The exit code for a program that execve(2) refused.
pub(super) fn exec_code(errno: i32) -> u8 {
    // As numbers: what the helper says need not be a valid one.
    let missing = [Errno::NOENT, Errno::NOTDIR].map(Errno::raw_os_error).contains(&errno);
    if missing { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// What the person reads about such a program.
pub(super) fn exec_failure(program: &[u8], errno: i32) -> Failure {
    let name = visible(program);
    if exec_code(errno) == NOT_FOUND {
        let failure = Failure::new(Kind::Failed, format!("{name}: command not found"));
        let show = |path: &std::path::Path| visible(path.as_os_str().as_bytes());
        match crate::policy::program::outside(OsStr::from_bytes(program)) {
            None if program.contains(&b'/') => failure
                .hint("there is no such file, seen from the session's working folder"),
            None => failure.hint(
                "the session searches the PATH you have now; give the program's full path, or install it",
            ),
            Some((script, Some(by))) => failure.hint(format!(
                "{} is run by {}: one of them is not there inside",
                show(&script),
                show(&by)
            )),
            Some((file, None)) => failure.hint(format!(
                "{} is there outside, but it, or what it is loaded by, is not inside",
                show(&file)
            )),
        }
    } else {
        Failure::new(Kind::Failed, format!("{name}: can't be executed: {}", error(errno))).hint(
            "it must be a program, or a script that begins with #! and that may be run (chmod +x)",
        )
    }
}

/// What the person reads where output could not be delivered: the task thought it was written.
pub(super) fn output_lost(error: Errno) -> Failure {
    Failure::new(Kind::Failed, format!("output of the session is lost: can't write it: {error}"))
        .hint("make room, or send the output elsewhere, and run it again")
}

fn signal_code(signal: i32) -> u8 {
    u8::try_from(signal).map_or(LANDBOX_FAILED, |n| 128u8.saturating_add(n))
}

/// The one line after a session, which has changed so many files that the ignore rules cover.
pub(super) fn farewell(session: &Session, ignored: u64) -> String {
    let id = &session.snapshot.id;
    let what = match session.state.changes {
        Some(counts) if counts.files == 0 && ignored > 0 => {
            let files = counted(ignored, "file", "files");
            return format!(
                "landbox: {files} changed that the project's ignore rules cover, and no other; review: landbox diff {id} \
                 --with-ignored; apply: landbox land {id} --with-ignored"
            );
        }
        Some(counts) if counts.files == 0 => {
            return format!("landbox: no file of the project changed (session {id})");
        }
        Some(counts) => format!(
            "{} file{} changed (+{} -{})",
            counts.files,
            if counts.files == 1 { "" } else { "s" },
            counts.added,
            counts.deleted
        ),
        None => format!("session {id} ended"),
    };
    format!("landbox: {what}; review: landbox diff {id}; apply: landbox land {id}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::model::ChangeCounts;
    use crate::session::store::StateDir;
    use crate::session::testing::snapshot;

    #[test]
    fn the_last_line_tells_of_changes_that_only_ignored_files_have() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(&dir.path().join("state")).unwrap();
        let mut session = state.create(snapshot("aaaaaaaaaa", None)).unwrap();
        let counts = |files| Some(ChangeCounts { files, added: files, deleted: 0 });
        session.state.changes = counts(0);
        assert!(farewell(&session, 0).contains("no file of the project changed"));
        let told = farewell(&session, 2);
        assert!(told.contains("2 files changed that the project's ignore rules cover"), "{told}");
        assert!(told.contains("landbox diff aaaaaaaaaa --with-ignored"), "{told}");
        session.state.changes = counts(1);
        assert!(farewell(&session, 2).contains("1 file changed (+1 -0)"));
    }

    #[test]
    fn exit_codes_are_the_clis_own_or_the_shells_for_what_never_ran() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(&dir.path().join("state")).unwrap();
        let mut session = state.create(snapshot("aaaaaaaaaa", None)).unwrap();
        let mut code = |event| match conclude(&mut session, End::Event(event)) {
            Ok((code, told)) => (code, told.is_some()),
            Err(unstarted) => (unstarted.code(), true),
        };
        assert_eq!(code(Event::Exited(Status::Code(7))), (7, false));
        assert_eq!(code(Event::Exited(Status::Signal(15))), (143, false));
        assert_eq!(code(Event::ExecFailed { errno: 2 }), (127, true));
        assert_eq!(code(Event::ExecFailed { errno: 13 }), (126, true));
        assert_eq!(code(Event::BoundaryLost { path: b"/p".to_vec() }), (125, true));
        assert_eq!(session.state.state, Phase::Failed);
        assert_eq!(conclude(&mut session, End::Silent).unwrap().0, 125);
        assert_eq!(conclude(&mut session, End::Signal(14)).unwrap().0, 128 + 14);
    }
}
