//! Handing a file in where the merged view is closed to whoever stands outside its user namespace, root too: a
//! fuse-overlayfs of root's (`fuse(4)`, `allow_other`). Only a process of one thread can go in, so another one does it.

use super::Agreed;
use super::pair;
use crate::error::{Failure, Kind, Result};
use crate::land::live;
use crate::session::store::{Session, show};
use landbox_shared::digest::Digest;
use landbox_shared::path::AbsPath;
use landbox_shared::policy::Backend;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Stands for no file in the arguments.
const NONE: &str = "none";
/// Exit code where the inside is not what it was any more.
const MOVED: u8 = 1;

/// Who hands in for us.
#[derive(Debug)]
pub(super) struct Courier {
    id: String,
    state: PathBuf,
}

impl Courier {
    /// `None` where the merged view is open to us.
    pub(super) fn of(session: &Session) -> Option<Self> {
        let fuse = session.snapshot.policy.layers.iter().any(|l| l.backend == Backend::Fuse);
        let state = session.dir.ancestors().nth(2)?.to_owned();
        (fuse && rustix::process::geteuid().is_root())
            .then(|| Self { id: session.snapshot.id.to_string(), state })
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

/// The other process: goes in, and replaces the file there. Its exit code.
pub fn hand_in(session: &Session, declared: &OsStr, expected: &str, bytes: &[u8]) -> Result<u8> {
    let refuse = |why: &str| Failure::new(Kind::Refused, why.to_owned());
    let expected = match expected {
        NONE => None,
        text => Some(Digest::parse(text).ok_or_else(|| refuse("that is no digest"))?),
    };
    live::go_in(session)?;
    let mut merged: BTreeMap<_, OwnedFd> = BTreeMap::new();
    for layer in &session.snapshot.policy.layers {
        if let Ok(tree) = live::open(session, layer)
            && let Ok(fd) = tree.root().as_fd().try_clone_to_owned()
        {
            merged.insert(layer.id.clone(), fd);
        }
    }
    let pairs = pair::pairs(session, &merged, &Agreed::new());
    let pair = pairs.iter().find(|pair| pair.declared.as_bytes() == declared.as_bytes());
    let pair = pair.ok_or_else(|| refuse("that is no credential file of the session"))?;
    match pair.replace_inside(bytes, expected) {
        Ok(true) => Ok(0),
        Ok(false) => Ok(MOVED),
        Err(e) => {
            let path = show(pair.declared.as_path());
            Err(refuse(&format!("can't write {path} inside: {e}")))
        }
    }
}
