//! `--commit`: what lands is committed on the branch that is checked out, and nothing else is.
//!
//! The commit is made first, from HEAD; then the landing happens; then the branch moves, if it is still where it was; then
//! the index is told about the paths that landed. What the owner has staged at other paths stays staged.

use super::base::Ground;
use super::branch::nothing;
use super::history::{History, Wanted};
use super::repo::{Entry, Repo, move_refs};
use super::run::{Git, given, output, word};
use super::stream::Written;
use super::workshop::Workshop;
use crate::error::{Failure, Kind, Result};
use crate::land::review::Review;
use crate::land::risk::consent::Passing;
use crate::session::store::Session;
use crate::ui::text::visible_name;
use landbox_shared::path::AbsPath;
use std::collections::{HashMap, HashSet};

/// What git keeps while something is under way that a commit would break.
const UNDER_WAY: [(&str, &str); 6] = [
    ("MERGE_HEAD", "a merge"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase, or git am,"),
    ("sequencer", "a series of picks"),
];

/// A commit that waits for its landing.
#[derive(Debug)]
pub struct Prepared {
    repo: Repo,
    workshop: Workshop,
    commit: String,
    parent: Option<String>,
    branch: Option<String>,
    written: Vec<Written>,
    starts: Vec<String>,
    /// The session's folder, and the names that its commits had in it.
    ids: (std::path::PathBuf, Vec<String>),
    /// Number of changes that land but that git can't hold.
    pub unsaid: usize,
    /// First line of the message of each commit of the session's that comes with it, the oldest first.
    pub kept: Vec<String>,
    /// What deserves a second look in those.
    pub risks: Vec<Passing>,
}

/// A landing that was committed.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The commit.
    pub commit: String,
    /// The commit before it.
    pub parent: Option<String>,
    /// The branch it is on; `None` where HEAD is at no branch.
    pub branch: Option<String>,
}

/// Fails where nothing can be committed in the repository of `project`, or there is none.
pub fn ready_to_commit(project: &AbsPath) -> Result<()> {
    let repo = Repo::find(Git::find(project.as_path())?, project)?;
    refuse_under_way(&repo)
}

impl Prepared {
    /// Makes the commit of the review's changes. Nothing points to it yet.
    pub fn of(session: &Session, review: &Review, wanted: &Wanted<'_>) -> Result<Self> {
        let target = review.target();
        let repo = Repo::find(Git::find(target.as_path())?, target)?;
        refuse_under_way(&repo)?;
        let branch = repo.branch()?;
        let source = review.source();
        if source.sayable.changes.is_empty() {
            return Err(nothing());
        }
        let workshop = Workshop::open(&repo, &session.dir)?;
        let undone = !session.state.landing.undone.is_empty();
        let ground = || Ground::head(&repo, &source, undone);
        let history = History::make((session, &repo, &workshop), target, &source, wanted, ground)?;
        let History { tip: commit, ground, written, starts, kept, ids, risks } = history;
        if ground.commit != repo.head()? {
            let text = "the session's commits start from another commit than HEAD";
            return Err(Failure::new(Kind::Conflict, text)
                .hint("--to-branch NAME --keep-commits makes a branch of them"));
        }
        refuse_staged(&repo, &written, &ground)?;
        let unsaid = source.sayable.unsaid;
        let parent = ground.commit;
        let ids = (session.dir.clone(), ids);
        Ok(Self {
            repo,
            workshop,
            commit,
            parent,
            branch,
            written,
            starts,
            ids,
            unsaid,
            kept,
            risks,
        })
    }

    /// Writes the commit to the owner's repository, for a landing that is about to happen. Still nothing points to it.
    pub fn store(&self) -> Result<()> {
        let objects = self.written.len() + self.kept.len();
        self.workshop.hand_over(&self.commit, &self.starts, objects)
    }

    /// Moves the branch, once what is in the commit has landed.
    pub fn finish(self) -> Result<Committed> {
        let Self { repo, commit, parent, branch, written, ids, .. } = self;
        // The rest of the message is for whoever must go on by hand.
        let later = |failure: Failure, what: &str, hint: String| {
            let message = format!("all of it landed, but {what}: {}", failure.message);
            Failure { message, ..failure }.hint(hint)
        };
        let line = match (&branch, &parent) {
            (Some(branch), Some(parent)) => format!("update {branch} {commit} {parent}\n"),
            (Some(branch), None) => format!("create {branch} {commit}\n"),
            (None, Some(parent)) => format!("option no-deref\nupdate HEAD {commit} {parent}\n"),
            (None, None) => format!("option no-deref\ncreate HEAD {commit}\n"),
        };
        let moved = match repo.branch()? == branch {
            true => move_refs(&repo, &line, "commit: landbox land"),
            false => Err(Failure::new(Kind::Failed, "another branch is checked out now")),
        };
        moved.map_err(|failure| {
            later(failure, "it is not committed", format!("the commit is there: git show {commit}"))
        })?;
        // Where that can't be noted, the session is only kept for longer.
        let _ = super::keep::note(&ids.0, &ids.1);
        update_index(&repo, &written).map_err(|failure| {
            let hint = "git reset -q puts the index right, but also unstages what you staged";
            later(failure, "the index does not know of the commit yet", hint.into())
        })?;
        let branch = branch.map(|name| name.trim_start_matches("refs/heads/").to_owned());
        Ok(Committed { commit, parent, branch })
    }
}

