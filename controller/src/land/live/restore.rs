//! Putting the real contents back where a session has changed them: by way of the merged view while it runs, in its layer
//! when it has ended.

use super::freeze::Frozen;
use super::side::Side;
use crate::land::changeset::{Base, Change, Changeset, Node};
use crate::land::digest::{ancestors, paths as paths_of};
use crate::land::kind::EntryType;
use crate::land::tree::{self, Meta, Tree};
use crate::session::store::Session;
use landbox_shared::path::RelPath;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Paths that are put back while the session is held once.
const BATCH: usize = 64;
/// What must be left of the time a session is held for one more path.
const MARGIN: Duration = Duration::from_millis(20);
/// How often a path is tried whose turn did not come in time.
const TRIES: usize = 20;

/// One path to put back.
#[derive(Clone, Debug)]
pub(super) struct Job {
    path: RelPath,
    /// What the session left there; `None` where that does not matter.
    expected: Option<Option<Node>>,
}

impl Job {
    /// Which.
    pub(super) fn path(&self) -> &RelPath {
        &self.path
    }
}

/// What became of the paths.
#[derive(Debug, Default)]
pub struct Restored {
    /// Those that hold the real contents again.
    pub done: BTreeMap<RelPath, Base>,
    /// Those that were left as they are, and why.
    pub left: BTreeMap<RelPath, String>,
}

/// The jobs that take `chosen` back, each path once.
pub(super) fn jobs(set: &Changeset, chosen: &[&Change]) -> Vec<Job> {
    let mut out: BTreeMap<RelPath, Option<Option<Node>>> = BTreeMap::new();
    let above = ancestors(chosen.iter().flat_map(|c| paths_of(c)));
    for folder in set.folders.iter().filter(|f| above.contains(&f.path)) {
        out.insert(folder.path.clone(), None);
    }
    for change in chosen {
        if let Some(old) = &change.old_path {
            out.insert(old.clone(), Some(None));
        }
        let expected = match &change.new {
            Some(Node::Unreadable { .. }) => None,
            new @ (Some(
                Node::File { .. } | Node::Dir { .. } | Node::Symlink { .. } | Node::Special { .. },
            )
            | None) => Some(new.clone()),
        };
        out.insert(change.path.clone(), expected);
    }
    out.into_iter().map(|(path, expected)| Job { path, expected }).collect()
}

/// Jobs for paths of which it is known what the session left there.
pub(super) fn jobs_of(left: &BTreeMap<RelPath, Option<Node>>) -> Vec<Job> {
    let job = |(path, node): (&RelPath, &Option<Node>)| Job {
        path: path.clone(),
        expected: Some(node.clone()),
    };
    left.iter().map(job).collect()
}

/// What is put back, and from where: the real tree, or for `past` paths a layer as it was.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) real: &'a Tree,
    pub(super) past: Option<(&'a Side<'a>, &'a BTreeSet<RelPath>)>,
}

impl<'a> Source<'a> {
    /// The real tree alone.
    pub(super) fn real(real: &'a Tree) -> Self {
        Self { real, past: None }
    }

    fn past(&self, path: &RelPath) -> Option<&'a Side<'a>> {
        self.past.filter(|(_, paths)| paths.contains(path)).map(|(side, _)| side)
    }

    fn meta(&self, path: &RelPath) -> io::Result<Option<Meta>> {
        match self.past(path) {
            Some(side) => side.meta(path),
            None => self.real.meta(path),
        }
    }

    /// The folder that it lies in.
    fn place(&self, path: &RelPath) -> io::Result<OwnedFd> {
        let tree = self.past(path).map_or(self.real, |side| side.tree);
        tree.place(path.parent().as_ref())
    }
}

/// What a changeset says of each path: what is there, or that nothing is. A folder that comes or goes with what lies in it
/// need not be what it was.
fn states(set: &Changeset) -> BTreeMap<&RelPath, (Option<Node>, bool)> {
    let mut out = BTreeMap::new();
    for folder in &set.folders {
        out.insert(&folder.path, (folder.make.map(|mode| Node::Dir { mode }), false));
    }
    for change in &set.changes {
        if let Some(old) = &change.old_path {
            out.insert(old, (None, true));
        }
        let readable = !matches!(change.new, Some(Node::Unreadable { .. }));
        out.insert(&change.path, (change.new.clone(), readable));
    }
    out
}

