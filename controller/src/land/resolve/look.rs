//! Looking at the real project: what is at a path, and whether the folders on the way are still folders.

use super::Expect;
use crate::error::{Context, Failure, Kind, Result};
use crate::land::base::Stamp;
use crate::land::changeset::Node;
use crate::land::content;
use crate::land::kind::EntryType;
use crate::land::tree::{self, Tree, is_absence};
use crate::ui::text::visible;
use landbox_shared::path::RelPath;
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};

/// Whether something can be put into a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is there, or the landing makes it.
    Folder,
    /// It is not there, and neither is anything else.
    Gone(RelPath),
    /// Something else is there: a file, a link, another mount.
    Other(RelPath),
}

/// The real project, looked at for one resolution.
pub(super) struct Ground<'a> {
    real: Option<&'a Tree>,
    /// Folders that the changeset makes.
    made: HashSet<RelPath>,
    /// Those that it makes in place of something else.
    turned: HashSet<RelPath>,
    known: HashMap<RelPath, Standing>,
}

impl<'a> Ground<'a> {
    pub(super) fn new(
        real: Option<&'a Tree>,
        made: HashSet<RelPath>,
        turned: HashSet<RelPath>,
    ) -> Self {
        Self { real, made, turned, known: HashMap::new() }
    }

    /// How the folder that `path` lies in stands.
    pub(super) fn standing(&mut self, path: &RelPath) -> Result<Standing> {
        let Some(parent) = path.parent() else { return Ok(Standing::Folder) };
        if let Some(known) = self.known.get(&parent) {
            return Ok(known.clone());
        }
        let found = match self.real.map(|real| real.place(Some(&parent))) {
            Some(Ok(_)) => Standing::Folder,
            Some(Err(e)) if Errno::from_io_error(&e) == Some(Errno::XDEV) => {
                Standing::Other(parent.clone())
            }
            Some(Err(e)) if !is_absence(&e) => {
                return Err(e).context(|| format!("can't read {parent}"));
            }
            Some(Err(_)) | None => self.missing(&parent)?,
        };
        self.known.insert(parent, found.clone());
        Ok(found)
    }

    fn missing(&mut self, folder: &RelPath) -> Result<Standing> {
        let what = || format!("can't read {folder}");
        let there = self.real.map_or(Ok(None), |real| real.meta(folder)).context(what)?;
        let above = match &there {
            Some(_) if self.turned.contains(folder) => return Ok(Standing::Folder),
            Some(_) => return Ok(Standing::Other(folder.clone())),
            None => self.standing(folder)?,
        };
        Ok(match above {
            Standing::Folder if self.made.contains(folder) => Standing::Folder,
            Standing::Folder => Standing::Gone(folder.clone()),
            other @ (Standing::Gone(_) | Standing::Other(_)) => other,
        })
    }

    /// The folders above `path` that are not there, the outermost first.
    pub(super) fn missing_above(&self, path: &RelPath) -> Result<Vec<RelPath>> {
        let mut out = Vec::new();
        let mut at = path.parent();
        while let Some(folder) = at {
            let there = self.real.map_or(Ok(None), |real| real.meta(&folder));
            if there.context(|| format!("can't read {folder}"))?.is_some() {
                break;
            }
            at = folder.parent();
            out.push(folder);
        }
        out.reverse();
        Ok(out)
    }

