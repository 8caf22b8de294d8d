//! Which flags of a landing still need a yes.

use super::{KINDS, RiskKind};
use crate::error::{Failure, Kind, Result};
use crate::land::card::Card;
use landbox_shared::id::SessionId;
use std::collections::BTreeMap;

/// One kind of risk in a landing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The kind.
    pub kind: RiskKind,
    /// Number of changes that have it.
    pub changes: u64,
}

impl Question {
    /// The question for a terminal.
    pub fn ask(&self) -> String {
        let files = if self.changes == 1 { "file" } else { "files" };
        format!(
            "Risk {}: {} {files} that {}. Land with it?",
            self.kind,
            self.changes,
            self.kind.does()
        )
    }
}

/// The kinds of risk that a landing of what `card` selects would bring and that nobody said yes to.
pub fn open(card: &Card, accepted: &[RiskKind]) -> Vec<Question> {
    let mut counts: BTreeMap<RiskKind, u64> = BTreeMap::new();
    let landing = card.changes.iter().filter(|c| c.landable && c.selected);
    for risk in landing.flat_map(|change| &change.risks) {
        *counts.entry(risk.kind).or_default() += 1;
    }
    counts.retain(|kind, _| !accepted.contains(kind));
    counts.into_iter().map(|(kind, changes)| Question { kind, changes }).collect()
}

/// Refuses a landing with risks that nobody said yes to.
pub fn refuse(id: &SessionId, open: &[Question]) -> Result<()> {
    if open.is_empty() {
        return Ok(());
    }
    let words: Vec<String> = open.iter().map(|q| format!("{} ({})", q.kind, q.changes)).collect();
    let flags: Vec<String> = open.iter().map(|q| format!("--accept-risk {}", q.kind)).collect();
    let message =
        format!("nothing was changed: these risks need a yes of their own: {}", words.join(", "));
    Err(Failure::new(Kind::Refused, message)
        .hint(format!("landbox diff {id} shows which files they are, and why"))
        .hint(format!("once they have been looked at: {}", flags.join(" "))))
}

/// The kinds named on a command line.
pub fn parse(names: &[String]) -> Result<Vec<RiskKind>> {
    let one = |name: &String| {
        RiskKind::parse(name).ok_or_else(|| {
            let shown = crate::ui::text::visible(name.as_bytes());
            let all: Vec<&str> = KINDS.iter().map(|kind| kind.name()).collect();
            Failure::new(Kind::Usage, format!("there is no kind of risk called {shown}"))
                .hint(format!("the kinds are {}", all.join(", ")))
        })
    };
    names.iter().map(one).collect()
}
