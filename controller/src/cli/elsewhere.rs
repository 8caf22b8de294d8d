//! Landing somewhere else than in the work tree: a patch, a mail, a branch.

use super::Invocation;
use crate::error::{Context, Failure, Kind, Result};
use crate::land::card::Card;
use crate::land::review::Review;
use crate::land::risk::RiskKind;
use crate::land::risk::consent::{self, Passing};
use crate::land::{git, undo};
use crate::session::store::{Session, StateDir, show};
use crate::ui::text::{counted, visible_name};
use clap::Args;
use landbox_shared::id::SessionId;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct ElsewhereArgs {
    /// Write the patch to FILE (`-` for stdout) and apply nothing
    #[arg(long, value_name = "FILE", group = "elsewhere", conflicts_with = "apply")]
    patch: Option<PathBuf>,
    /// Write a mail for `git am` to FILE (`-` for stdout) and apply nothing
    #[arg(long, value_name = "FILE", group = "elsewhere", conflicts_with = "apply")]
    mbox: Option<PathBuf>,
    /// Commit to a new branch NAME and apply nothing: work tree, index and HEAD stay as they are
    #[arg(long, value_name = "NAME", group = "elsewhere", conflicts_with = "apply")]
    to_branch: Option<String>,
    /// Apply, and commit what landed on the branch that is checked out
    #[arg(long, conflicts_with = "elsewhere")]
    pub commit: bool,
    /// With --to-branch or --commit: keep the commits that the session made, and add one of what it had not committed
    #[arg(long)]
    keep_commits: bool,
    /// Message of the commit, of the branch or of the mail
    #[arg(short, long, value_name = "TEXT", conflicts_with = "patch")]
    message: Option<String>,
}

impl ElsewhereArgs {
    /// Refuses what says nothing, or what can't be done. `chooses` says that only a part is to land.
    pub(super) fn check(&self, chooses: bool) -> Result<()> {
        if self.message.is_some() && !self.commit && self.mbox.is_none() && self.to_branch.is_none()
        {
            return Err(Failure::new(Kind::Usage, "there is nothing to give a message to")
                .hint("-m goes with --commit, --to-branch or --mbox"));
        }
        if self.keep_commits && (self.mbox.is_some() || self.patch.is_some()) {
            let text =
                "a patch or a mail holds one change: the session's commits have no place in it";
            return Err(Failure::new(Kind::Usage, text).hint(
                "--to-branch NAME --keep-commits makes a branch of them; git format-patch then makes mails of it",
            ));
        }
        if self.keep_commits && !self.commit && self.to_branch.is_none() {
            return Err(Failure::new(Kind::Usage, "there is nothing to keep commits in")
                .hint("--keep-commits goes with --commit or --to-branch"));
        }
        if self.keep_commits && chooses {
            let text =
                "the session's commits are kept whole or not at all: no part of them can be chosen";
            return Err(Failure::new(Kind::Usage, text)
                .hint("leave out --keep-commits: what is chosen lands as one commit")
                .hint("or leave out the choice: --to-branch NAME --keep-commits makes a branch to pick from with git"));
        }
        Ok(())
    }

    /// Whether there may be something to do although no change is left: the commits of what has landed.
    pub(super) fn may_be_all_landed(&self) -> bool {
        self.keep_commits && self.to_branch.is_some()
    }

    /// Whether it goes somewhere else.
    pub(super) fn is_asked(&self) -> bool {
        self.patch.is_some() || self.mbox.is_some() || self.to_branch.is_some()
    }

    /// Lands where it was asked to, if that is somewhere else. Gives whether it was.
    pub(super) fn land(
        &self,
        call: &Invocation,
        session: &Session,
        review: &Review,
        accepted: &[RiskKind],
    ) -> Result<bool> {
        if !self.is_asked() {
            return Ok(false);
        }
        let card = review.card(session)?;
        let message = self.message.as_deref();
        if let Some(file) = &self.patch {
            write_file(call, file, "patch", &mut |out| review.write_patch(out))?;
            exported(call, &card, "patch");
        } else if let Some(file) = &self.mbox {
            let mut folder = None;
            write_file(call, file, "mail", &mut |out| {
                folder = git::write_mail(session, review, message, out)?;
                Ok(())
            })?;
            if let Some(folder) = folder {
                call.ui.status(format!("It is for git am --directory={folder}."));
            }
            exported(call, &card, "mail");
        } else if let Some(name) = &self.to_branch {
            let id = &session.snapshot.id;
            let agree = |passing: &[Passing]| {
                passing_risks(call, &card, passing);
                let open = consent::open(&card, passing, accepted);
                if !call.ui.is_interactive() {
                    return consent::refuse(id, &open).map(|()| true);
                }
                Ok(open.iter().all(|q| call.ui.confirm(&q.ask()) == Some(true)))
            };
            match git::to_branch(session, review, name, &self.wanted(), agree)? {
                Some(branch) => self.tell(call, id, name, &branch),
                None => {
                    call.ui.status("Nothing was changed.");
                    return Ok(true);
                }
            }
        }
        if call.ui.json {
            call.ui.document(&card)?;
        }
        Ok(true)
    }

    fn tell(&self, call: &Invocation, id: &SessionId, name: &str, branch: &git::Branch) {
        let name = visible_name(name.as_bytes());
        let commit = short(&branch.commit);
        let changes = counted(branch.changes as u64, "change", "changes");
        call.ui.status(format!("Made the branch {name} with {changes} ({commit})."));
        if branch.past {
            call.ui.status("It starts from the commit that the session saw, not from HEAD.");
        }
        list(call, &branch.kept);
        unsaid(call, id, branch.unsaid);
    }

