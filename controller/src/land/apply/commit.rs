//! Doing a step, and rolling steps back. A step is one rename or one chmod, beneath the project's root, through a parent
//! that is resolved anew; what a rename has displaced is compared with the base before it counts.
//!
//! Rolling back looks at what is there instead of at what was done, so it serves a failed landing and a crashed one alike.

use super::plan::{Action, Step};
use super::stage::{self, Stage};
use crate::error::{Failure, Kind, Result};
use crate::land::changeset::Node;
use crate::land::kind::EntryType;
use crate::land::tree::{self, Near, Time, Tree};
use landbox_shared::path::RelPath;
use rustix::fs::{self, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Why a step failed.
enum Stop {
    /// The project is not what the base says.
    Drift,
    /// The system refused.
    Io(io::Error),
}

impl Stop {
    fn of(self, step: &Step) -> Failure {
        match self {
            Self::Drift => Failure::new(
                Kind::Conflict,
                format!("{} changed while this was under way; nothing was changed", step.path),
            )
            .hint("look at it, and at the changes with landbox diff, then try again"),
            Self::Io(e) => {
                let text = format!("can't change {}: {e}; nothing was changed", step.path);
                Failure { cause: Some(e.kind()), ..Failure::new(Kind::Failed, text) }
            }
        }
    }
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        match errno {
            // Something is where nothing should be, or nothing where something should be, or a link is on the way.
            Errno::EXIST | Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NOTEMPTY => {
                Self::Drift
            }
            other => Self::Io(other.into()),
        }
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => Self::Io(error),
        }
    }
}

/// Does steps. After each of them its folder is resolved anew, and that serves the next one in the same folder.
pub(super) struct Hand<'a> {
    project: &'a Tree,
    stage: &'a Stage,
    at: Option<Folder>,
}

/// A folder of the project, as it was resolved last.
struct Folder {
    path: Option<RelPath>,
    fd: OwnedFd,
    identity: ((u32, u32), u64),
}

impl Folder {
    fn resolve(project: &Tree, path: Option<RelPath>) -> io::Result<Self> {
        let fd = project.place(path.as_ref())?;
        let meta = tree::meta_of(&fd)?;
        Ok(Self { path, fd, identity: (meta.dev, meta.ino) })
    }
}

impl<'a> Hand<'a> {
    pub(super) fn of(project: &'a Tree, stage: &'a Stage) -> Self {
        Self { project, stage, at: None }
    }

    /// Does a step. It counts once what it has displaced was compared.
    pub(super) fn exchange(&mut self, step: &Step) -> Result<()> {
        self.attempt(step).map_err(|stop| stop.of(step))
    }

    fn attempt(&mut self, step: &Step) -> Result<(), Stop> {
        let path = step.path.parent();
        let folder = match self.at.take() {
            Some(at) if at.path == path => at,
            Some(_) | None => Folder::resolve(self.project, path)?,
        };
        rename(step, &folder.fd, self.stage)?;
        // A parent that was moved away meanwhile has taken the change with it.
        let again = Folder::resolve(self.project, folder.path)?;
        let stays = again.identity == folder.identity;
        self.at = Some(again);
        if stays { Ok(()) } else { Err(Stop::Drift) }
    }
}

/// Compares what a step has displaced with what should have been there.
pub(super) fn compare(step: &Step, stage: &Stage) -> Result<()> {
    match &step.action {
        Action::Take { old } | Action::Swap { old, .. } => {
            displaced(stage, &stage::name(step.slot), old).map_err(|stop| stop.of(step))
        }
        Action::Put { .. } | Action::Mode { .. } => Ok(()),
    }
}

fn rename(step: &Step, parent: &OwnedFd, stage: &Stage) -> Result<(), Stop> {
    let place = stage::name(step.slot);
    let name = step.path.file_name();
    match &step.action {
        Action::Take { .. } => {
            fs::renameat_with(parent, name, stage.dir(), &place[..], RenameFlags::NOREPLACE)?;
        }
        Action::Put { new, implied } => {
            let put =
                fs::renameat_with(stage.dir(), &place[..], parent, name, RenameFlags::NOREPLACE);
            match put {
                Err(Errno::EXIST) if *implied => {
                    // The owner has made the same folder meanwhile. Its mode is theirs.
                    let there = tree::meta_at(parent, name)?;
                    if there.is_none_or(|m| m.kind != new.kind()) {
                        return Err(Stop::Drift);
                    }
                }
                other => other?,
            }
        }
        Action::Swap { .. } => {
            fs::renameat_with(stage.dir(), &place[..], parent, name, RenameFlags::EXCHANGE)?;
        }
        Action::Mode { kind, old, new } => {
            set_mode(parent, name, *kind, *old, *new)?;
        }
    }
    Ok(())
}

