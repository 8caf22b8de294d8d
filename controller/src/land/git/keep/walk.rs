//! From the session's commit back to the owner's: every object that the owner does not have, each looked at.

use super::batch::Batch;
use super::layer::{SessionRepo, refused};
use super::object::{Commit, Kind, tree};
use super::pack::Pack;
use crate::error::Result;
use crate::land::git::repo::Repo;
use crate::land::git::workshop::Workshop;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Most commits that are kept.
const COMMITS: usize = 1000;
/// Most objects.
const OBJECTS: usize = 200_000;
/// Most bytes of all of them.
const BYTES: u64 = 2 << 30;

/// What was found.
pub(super) struct Found {
    /// The session's commits, parents first.
    pub commits: Vec<(String, Commit)>,
    /// The owner's commits that these start from.
    pub starts: BTreeSet<String>,
    /// Single objects among what they need.
    pub pack: Pack,
}

struct Walk<'a> {
    session: &'a SessionRepo<'a>,
    repo: &'a Repo,
    owner: Batch,
    made: Batch,
    seen: HashSet<String>,
    bytes: u64,
    pack: Pack,
}

/// Walks from `tip`. Packs of the session's must be in the workshop already.
pub(super) fn walk(
    session: &SessionRepo<'_>,
    repo: &Repo,
    workshop: &Workshop,
    tip: &str,
) -> Result<Found> {
    let mut walk = Walk {
        session,
        repo,
        owner: Batch::start(repo.command(), "--batch-check")?,
        made: Batch::start(workshop.command(), "--batch")?,
        seen: HashSet::new(),
        bytes: 0,
        pack: Pack::new(repo.format, workshop.path())?,
    };
    let mut commits: HashMap<String, Commit> = HashMap::new();
    let mut starts = BTreeSet::new();
    let mut todo = vec![tip.to_owned()];
    while let Some(id) = todo.pop() {
        if commits.contains_key(&id) || starts.contains(&id) {
            continue;
        }
        if walk.owned(&id, Kind::Commit)? {
            starts.insert(id);
            continue;
        }
        if commits.len() == COMMITS {
            return Err(refused(&format!("there are more than {COMMITS} of them")));
        }
        let bytes = walk.take(&id, Kind::Commit)?;
        let commit = Commit::parse(&bytes, repo.format)
            .ok_or_else(|| refused(&format!("{id} is no commit as git writes it")))?;
        if commit.parents.is_empty() {
            return Err(refused(&format!("{id} starts from nothing of yours")));
        }
        walk.tree(&commit.tree)?;
        todo.extend(commit.parents.iter().cloned());
        commits.insert(id, commit);
    }
    let order = parents_first(&commits, tip);
    let commits = order.into_iter().filter_map(|id| commits.remove_entry(&id)).collect();
    Ok(Found { commits, starts, pack: walk.pack })
}

impl Walk<'_> {
    /// Whether the owner's repository has an object.
    fn owned(&mut self, id: &str, kind: Kind) -> Result<bool> {
        match self.owner.check(id)? {
            None => Ok(false),
            Some((found, _)) if found == kind => Ok(true),
            Some(_) => Err(refused(&format!("{id} is no {}", kind.word()))),
        }
    }

    /// The content of an object that the session made.
    fn take(&mut self, id: &str, kind: Kind) -> Result<Vec<u8>> {
        let (found, bytes) = match self.session.loose(id)? {
            Some((found, bytes)) => {
                self.pack.add(found, &bytes)?;
                (found, bytes)
            }
            None => self
                .made
                .content(id)?
                .ok_or_else(|| refused(&format!("its object {id} is missing")))?,
        };
        self.bytes += bytes.len() as u64;
        self.seen.insert(id.to_owned());
        if self.seen.len() > OBJECTS || self.bytes > BYTES {
            return Err(refused("they hold too much"));
        }
        if found == kind { Ok(bytes) } else { Err(refused(&format!("{id} is no {}", kind.word()))) }
    }

    fn tree(&mut self, root: &str) -> Result<()> {
        let mut todo = vec![(root.to_owned(), Kind::Tree)];
        while let Some((id, kind)) = todo.pop() {
            if self.seen.contains(&id) || self.owned(&id, kind)? {
                continue;
            }
            let bytes = self.take(&id, kind)?;
            if kind != Kind::Tree {
                continue;
            }
            let entries = tree(&bytes, self.repo.format)
                .map_err(|why| refused(&format!("the tree {id} is none: {why}")))?;
            // Other repositories have no kind; whether one changed is judged with its path.
            todo.extend(entries.into_iter().filter_map(|e| Some((e.id, e.kind?))));
        }
        Ok(())
    }
}

fn parents_first(commits: &HashMap<String, Commit>, tip: &str) -> Vec<String> {
    let (mut out, mut done) = (Vec::new(), HashSet::new());
    let mut todo = vec![(tip.to_owned(), false)];
    while let Some((id, ready)) = todo.pop() {
        let Some(commit) = commits.get(&id) else { continue };
        if ready {
            out.push(id);
        } else if done.insert(id.clone()) {
            todo.push((id, true));
            todo.extend(commit.parents.iter().map(|parent| (parent.clone(), false)));
        }
    }
    out
}
