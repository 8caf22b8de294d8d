//! The stage: a folder on the project's own mount in which new objects are prepared, and into which old ones move.
//! Everything that can run out of space, or be refused by the file system, happens here, before the project is touched.

use super::plan::{Action, Step};
use crate::error::{Context, Failure, Kind, Result};
use crate::land::changeset::{Bodies, Change, Node};
use crate::land::content;
use crate::land::kind::EntryType;
use crate::land::tree::{self, Meta, Tree};
use landbox_shared::id::SessionId;
use landbox_shared::path::RelPath;
use rustix::fs::{self, Advice, AtFlags, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(in crate::land) struct Stage {
    pub path: PathBuf,
    dir: OwnedFd,
}

/// Something that is to be on disk.
enum Made<'a> {
    /// What a step has staged.
    Staged(usize, EntryType),
    /// A file, or a folder with its names.
    Beside(&'a Path),
}

/// The name of a step's place.
pub(super) fn name(index: usize) -> Vec<u8> {
    index.to_string().into_bytes()
}

impl Stage {
    /// Makes a stage where nothing is.
    pub(super) fn make(path: PathBuf) -> Result<Self> {
        let what = || format!("can't make {}", crate::session::store::show(&path));
        std::fs::DirBuilder::new().mode(0o700).create(&path).context(what)?;
        Self::open(path.clone()).context(what)
    }

    /// Opens a stage that exists.
    pub(in crate::land) fn open(path: PathBuf) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = fs::open(&path, flags, Mode::empty())?;
        Ok(Self { path, dir })
    }

    /// Identity of the object of a step, if it lies here.
    pub(in crate::land) fn holds(&self, slot: usize) -> io::Result<Option<((u32, u32), u64)>> {
        Ok(tree::meta_at(&self.dir, &name(slot))?.map(|meta| (meta.dev, meta.ino)))
    }

    pub(super) fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    /// Prepares every new object and checks it.
    pub(super) fn fill(
        &self,
        steps: &mut [Step],
        project: &Tree,
        changes: &HashMap<&RelPath, &Change>,
        bodies: &dyn Bodies,
    ) -> Result<()> {
        let begin = || Parents::of(project);
        crate::land::many::each_with(steps, begin, |parents, step| {
            self.prepare(step, parents, changes, bodies)
        })
    }

    /// Prepares what a step puts into the project, if it does.
    fn prepare(
        &self,
        step: &mut Step,
        parents: &mut Parents<'_>,
        changes: &HashMap<&RelPath, &Change>,
        bodies: &dyn Bodies,
    ) -> Result<()> {
        let what = format!("can't prepare {}", step.path);
        let (new, replaces) = match &step.action {
            Action::Put { new, .. } => (new, false),
            Action::Swap { new, .. } => (new, true),
            Action::Take { .. } | Action::Mode { .. } => return Ok(()),
        };
        let project = parents.project;
        let parent = match parents.find(&step.path) {
            Ok(parent) => Some(parent),
            Err(e) if !replaces || tree::is_absence(&e) => None,
            Err(e) => return Err(e).context(|| what),
        };
        let old = match &parent {
            Some(parent) if replaces => tree::meta_at(parent.fd, step.path.file_name()),
            Some(_) | None => Ok(None),
        };
        let old = old.context(|| what.clone())?;
        let place = Place { stage: self, project, path: &step.path, parent, old };
        let name = name(step.slot);
        let mut file = None;
        match new {
            Node::File { .. } => {
                let Some(change) = changes.get(&step.path) else {
                    return Err(Failure::new(Kind::Failed, what));
                };
                let made = place.file(&name, new, &bodies.new_bytes(change)?);
                file = Some(made.context(|| what)?);
            }
            Node::Symlink { target } => place.link(&name, target).context(|| what.clone())?,
            Node::Dir { mode } => place.folder(&name, *mode).context(|| what.clone())?,
            Node::Special { .. } | Node::Unreadable { .. } => {
                return Err(Failure::new(Kind::Failed, what));
            }
        }
        let meta = match &file {
            Some((_, meta)) => Ok(Some(*meta)),
            None => tree::meta_at(&self.dir, &name),
        };
        let what = || format!("can't prepare {}", step.path);
        let meta = meta.context(what)?.ok_or_else(|| Failure::new(Kind::Failed, what()))?;
        step.staged = Some((meta.dev, meta.ino));
        step.written = file.as_ref().map(|(_, meta)| meta.mtime);
        step.attributes = match &file {
            Some((file, meta)) if meta.mode & 0o400 != 0 => tree::attributes_of(file),
            // Nobody could compare them later.
            Some(_) | None => tree::attributes(&self.dir, &name, &meta),
        };
        Ok(())
    }

    /// Brings all of them to disk, and what was written beside, in one pass after all were made: that lets the file system
    /// batch.
    pub(super) fn sync(&self, steps: &[Step], beside: &[PathBuf]) -> Result<()> {
        let what = || "can't write the landing to disk".to_owned();
        let kind = |step: &Step| match &step.action {
            Action::Put { new, .. } | Action::Swap { new, .. } => Some(new.kind()),
            Action::Take { .. } | Action::Mode { .. } => None,
        };
        let staged = steps
            .iter()
            .filter_map(|step| Some((step.slot, kind(step)?)))
            .filter(|(_, kind)| matches!(kind, EntryType::File | EntryType::Dir));
        // Files first, then the folders of their names.
        let files = beside.iter().map(PathBuf::as_path);
        let folders: BTreeSet<&Path> = files.clone().filter_map(Path::parent).collect();
        let beside = files.chain(folders).map(Made::Beside);
        let made: Vec<Made<'_>> =
            staged.map(|(slot, kind)| Made::Staged(slot, kind)).chain(beside).collect();
        let open = |made: &Made<'_>| match made {
            Made::Beside(path) => File::open(path),
            Made::Staged(slot, kind) => self.open_staged(*slot, *kind),
        };
        crate::land::sync::files(&made, open, what)?;
        fs::fsync(&self.dir).context(what)
    }

    fn open_staged(&self, slot: usize, kind: EntryType) -> io::Result<File> {
        match kind {
            EntryType::Dir => Ok(File::from(folder_at(&self.dir, &name(slot))?)),
            EntryType::File
            | EntryType::Symlink
            | EntryType::Fifo
            | EntryType::Socket
            | EntryType::CharDevice
            | EntryType::BlockDevice => {
                // One of our making, in a folder of the owner's alone.
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                Ok(File::from(fs::openat(&self.dir, name(slot), flags, Mode::empty())?))
            }
        }
    }
}