fn refuse_under_way(repo: &Repo) -> Result<()> {
    for (name, what) in UNDER_WAY {
        if repo.git_dir.join(name).symlink_metadata().is_ok() {
            return Err(Failure::new(
                Kind::Refused,
                format!("{what} is under way in the repository"),
            )
            .hint("finish or abort it first; --apply in the place of --commit lands without one"));
        }
    }
    if repo.git_dir.join("index.lock").symlink_metadata().is_ok() {
        return Err(Failure::new(
            Kind::Refused,
            "another git command is at work in the repository",
        )
        .hint("try again when it is done; one that was killed leaves index.lock behind"));
    }
    Ok(())
}

/// Refuses where the owner has staged something at a path that is to be committed.
fn refuse_staged(repo: &Repo, written: &[Written], ground: &Ground) -> Result<()> {
    let list = output(repo.command().args(["ls-files", "-s", "-z"]), "can't read the index")?;
    let mut index: HashMap<&[u8], Entry> = HashMap::new();
    for line in list.split(|b| *b == 0).filter(|line| !line.is_empty()) {
        let Some(tab) = line.iter().position(|b| *b == b'\t') else { continue };
        let (facts, name) = (word(&line[..tab])?, &line[tab + 1..]);
        let parts: Vec<&str> = facts.split(' ').collect();
        let [mode, id, stage] = parts[..] else { continue };
        if stage != "0" {
            return Err(Failure::new(Kind::Refused, "the index holds conflicts of a merge")
                .hint("resolve them first; --apply in the place of --commit lands without one"));
        }
        index.insert(name, Entry { mode: mode.to_owned(), id: id.to_owned() });
    }
    for (name, _) in written {
        if index.get(name.as_slice()) != ground.entries.get(name) {
            let name = visible_name(name);
            return Err(Failure::new(
                Kind::Conflict,
                format!("you have staged a change to {name}, which this commit would take in"),
            )
            .hint("commit or unstage it first, or leave the path out with --exclude"));
        }
    }
    Ok(())
}

/// Makes the index agree with the commit at the paths that landed, and leaves every other entry alone.
fn update_index(repo: &Repo, written: &[Written]) -> Result<()> {
    let mut lines = Vec::new();
    // Names that go first: one of them may be a folder of one that comes.
    for (name, entry) in written {
        if entry.is_none() {
            lines.extend_from_slice(b"0 ");
            lines.extend(repo.format.nothing().bytes());
            lines.extend([b"\t", name.as_slice(), b"\0"].concat());
        }
    }
    for (name, entry) in written {
        if let Some(Entry { mode, id }) = entry {
            lines.extend(format!("{mode} {id}\t").bytes());
            lines.extend([name.as_slice(), b"\0"].concat());
        }
    }
    let flagged = flagged(repo, written)?;
    let update = |how: &[&str], lines: &[u8]| {
        let mut command = repo.command();
        command.args(["update-index", "-z"]).args(how);
        given(&mut command, "can't write the index", lines).map(drop)
    };
    update(&["--index-info"], &lines)?;
    // An entry that is written anew has lost what its owner has said of it.
    for (flag, names) in flagged {
        if !names.is_empty() {
            update(&[flag, "--stdin"], &names)?;
        }
    }
    Ok(())
}

/// The paths among those written that the owner has told git not to compare, each ended by NUL, by the flag that says so.
fn flagged(repo: &Repo, written: &[Written]) -> Result<[(&'static str, Vec<u8>); 2]> {
    let stay = written.iter().filter(|(_, entry)| entry.is_some());
    let stay: HashSet<&[u8]> = stay.map(|(name, _)| name.as_slice()).collect();
    let (mut skipped, mut assumed) = (Vec::new(), Vec::new());
    let list = output(repo.command().args(["ls-files", "-v", "-z"]), "can't read the index")?;
    for line in list.split(|b| *b == 0) {
        let Some((tag, [b' ', name @ ..])) = line.split_first() else { continue };
        if !stay.contains(name) {
            continue;
        }
        if tag.eq_ignore_ascii_case(&b'S') {
            skipped.extend([name, b"\0"].concat());
        }
        if tag.is_ascii_lowercase() {
            assumed.extend([name, b"\0"].concat());
        }
    }
    Ok([("--skip-worktree", skipped), ("--assume-unchanged", assumed)])
}