    /// What is at a path.
    pub(super) fn look(&self, path: &RelPath) -> Result<Expect> {
        let seen = match self.try_look(path) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(closed(path)),
            seen => seen.context(|| format!("can't read {path}"))?,
        };
        seen.ok_or_else(|| written_to(path))
    }

    /// `None` for what changes as often as it is looked at.
    fn try_look(&self, path: &RelPath) -> io::Result<Option<Expect>> {
        const TRIES: usize = 8;
        let Some(real) = self.real else { return Ok(Some(Expect::Absent)) };
        for _ in 0..TRIES {
            let place = match real.place(path.parent().as_ref()) {
                Ok(place) => place,
                Err(e) if is_absence(&e) || Errno::from_io_error(&e) == Some(Errno::XDEV) => {
                    return Ok(Some(Expect::Absent));
                }
                Err(e) => return Err(e),
            };
            let name = path.file_name();
            let Some(meta) = tree::meta_at(&place, name)? else {
                return Ok(Some(Expect::Absent));
            };
            let node = match tree::node_at(&place, name, &meta) {
                Ok(node) => node,
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                    Node::Unreadable { kind: meta.kind, mode: meta.mode }
                }
                Err(e) => match tree::meta_at(&place, name)? {
                    Some(now) if Stamp::of(&now) == Stamp::of(&meta) => return Err(e),
                    Some(_) | None => continue,
                },
            };
            if tree::meta_at(&place, name)?.is_some_and(|now| Stamp::of(&now) == Stamp::of(&meta)) {
                let identity = Some((meta.dev, meta.ino));
                return Ok(Some(Expect::Object { node, identity }));
            }
        }
        Ok(None)
    }

    /// The file at a path, if it is still the one that was looked at.
    pub(super) fn file(&self, path: &RelPath, expect: &Expect) -> Result<File> {
        open(self.real, path, expect)
    }

    /// Its bytes; `None` if there are more than `most`.
    pub(super) fn bytes(
        &self,
        path: &RelPath,
        expect: &Expect,
        most: u64,
    ) -> Result<Option<Vec<u8>>> {
        if expect.node().and_then(Node::size).is_none_or(|size| size > most) {
            return Ok(None);
        }
        let what = || format!("can't read {path}");
        let mut bytes = Vec::new();
        self.file(path, expect)?.take(most + 1).read_to_end(&mut bytes).context(what)?;
        Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= most))
    }

    /// A name in a real folder, or in what goes with it, that is not to go.
    pub(super) fn stranger(
        &self,
        folder: &RelPath,
        goes: &dyn Fn(&RelPath) -> bool,
    ) -> Result<Option<RelPath>> {
        let Some(real) = self.real else { return Ok(None) };
        let mut todo = vec![folder.clone()];
        while let Some(folder) = todo.pop() {
            let what = || format!("can't list {folder}");
            let names = match real.dir(Some(&folder)) {
                Ok(dir) => tree::names(&dir).context(what)?,
                Err(e) if is_absence(&e) => continue,
                Err(e) => return Err(e).context(what),
            };
            for name in names {
                let Ok(child) = folder.join(&name) else { return Ok(Some(folder)) };
                if !goes(&child) {
                    return Ok(Some(child));
                }
                if real.meta(&child).context(what)?.is_some_and(|m| m.kind == EntryType::Dir) {
                    todo.push(child);
                }
            }
        }
        Ok(None)
    }

    /// Whether a real folder holds nothing.
    pub(super) fn is_empty(&self, folder: &RelPath) -> Result<bool> {
        let what = || format!("can't list {folder}");
        let Some(real) = self.real else { return Ok(true) };
        match real.dir(Some(folder)) {
            Ok(dir) => Ok(tree::names(&dir).context(what)?.is_empty()),
            Err(e) => Err(e).context(what),
        }
    }
}

/// Somebody writes to a real file while it is looked at.
fn written_to(path: &RelPath) -> Failure {
    let path = visible(path.as_bytes());
    Failure::new(Kind::Conflict, format!("{path} in the project is being written to"))
        .hint("try again when whatever writes to it is done, or leave it out: --exclude GLOB")
}

/// A folder of the owner's above it lets nobody in.
fn closed(path: &RelPath) -> Failure {
    let folder = path.parent().map_or_else(|| ".".into(), |folder| visible(folder.as_bytes()));
    let path = visible(path.as_bytes());
    Failure::new(
        Kind::Conflict,
        format!("nobody can look at {path} in the project: {folder} is closed"),
    )
    .hint(format!("chmod u+rx {folder}, or leave it out: --exclude GLOB"))
}

/// Opens the real file at a path, if it is still the one that was looked at.
pub(super) fn open(real: Option<&Tree>, path: &RelPath, expect: &Expect) -> Result<File> {
    let what = || format!("can't read {path}");
    let changed = || written_to(path);
    let real = real.ok_or_else(changed)?;
    let place = real.place(path.parent().as_ref()).context(what)?;
    let mut file = tree::file_at(place, path.file_name()).context(what)?;
    let (size, digest) = content::digest(&file).context(what)?;
    match expect.node() {
        Some(Node::File { size: s, digest: d, .. }) if (*s, *d) == (size, digest) => {
            io::Seek::rewind(&mut file).context(what)?;
            Ok(file)
        }
        Some(_) | None => Err(changed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_file_that_is_written_to_is_a_conflict_that_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        // Long enough to be read that it is written to meanwhile, each time.
        std::fs::write(&file, vec![b'x'; 2 << 20]).unwrap();
        let (tree, path) = (Tree::open(dir.path()).unwrap(), RelPath::new(&b"f"[..]).unwrap());
        let ground = Ground::new(Some(&tree), HashSet::new(), HashSet::new());
        let seen = ground.look(&path).unwrap();
        let over = AtomicBool::new(false);
        let failure = std::thread::scope(|scope| {
            scope.spawn(|| {
                let out = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
                for at in (0_u8..=255).cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
                    std::os::unix::fs::FileExt::write_at(&out, &[at], 0).unwrap();
                }
            });
            let failure = std::iter::repeat_with(|| ground.look(&path)).find_map(Result::err);
            over.store(true, Ordering::Relaxed);
            failure.unwrap()
        });
        let later = open(Some(&tree), &path, &seen);
        for failure in std::iter::once(failure).chain(later.err()) {
            assert_eq!(failure.kind, Kind::Conflict, "{failure}");
            assert!(failure.hints.iter().any(|hint| hint.contains("try again")), "{failure:?}");
        }
    }
}
