//! Having a running fuse-overlayfs look again at what lies below it.
//!
//! It keeps what it has found of each folder, and the kernel keeps what it was told, for ever. So a name that a landing makes
//! in the owner's tree is not seen, or is listed and leads nowhere; and a file that the daemon takes for the session's
//! alone is deleted without a mark, so that the owner's shows.
//!
//! The daemon reads a folder anew once a name has gone from it, and learns then which of the names it knows lie below, too.
//! The kernel asks it again for a name under which something is to be made: with a slash behind it that could be nothing
//! but a folder, so a link is never made there.

use super::prepared::Prepared;
use super::side::{self, is_temporary, temporary};
use crate::land::digest::ancestors;
use crate::land::kind::EntryType;
use crate::land::tree::{self, Tree};
use landbox_shared::path::RelPath;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

/// Has these paths, and the folders above them, looked at again. What can't be is left as it is seen.
pub(super) fn look_again<'a>(
    merged: &Tree,
    paths: impl Iterator<Item = &'a RelPath> + Clone,
    mut noted: Prepared<'_>,
) {
    let above = ancestors(paths.clone());
    let mut folders: BTreeMap<Option<RelPath>, Vec<&RelPath>> = BTreeMap::from([(None, vec![])]);
    let (mut paths, mut above) = (paths, above.iter());
    while let Some(path) = paths.next().or_else(|| above.next()) {
        folders.entry(path.parent()).or_default().push(path);
    }
    // What is above comes first.
    for (folder, paths) in folders {
        if let Ok(dir) = merged.dir(folder.as_ref()) {
            ask(&dir, &paths);
            // A folder that may not be written to is not read anew.
            let _ = pass(&dir, folder.as_ref(), &mut noted);
            let listed: HashSet<_> = tree::names(&dir).unwrap_or_default().into_iter().collect();
            listed.iter().for_each(|name| clear(&dir, name));
            let all = bare_names(&dir).or_else(|_| bare_names(&dir)).unwrap_or_default();
            let hidden: Vec<&Vec<u8>> = all.iter().filter(|name| !listed.contains(*name)).collect();
            if !hidden.is_empty() {
                // One name that leads nowhere ends the listing, until it is asked for.
                hidden.into_iter().for_each(|name| ask_for(&dir, name));
                let _ = tree::names(&dir);
            }
            ask(&dir, &paths);
        }
    }
}

/// Has the kernel forget what it knows of these names, and ask.
fn ask(dir: &OwnedFd, paths: &[&RelPath]) {
    paths.iter().for_each(|path| ask_for(dir, path.file_name()));
}

fn ask_for(dir: &OwnedFd, name: &[u8]) {
    // Always refused.
    let _ = fs::symlinkat("nowhere", dir, [name, b"/"].concat());
}

/// The names in a folder. Listed from the start, the kernel wants to know of each what it is, too; but not from the third on:
/// the first two are `.` and `..`.
fn bare_names(dir: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = fs::openat(dir, ".", flags, Mode::empty())?;
    fs::seek(&dir, SeekFrom::Start(2))?;
    let (mut space, mut names) = ([MaybeUninit::uninit(); 4096], Vec::new());
    let mut listing = RawDir::new(dir, &mut space);
    while let Some(entry) = listing.next() {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// Makes a name and takes it away again.
fn pass(dir: &OwnedFd, folder: Option<&RelPath>, noted: &mut Prepared<'_>) -> io::Result<()> {
    let name = temporary()?;
    // Where it can't be noted, it is still nothing that could land, and the next look takes it away.
    if let Ok(path) = side::within(folder, &name) {
        let _ = noted.mention(path);
    }
    make(dir, &name)?;
    Ok(fs::unlinkat(dir, &name, AtFlags::empty())?)
}

/// A socket: where the landing is killed before it goes, it is nothing that could land, nor that anybody waits for.
fn make(dir: &OwnedFd, name: &str) -> io::Result<()> {
    Ok(fs::mknodat(dir, name, FileType::Socket, Mode::from_raw_mode(0o600), 0)?)
}

/// Takes away what a landing that was killed has left.
fn clear(dir: &OwnedFd, name: &[u8]) {
    if is_temporary(name)
        && let Ok(Some(meta)) = tree::meta_at(dir, name)
        && meta.kind == EntryType::Socket
    {
        let _ = fs::unlinkat(dir, name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::land::layer::project_of;
    use crate::land::testing::{Fixture, World};

    #[test]
    fn what_a_look_that_was_killed_has_left_can_not_land_and_goes_with_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let merged = Tree::open(dir.path()).unwrap();
        let left = temporary().unwrap();
        make(&merged.dir(None).unwrap(), &left).unwrap();
        let meta = tree::meta_at(merged.root(), left.as_bytes()).unwrap().unwrap();
        assert_eq!(meta.kind, EntryType::Socket);
        std::fs::write(dir.path().join(".landbox-0123456789abcdef"), "a file").unwrap();
        let fixture = Fixture::new(World::UserKernel, "");
        let session = fixture.session();
        let layer = project_of(&session).unwrap();
        look_again(&merged, [RelPath::new("new").unwrap()].iter(), Prepared::new(&session, layer));
        assert_eq!(tree::names(merged.root()).unwrap(), [b".landbox-0123456789abcdef"]);
    }
}
