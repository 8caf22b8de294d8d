//! `--keep-commits`: the commits that the session itself made.
//!
//! They are read as bytes from the session's layer: HEAD, the ref it names, packs, single objects. No git ever runs on that
//! repository, and nothing of its configuration, attributes, hooks, refs or alternates is heard. What the owner does not
//! have yet is checked name by name and object by object, in the workshop, and every commit is written anew: the author
//! and the words are the session's, the committer is the owner, signatures and encodings are dropped. A commit that
//! touches what cannot land is refused with its reason, never quietly changed.

mod batch;
mod judge;
mod layer;
mod object;
mod pack;
mod unkept;
mod walk;

pub(super) use judge::Bounds;
pub(super) use unkept::note;
pub use unkept::unkept;

use super::run::{bounded, feed};
use super::workshop::Workshop;
use crate::error::{Context, Result};
use crate::land::risk::Risk;
use crate::land::risk::consent::Passing;
use crate::session::store::Session;
use judge::{Judge, Risks};
use layer::{OBJECT, SessionRepo, refused};
use std::collections::{BTreeSet, HashMap};
use std::process::Stdio;

/// Most bytes of packs that are looked at.
const PACKS: u64 = 1 << 30;
/// Seconds of work that one of them is worth.
const INDEX: u64 = 120;

/// The session's commits, written anew in the workshop.
pub(super) struct Kept {
    /// The last of them.
    pub tip: String,
    /// The owner's commits that they start from.
    pub starts: BTreeSet<String>,
    /// First line of each message, the oldest first.
    pub subjects: Vec<String>,
    /// The names that they had in the session.
    pub ids: Vec<String>,
    /// What in any of them deserves a second look.
    pub risks: Vec<Passing>,
}

/// Reads the session's commits; `None` where it made none.
pub(super) fn keep(
    session: &Session,
    bounds: &Bounds<'_>,
    workshop: &Workshop,
    committer: &str,
) -> Result<Option<Kept>> {
    let repo = bounds.repo;
    let theirs = SessionRepo::open(session, repo)?;
    let Some(tip) = theirs.tip()? else { return Ok(None) };
    let mut have = batch::Batch::start(repo.command(), "--batch-check")?;
    if have.check(&tip)?.is_some() {
        return Ok(None);
    }
    drop(have);
    theirs.refuse_alternates()?;
    let mut bytes = 0;
    for pack in theirs.packs()? {
        bytes += pack.metadata().context(|| "can't read the session's packs".into())?.len();
        if bytes > PACKS {
            return Err(refused("its packs are too large"));
        }
        let mut index = workshop.command();
        // A few bytes of a delta can stand for as many as they like.
        index.env("GIT_ALLOC_LIMIT", (OBJECT + (1 << 20)).to_string()).args([
            "index-pack",
            "--stdin",
            "--threads=1",
            "--fsck-objects",
            &format!("--max-input-size={PACKS}"),
        ]);
        let said = bounded(index.stdin(Stdio::from(pack)), INDEX, "can't read a pack");
        said.map_err(|failure| refused(&failure.message))?;
    }
    let found = walk::walk(&theirs, repo, workshop, &tip)?;
    if found.pack.count() > 0 {
        let mut index = workshop.command();
        index.args(["index-pack", "--stdin", "--fsck-objects"]);
        let sent = feed(&mut index, "can't check its objects", |out| found.pack.send(out));
        sent.map_err(|failure| refused(&failure.message))?;
    }
    let mut judge = Judge::new(bounds, workshop)?;
    let mut anew: HashMap<String, String> = HashMap::new();
    let mut subjects = Vec::new();
    let mut risks = Risks::new();
    for (id, commit) in &found.commits {
        // What a commit has in common with one of its parents is not its own doing.
        let mut own: Option<Risks> = None;
        for parent in &commit.parents {
            let before = judge.tree_of(parent)?;
            let mut found = judge.compare(&before, &commit.tree)?;
            if let Some(own) = &own {
                found.retain(|key, _| own.contains_key(key));
            }
            own = Some(found);
        }
        risks.extend(own.into_iter().flatten());
        let parents: Vec<&str> = commit
            .parents
            .iter()
            .map(|parent| anew.get(parent.as_str()).map_or(parent.as_str(), String::as_str))
            .collect();
        let written = workshop.write("commit", &commit.write(&parents, committer))?;
        anew.insert(id.clone(), written);
        subjects.push(commit.subject());
    }
    let tip = anew.remove(tip.as_str()).ok_or_else(|| refused("the last of them is missing"))?;
    let risks =
        risks.into_iter().map(|((path, kind), why)| Passing { path, risk: Risk { kind, why } });
    let ids = found.commits.into_iter().map(|(id, _)| id).collect();
    Ok(Some(Kept { tip, starts: found.starts, subjects, ids, risks: risks.collect() }))
}
