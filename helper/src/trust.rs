//! Looking a key up. `landbox_shared::trust` says what a key file is and which folders count; here they are opened, by
//! descriptor, and every owner and mode on the way is read from what was opened.
//!
//! A signature says which enrolled key approved a plan. It is no wall between two programs of one user.

use crate::failure::{Context, Failure, Stage, refused_at, require_at};
use crate::open::{FOLDER, open, open_beneath};
use ed25519_dalek::VerifyingKey;
use landbox_shared::trust::{self, KEY_BYTES, OTHERS_WRITE, Place};
use landbox_shared::wire::KeyId;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{SFlag, fstat};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

const STAGE: Stage = Stage::Verify;
const OPENING: &str = "opening the trusted keys";

/// Looks a key up in the folders that count for this caller. What is not there is passed over.
pub(crate) fn find(
    places: &[Place],
    uid: u32,
    id: &KeyId,
) -> Result<Option<VerifyingKey>, Failure> {
    for place in places {
        let folder = match place {
            Place::Own(config) => own(config, uid),
            Place::Roots(path) => system(path),
        };
        let name = trust::file_name(id);
        match folder.and_then(|folder| read(&folder, &name)) {
            Err(failure) if failure.errno == libc::ENOENT => {}
            Err(failure) => return Err(failure),
            Ok(text) => {
                let key = trust::key_for(uid, &text).map(Some);
                return key.map_err(|why| refused_at(STAGE, &name, why));
            }
        }
    }
    Ok(None)
}

/// An open folder of keys.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) fd: OwnedFd,
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
pub(crate) fn system(path: &Path) -> Result<Folder, Failure> {
    let mut fd = open("/", FOLDER).at(STAGE, path, OPENING)?;
    for part in path.components() {
        if part != Component::RootDir {
            fd = open_beneath(fd, part.as_os_str(), FOLDER).at(STAGE, path, OPENING)?;
        }
        let stat = fstat(&fd).at(STAGE, path, "reading owner and mode")?;
        let roots = stat.st_uid == 0 && stat.st_mode & OTHERS_WRITE == 0;
        let why = "somebody other than root can write on the way to these trusted keys";
        require_at(roots, STAGE, path, why)?;
    }
    Ok(Folder { fd, path: path.to_owned(), owner: 0 })
}

/// Reads one file of such a folder.
pub(crate) fn read(folder: &Folder, name: &str) -> Result<String, Failure> {
    let path = &folder.path.join(name);
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK;
    let fd = open_beneath(&folder.fd, name, flags).at(STAGE, path, OPENING)?;
    let stat = fstat(&fd).at(STAGE, path, "reading owner and mode")?;
    let regular = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
    let guarded = regular && stat.st_uid == folder.owner && stat.st_mode & OTHERS_WRITE == 0;
    let why = "a trusted key must be a regular file that only its owner can write";
    require_at(guarded, STAGE, path, why)?;
    let mut text = String::new();
    let read = File::from(fd).take(KEY_BYTES).read_to_string(&mut text);
    read.at(STAGE, path, "reading this trusted key").map(|_| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_others_can_write_to_is_no_system_folder() {
        let errno = |path: &str| system(Path::new(path)).map(drop).unwrap_err().errno;
        assert_eq!(errno("/tmp/landbox-no-such-folder"), 0);
        assert_eq!(errno("/etc/landbox-no-such-folder"), libc::ENOENT);
        assert_eq!(errno("/etc/../etc"), libc::EXDEV);
    }
}
