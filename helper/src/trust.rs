//! Which keys may sign an envelope. `landbox_shared::trust` says what a key file is; which folders are read depends on
//! with what rights we run:
//!
//! - without any: `landbox/trusted.d` in the caller's own configuration folder (the caller, 0700);
//! - with the file capability: `/etc/landbox/trusted.d` alone, every component root's;
//! - as root: that one, then the one in root's home as `/etc/passwd` names it, every component root's.
//!
//! A signature says which enrolled key approved a plan. It is no wall between two programs of one user.

use crate::failure::{Context, refused_at, require_at};
use crate::start::Caller;
use ed25519_dalek::VerifyingKey;
use landbox_shared::event::{Failure, Stage};
use landbox_shared::evidence::HelperMode;
use landbox_shared::trust;
use landbox_shared::wire::KeyId;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{SFlag, fstat};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

const STAGE: Stage = Stage::Verify;
const SYSTEM: &str = "/etc/landbox/trusted.d";
const PASSWD: &str = "/etc/passwd";
/// Longest key file read.
const KEY_BYTES: u64 = 1024;
/// Longest list of users read.
const PASSWD_BYTES: u64 = 1 << 20;
/// Writing for group or others.
const OTHERS_WRITE: u32 = 0o022;

/// Looks a key up in the folders that count for this caller.
pub(crate) fn find(caller: &Caller, id: &KeyId) -> Result<Option<VerifyingKey>, Failure> {
    let folders = match (caller.mode, &caller.config) {
        (HelperMode::Unprivileged, None) => vec![],
        (HelperMode::Unprivileged | HelperMode::Root, Some(config)) => {
            vec![own(config, caller.uid)?]
        }
        (HelperMode::Capable, _) => vec![system(Path::new(SYSTEM))?],
        (HelperMode::Root, None) => {
            let mut passwd = Vec::new();
            File::open(PASSWD)
                .and_then(|file| file.take(PASSWD_BYTES).read_to_end(&mut passwd))
                .at(STAGE, PASSWD, "looking root's home up")?;
            let home = trust::home_of(&passwd, caller.uid);
            let home = home.map(|home| home.join(".config").join(trust::FOLDER));
            let in_home = home.map(|home| system(&home)).transpose()?;
            vec![system(Path::new(SYSTEM))?, in_home.flatten()]
        }
    };
    for folder in folders.into_iter().flatten() {
        if let Some(key) = read_key(&folder, id, caller.uid)? {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

struct Folder {
    fd: OwnedFd,
    path: PathBuf,
    owner: u32,
}

/// Opens `name` in `at`; `None` where there is nothing of that name. `path` is for the message.
fn open(
    at: impl AsFd,
    name: &Path,
    flags: OFlag,
    resolve: ResolveFlag,
    path: &Path,
) -> Result<Option<OwnedFd>, Failure> {
    let resolve = resolve | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    match openat2(at, name, OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve)) {
        Err(Errno::ENOENT) => Ok(None),
        opened => opened.map(Some).at(STAGE, path, "opening the trusted keys"),
    }
}

const FOLDER: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY);
const INSIDE: ResolveFlag = ResolveFlag::RESOLVE_BENEATH.union(ResolveFlag::RESOLVE_NO_SYMLINKS);

/// The caller's own folder: no link in the part that is ours; owner and mode exactly.
fn own(config: &Path, uid: u32) -> Result<Option<Folder>, Failure> {
    let path = config.join(trust::FOLDER);
    let base = open(AT_FDCWD, config, FOLDER, ResolveFlag::empty(), &path)?;
    let Some(base) = base else { return Ok(None) };
    let fd = open(base, Path::new(trust::FOLDER), FOLDER, INSIDE, &path)?;
    let Some(fd) = fd else { return Ok(None) };
    let stat = fstat(&fd).at(STAGE, &path, "reading owner and mode")?;
    require_at(
        stat.st_uid == uid && stat.st_mode & 0o777 == 0o700,
        STAGE,
        &path,
        "trusted keys must lie in a folder of yours with mode 0700",
    )?;
    Ok(Some(Folder { fd, path, owner: uid }))
}

/// A folder that only root can change: walked component by component, each of them root's.
fn system(path: &Path) -> Result<Option<Folder>, Failure> {
    let mut folder: Option<OwnedFd> = None;
    for part in path.components() {
        let next = match (part, &folder) {
            (Component::Normal(name), Some(fd)) => {
                let flags = FOLDER | OFlag::O_NOFOLLOW;
                open(fd, Path::new(name), flags, ResolveFlag::RESOLVE_BENEATH, path)?
            }
            _ => open(AT_FDCWD, Path::new("/"), FOLDER, ResolveFlag::empty(), path)?,
        };
        let Some(fd) = next else { return Ok(None) };
        let stat = fstat(&fd).at(STAGE, path, "reading owner and mode")?;
        require_at(
            stat.st_uid == 0 && stat.st_mode & OTHERS_WRITE == 0,
            STAGE,
            path,
            "somebody other than root can write on the way to these trusted keys",
        )?;
        folder = Some(fd);
    }
    Ok(folder.map(|fd| Folder { fd, path: path.to_owned(), owner: 0 }))
}

fn read_key(folder: &Folder, id: &KeyId, uid: u32) -> Result<Option<VerifyingKey>, Failure> {
    let name = format!("{id}.pub");
    let path = &folder.path.join(&name);
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let fd = open(&folder.fd, Path::new(&name), flags, INSIDE, path)?;
    let Some(fd) = fd else { return Ok(None) };
    let stat = fstat(&fd).at(STAGE, path, "reading owner and mode")?;
    let regular = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
    require_at(
        regular && stat.st_uid == folder.owner && stat.st_mode & OTHERS_WRITE == 0,
        STAGE,
        path,
        "a trusted key must be a regular file that only its owner can write",
    )?;
    let mut text = String::new();
    let read = File::from(fd).take(KEY_BYTES).read_to_string(&mut text);
    read.at(STAGE, path, "reading this trusted key")?;
    let (key, owner) = trust::read_line(&text).ok_or_else(|| {
        refused_at(STAGE, path, "this file does not hold a key, a uid and a comment in one line")
    })?;
    require_at(owner == uid, STAGE, path, format!("this key speaks for uid {owner}"))?;
    Ok(Some(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_others_can_write_to_is_no_system_folder() {
        assert!(system(Path::new("/tmp/landbox-no-such-folder")).is_err());
        assert!(system(Path::new("/etc/landbox-no-such-folder")).unwrap().is_none());
    }
}
