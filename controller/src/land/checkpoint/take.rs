//! One look at every layer of a session, with its content put away.

use super::MOST_BYTES;
use super::model::{Body, Entry, Folder, Picture};
use crate::error::{Context, Failure, Kind, Result};
use crate::land::content;
use crate::land::kind::EntryType;
use crate::land::tree::{self, Meta, Tree, is_absence};
use crate::session::store::{Session, show};
use landbox_shared::path::RelPath;
use rustix::fs::{fgetxattr, flistxattr};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Most objects of one session.
const MOST_ENTRIES: usize = 2_000_000;
/// Longest list of an object's attributes, and longest value.
const ATTRIBUTES: usize = 64 << 10;

/// Looks at every layer. Content that no checkpoint had yet is copied.
pub(super) fn look(session: &Session, folder: &Folder) -> Result<Vec<Picture>> {
    let mut room = MOST_BYTES.saturating_sub(folder.bytes());
    let mut entries = 0;
    let mut out = Vec::new();
    for layer in &session.snapshot.policy.layers {
        let upper = session.upper(&layer.id);
        let tree = match Tree::open(&upper) {
            Ok(tree) => tree,
            // It never started.
            Err(e) if is_absence(&e) => continue,
            Err(e) => return Err(e).context(|| format!("can't read {}", show(&upper))),
        };
        let mut walk = Walk { tree: &tree, folder, room, names: HashMap::new(), found: Vec::new() };
        walk.all(MOST_ENTRIES - entries)
            .map_err(|(path, e)| refusal(session, path.as_ref(), &e))?;
        room = walk.room;
        entries += walk.found.len();
        out.push(Picture { layer: layer.id.clone(), entries: walk.found });
    }
    Ok(out)
}

fn refusal(session: &Session, path: Option<&RelPath>, error: &io::Error) -> Failure {
    let id = &session.snapshot.id;
    let place = path.map_or_else(|| "the layer's root".to_owned(), ToString::to_string);
    Failure::new(
        Kind::Refused,
        format!("no checkpoint of session {id} was taken: {place}: {error}"),
    )
    .hint("what can't be read can't be kept; chmod it inside the session, or run as root")
}

struct Walk<'a> {
    tree: &'a Tree,
    folder: &'a Folder,
    room: u64,
    /// The first name of a file that has several.
    names: HashMap<((u32, u32), u64), RelPath>,
    found: Vec<Entry>,
}

type At<T> = std::result::Result<T, (Option<RelPath>, io::Error)>;

impl Walk<'_> {
    fn all(&mut self, most: usize) -> At<()> {
        let mut todo: Vec<Option<RelPath>> = vec![None];
        while let Some(path) = todo.pop() {
            let at = |e| (path.clone(), e);
            let dir = match self.tree.dir(path.as_ref()) {
                Ok(dir) => dir,
                // Gone meanwhile: the session runs, and the next look will not agree.
                Err(e) if is_absence(&e) && path.is_some() => continue,
                Err(e) => return Err(at(e)),
            };
            let meta = tree::meta_of(&dir).map_err(at)?;
            let entry = entry(path.clone(), Body::Dir, &meta, attributes(&dir).map_err(at)?);
            self.found.push(entry);
            let mut names = tree::names(&dir).map_err(at)?;
            names.sort_unstable();
            for name in names {
                let child = match &path {
                    None => RelPath::new(name.as_slice()),
                    Some(parent) => parent.join(&name),
                };
                let child = child.map_err(|_| at(io::Error::other("it holds names too deep")))?;
                let Some(meta) = tree::meta_at(&dir, &name).map_err(at)? else { continue };
                if self.found.len() >= most {
                    return Err(at(io::Error::other("the layers hold too many objects")));
                }
                if meta.kind == EntryType::Dir {
                    todo.push(Some(child));
                    continue;
                }
                match self.object(&dir, &name, &child, &meta) {
                    Ok(Some(entry)) => self.found.push(entry),
                    Ok(None) => {}
                    Err(e) if is_absence(&e) => {}
                    Err(e) => return Err((Some(child), e)),
                }
            }
        }
        Ok(())
    }

    fn object(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        path: &RelPath,
        meta: &Meta,
    ) -> io::Result<Option<Entry>> {
        let body = match meta.kind {
            EntryType::File => {
                if meta.nlink > 1 {
                    let key = (meta.dev, meta.ino);
                    if let Some(first) = self.names.get(&key) {
                        let body = Body::Same(first.clone());
                        return Ok(Some(entry(Some(path.clone()), body, meta, Vec::new())));
                    }
                    self.names.insert(key, path.clone());
                }
                let file = tree::file_at(dir, name)?;
                let (size, digest) = self.keep(&file)?;
                let body = Body::File { digest, size };
                return Ok(Some(entry(Some(path.clone()), body, meta, attributes(&file)?)));
            }
            EntryType::Symlink => Body::Link(tree::link_at(dir, name)?),
            kind @ (EntryType::Fifo | EntryType::CharDevice | EntryType::BlockDevice) => {
                Body::Special { kind, device: meta.rdev }
            }
            // Nobody listens to it any more when it comes back.
            EntryType::Socket => return Ok(None),
            EntryType::Dir => return Ok(None),
        };
        Ok(Some(entry(Some(path.clone()), body, meta, Vec::new())))
    }

    /// Puts content away, if it is not there yet.
    fn keep(&mut self, file: &std::fs::File) -> io::Result<(u64, landbox_shared::digest::Digest)> {
        let (size, digest) = content::digest(file)?;
        if self.folder.object(&digest).exists() {
            return Ok((size, digest));
        }
        let blocks = std::os::unix::fs::MetadataExt::blocks(&file.metadata()?);
        let Some(room) = self.room.checked_sub(blocks.saturating_mul(512)) else {
            return Err(io::Error::other("there is no room for more checkpoints of this session"));
        };
        self.room = room;
        let to = self.folder.fresh()?;
        // What it is called by is what was copied; written meanwhile, it is another content.
        let (size, digest) = content::copy(file, to.as_file())?;
        to.persist(self.folder.object(&digest))?;
        Ok((size, digest))
    }
}

fn entry(
    path: Option<RelPath>,
    body: Body,
    meta: &Meta,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
) -> Entry {
    let Meta { mode, uid, gid, mtime, .. } = *meta;
    Entry { path, body, mode, owner: (uid, gid), modified: mtime, attributes }
}

fn attributes(fd: impl AsFd) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0; ATTRIBUTES];
    let length = match flistxattr(&fd, &mut names[..]) {
        Ok(length) => length,
        Err(rustix::io::Errno::NOTSUP) => return Ok(Vec::new()),
        Err(e) => return Err(e.into()),
    };
    let mut out = Vec::new();
    let mut value = vec![0; ATTRIBUTES];
    for name in names[..length].split(|b| *b == 0).filter(|name| !name.is_empty()) {
        match fgetxattr(&fd, name, &mut value[..]) {
            Ok(length) => out.push((name.to_vec(), value[..length].to_vec())),
            Err(rustix::io::Errno::NODATA) => {}
            Err(e) => return Err(e.into()),
        }
    }
    out.sort();
    Ok(out)
}
