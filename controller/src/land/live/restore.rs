//! Putting the real contents back where a session has changed them: by way of the merged view while it runs, in its layer
//! when it has ended.

use super::freeze::Frozen;
use super::prepared::Prepared;
use super::side::{self, Side, temporary, within};
use crate::land::changeset::{Base, Change, Changeset, Node};
use crate::land::digest::{ancestors, paths as paths_of};
use crate::land::kind::EntryType;
use crate::land::tree::{self, Meta, Tree};
use crate::session::store::Session;
use landbox_shared::path::RelPath;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
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

/// What is really there, and how it comes to its place. What is made beside that has this name meanwhile.
enum Plan {
    Nothing,
    /// Here nobody needs to know what it is.
    Uncovered,
    Folder(Meta, String),
    File(Meta, String),
    Link(Vec<u8>, String),
}

impl Plan {
    fn of(side: &Side<'_>, source: &Source<'_>, path: &RelPath) -> io::Result<Self> {
        let Some(real) = source.meta(path)? else { return Ok(Self::Nothing) };
        let parent = path.parent();
        if real.kind != EntryType::Dir && side.shows_through(parent.as_ref(), source.real) {
            return Ok(Self::Uncovered);
        }
        let name = temporary()?;
        Ok(match real.kind {
            EntryType::Dir => Self::Folder(real, name),
            EntryType::File => Self::File(real, name),
            EntryType::Symlink => {
                Self::Link(tree::link_at(source.place(path)?, path.file_name())?, name)
            }
            EntryType::Fifo
            | EntryType::Socket
            | EntryType::CharDevice
            | EntryType::BlockDevice => {
                return Err(io::Error::other("what belongs there is a pipe, socket or device"));
            }
        })
    }

    /// What is made beside `path`, and where it leads if it is a link.
    fn beside(&self, side: &Side<'_>, path: &RelPath) -> Option<(RelPath, Option<Vec<u8>>)> {
        let (name, link) = match self {
            Self::Folder(_, name) if side.layer.is_some() => (name, None),
            Self::File(_, name) => (name, None),
            Self::Link(target, name) => (name, Some(target.clone())),
            Self::Nothing | Self::Uncovered | Self::Folder(..) => return None,
        };
        Some((within(path.parent().as_ref(), name).ok()?, link))
    }
}

/// What was made ready for a path.
enum Ready {
    Nothing,
    Folder(Node),
    Uncovered,
    Beside(String, Node),
}

/// The same while a file has nothing in it yet.
enum Begun {
    Ready(Ready),
    Empty(String, File, Meta),
}

impl Begun {
    fn name(&self) -> Option<&str> {
        match self {
            Self::Ready(Ready::Beside(name, _)) | Self::Empty(name, ..) => Some(name),
            Self::Ready(Ready::Nothing | Ready::Folder(_) | Ready::Uncovered) => None,
        }
    }
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
    mut noted: Prepared<'_>,
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
    let upper = noted.upper();
    let upper = upper.as_ref().map(|(tree, backend)| Side { tree, layer: Some(*backend) });
    // What is to be gone from the deepest up; then what is to be there from the top down, folders first.
    let mut modes = BTreeMap::new();
    let order: Vec<&Job> = going.into_iter().rev().chain(coming).collect();
    for batch in order.chunks(BATCH) {
        let ready = make_ready(side, source, batch, live, &mut modes, &mut noted, &mut out);
        commit(side, ready, live, upper.as_ref(), &mut out);
    }
    // A folder that forbids writing was opened up for its content.
    for (path, mode) in modes.into_iter().rev() {
        if let Err(e) = side.close(&path, mode) {
            out.left.insert(path, e.to_string());
        }
    }
    out
}