/// The jobs that lead from what a session has to what it had, and the paths that are to be as its layer was. `seen` gives
/// what it sees where it has changed nothing.
pub(super) fn jobs_between(
    has: &Changeset,
    had: &Changeset,
    seen: impl Fn(&RelPath) -> io::Result<Option<Node>>,
) -> io::Result<(Vec<Job>, BTreeSet<RelPath>)> {
    let (has, had) = (states(has), states(had));
    let mut jobs = BTreeMap::new();
    let mut past = BTreeSet::new();
    for (path, (node, _)) in &had {
        let expected = match has.get(path) {
            Some((now, _)) if now == node => continue,
            Some((now, matters)) => matters.then(|| now.clone()),
            None => Some(seen(path)?),
        };
        past.insert((*path).clone());
        jobs.insert(*path, expected);
    }
    for (path, (now, matters)) in &has {
        if !had.contains_key(path) {
            jobs.insert(path, matters.then(|| now.clone()));
        }
    }
    let job = |(path, expected): (&RelPath, _)| Job { path: path.clone(), expected };
    Ok((jobs.into_iter().map(job).collect(), past))
}

/// What is really there, and what was made ready for it.
enum Ready {
    Nothing,
    Folder(Node),
    /// Here nobody needs to know what it is.
    Uncovered,
    Beside(String, Node),
}

impl Ready {
    /// What the path holds from then on: not what may be really there by then.
    fn base(&self) -> Base {
        match self {
            Self::Nothing => Base::Absent,
            Self::Folder(node) | Self::Beside(_, node) => Base::Known(node.clone()),
            Self::Uncovered => Base::Unknown,
        }
    }
}

/// Puts every job's path back. `live` is the session if it runs: then each is held against what it was when it was
/// looked at, while the session is held still.
pub(super) fn put_back(
    side: &Side<'_>,
    source: &Source<'_>,
    jobs: &[Job],
    live: Option<&Session>,
) -> Restored {
    let mut out = Restored::default();
    let real = |path: &RelPath| source.meta(path);
    let (mut going, mut coming) = (Vec::new(), Vec::new());
    for job in jobs {
        match real(&job.path) {
            Ok(None) => going.push(job),
            Ok(Some(_)) => coming.push(job),
            Err(e) => drop(out.left.insert(job.path.clone(), e.to_string())),
        }
    }
    // What is to be gone from the deepest up; then what is to be there from the top down, folders first.
    let mut modes = BTreeMap::new();
    let order: Vec<&Job> = going.into_iter().rev().chain(coming).collect();
    for batch in order.chunks(BATCH) {
        let mut ready: Vec<(&Job, Ready)> = Vec::new();
        // A folder is made at once, so that its content can be prepared in it.
        for job in batch {
            match prepare(side, source, job, live, &mut modes) {
                Ok(prepared) => ready.push((job, prepared)),
                Err(e) => drop(out.left.insert(job.path.clone(), e.to_string())),
            }
        }
        commit(side, ready, live, &mut out);
    }
    // A folder that forbids writing was opened up for its content.
    for (path, mode) in modes.into_iter().rev() {
        if let Err(e) = side.folder(&path, mode) {
            out.left.insert(path, e.to_string());
        }
    }
    out
}

fn prepare(
    side: &Side<'_>,
    source: &Source<'_>,
    job: &Job,
    live: Option<&Session>,
    modes: &mut BTreeMap<RelPath, u32>,
) -> io::Result<Ready> {
    let path = &job.path;
    let Some(real) = source.meta(path)? else { return Ok(Ready::Nothing) };
    let parent = path.parent();
    let place = || source.place(path);
    if real.kind != EntryType::Dir && side.shows_through(parent.as_ref(), source.real) {
        return Ok(Ready::Uncovered);
    }
    Ok(match real.kind {
        EntryType::Dir => {
            if real.mode & 0o300 != 0o300 {
                modes.insert(path.clone(), real.mode);
            }
            let in_the_way = side.meta(path)?.is_some_and(|meta| meta.kind != EntryType::Dir);
            let held = match live.filter(|_| in_the_way) {
                None => None,
                Some(session) => Some(
                    Frozen::hold(session).ok_or_else(|| io::Error::other("the session is busy"))?,
                ),
            };
            if in_the_way {
                check(side, job)?;
            }
            side.folder(path, real.mode | 0o300)?;
            drop(held);
            Ready::Folder(Node::Dir { mode: real.mode })
        }
        EntryType::File => {
            let from = tree::file_at(place()?, path.file_name())?;
            let (name, node) = side.prepare(path, &from, &real)?;
            Ready::Beside(name, node)
        }
        EntryType::Symlink => {
            let target = tree::link_at(place()?, path.file_name())?;
            Ready::Beside(side.prepare_link(path, &target)?, Node::Symlink { target })
        }
        EntryType::Fifo | EntryType::Socket | EntryType::CharDevice | EntryType::BlockDevice => {
            return Err(io::Error::other("what belongs there is a pipe, socket or device"));
        }
    })
}

