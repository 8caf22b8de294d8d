//! `landbox-audit trust`: the keys that count on this machine.

use super::{Done, Ending, say};
use crate::failure::{Context, Failure, Stage};
use crate::open::{FOLDER, open_beneath};
use crate::trust::{Folder, read, system};
use landbox_shared::trust::{KEY_BYTES, SYSTEM, comment, file_name, line, read_line};
use landbox_shared::wire::KeyId;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, fchmod, mkdirat, umask};
use nix::unistd::{UnlinkatFlags, fsync, geteuid, unlinkat};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;

const STAGE: Stage = Stage::Verify;
/// Fewest digits that name a key.
const DIGITS: usize = 8;

/// Enrols a key.
pub(super) fn add(key: &str, uid: &str, words: &str) -> Done {
    root()?;
    if words.chars().any(char::is_control) {
        return Err(Ending::Usage("the comment has a character that is not printable"));
    }
    let (key, uid) =
        read_line(&format!("{key} {uid} {words}"))
            .filter(|(key, _)| !key.is_weak())
            .ok_or(Ending::Usage("KEY is 64 hex digits of a public key, and UID a number"))?;
    let (text, id) = (line(&key, uid, words), KeyId::of(&key));
    if text.len() as u64 > KEY_BYTES {
        return Err(Ending::Usage("the comment is too long"));
    }
    umask(Mode::from_bits_truncate(0o022));
    let folder = made()?;
    write(&folder, &file_name(&id), &text)?;
    say(&format!("key {id} now speaks for uid {uid}"));
    Ok(())
}

/// Lists the keys, and says what is not as it should be.
pub(super) fn list() -> Done {
    let folder = match system(Path::new(SYSTEM)) {
        Err(failure) if failure.errno == Errno::ENOENT as i32 => {
            say("no key is enrolled");
            return Ok(());
        }
        folder => folder?,
    };
    let mut bad = false;
    let names = names(&folder)?;
    if names.is_empty() {
        say("no key is enrolled");
    }
    for name in names {
        match entry(&folder, &name) {
            Ok(entry) => say(&entry),
            Err(why) => {
                say(&format!("NOT a key that counts: {name}: {why}"));
                bad = true;
            }
        }
    }
    if bad { Err(Ending::Bad) } else { Ok(()) }
}

/// Takes a key out.
pub(super) fn remove(id: &str) -> Done {
    root()?;
    if id.len() < DIGITS || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(Ending::Usage("ID is what trust list shows, or its first 8 digits or more"));
    }
    let folder = system(Path::new(SYSTEM))?;
    let names = names(&folder)?;
    let mut found = names.iter().filter(|name| name.starts_with(&id.to_lowercase()));
    let name = match (found.next(), found.next()) {
        (Some(name), None) => name,
        (None, _) => return Err(Ending::Failed(format!("no key {id} is enrolled"))),
        (Some(_), Some(_)) => {
            return Err(Ending::Failed(format!("more than one key begins with {id}")));
        }
    };
    unlinkat(&folder.fd, name.as_str(), UnlinkatFlags::NoRemoveDir).at(
        STAGE,
        name,
        "removing it",
    )?;
    settle(&folder)?;
    say(&format!("{name} is no longer enrolled"));
    Ok(())
}

fn root() -> Done {
    if geteuid().is_root() {
        return Ok(());
    }
    Err(Ending::Refused("only root says whose keys count: put sudo before it".to_owned()))
}

/// One line of the list, or why the file counts for nothing.
fn entry(folder: &Folder, name: &str) -> Result<String, String> {
    let text = read(folder, name).map_err(|failure| failure.to_string())?;
    let (key, uid) = read_line(&text).ok_or("it holds no key, uid and comment in one line")?;
    let id = KeyId::of(&key);
    if name != file_name(&id) {
        return Err(format!("the key in it has the name {}", file_name(&id)));
    }
    Ok(format!("{id} uid {uid} {}", comment(&text)).trim_end().to_owned())
}

/// The folder, made where it is missing. Everything above it must be root's alone before anything is made in it.
fn made() -> Result<Folder, Failure> {
    let path = Path::new(SYSTEM);
    for folder in [path.parent().unwrap_or(path), path] {
        let (above, name) =
            (folder.parent().unwrap_or(folder), folder.file_name().unwrap_or_default());
        match mkdirat(&system(above)?.fd, name, Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno).at(STAGE, folder, "making the folder"),
        }
    }
    system(path)
}

/// The names of all files in the folder, sorted.
fn names(folder: &Folder) -> Result<Vec<String>, Failure> {
    const DOING: &str = "listing the keys";
    let mut names = Vec::new();
    let list = std::fs::read_dir(format!("/proc/self/fd/{}", folder.fd.as_raw_fd()));
    for entry in list.at(STAGE, SYSTEM, DOING)? {
        let name = entry.at(STAGE, SYSTEM, DOING)?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

/// Puts a file there at once, whole and on disk, or not at all.
fn write(folder: &Folder, name: &str, text: &str) -> Result<(), Failure> {
    let new = format!(".new-{}", std::process::id());
    let flags =
        OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let fd = openat(&folder.fd, new.as_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR);
    let mut file = File::from(fd.at(STAGE, &new, "making a file beside the keys")?);
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| Ok(fchmod(&file, Mode::from_bits_truncate(0o644))?))
        .and_then(|()| file.sync_all())
        .and_then(|()| Ok(renameat(&folder.fd, new.as_str(), &folder.fd, name)?));
    if written.is_err() {
        // What failed is said; what is left is not read by anybody.
        let _ = unlinkat(&folder.fd, new.as_str(), UnlinkatFlags::NoRemoveDir);
    }
    written.at(STAGE, name, "writing the key")?;
    settle(folder)
}

/// Makes the folder's entries durable.
fn settle(folder: &Folder) -> Result<(), Failure> {
    let flags = OFlag::O_RDONLY | (FOLDER - OFlag::O_PATH);
    open_beneath(&folder.fd, ".", flags).and_then(fsync).at(STAGE, SYSTEM, "syncing the folder")
}