/// Makes room for a stage. What is left over there is from a landing whose journal is gone. Mostly it was never begun;
/// but if somebody has removed the journal, it is all that is left of the owner's files. Gives where it went.
pub(super) fn clear(path: &Path, id: &SessionId) -> Result<Option<PathBuf>> {
    match std::fs::remove_dir(path) {
        Ok(()) => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(_) => super::journal::set_aside(path, id).map(Some),
    }
}

fn folder_at(stage: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(stage, name, flags, Mode::empty())
}

/// The folders in which things will lie: what comes one after the other often lies in the same one.
struct Parents<'a> {
    project: &'a Tree,
    at: Option<(Option<RelPath>, OwnedFd, bool)>,
}

/// One of them.
struct Parent<'a> {
    fd: BorrowedFd<'a>,
    /// Whether what is made in it takes on an access list.
    has_default_list: bool,
}

impl<'a> Parents<'a> {
    fn of(project: &'a Tree) -> Self {
        Self { project, at: None }
    }

    /// The folder of a path, if it is there already.
    fn find(&mut self, path: &RelPath) -> io::Result<Parent<'_>> {
        let path = path.parent();
        let found = match self.at.take() {
            Some(at) if at.0 == path => at,
            Some(_) | None => {
                let fd = self.project.place(path.as_ref())?;
                let has_list = has_default_list(&fd);
                (path, fd, has_list)
            }
        };
        let (_, fd, has_default_list) = &*self.at.insert(found);
        Ok(Parent { fd: fd.as_fd(), has_default_list: *has_default_list })
    }
}

struct Place<'a> {
    stage: &'a Stage,
    project: &'a Tree,
    path: &'a RelPath,
    /// The folder in which it will lie, if it is there already.
    parent: Option<Parent<'a>>,
    old: Option<Meta>,
}

