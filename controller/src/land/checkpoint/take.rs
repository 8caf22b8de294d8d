//! One look at every layer of a session, with its content put away.

use super::folder::Folder;
use super::known::Known;
use super::lift::Lifts;
use super::model::{Body, Entry, Layers, Picture};
use crate::error::{Context, Failure, Kind, Result};
use crate::land::base::Stamp;
use crate::land::content;
use crate::land::kind::EntryType;
use crate::land::live::Noted;
use crate::land::tree::{self, Meta, Tree, is_absence};
use crate::session::store::{Session, show};
use landbox_shared::digest::Digest;
use landbox_shared::id::LayerId;
use landbox_shared::path::RelPath;
use landbox_shared::policy::{LayerPolicy, Policy};
use rustix::fs;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

/// What a look may cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Most objects of one session.
    pub(super) entries: usize,
    /// Most bytes that the content of all its checkpoints takes.
    pub(super) bytes: u64,
    /// Whether a part of the file system must stay free.
    pub(super) spare: bool,
    /// Until when it must be done.
    pub(super) until: Option<Instant>,
}

/// Why there is no picture.
#[derive(Debug)]
pub(super) enum Obstacle {
    /// It would take more bytes than it may.
    Room(Failure),
    /// Anything else.
    Other(Failure),
}

impl Obstacle {
    pub(super) fn failure(self) -> Failure {
        match self {
            Self::Room(failure) | Self::Other(failure) => failure,
        }
    }
}

impl From<Failure> for Obstacle {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("there is no room for more checkpoints of this session")]
struct NoRoom;

/// Where the login files lie in a layer that are kept in step with the real ones. No picture holds them: a token that was
/// taken back must not come back, nor lie about.
pub(super) fn logins(policy: &Policy, layer: &LayerPolicy) -> Vec<RelPath> {
    policy.credentials.iter().filter_map(|path| path.relative_to(&layer.target)).collect()
}

/// Looks at every layer. Content that no checkpoint had yet is copied. Of a session that has ended, what is closed to its
/// owner is opened up meanwhile.
pub(super) fn look(
    session: &Session,
    folder: &Folder,
    known: &Known<'_>,
    live: bool,
    bounds: &Bounds,
) -> Result<Layers, Obstacle> {
    let looked = tree::now();
    let mut lifts = (!live).then(|| Lifts::new(session, folder));
    let mut store = Store { folder, bounds, room: None, clones: true };
    let mut entries = 0;
    let mut pictures = Vec::new();
    let policy = &session.snapshot.policy;
    for layer in &policy.layers {
        let upper = session.upper(&layer.id);
        let what = || format!("can't read {}", show(&upper));
        // It never started.
        let Some(root) = tree::meta_at(fs::CWD, upper.as_os_str().as_bytes()).context(what)? else {
            continue;
        };
        if let Some(lifts) = &mut lifts {
            lifts.lift(&layer.id, None, &root).context(what)?;
        }
        let tree = Tree::open(&upper).context(what)?;
        let timed = tree::has_kernel_time(tree.root());
        let mut walk = Walk {
            tree: &tree,
            layer: &layer.id,
            lifts: lifts.as_mut(),
            store: &mut store,
            known: Some(known).filter(|_| timed),
            logins: logins(policy, layer),
            prepared: Noted::read(session, &layer.id),
            names: HashMap::new(),
            found: Vec::new(),
        };
        walk.all(root, bounds.entries - entries).map_err(|(path, e)| refusal(session, path, &e))?;
        entries += walk.found.len();
        pictures.push(Picture { layer: layer.id.clone(), entries: walk.found });
    }
    Ok(Layers { looked, pictures })
}

fn refusal(session: &Session, path: Option<RelPath>, error: &io::Error) -> Obstacle {
    let id = &session.snapshot.id;
    let place = path.map_or_else(|| "the layer's root".to_owned(), |path| path.to_string());
    let what = format!("no checkpoint of session {id} was taken: {place}: {error}");
    let cause = error.kind();
    let disk = matches!(
        cause,
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::ReadOnlyFilesystem
    );
    let kind = if disk { Kind::Failed } else { Kind::Refused };
    let failure = Failure { cause: Some(cause), ..Failure::new(kind, what) };
    if error.get_ref().is_some_and(|e| e.is::<NoRoom>()) {
        return Obstacle::Room(
            failure
                .hint(format!(
                    "landbox discard {id} --checkpoint N removes one for good (landbox show {id} lists them)"
                ))
                .hint(format!(
                    "what is too large to keep can go: landbox resume {id} -- rm FILE, or landbox discard {id} -- FILE"
                )),
        );
    }
    if error.kind() == io::ErrorKind::PermissionDenied {
        let hint = "what can't be read can't be kept: end the session first, or chmod it inside";
        return Obstacle::Other(failure.hint(hint));
    }
    Obstacle::Other(failure)
}

struct Walk<'a, 'b, 'c> {
    tree: &'a Tree,
    layer: &'a LayerId,
    lifts: Option<&'a mut Lifts<'c>>,
    store: &'a mut Store<'b>,
    known: Option<&'a Known<'a>>,
    logins: Vec<RelPath>,
    prepared: Noted,
    /// The first name of a file that has several.
    names: HashMap<((u32, u32), u64), RelPath>,
    found: Vec<Entry>,
}

type At<T> = std::result::Result<T, (Option<RelPath>, io::Error)>;

