//! What the other process does that hands a file in for the keeper: it goes into the session's user namespace.

use super::courier::{MOVED, NONE};
use super::pair::Maker;
use crate::error::{Failure, Kind, Result};
use crate::land::live;
use crate::session::store::{Session, show};
use landbox_shared::digest::Digest;
use landbox_shared::path::AbsPath;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Goes in, and replaces the login file there if it still is `expected`. Gives the exit code.
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
    let pair = AbsPath::new(declared.as_bytes())
        .ok()
        .and_then(|declared| Maker::new(session, &merged).one(&declared));
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