impl Place<'_> {
    fn file(&self, name: &[u8], new: &Node, from: &File) -> io::Result<(File, Meta)> {
        let Node::File { mode, size, digest } = new else {
            return Err(io::Error::other("it is no file"));
        };
        let file = self.create(name)?;
        let copied = content::copy(from, &file)?;
        if copied != (*size, *digest) {
            return Err(io::Error::other("the layer changed since it was scanned"));
        }
        if let Some(old) = self.old.filter(|m| m.kind == EntryType::File) {
            self.keep_attributes(&file)?;
            keep_owner(&file, &old);
        }
        // Starts writing it out while others are prepared, so that there is less to wait for when all of them are synced.
        let _ = fs::fadvise(&file, 0, None, Advice::DontNeed);
        let meta = set_mode(&file, *mode)?;
        Ok((file, meta))
    }

    /// A file made without a name in the folder it will lie in, and named in the stage, where nobody watches. There a new
    /// one takes on the folder's group and default access list, and the file system lays any of them out beside its
    /// neighbours: ext4 looks for a free inode near the folder, and ten thousand made in one folder are searched for one
    /// behind the other. Else simply in the stage.
    fn create(&self, name: &[u8]) -> io::Result<File> {
        let mode = Mode::from_raw_mode(0o600);
        if let Some(parent) = &self.parent
            && (self.old.is_none() || !parent.has_default_list)
        {
            let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
            if let Ok(fd) = fs::openat(parent.fd, c".", flags, mode) {
                match self.name_file(&fd, name) {
                    // By its name in the stage: what is done to a file goes to whoever watches the folder it was opened in.
                    Ok(()) => {
                        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                        let named = fs::openat(&self.stage.dir, name, flags, Mode::empty())?;
                        return Ok(File::from(named));
                    }
                    Err(Errno::XDEV | Errno::NOENT | Errno::PERM | Errno::ACCESS) => {}
                    Err(e) => return Err(e.into()),
                }
            }
        }
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(fs::openat(&self.stage.dir, name, flags, mode)?);
        self.take_group(&file)?;
        Ok(file)
    }

    /// Gives a file without a name one in the stage.
    fn name_file(&self, fd: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
        // Before Linux 6.10 a privilege, which is told as there being no such file.
        match fs::linkat(fd, c"", &self.stage.dir, name, AtFlags::EMPTY_PATH) {
            Err(Errno::NOENT) => {}
            done => return done,
        }
        let source = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let follow = AtFlags::SYMLINK_FOLLOW;
        fs::linkat(fs::CWD, source.as_str(), &self.stage.dir, name, follow)
    }

    fn link(&self, name: &[u8], target: &[u8]) -> io::Result<()> {
        fs::symlinkat(target, &self.stage.dir, name)?;
        if let Some(old) = self.old
            && rustix::process::geteuid().is_root()
        {
            let (uid, gid) = (Uid::from_raw(old.uid), Gid::from_raw(old.gid));
            fs::chownat(&self.stage.dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    fn folder(&self, name: &[u8], mode: u32) -> io::Result<()> {
        fs::mkdirat(&self.stage.dir, name, Mode::from_raw_mode(0o700))?;
        let dir = folder_at(&self.stage.dir, name)?;
        self.take_group(&dir)?;
        self.take_default_list(&dir);
        // Filled first; a mode that forbids that comes last.
        set_mode(&dir, mode | 0o700).map(drop)
    }

    /// What is new in a folder with the set-group-id bit belongs to that folder's group.
    fn take_group(&self, fd: impl AsFd) -> io::Result<()> {
        let Some(parent) = &self.parent else { return Ok(()) };
        let parent = tree::meta_of(parent.fd)?;
        if parent.mode & 0o2000 == 0 || tree::meta_of(&fd)?.gid == parent.gid {
            return Ok(());
        }
        match fs::fchown(fd, None, Some(Gid::from_raw(parent.gid))) {
            // The owner is not in that group: the file keeps the owner's.
            Ok(()) | Err(Errno::PERM) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// A folder made beside its parent does not inherit the parent's default access list by itself.
    fn take_default_list(&self, dir: &OwnedFd) {
        let list = c"system.posix_acl_default";
        let Ok(parent) = self.project.dir(self.path.parent().as_ref()) else { return };
        let mut value = vec![0; 4096];
        if let Ok(len) = fs::fgetxattr(&parent, list, &mut value[..]) {
            // Best effort: the mode is set, and checked, afterwards.
            let _ = fs::fsetxattr(dir, list, &value[..len], XattrFlags::empty());
            let access = c"system.posix_acl_access";
            let _ = fs::fsetxattr(dir, access, &value[..len], XattrFlags::empty());
        }
    }

    /// Carries the access list and the other attributes of the replaced file over. Those of the owner's making must
    /// come along; those that the system keeps for itself come as far as they can.
    fn keep_attributes(&self, to: &File) -> io::Result<()> {
        let Some(parent) = &self.parent else { return Ok(()) };
        let from = match tree::file_at(parent.fd, self.path.file_name()) {
            Ok(from) => from,
            // Who may not read the old file has told so on the card.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            Err(e) => return Err(e),
        };
        for (name, value) in tree::list_attributes(&from)? {
            // Capabilities and integrity seals belong to the old content.
            let stale = [&b"security.capability"[..], b"security.ima", b"security.evm"];
            if stale.contains(&&name[..]) {
                continue;
            }
            let own = name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_");
            match fs::fsetxattr(to, &name[..], &value, XattrFlags::empty()) {
                Err(e) if own => return Err(e.into()),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Sets permission bits and reads them back: some file systems keep none.
fn set_mode(fd: impl AsFd, mode: u32) -> io::Result<Meta> {
    fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
    let meta = tree::meta_of(&fd)?;
    if meta.mode == mode {
        return Ok(meta);
    }
    Err(io::Error::other(format!("this file system can't give it the mode {mode:04o}")))
}

/// Whether what is made in a folder takes on an access list: a file that replaces another has that one's and no other.
fn has_default_list(folder: &OwnedFd) -> bool {
    let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
    let found = fs::getxattr(path.as_str(), c"system.posix_acl_default", &mut [0_u8; 0][..]);
    !matches!(found, Err(Errno::NODATA | Errno::NOTSUP))
}

/// The replaced file's owner (root alone can) and group (where its owner may).
fn keep_owner(file: &File, old: &Meta) {
    let Ok(new) = tree::meta_of(file) else { return };
    if rustix::process::geteuid().is_root() && new.uid != old.uid {
        let _ = fs::fchown(file, Some(Uid::from_raw(old.uid)), None);
    }
    if new.gid != old.gid {
        let _ = fs::fchown(file, None, Some(Gid::from_raw(old.gid)));
    }
}