/// Compares what moved into the stage with what should have.
fn displaced(stage: &Stage, place: &[u8], old: &Node) -> Result<(), Stop> {
    let meta = tree::meta_at(stage.dir(), place)?.ok_or(Stop::Drift)?;
    let same = match old {
        Node::Unreadable { kind, mode } => (meta.kind, meta.mode) == (*kind, *mode),
        Node::Dir { mode } => {
            (meta.kind, meta.mode) == (EntryType::Dir, *mode)
                && tree::names(open_folder(stage.dir(), place)?)?.is_empty()
        }
        Node::File { .. } | Node::Symlink { .. } | Node::Special { .. } => {
            tree::node_at(stage.dir(), place, &meta)? == *old
        }
    };
    if same { Ok(()) } else { Err(Stop::Drift) }
}

/// Changes the mode of what is there, if it is of the kind and mode expected.
fn set_mode(
    parent: &OwnedFd,
    name: &[u8],
    kind: EntryType,
    old: u32,
    new: u32,
) -> Result<(), Stop> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = fs::openat(parent, name, flags, Mode::empty())?;
    let meta = tree::meta_of(&fd)?;
    if (meta.kind, meta.mode) != (kind, old) {
        return Err(Stop::Drift);
    }
    // By descriptor, which no rename can exchange; chmod of an O_PATH descriptor works through its magic link alone.
    fs::chmod(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()), Mode::from_raw_mode(new))?;
    if tree::meta_of(&fd)?.mode == new {
        return Ok(());
    }
    Err(Stop::Io(io::Error::other(format!("this file system can't give it the mode {new:04o}"))))
}

/// Rolls back every step that was done, the last first. Gives the paths whose old object could not go back, because the
/// owner has put something else there meanwhile: it stays in the stage.
pub(super) fn roll_back(steps: &[Step], project: &Tree, stage: &Stage) -> Vec<(usize, RelPath)> {
    let mut stuck = Vec::new();
    for step in steps.iter().rev() {
        if !roll_one(step, project, stage).unwrap_or(false) {
            stuck.push((step.slot, step.path.clone()));
        }
    }
    stuck
}

/// Whether nothing of the step is left to roll back.
fn roll_one(step: &Step, project: &Tree, stage: &Stage) -> io::Result<bool> {
    let place = stage::name(step.slot);
    let there = tree::meta_at(stage.dir(), &place)?;
    let parent = match project.place(step.path.parent().as_ref()) {
        Ok(parent) => parent,
        // No parent, so the step was never done; but an old object in the stage has lost its place.
        Err(_) => return Ok(there.is_none_or(|m| step.staged == Some((m.dev, m.ino)))),
    };
    let name = step.path.file_name();
    let target = tree::meta_at(&parent, name)?;
    let is_ours = |m: &tree::Meta| step.staged == Some((m.dev, m.ino));
    match &step.action {
        Action::Take { .. } => {
            if there.is_none() {
                return Ok(true);
            }
            let flags = RenameFlags::NOREPLACE;
            Ok(fs::renameat_with(stage.dir(), &place[..], &parent, name, flags).is_ok())
        }
        Action::Put { new, .. } => {
            let Some(target) = target.filter(is_ours) else { return Ok(true) };
            if !untouched(&parent, name, &target, new)? {
                // What the owner has put into it, or made of it, is not ours to take away.
                return Ok(new.kind() == EntryType::Dir);
            }
            let flags = RenameFlags::NOREPLACE;
            Ok(fs::renameat_with(&parent, name, stage.dir(), &place[..], flags).is_ok())
        }
        Action::Swap { new, .. } => {
            if there.as_ref().is_none_or(is_ours) {
                return Ok(true);
            }
            // The old object is in the stage.
            let flags = match target {
                None => RenameFlags::NOREPLACE,
                Some(target) if is_ours(&target) && untouched(&parent, name, &target, new)? => {
                    RenameFlags::EXCHANGE
                }
                Some(_) => return Ok(false),
            };
            Ok(fs::renameat_with(stage.dir(), &place[..], &parent, name, flags).is_ok())
        }
        Action::Mode { kind, old, new } => {
            if target.is_none_or(|m| (m.kind, m.mode) != (*kind, *new)) {
                return Ok(true);
            }
            Ok(set_mode(&parent, name, *kind, *new, *old).is_ok())
        }
    }
}

/// Whether a landed object is still what was landed; a folder, whether it is empty.
fn untouched(parent: &OwnedFd, name: &[u8], meta: &tree::Meta, new: &Node) -> io::Result<bool> {
    if new.kind() == EntryType::Dir {
        return Ok(tree::names(open_folder(parent, name)?)?.is_empty());
    }
    match tree::node_at(parent, name, meta) {
        Ok(node) => Ok(node == *new),
        // Landed without the right to read it.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(true),
        Err(e) => Err(e),
    }
}