impl Walk<'_, '_, '_> {
    /// Has an object opened up that is closed to its owner. Whether it was.
    fn lift(&mut self, path: Option<&RelPath>, meta: &Meta) -> io::Result<bool> {
        match &mut self.lifts {
            Some(lifts) => lifts.lift(self.layer, path, meta),
            None => Ok(false),
        }
    }

    /// `root` is what the layer's root was before it was opened up.
    fn all(&mut self, root: Meta, most: usize) -> At<()> {
        let mut todo: Vec<(Option<RelPath>, Meta)> = vec![(None, root)];
        while let Some((path, seen)) = todo.pop() {
            let at = |e| (path.clone(), e);
            let lifted = match &path {
                Some(path) => self.lift(Some(path), &seen).map_err(at)?,
                None => true,
            };
            let dir = match self.tree.dir(path.as_ref()) {
                Ok(dir) => dir,
                // Gone meanwhile: the session runs, and the next look will not agree.
                Err(e) if is_absence(&e) && path.is_some() => continue,
                Err(e) => return Err(at(e)),
            };
            let mut meta = tree::meta_of(&dir).map_err(at)?;
            if lifted {
                meta.mode = seen.mode;
            }
            let attributes = tree::list_attributes(&dir).map_err(at)?;
            self.found.push(entry(path.clone(), Body::Dir, &meta, attributes));
            let mut names = tree::names(&dir).map_err(at)?;
            names.sort_unstable();
            for name in names {
                let child = match &path {
                    None => RelPath::new(name.as_slice()),
                    Some(parent) => parent.join(&name),
                };
                let child = child.map_err(|_| at(io::Error::other("it holds names too deep")))?;
                if self.logins.contains(&child) {
                    continue;
                }
                let Some(meta) = tree::meta_at(&dir, &name).map_err(at)? else { continue };
                if self.prepared.is(path.as_ref(), &dir, &name, &meta) {
                    continue;
                }
                if self.found.len() >= most {
                    return Err(at(io::Error::other("the layers hold too many objects")));
                }
                self.store.in_time().map_err(at)?;
                if meta.kind == EntryType::Dir {
                    todo.push((Some(child), meta));
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
                return self.file(dir, name, path, meta).map(Some);
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

    fn file(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        path: &RelPath,
        meta: &Meta,
    ) -> io::Result<Entry> {
        if let Some(known) = self.known.and_then(|known| known.get(meta))
            && let Body::File { digest, size } = &known.body
            && self.store.folder.holds(digest, *size)
        {
            let attributes = known.attributes.clone();
            let entry = entry(Some(path.clone()), known.body.clone(), meta, attributes);
            return Ok(Entry { stamp: Some(Stamp::of(meta)), ..entry });
        }
        let lifted = self.lift(Some(path), meta)?;
        let file = tree::file_at(dir, name)?;
        // Before it is read: who writes to it meanwhile gives it another stamp.
        let mut now = tree::meta_of(&file)?;
        if lifted {
            now.mode = meta.mode;
        }
        let meta = &now;
        let (size, digest) = self.store.keep(&file)?;
        let attributes = tree::list_attributes(&file)?;
        let entry = entry(Some(path.clone()), Body::File { digest, size }, meta, attributes);
        Ok(Entry { stamp: (!lifted).then(|| Stamp::of(meta)), ..entry })
    }
}

/// Where content goes.
struct Store<'a> {
    folder: &'a Folder,
    bounds: &'a Bounds,
    /// What may still be written, once somebody asks.
    room: Option<u64>,
    /// Whether the file system may share blocks between files.
    clones: bool,
}

impl Store<'_> {
    fn in_time(&self) -> io::Result<()> {
        match self.bounds.until {
            Some(until) if Instant::now() > until => {
                Err(io::Error::other("to read the layers takes too long"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Puts content away, if it is not there yet.
    fn keep(&mut self, file: &File) -> io::Result<(u64, Digest)> {
        let blocks = std::os::unix::fs::MetadataExt::blocks(&file.metadata()?);
        let bytes = blocks.saturating_mul(512);
        // To read it takes long, and it would not fit anyway.
        if self.bounds.until.is_some() && bytes > self.bounds.bytes {
            return Err(io::Error::other(NoRoom));
        }
        let most = self.bounds.bytes;
        let (size, digest) = content::digest_while(file, |read| self.may_go_on(read, most))?;
        if self.folder.holds(&digest, size) {
            return Ok((size, digest));
        }
        let room = self.room();
        if bytes > room {
            return Err(io::Error::other(NoRoom));
        }
        let to = self.folder.fresh()?;
        self.clones = self.clones && rustix::fs::ioctl_ficlone(&to, file).is_ok();
        // What it is called by is what was copied; written meanwhile, it is another content.
        let (mut taken, mut kept) = (bytes, None);
        if !self.clones {
            kept = Some(content::copy_while(file, to.as_file(), |written| {
                taken = taken.max(written);
                self.may_go_on(written, room)
            })?);
        }
        self.room = Some(room.saturating_sub(taken));
        let (size, digest) = kept.map_or_else(|| content::digest(to.as_file()), Ok)?;
        to.persist(self.folder.object(&digest))?;
        Ok((size, digest))
    }

    /// A file that the session goes on writing to may grow beyond every bound while it is read.
    fn may_go_on(&self, bytes: u64, most: u64) -> io::Result<()> {
        if bytes > most {
            return Err(io::Error::other(NoRoom));
        }
        self.in_time()
    }

    fn room(&mut self) -> u64 {
        let (folder, bounds) = (self.folder, self.bounds);
        *self.room.get_or_insert_with(|| {
            let room = bounds.bytes.saturating_sub(folder.bytes());
            if bounds.spare { room.min(folder.free()) } else { room }
        })
    }
}

fn entry(
    path: Option<RelPath>,
    body: Body,
    meta: &Meta,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
) -> Entry {
    let Meta { mode, uid, gid, mtime, .. } = *meta;
    Entry { path, body, mode, owner: (uid, gid), modified: mtime, attributes, stamp: None }
}
