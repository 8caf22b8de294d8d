//! The commits of a landing: one of ours, or the session's own and one of what it had not committed.

use super::Source;
use super::base::Ground;
use super::keep::{Bounds, keep};
use super::message::Message;
use super::repo::Repo;
use super::stream::{Onto, Written, make};
use super::workshop::Workshop;
use crate::error::{Failure, Kind, Result};
use crate::land::risk::consent::Passing;
use crate::session::store::Session;
use landbox_shared::path::AbsPath;

/// What was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// The message of our own commit.
    pub message: Option<&'a str>,
    /// Whether to keep the session's commits.
    pub keep: bool,
}

/// Commits that were made in the workshop.
#[derive(Debug)]
pub(super) struct History {
    /// The last of them.
    pub tip: String,
    /// What they lie on.
    pub ground: Ground,
    /// Every path that differs from there.
    pub written: Vec<Written>,
    /// The owner's commits that they start from.
    pub starts: Vec<String>,
    /// First line of each of the session's messages.
    pub kept: Vec<String>,
    /// The names of its commits in the session.
    pub ids: Vec<String>,
    /// What deserves a second look in them.
    pub risks: Vec<Passing>,
}

impl History {
    /// Makes them. `ground` gives the commit they are to lie on, where the session made none of its own.
    pub(super) fn make(
        (session, repo, workshop): (&Session, &Repo, &Workshop),
        project: &AbsPath,
        source: &Source<'_>,
        wanted: &Wanted<'_>,
        ground: impl FnOnce() -> Result<Ground>,
    ) -> Result<Self> {
        let message = Message::of(&repo.git, &repo.top, session, wanted.message)?;
        let home = &session.snapshot.policy.home;
        let bounds = Bounds { repo, project, home, masks: source.masks, layer: source.layer };
        let kept = match wanted.keep {
            true => keep(session, &bounds, workshop, &message.committer)?,
            false => None,
        };
        let Some(kept) = kept else {
            if wanted.keep {
                let text = "the session made no commits that you do not have";
                return Err(Failure::new(Kind::Nothing, text).hint("leave out --keep-commits"));
            }
            let ground = ground()?;
            let onto = Onto { parent: ground.commit.as_deref(), tree: None };
            let (tip, written) = make(repo, workshop, source, &ground, &onto, &message)?;
            let starts = ground.commit.iter().cloned().collect();
            let (kept, ids, risks) = (Vec::new(), Vec::new(), Vec::new());
            return Ok(Self { tip, ground, written, starts, kept, ids, risks });
        };
        // What has landed is no change any more, so the last commit would take it back.
        let landing = &session.state.landing;
        let landed = landing.count as usize > landing.undone.len();
        if landed && !source.sayable.changes.is_empty() {
            let id = &session.snapshot.id;
            let text = "a part of what the session changed has landed already, so its commits and the rest do not go together";
            return Err(Failure::new(Kind::Refused, text)
                .hint("land the rest, too; then --to-branch NAME --keep-commits still takes the commits")
                .hint(format!("or take the landing back first: landbox undo {id}")));
        }
        // The files are what the card says, whatever the commits say: the last commit makes the difference.
        let ground = Ground::among(repo, source, kept.starts.iter().cloned())?;
        let base = ground.commit.as_deref().unwrap_or_default();
        let tree = workshop.object(&format!("{base}^{{tree}}"))?;
        let starts = kept.starts.into_iter().collect();
        let (subjects, ids, risks) = (kept.subjects, kept.ids, kept.risks);
        let (tip, written) = if source.sayable.changes.is_empty() {
            (kept.tip, Vec::new())
        } else {
            let onto = Onto { parent: Some(&kept.tip), tree: Some(&tree) };
            let (last, written) = make(repo, workshop, source, &ground, &onto, &message)?;
            let same = workshop.object(&format!("{last}^{{tree}}"))?
                == workshop.object(&format!("{}^{{tree}}", kept.tip))?;
            (if same { kept.tip } else { last }, written)
        };
        Ok(Self { tip, ground, written, starts, kept: subjects, ids, risks })
    }
}
