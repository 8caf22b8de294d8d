//! Who commits, and with what words.

use super::run::{Git, line, word};
use crate::error::{Failure, Kind, Result};
use crate::session::store::Session;
use std::path::Path;

/// A commit's head.
#[derive(Clone, Debug)]
pub struct Message {
    /// `NAME <EMAIL> SECONDS ZONE`.
    pub(super) author: String,
    /// The same of the owner.
    pub(super) committer: String,
    /// With a line end.
    pub(super) text: String,
}

impl Message {
    /// The owner's, with their words or ours.
    pub(super) fn of(
        git: &Git,
        folder: &Path,
        session: &Session,
        typed: Option<&str>,
    ) -> Result<Self> {
        let ident = |which: &str| -> Result<String> {
            let said = line(git.at(folder).args(["var", which]), "git doesn't know who you are");
            // Git goes on with the same advice at length.
            let first = |failure: Failure| {
                let message = failure.message.split("; ").next().unwrap_or_default().to_owned();
                Failure { message, ..failure }
            };
            let said = said.and_then(|said| word(&said)).map_err(|failure| {
                first(failure).hint("git config --global user.name and user.email say it")
            })?;
            if said.contains(['\n', '\0']) {
                return Err(Failure::new(Kind::Failed, "git doesn't know who you are"));
            }
            Ok(said)
        };
        let text = match typed {
            Some(text) if text.contains('\0') || text.trim().is_empty() => {
                return Err(Failure::new(Kind::Usage, "a commit message can't be empty"));
            }
            Some(text) => format!("{}\n", text.trim_end()),
            None => {
                let id = &session.snapshot.id;
                let name = session.snapshot.name.as_ref();
                let name = name.map_or_else(String::new, |name| format!(" ({name})"));
                format!("Land changes of session {id}{name}\n")
            }
        };
        Ok(Self {
            author: ident("GIT_AUTHOR_IDENT")?,
            committer: ident("GIT_COMMITTER_IDENT")?,
            text,
        })
    }
}
