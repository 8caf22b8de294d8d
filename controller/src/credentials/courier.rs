//! Handing a file in where the merged view is closed to whoever stands outside its user namespace. Only a process of one
//! thread can go in, so another one does it.

use crate::land::live;
use crate::session::store::Session;
use landbox_shared::digest::Digest;
use landbox_shared::path::AbsPath;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Stands for no file in the arguments.
pub(super) const NONE: &str = "none";
/// Exit code where the inside is not what it was any more.
pub(super) const MOVED: u8 = 1;

/// Who hands in for us.
#[derive(Clone, Debug)]
pub(super) struct Courier {
    id: String,
    state: PathBuf,
}

impl Courier {
    /// `None` where the merged view is open to us.
    pub(super) fn of(session: &Session) -> Option<Self> {
        let state = session.dir.ancestors().nth(2)?.to_owned();
        live::is_closed(session).then(|| Self { id: session.snapshot.id.to_string(), state })
    }

    /// Writes `bytes` in the place of the credential file `declared`, if that still is `expected` inside.
    pub(super) fn hand_in(
        &self,
        declared: &AbsPath,
        bytes: &[u8],
        expected: Option<Digest>,
    ) -> Result<bool, Errno> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["util", "hand-in", &self.id]).arg(OsStr::from_bytes(declared.as_bytes()));
        command.arg(expected.map_or_else(|| NONE.into(), |digest| digest.to_string()));
        command.env("LANDBOX_STATE_DIR", &self.state).current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|_| Errno::IO)?;
        let written = child.stdin.take().is_some_and(|mut pipe| pipe.write_all(bytes).is_ok());
        let status = child.wait().map_err(|_| Errno::IO)?;
        match status.code() {
            Some(0) if written => Ok(true),
            Some(code) if code == i32::from(MOVED) => Ok(false),
            Some(_) | None => Err(Errno::ACCESS),
        }
    }
}