/// Whether what lies there is still what was looked at.
fn check(side: &Side<'_>, job: &Job) -> io::Result<()> {
    match &job.expected {
        // Nobody writes to the layer of a session that has ended.
        _ if side.layer.is_some() => Ok(()),
        None => Ok(()),
        Some(expected) if is_same(side.node(&job.path)?.as_ref(), expected.as_ref()) => Ok(()),
        Some(_) => Err(io::Error::other("the session has written it meanwhile")),
    }
}

fn commit(
    side: &Side<'_>,
    mut ready: Vec<(&Job, Ready)>,
    live: Option<&Session>,
    out: &mut Restored,
) {
    for _ in 0..TRIES {
        if ready.is_empty() {
            return;
        }
        let frozen = match live {
            None => None,
            Some(session) => match Frozen::hold(session) {
                Some(frozen) => Some(frozen),
                None => continue,
            },
        };
        let mut late = Vec::new();
        for (job, prepared) in ready {
            if frozen.as_ref().is_some_and(|frozen| frozen.left() < MARGIN) {
                late.push((job, prepared));
                continue;
            }
            match one(side, job, &prepared) {
                Ok(()) => drop(out.done.insert(job.path.clone(), prepared.base())),
                Err(e) => {
                    give_up(side, job, &prepared);
                    out.left.insert(job.path.clone(), e.to_string());
                }
            }
        }
        if let Some(frozen) = frozen {
            frozen.release();
        }
        ready = late;
    }
    for (job, prepared) in ready {
        give_up(side, job, &prepared);
        out.left.insert(job.path.clone(), "the session is busy".into());
    }
}

fn give_up(side: &Side<'_>, job: &Job, prepared: &Ready) {
    match prepared {
        Ready::Beside(name, _) => side.forget(&job.path, name),
        Ready::Nothing | Ready::Folder(_) | Ready::Uncovered => {}
    }
}

fn one(side: &Side<'_>, job: &Job, prepared: &Ready) -> io::Result<()> {
    match prepared {
        Ready::Folder(_) => return Ok(()),
        Ready::Uncovered => return side.uncover(&job.path),
        Ready::Nothing | Ready::Beside(..) => check(side, job)?,
    }
    match prepared {
        Ready::Beside(name, _) => side.put(&job.path, name),
        Ready::Nothing => match side.remove(&job.path) {
            // A folder in which something stays.
            Err(e) if job.expected.is_none() && e.kind() == io::ErrorKind::DirectoryNotEmpty => {
                Ok(())
            }
            other => other,
        },
        Ready::Folder(_) | Ready::Uncovered => Ok(()),
    }
}

/// Whether two objects are the same but for set-id bits, which fuse-overlayfs does not show.
fn is_same(found: Option<&Node>, expected: Option<&Node>) -> bool {
    let plain = |node: Option<&Node>| {
        let mut node = node.cloned();
        match &mut node {
            Some(
                Node::File { mode, .. }
                | Node::Dir { mode }
                | Node::Special { mode, .. }
                | Node::Unreadable { mode, .. },
            ) => *mode &= 0o1777,
            Some(Node::Symlink { .. }) | None => {}
        }
        node
    };
    plain(found) == plain(expected)
}

/// Paths below which nothing is chosen but a part: what a folder in the place of a file needs to go.
pub(super) fn blocked(set: &Changeset, chosen: &[&Change]) -> BTreeSet<RelPath> {
    let wanted: BTreeSet<&RelPath> = chosen.iter().flat_map(|c| paths_of(c)).collect();
    let by_path: HashMap<&RelPath, &Change> = set.changes.iter().map(|c| (&c.path, c)).collect();
    let is_folder = |node: Option<&Node>| node.is_some_and(|n| n.kind() == EntryType::Dir);
    let in_the_way = |path: &RelPath| {
        by_path.get(path).is_some_and(|c| c.new.is_some() && !is_folder(c.new.as_ref()))
    };
    let mut out = BTreeSet::new();
    for path in &wanted {
        let mut above = path.parent();
        while let Some(folder) = above {
            if in_the_way(&folder) && !wanted.contains(&folder) {
                out.insert((*path).clone());
            }
            above = folder.parent();
        }
    }
    out
}
