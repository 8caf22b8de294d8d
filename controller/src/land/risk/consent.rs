//! Which flags of a landing still need a yes.

use super::{KINDS, Risk, RiskKind};
use crate::error::{Failure, Kind, Result};
use crate::land::card::Card;
use landbox_shared::id::SessionId;
use landbox_shared::path::RelPath;
use std::collections::{BTreeMap, BTreeSet};

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

/// Something that a landing brings although the card does not list it: a state of a file that a commit of the session's
/// holds, and what is in the layer does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passing {
    /// Below the project.
    pub path: RelPath,
    /// What deserves a second look.
    pub risk: Risk,
}

/// The kinds of risk that a landing of what `card` selects would bring, with what `passing` adds, and that nobody said
/// yes to.
pub fn open(card: &Card, passing: &[Passing], accepted: &[RiskKind]) -> Vec<Question> {
    let landing = card.changes.iter().filter(|c| c.landable && c.selected);
    let listed = landing.flat_map(|c| c.risks.iter().map(|r| (r.kind, c.path.as_slice())));
    let passing = passing.iter().map(|p| (p.risk.kind, p.path.as_bytes()));
    let found: BTreeSet<(RiskKind, &[u8])> = listed.chain(passing).collect();
    let mut counts: BTreeMap<RiskKind, u64> = BTreeMap::new();
    for (kind, _) in found.into_iter().filter(|(kind, _)| !accepted.contains(kind)) {
        *counts.entry(kind).or_default() += 1;
    }
    counts.into_iter().map(|(kind, changes)| Question { kind, changes }).collect()
}

/// Those of `passing` that the card does not list.
pub fn unlisted<'a>(card: &Card, passing: &'a [Passing]) -> Vec<&'a Passing> {
    let listed: BTreeSet<(RiskKind, &[u8])> =
        card.changes.iter().flat_map(|c| c.risks.iter().map(|r| (r.kind, &c.path[..]))).collect();
    let key = |p: &&Passing| !listed.contains(&(p.risk.kind, p.path.as_bytes()));
    passing.iter().filter(key).collect()
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
            let failure =
                Failure::new(Kind::Usage, format!("there is no kind of risk called {shown}"))
                    .hint(format!("the kinds are {}", all.join(", ")));
            let several: Vec<&str> = name.split([',', ' ']).collect();
            if several.len() > 1 && several.iter().all(|name| RiskKind::parse(name).is_some()) {
                return failure.hint(format!(
                    "each goes by itself: --accept-risk {}",
                    several.join(" --accept-risk ")
                ));
            }
            failure
        })
    };
    names.iter().map(one).collect()
}
