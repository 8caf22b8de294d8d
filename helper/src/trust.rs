//! Which keys may sign an envelope. `landbox_shared::trust` says what a key file is; which folders are read depends on
//! with what rights we run:
//!
//! - without any: `landbox/trusted.d` in the caller's own configuration folder (the caller, 0700);
//! - with the file capability: `/etc/landbox/trusted.d` alone, every component root's;
//! - as root: that one, then the one in root's home as `/etc/passwd` names it, every component root's.
//!
//! A signature says which enrolled key approved a plan. It is no wall between two programs of one user.

use crate::failure::{Context, Failure, Stage, refused_at, require_at};
use crate::open::{FOLDER, open, open_beneath};
use crate::start::Caller;
use ed25519_dalek::VerifyingKey;
use landbox_shared::evidence::HelperMode;
use landbox_shared::trust;
use landbox_shared::wire::KeyId;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{SFlag, fstat};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

const STAGE: Stage = Stage::Verify;
const SYSTEM: &str = "/etc/landbox/trusted.d";
const OPENING: &str = "opening the trusted keys";
const PASSWD: &str = "/etc/passwd";
/// Longest key file read.
const KEY_BYTES: u64 = 1024;
/// Longest list of users read.
const PASSWD_BYTES: u64 = 1 << 20;
/// Writing for group or others.
const OTHERS_WRITE: u32 = 0o022;

/// Looks a key up in the folders that count for this caller. What is not there is passed over.
pub(crate) fn find(caller: &Caller, id: &KeyId) -> Result<Option<VerifyingKey>, Failure> {
    let etc = || system(PathBuf::from(SYSTEM));
    let folders = match (caller.mode, &caller.config) {
        (HelperMode::Unprivileged, None) => vec![],
        (HelperMode::Unprivileged | HelperMode::Root, Some(config)) => {
            vec![own(config, caller.uid)]
        }
        (HelperMode::Capable, _) => vec![etc()],
        (HelperMode::Root, None) => {
            let mut passwd = Vec::new();
            File::open(PASSWD)
                .and_then(|file| file.take(PASSWD_BYTES).read_to_end(&mut passwd))
                .at(STAGE, PASSWD, "looking root's home up")?;
            let home = trust::home_of(&passwd, caller.uid);
            let in_home = home.map(|home| system(home.join(".config").join(trust::FOLDER)));
            [etc()].into_iter().chain(in_home).collect()
        }
    };
    for folder in folders {
        match folder.and_then(|folder| read_key(&folder, id, caller.uid)) {
            Err(failure) if failure.errno == libc::ENOENT => {}
            found => return found.map(Some),
        }
    }
    Ok(None)
}

struct Folder {
    fd: OwnedFd,
    path: PathBuf,
    owner: u32,
}

/// The caller's own folder: no link in the part that is ours; owner and mode exactly.
fn own(config: &Path, uid: u32) -> Result<Folder, Failure> {
    let path = config.join(trust::FOLDER);
    // How the caller gets to the configuration is the caller's affair.
    let how = OpenHow::new().flags(FOLDER | OFlag::O_CLOEXEC);
    let fd = openat2(AT_FDCWD, config, how.resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS))
        .and_then(|base| open_beneath(base, trust::FOLDER, FOLDER))
        .at(STAGE, &path, OPENING)?;
    let stat = fstat(&fd).at(STAGE, &path, "reading owner and mode")?;
    let exact = stat.st_uid == uid && stat.st_mode & 0o777 == 0o700;
    let why = "trusted keys must lie in a folder of yours with mode 0700";
    require_at(exact, STAGE, &path, why)?;
    Ok(Folder { fd, path, owner: uid })
}

/// A folder that only root can change: walked component by component, each of them root's.
fn system(path: PathBuf) -> Result<Folder, Failure> {
    let mut fd = open("/", FOLDER).at(STAGE, &path, OPENING)?;
    for part in path.components() {
        if part != Component::RootDir {
            fd = open_beneath(fd, part.as_os_str(), FOLDER).at(STAGE, &path, OPENING)?;
        }
        let stat = fstat(&fd).at(STAGE, &path, "reading owner and mode")?;
        let roots = stat.st_uid == 0 && stat.st_mode & OTHERS_WRITE == 0;
        let why = "somebody other than root can write on the way to these trusted keys";
        require_at(roots, STAGE, &path, why)?;
    }
    Ok(Folder { fd, path, owner: 0 })
}

fn read_key(folder: &Folder, id: &KeyId, uid: u32) -> Result<VerifyingKey, Failure> {
    let name = format!("{id}.pub");
    let path = &folder.path.join(&name);
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK;
    let fd = open_beneath(&folder.fd, &*name, flags).at(STAGE, path, OPENING)?;
    let stat = fstat(&fd).at(STAGE, path, "reading owner and mode")?;
    let regular = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
    let guarded = regular && stat.st_uid == folder.owner && stat.st_mode & OTHERS_WRITE == 0;
    let why = "a trusted key must be a regular file that only its owner can write";
    require_at(guarded, STAGE, path, why)?;
    let mut text = String::new();
    let read = File::from(fd).take(KEY_BYTES).read_to_string(&mut text);
    read.at(STAGE, path, "reading this trusted key")?;
    let why = "this file does not hold a key, a uid and a comment in one line";
    let line = trust::read_line(&text);
    let (key, owner) = line.ok_or_else(|| refused_at(STAGE, path, why))?;
    require_at(owner == uid, STAGE, path, format!("this key speaks for uid {owner}"))?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_others_can_write_to_is_no_system_folder() {
        let errno = |path: &str| system(PathBuf::from(path)).map(drop).unwrap_err().errno;
        assert_eq!(errno("/tmp/landbox-no-such-folder"), 0);
        assert_eq!(errno("/etc/landbox-no-such-folder"), libc::ENOENT);
        assert_eq!(errno("/etc/../etc"), libc::EXDEV);
    }
}