fn make_ready<'a>(
    side: &Side<'_>,
    source: &Source<'_>,
    batch: &[&'a Job],
    live: Option<&Session>,
    modes: &mut BTreeMap<RelPath, u32>,
    noted: &mut Prepared<'_>,
    out: &mut Restored,
) -> Vec<(&'a Job, Ready)> {
    let mut leave = |job: &Job, e: &io::Error| {
        out.left.insert(job.path.clone(), e.to_string());
    };
    let mut plans = Vec::new();
    for job in batch {
        match Plan::of(side, source, &job.path) {
            Ok(plan) => plans.push((*job, plan)),
            Err(e) => leave(job, &e),
        }
    }
    let names = plans.iter().filter_map(|(job, plan)| plan.beside(side, &job.path));
    if let Err(e) = noted.announce(names) {
        // What can't be noted is not made.
        plans.retain(|(job, plan)| {
            let needs = plan.beside(side, &job.path).is_some();
            if needs {
                leave(job, &e);
            }
            !needs
        });
    }
    // A folder is made at once, so that its content can be prepared in it.
    let mut begun: Vec<(&Job, Begun)> = Vec::new();
    for (job, plan) in plans {
        match begin(side, job, plan, live, modes, noted) {
            Ok(made) => begun.push((job, made)),
            Err(e) => leave(job, &e),
        }
    }
    let synced = noted.sync();
    let mut ready = Vec::new();
    for (job, begun) in begun {
        let name = begun.name().map(str::to_owned);
        let made = match (&synced, begun) {
            (Err(e), Begun::Empty(..) | Begun::Ready(Ready::Beside(..))) => {
                Err(io::Error::new(e.kind(), e.to_string()))
            }
            (_, Begun::Ready(ready)) => Ok(ready),
            (Ok(()), Begun::Empty(name, to, real)) => {
                let filled = || {
                    let from = tree::file_at(source.place(&job.path)?, job.path.file_name())?;
                    side::fill(&from, &to, &real)
                };
                filled().map(|node| Ready::Beside(name, node))
            }
        };
        match made {
            Ok(made) => ready.push((job, made)),
            Err(e) => {
                leave(job, &e);
                if let Some(name) = name {
                    side.forget(&job.path, &name);
                }
            }
        }
    }
    ready
}

fn begin(
    side: &Side<'_>,
    job: &Job,
    plan: Plan,
    live: Option<&Session>,
    modes: &mut BTreeMap<RelPath, u32>,
    noted: &mut Prepared<'_>,
) -> io::Result<Begun> {
    let path = &job.path;
    let mut note = |name: &str| {
        let made = within(path.parent().as_ref(), name).and_then(|made| noted.made(&made));
        made.inspect_err(|_| side.forget(path, name))
    };
    Ok(match plan {
        Plan::Nothing => Begun::Ready(Ready::Nothing),
        Plan::Uncovered => Begun::Ready(Ready::Uncovered),
        Plan::Folder(real, name) => {
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
                check(side, job, None)?;
            }
            side.folder(path, real.mode | 0o300, &name)?;
            drop(held);
            Begun::Ready(Ready::Folder(Node::Dir { mode: real.mode }))
        }
        Plan::File(real, name) => {
            let file = side.create(path, &name)?;
            note(&name)?;
            Begun::Empty(name, file, real)
        }
        Plan::Link(target, name) => {
            side.create_link(path, &name, &target)?;
            note(&name)?;
            Begun::Ready(Ready::Beside(name, Node::Symlink { target }))
        }
    })
}

/// Whether what lies there is still what was looked at. `upper` is the layer of a session that runs: what shows where that
/// holds nothing the session has not written. (fuse-overlayfs 1.10 may show what is deleted, and what lay in a folder that
/// was made anew.)
fn check(side: &Side<'_>, job: &Job, upper: Option<&Side<'_>>) -> io::Result<()> {
    match &job.expected {
        // Nobody writes to the layer of a session that has ended.
        _ if side.layer.is_some() => Ok(()),
        None => Ok(()),
        Some(expected) if is_same(side.node(&job.path)?.as_ref(), expected.as_ref()) => Ok(()),
        Some(None) if upper.is_some_and(|upper| matches!(upper.meta(&job.path), Ok(None))) => {
            Ok(())
        }
        Some(_) => Err(io::Error::other("the session has written it meanwhile")),
    }
}

fn commit(
    side: &Side<'_>,
    mut ready: Vec<(&Job, Ready)>,
    live: Option<&Session>,
    upper: Option<&Side<'_>>,
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
            match one(side, job, &prepared, upper) {
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

fn one(side: &Side<'_>, job: &Job, prepared: &Ready, upper: Option<&Side<'_>>) -> io::Result<()> {
    match prepared {
        Ready::Folder(_) => return Ok(()),
        Ready::Uncovered => return side.uncover(&job.path),
        Ready::Nothing => check(side, job, None)?,
        Ready::Beside(..) => check(side, job, upper)?,
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
