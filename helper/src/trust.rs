//! Which keys may sign an envelope.
//!
//! A key is a file `<key id>.pub` in a folder `trusted.d`, holding one line: the public key in 64 hex digits, the user
//! id it speaks for, a comment. Which folders are read depends on with what rights we run:
//!
//! - without any: `landbox/trusted.d` in the caller's own configuration folder (the caller, 0700);
//! - with the file capability: `/etc/landbox/trusted.d` alone, every component root's;
//! - as root: that one, then the one in root's home as `/etc/passwd` names it, every component root's.
//!
//! A signature says which enrolled key approved a plan. It is no wall between two programs of one user.

use crate::failure::{failed, refused, refused_at};
use crate::start::Caller;
use ed25519_dalek::VerifyingKey;
use landbox_shared::event::{Failure, Stage};
use landbox_shared::evidence::HelperMode;
use landbox_shared::wire::KeyId;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, SFlag, fstat};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

const STAGE: Stage = Stage::Verify;
const SYSTEM: &str = "/etc/landbox/trusted.d";
/// Below a configuration folder.
const OWN: &str = "landbox/trusted.d";
/// Longest key file read.
const KEY_BYTES: u64 = 1024;
/// Writing for group or others.
const OTHERS_WRITE: u32 = 0o022;

/// Looks a key up in the folders that count for this caller.
pub(crate) fn find(caller: &Caller, id: &KeyId) -> Result<Option<VerifyingKey>, Failure> {
    let mut folders = Vec::new();
    match (caller.mode, &caller.config) {
        (HelperMode::Unprivileged, config) => {
            folders.extend(config.as_ref().map(|config| own(config, caller.uid)).transpose()?);
        }
        (HelperMode::Root, Some(config)) => folders.push(own(config, caller.uid)?),
        (HelperMode::Capable, _) => folders.push(system(Path::new(SYSTEM))?),
        (HelperMode::Root, None) => {
            folders.push(system(Path::new(SYSTEM))?);
            let home = home_of(caller.uid)?;
            folders.extend(home.map(|home| system(&home.join(".config").join(OWN))).transpose()?);
        }
    }
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

fn open(at: impl AsFd, path: &Path, flags: OFlag, resolve: ResolveFlag) -> nix::Result<OwnedFd> {
    let flags = flags | OFlag::O_CLOEXEC;
    openat2(
        at,
        path,
        OpenHow::new().flags(flags).resolve(resolve | ResolveFlag::RESOLVE_NO_MAGICLINKS),
    )
}

/// The caller's own folder: no link in the part that is ours; owner and mode exactly.
fn own(config: &Path, uid: u32) -> Result<Option<Folder>, Failure> {
    let path = config.join(OWN);
    let opened = open(AT_FDCWD, config, OFlag::O_PATH | OFlag::O_DIRECTORY, ResolveFlag::empty())
        .and_then(|base| {
            let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
            open(base, Path::new(OWN), OFlag::O_PATH | OFlag::O_DIRECTORY, resolve)
        });
    let Some(fd) = present(opened, &path)? else { return Ok(None) };
    let stat = stat(&fd, &path)?;
    if stat.st_uid != uid || stat.st_mode & 0o777 != 0o700 {
        return Err(refused_at(
            STAGE,
            bytes(&path),
            "trusted keys must lie in a folder of yours with mode 0700",
        ));
    }
    Ok(Some(Folder { fd, path, owner: uid }))
}

/// A folder that only root can change: walked component by component, each of them root's.
fn system(path: &Path) -> Result<Option<Folder>, Failure> {
    let mut fd =
        match present(open(AT_FDCWD, Path::new("/"), OFlag::O_PATH, ResolveFlag::empty()), path)? {
            Some(root) => root,
            None => return Ok(None),
        };
    for part in path.components() {
        if let Component::Normal(name) = part {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
            let next = open(&fd, Path::new(name), flags, ResolveFlag::RESOLVE_BENEATH);
            let Some(next) = present(next, path)? else { return Ok(None) };
            fd = next;
        }
        let stat = stat(&fd, path)?;
        if stat.st_uid != 0 || stat.st_mode & OTHERS_WRITE != 0 {
            return Err(refused_at(
                STAGE,
                bytes(path),
                "somebody other than root can write on the way to these trusted keys",
            ));
        }
    }
    Ok(Some(Folder { fd, path: path.to_owned(), owner: 0 }))
}

fn read_key(folder: &Folder, id: &KeyId, uid: u32) -> Result<Option<VerifyingKey>, Failure> {
    let name = format!("{id}.pub");
    let path = folder.path.join(&name);
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let Some(fd) = present(open(&folder.fd, Path::new(&name), flags, resolve), &path)? else {
        return Ok(None);
    };
    let stat = stat(&fd, &path)?;
    let regular = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
    if !regular || stat.st_uid != folder.owner || stat.st_mode & OTHERS_WRITE != 0 {
        return Err(refused_at(
            STAGE,
            bytes(&path),
            "a trusted key must be a regular file that only its owner can write",
        ));
    }
    let mut text = String::new();
    File::from(fd)
        .take(KEY_BYTES)
        .read_to_string(&mut text)
        .map_err(|_| refused_at(STAGE, bytes(&path), "this trusted key can't be read"))?;
    match parse(&text) {
        Some((key, owner)) if owner == uid => Ok(Some(key)),
        Some((_, owner)) => {
            Err(refused_at(STAGE, bytes(&path), format!("this key speaks for uid {owner}")))
        }
        None => Err(refused_at(
            STAGE,
            bytes(&path),
            "this file does not hold a key, a uid and a comment in one line",
        )),
    }
}

/// Reads `<64 hex digits> <uid> <comment>`, one line.
fn parse(text: &str) -> Option<(VerifyingKey, u32)> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    if line.contains('\n') {
        return None;
    }
    let (hex, rest) = line.split_once(' ')?;
    let uid = rest.split(' ').next()?.parse().ok()?;
    if hex.len() != 64 {
        return None;
    }
    let mut key = [0; 32];
    for (byte, pair) in key.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        let digit = |d: &u8| char::from(*d).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let [high, low] = pair else { return None };
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some((VerifyingKey::from_bytes(&key).ok()?, uid))
}

