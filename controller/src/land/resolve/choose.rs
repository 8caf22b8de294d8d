//! What the owner says about conflicts.

use super::Expect;
use crate::error::{Failure, Kind, Result};
use landbox_shared::path::RelPath;
use std::collections::BTreeMap;

/// What is done with one conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// What is really there stays; the session's change is dropped.
    Mine,
    /// The session's object replaces what is really there.
    Theirs,
    /// Both texts, with conflict markers around what clashes.
    Markers,
    /// Left for another time.
    Skip,
}

impl Choice {
    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Mine => "mine",
            Self::Theirs => "theirs",
            Self::Markers => "markers",
            Self::Skip => "skip",
        }
    }

    /// The choice of that name.
    pub fn parse(word: &str) -> Result<Self> {
        match word {
            "mine" => Ok(Self::Mine),
            "theirs" => Ok(Self::Theirs),
            "markers" => Ok(Self::Markers),
            "skip" => Ok(Self::Skip),
            _ => {
                let word = crate::ui::text::visible(word.as_bytes());
                Err(Failure::new(Kind::Usage, format!("a conflict can't be resolved by {word}"))
                    .hint("the choices are mine, theirs, markers and skip"))
            }
        }
    }
}

/// One choice, and what the owner saw when they made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The choice.
    pub choice: Choice,
    /// What was really there; the choice holds for nothing else. `None` for whatever is there.
    pub seen: Option<Expect>,
}

/// Every choice of a landing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// For every conflict without a choice of its own.
    pub all: Option<Choice>,
    /// Per path; that of a folder holds for what lies below it.
    pub paths: BTreeMap<RelPath, Chosen>,
}

impl Choices {
    /// Adds a choice for a path.
    pub fn set(&mut self, path: RelPath, choice: Choice) {
        self.paths.insert(path, Chosen { choice, seen: None });
    }

    /// The choice for a conflict at `path`, where `real` is what is there.
    pub(super) fn of(&self, path: &RelPath, real: &Expect) -> Option<Choice> {
        let mut at = Some(path.clone());
        while let Some(here) = at {
            if let Some(Chosen { choice, seen }) = self.paths.get(&here) {
                let holds = seen.as_ref().is_none_or(|seen| seen.node() == real.node());
                return holds.then_some(*choice);
            }
            at = here.parent();
        }
        self.all
    }
}
