//! Where a path leads: canonical form through the deepest existing ancestor, the links on the way, and what is there.

use landbox_shared::path::AbsPath;
use rustix::fs::{self, FileType};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;

/// What is at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A folder.
    Dir,
    /// A regular file.
    File,
    /// A socket.
    Socket,
    /// A device or a FIFO.
    Special,
    /// A link; never at the end of a path that was followed.
    Link,
    /// Nothing.
    Missing,
    /// Something the caller may not look at, and so a session of the caller's may not either.
    Denied,
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The path without links; a missing tail is kept as it was written.
    pub path: AbsPath,
    /// What is there.
    pub kind: Kind,
    /// The links that were followed at the end of the path, each by its canonical folder and its own name.
    pub links: Vec<AbsPath>,
    /// Every link that was followed.
    pub hops: Vec<Hop>,
}

/// A link on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The link, by its canonical folder and its own name.
    pub link: AbsPath,
    /// The whole path as it read before this link was followed; `None` where `..` comes after the link.
    pub walked: Option<AbsPath>,
}

/// Looks paths up. Remembers plain folders, so that thousands of paths below one folder cost one look each.
#[derive(Clone, Debug, Default)]
pub struct Files {
    plain: RefCell<BTreeSet<Vec<u8>>>,
}

impl Files {
    /// Follows an absolute path to its end. `None` for a relative path, a link loop, or a path that is too long.
    pub fn locate(&self, path: &Path) -> Option<Located> {
        if !path.is_absolute() {
            return None;
        }
        let mut rest: VecDeque<Vec<u8>> = parts(path.as_os_str().as_bytes()).collect();
        let mut here = Vec::<u8>::new();
        let mut lost: Option<Kind> = None;
        let (mut links, mut hops) = (Vec::new(), Vec::new());
        while let Some(part) = rest.pop_front() {
            match part.as_slice() {
                b"." => continue,
                b".." => {
                    let cut = here.iter().rposition(|b| *b == b'/').unwrap_or(0);
                    here.truncate(cut);
                    // Back above what is missing: what follows may exist again.
                    if lost == Some(Kind::Missing) && self.is_known(&here) {
                        lost = None;
                    }
                    continue;
                }
                _ => {}
            }
            here.push(b'/');
            here.extend_from_slice(&part);
            if lost.is_some() || self.is_known(&here) {
                continue;
            }
            match fs::readlink(OsStr::from_bytes(&here), Vec::new()) {
                Ok(target) => {
                    if hops.len() == MAX_LINKS {
                        return None;
                    }
                    let link = AbsPath::new(here.clone()).ok()?;
                    if rest.is_empty() {
                        links.push(link.clone());
                    }
                    let tail = rest.make_contiguous().join(&b'/');
                    let walked =
                        if tail.is_empty() { Ok(link.clone()) } else { link.join(tail) }.ok();
                    hops.push(Hop { link, walked });
                    let target = target.into_bytes();
                    let cut = here.iter().rposition(|b| *b == b'/').unwrap_or(0);
                    here.truncate(if target.first() == Some(&b'/') { 0 } else { cut });
                    for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                        rest.push_front(part);
                    }
                }
                // Not a link.
                Err(Errno::INVAL) => {
                    if !rest.is_empty() {
                        self.remember(&here);
                    }
                }
                Err(Errno::NOENT | Errno::NOTDIR) => lost = Some(Kind::Missing),
                Err(_) => lost = Some(Kind::Denied),
            }
        }
        if here.is_empty() {
            here.push(b'/');
        }
        let kind = lost.unwrap_or_else(|| kind_of(OsStr::from_bytes(&here)));
        Some(Located { path: AbsPath::new(here).ok()?, kind, links, hops })
    }

    fn is_known(&self, path: &[u8]) -> bool {
        path.is_empty() || self.plain.borrow().contains(path)
    }

    fn remember(&self, path: &[u8]) {
        self.plain.borrow_mut().insert(path.to_vec());
    }
}

fn parts(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|b| *b == b'/').filter(|part| !part.is_empty()).map(<[u8]>::to_vec)
}

/// What is at `path`, without following a link in its last part.
pub fn kind_of(path: impl rustix::path::Arg) -> Kind {
    match fs::lstat(path).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::Directory) => Kind::Dir,
        Ok(FileType::RegularFile) => Kind::File,
        Ok(FileType::Socket) => Kind::Socket,
        Ok(FileType::Symlink) => Kind::Link,
        Ok(
            FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown,
        ) => Kind::Special,
        Err(Errno::NOENT | Errno::NOTDIR) => Kind::Missing,
        Err(_) => Kind::Denied,
    }
}

/// Whether a session of `uid` might write to `path`, which is what connecting to a socket takes. A session has no
/// capabilities, root's neither; groups are not looked at more closely: any group that may write counts.
pub fn may_write(path: impl rustix::path::Arg, uid: u32) -> bool {
    fs::lstat(path).is_ok_and(|stat| {
        let others = stat.st_mode & 0o022 != 0;
        others || (stat.st_uid == uid && stat.st_mode & 0o200 != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_path_is_followed_through_links_to_its_deepest_existing_part() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("real/sub")).unwrap();
        std::fs::write(root.join("real/sub/file"), "x").unwrap();
        symlink("real", root.join("link")).unwrap();
        symlink(root.join("link/sub/file"), root.join("leaf")).unwrap();
        symlink("leaf", root.join("leaf2")).unwrap();
        symlink("nowhere/x", root.join("dangling")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let files = Files::default();
        let at = |p: &str| files.locate(&root.join(p));
        let rel = |l: &Located| l.path.as_path().strip_prefix(&root).unwrap().to_path_buf();

        let leaf = at("leaf2").unwrap();
        assert_eq!((rel(&leaf).to_str().unwrap(), leaf.kind), ("real/sub/file", Kind::File));
        assert_eq!(leaf.links.len(), 2);
        assert_eq!(leaf.hops.len(), 3);
        let tail = at("link/sub/new/../other//./x").unwrap();
        assert_eq!((rel(&tail).to_str().unwrap(), tail.kind), ("real/sub/other/x", Kind::Missing));
        assert!(tail.links.is_empty());
        let back = at("gone/../link/sub/").unwrap();
        assert_eq!((rel(&back).to_str().unwrap(), back.kind), ("real/sub", Kind::Dir));
        let dangling = at("dangling").unwrap();
        assert_eq!((rel(&dangling).to_str().unwrap(), dangling.kind), ("nowhere/x", Kind::Missing));
        assert_eq!(dangling.links.len(), 1);
        assert_eq!(at("real/sub/file/below").unwrap().kind, Kind::Missing);
        assert_eq!(at("loop"), None);
        assert_eq!(files.locate(Path::new("relative")), None);
        assert_eq!(files.locate(Path::new("/../..")).unwrap().path, AbsPath::new("/").unwrap());
    }
}
