//! `--to-branch`: a commit on a new branch. Work tree, index and HEAD stay as they are.

use super::base::Ground;
use super::history::{History, Wanted};
use super::repo::{Repo, move_refs};
use super::run::{Git, outcome};
use super::workshop::Workshop;
use crate::error::{Failure, Kind, Result};
use crate::land::review::Review;
use crate::land::risk::consent::Passing;
use crate::session::store::Session;
use crate::ui::text::visible_name;

/// A branch that was made.
#[derive(Clone, Debug)]
pub struct Branch {
    /// The commit it is at.
    pub commit: String,
    /// Number of changes in it.
    pub changes: usize,
    /// Number of changes that git can't hold.
    pub unsaid: usize,
    /// Whether it starts from a commit before HEAD.
    pub past: bool,
    /// First line of the message of each commit of the session's that it holds, the oldest first.
    pub kept: Vec<String>,
}

/// Makes a branch of that name with the review's changes. Before anything of it is in the owner's repository, `agree` is
/// asked, with what the session's commits hold besides; `None` where it says no.
pub fn to_branch(
    session: &Session,
    review: &Review,
    name: &str,
    wanted: &Wanted<'_>,
    agree: impl FnOnce(&[Passing]) -> Result<bool>,
) -> Result<Option<Branch>> {
    let target = review.target();
    let repo = Repo::find(Git::find(target.as_path())?, target)?;
    let branch = free(&repo, name)?;
    let source = review.source();
    // Where all of it has landed, its commits may still be wanted.
    if source.sayable.changes.is_empty() && !wanted.keep {
        return Err(nothing());
    }
    let workshop = Workshop::open(&repo, &session.dir)?;
    let ground = || Ground::newest(&repo, &source);
    let history = History::make((session, &repo, &workshop), target, &source, wanted, ground)?;
    let History { tip: commit, ground, starts, kept, ids, risks, .. } = history;
    if !agree(&risks)? {
        return Ok(None);
    }
    let changes = source.sayable.changes.len();
    workshop.hand_over(&commit, &starts, changes + kept.len())?;
    move_refs(&repo, &format!("create {branch} {commit}\n"), "landbox: new branch")?;
    // Where that can't be noted, the session is only kept for longer.
    let _ = super::keep::note(&session.dir, &ids);
    let past = ground.commit != repo.head()?;
    Ok(Some(Branch { commit, changes, unsaid: source.sayable.unsaid, past, kept }))
}

/// The full name of a branch that may be made.
pub(super) fn free(repo: &Repo, name: &str) -> Result<String> {
    let full = format!("refs/heads/{name}");
    let mut check = repo.command();
    check.args(["check-ref-format", &full]);
    let shown = visible_name(name.as_bytes());
    // What no git command could name again is no name either.
    if name.starts_with('-') || name == "HEAD" || !outcome(&mut check)?.status.success() {
        return Err(Failure::new(Kind::Usage, format!("{shown} is no name for a branch")));
    }
    let mut find = repo.command();
    find.args(["show-ref", "--verify", "-q", &full]);
    if outcome(&mut find)?.status.success() {
        let other = another(repo, name)?;
        return Err(Failure::new(Kind::Refused, format!("there is a branch {shown} already"))
            .hint(format!(
                "another name is free: --to-branch {}",
                visible_name(other.as_bytes())
            )));
    }
    Ok(full)
}

/// A name like `name` that no branch has.
fn another(repo: &Repo, name: &str) -> Result<String> {
    let mut list = repo.command();
    list.args(["for-each-ref", "--format=%(refname)", "refs/heads"]);
    let taken = outcome(&mut list)?.stdout;
    let is_taken = |name: &String| {
        let full = format!("refs/heads/{name}");
        taken.split(|b| *b == b'\n').any(|line| line == full.as_bytes())
    };
    let mut names = (2u32..).map(|n| format!("{name}-{n}"));
    Ok(names.find(|name| !is_taken(name)).unwrap_or_else(|| name.to_owned()))
}

pub(super) fn nothing() -> Failure {
    Failure::new(Kind::Nothing, "there is nothing in it that a commit can hold")
        .hint("--apply in its place lands it")
}