/// The home folder of `uid` as `/etc/passwd` names it.
fn home_of(uid: u32) -> Result<Option<PathBuf>, Failure> {
    let mut text = Vec::new();
    File::open("/etc/passwd")
        .and_then(|file| file.take(1 << 20).read_to_end(&mut text))
        .map_err(|_| refused(STAGE, "/etc/passwd can't be read"))?;
    Ok(home_in(&text, uid))
}

fn home_in(passwd: &[u8], uid: u32) -> Option<PathBuf> {
    let uid = uid.to_string();
    passwd.split(|b| *b == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|b| *b == b':').collect();
        let home = *fields.get(5).filter(|_| fields.get(2) == Some(&uid.as_bytes()))?;
        Some(PathBuf::from(OsStr::from_bytes(home))).filter(|home| home.is_absolute())
    })
}

fn present(opened: nix::Result<OwnedFd>, path: &Path) -> Result<Option<OwnedFd>, Failure> {
    match opened {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(failed(STAGE, errno, bytes(path), "opening the trusted keys")),
    }
}

fn stat(fd: &OwnedFd, path: &Path) -> Result<FileStat, Failure> {
    fstat(fd).map_err(|errno| failed(STAGE, errno, bytes(path), "reading owner and mode"))
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_line_has_a_key_a_uid_and_nothing_after_the_line() {
        let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
        assert_eq!(parse(&format!("{key} 1000 a comment\n")).unwrap().1, 1000);
        assert_eq!(parse(&format!("{key} 1000")).unwrap().1, 1000);
        for bad in [
            format!("{key}\n"),
            format!("{key} x y\n"),
            format!("{key} 1000 c\n{key} 0 c\n"),
            format!("0{key} 1000 c\n"),
            format!("{} 1000 c\n", key.replace('d', "g")),
            String::new(),
        ] {
            assert!(parse(&bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn the_home_folder_is_the_one_of_that_very_uid() {
        let passwd =
            b"a:x:10:0:c:/a:/bin/sh\nroot:x:0:0:root:/root:/bin/bash\nr:x:00:0::/b:\n:0:\n";
        assert_eq!(home_in(passwd, 0), Some(PathBuf::from("/root")));
        assert_eq!(home_in(passwd, 10), Some(PathBuf::from("/a")));
        assert_eq!(home_in(passwd, 1), None);
        assert_eq!(home_in(b"root:x:0:0:r:relative:/bin/sh", 0), None);
    }

    #[test]
    fn a_folder_others_can_write_to_is_no_system_folder() {
        assert!(system(Path::new("/tmp/landbox-no-such-folder")).is_err());
        assert!(system(Path::new("/etc/landbox-no-such-folder")).unwrap().is_none());
    }
}