    fn wanted(&self) -> git::Wanted<'_> {
        git::Wanted { message: self.message.as_deref(), keep: self.keep_commits }
    }

    /// Whether a commit can be made at all: asked before anything else is.
    pub(super) fn ready(&self, session: &Session) -> Result<()> {
        if self.commit { git::ready_to_commit(&session.snapshot.policy.project) } else { Ok(()) }
    }

    /// Makes the commit of what is to land, where one was asked for.
    pub(super) fn prepare(
        &self,
        call: &Invocation,
        session: &Session,
        review: &Review,
    ) -> Result<Option<git::Prepared>> {
        if self.commit
            && let Some((path, why)) = review.resolution().uncommittable()
        {
            let path = visible_name(path.as_bytes());
            let text =
                format!("there is no commit of the session's changes alone with {path}: {why}");
            return Err(Failure::new(Kind::Conflict, text)
                .hint("leave it out with --exclude, or land it with --apply and commit it with git")
                .hint(
                    "--to-branch NAME in the place of --commit makes a branch that git can merge",
                ));
        }
        let wanted = self.wanted();
        let prepared = self.commit.then(|| git::Prepared::of(session, review, &wanted));
        let prepared = prepared.transpose()?;
        if let Some(prepared) = &prepared {
            list(call, &prepared.kept);
        }
        Ok(prepared)
    }
}

/// Says what deserves a second look in what was written to a file: whoever applies that is not asked.
fn exported(call: &Invocation, card: &Card, word: &str) {
    let kinds = consent::open(card, &[], &[]);
    if kinds.is_empty() {
        return;
    }
    let kinds: Vec<String> = kinds.iter().map(|q| format!("{} ({})", q.kind, q.changes)).collect();
    call.ui.warning(format!(
        "whoever applies the {word} should know these risks: {}; landbox diff {} says which files they are, and why",
        kinds.join(", "),
        card.session
    ));
}

/// Names what only the session's own commits hold: no card lists it.
pub(super) fn passing_risks(call: &Invocation, card: &Card, passing: &[Passing]) {
    const NAMED: usize = 20;
    let unlisted = consent::unlisted(card, passing);
    for Passing { path, risk } in unlisted.iter().take(NAMED) {
        call.ui.warning(format!(
            "a commit of the session holds {}: risk {}: {}",
            visible_name(path.as_bytes()),
            risk.kind,
            crate::ui::text::visible(risk.why.as_bytes())
        ));
    }
    if let Some(more) = unlisted.len().checked_sub(NAMED).filter(|more| *more > 0) {
        call.ui.warning(format!("and {more} more risks in commits of the session"));
    }
}

/// Commits what has landed.
pub(super) fn commit(
    call: &Invocation,
    (state, session): (&StateDir, &Session),
    prepared: git::Prepared,
) -> Result<()> {
    let left = prepared.unsaid;
    let done = prepared.finish()?;
    let id = &session.snapshot.id;
    // For whoever undoes the landing: nothing else depends on it.
    let _ = undo::note_commit(state, id, &done.commit, done.parent.as_deref());
    let commit = short(&done.commit);
    call.ui.status(match &done.branch {
        Some(branch) => format!("Committed it on {} ({commit}).", visible_name(branch.as_bytes())),
        None => format!("Committed it; HEAD is at no branch ({commit})."),
    });
    unsaid(call, id, left);
    Ok(())
}

/// The session's own commits, by the first line of what they say.
fn list(call: &Invocation, kept: &[String]) {
    if kept.is_empty() {
        return;
    }
    let commits = counted(kept.len() as u64, "commit", "commits");
    call.ui.status(format!("With {commits} that the session made:"));
    for subject in kept {
        let subject = crate::ui::text::visible(subject.as_bytes());
        call.ui.status(format!("  | {}", crate::ui::text::cut(&subject, 100).0));
    }
}

fn unsaid(call: &Invocation, id: &SessionId, count: usize) {
    if count > 0 {
        let changes = counted(count as u64, "change is", "changes are");
        call.ui.warning(format!(
            "{changes} not in the commit, because git can't hold that; landbox diff {id} says which"
        ));
    }
}

pub(super) fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

fn write_file(
    call: &Invocation,
    file: &Path,
    word: &str,
    write: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    if file == Path::new("-") {
        if call.ui.json {
            let what = format!("--json and a {word} both want stdout");
            return Err(Failure::new(Kind::Usage, what).hint("give it a file"));
        }
        return call.ui.patch(true, |out| write(out));
    }
    let what = || format!("can't write {}", show(file));
    // A device or a pipe (/dev/stdout, /dev/null) is written to; only a file may be replaced, where its links lead.
    let place = match std::fs::metadata(file) {
        Ok(meta) if meta.is_file() => std::fs::canonicalize(file).context(what)?,
        Ok(_) => {
            let out = std::fs::File::options().write(true).open(file).context(what)?;
            return call.ui.patch_to(out, true, |out| write(out));
        }
        Err(_) => file.to_owned(),
    };
    let dir = place.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // As the umask says: what a patch quotes may be private.
    let mut out = tempfile::Builder::new()
        .prefix(".landbox-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .tempfile_in(dir)
        .context(what)?;
    write(out.as_file_mut())?;
    out.persist(&place).context(what)?;
    call.ui.status(format!("Wrote the {word} to {}.", show(file)));
    Ok(())
}