fn open_folder(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(parent, name, flags, Mode::empty())
}

/// The paths of steps that are not, or no longer, what the steps make of them.
pub(in crate::land) fn changed(steps: &[Step], project: &Tree) -> Vec<RelPath> {
    changed_since(steps, project, None)
}

/// The same after a landing whose exchange began when `settled` was the time of [`tree::settled`]: until then nobody could
/// write to what it staged, and whoever has done so since has left a trace in its times.
pub(super) fn changed_since(steps: &[Step], project: &Tree, settled: Option<Time>) -> Vec<RelPath> {
    let (mut modes, mut come) = (HashMap::new(), HashSet::new());
    for step in steps {
        match step.action {
            Action::Mode { new, .. } => {
                modes.insert(&step.path, new);
            }
            Action::Put { .. } | Action::Swap { .. } => {
                come.insert(&step.path);
            }
            Action::Take { .. } => {}
        }
    }
    let mut near = Near::of(project);
    let mut holds = |step: &Step| -> io::Result<bool> {
        let meta = near.meta(&step.path)?;
        let new = match &step.action {
            Action::Take { .. } => return Ok(meta.is_none() || come.contains(&step.path)),
            // The last one counts; a folder that was opened up to be removed is gone.
            Action::Mode { .. } => {
                let mode = modes.get(&step.path);
                return Ok(meta.is_none_or(|m| mode.is_none_or(|mode| m.mode == *mode)));
            }
            Action::Put { new: Node::Dir { .. }, implied: true } => {
                return Ok(meta.is_some_and(|m| m.kind == EntryType::Dir));
            }
            Action::Put { new, .. } | Action::Swap { new, .. } => new,
        };
        let Some(meta) = meta else { return Ok(false) };
        if let Node::Dir { mode } = new {
            let mode = modes.get(&step.path).unwrap_or(mode);
            return Ok((meta.kind, meta.mode) == (EntryType::Dir, *mode));
        }
        if let (Node::File { mode, size, .. }, Some(written), Some(settled)) =
            (new, step.written, settled)
            && written < settled
            && step.staged == Some((meta.dev, meta.ino))
        {
            let found = (meta.kind, meta.mode, meta.size, meta.mtime);
            return Ok(found == (EntryType::File, *mode, *size, written));
        }
        match tree::node_at(near.parent(&step.path)?, step.path.file_name(), &meta) {
            Ok(node) => Ok(node == *new),
            // Landed without the right to read it: the identity must do.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                Ok(step.staged == Some((meta.dev, meta.ino)))
            }
            Err(e) => Err(e),
        }
    };
    let gone = steps.iter().filter(|s| !holds(s).unwrap_or(false)).map(|s| s.path.clone());
    let mut found: Vec<RelPath> = gone.collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::land::content::digest_of;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;
    use std::thread::sleep;
    use std::time::Duration;

    #[test]
    fn what_has_landed_and_was_touched_since_is_found_by_its_times_where_they_tell_and_else_by_its_content()
     {
        let dir = tempfile::tempdir().unwrap();
        let project = Tree::open(dir.path()).unwrap();
        let (file, path) = (dir.path().join("f"), RelPath::new("f").unwrap());
        let tick = || sleep(Duration::from_millis(30));
        let landed = || {
            write(&file, "1").unwrap();
            set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
            let meta = project.meta(&path).unwrap().unwrap();
            let new = Node::File { mode: 0o644, size: 1, digest: digest_of(b"1") };
            tick();
            Step {
                slot: 0,
                path: path.clone(),
                action: Action::Put { new, implied: false },
                staged: Some((meta.dev, meta.ino)),
                attributes: None,
                written: Some(meta.mtime),
            }
        };
        let other = dir.path().join("other");
        let touches: [&dyn Fn(); 4] = [
            &|| write(&file, "2").unwrap(),
            &|| set_permissions(&file, Permissions::from_mode(0o600)).unwrap(),
            &|| {
                write(&other, "2").unwrap();
                std::fs::rename(&other, &file).unwrap();
            },
            &|| std::fs::remove_file(&file).unwrap(),
        ];
        for (number, touch) in touches.iter().enumerate() {
            let step = [landed()];
            // By the times, and, of what had just been written when the exchange began, by the content.
            let settled = [Some(crate::land::tree::now()), step[0].written, None];
            let changed = |at| changed_since(&step, &project, at).len();
            assert_eq!(settled.map(changed), [0; 3], "{number}");
            touch();
            assert_eq!(settled.map(changed), [1; 3], "{number}");
        }
    }
}
