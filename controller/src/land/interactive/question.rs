//! What the owner is asked: one decision, and the digest by which it is known again.

use super::item::Item;
use crate::land::digest::of_change;
use crate::land::hunks::{Hunk, TextChange, Wish};
use landbox_shared::digest::Digest;
use std::collections::HashMap;

/// What of a change is decided on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// The new permission bits of a file whose content changed, too.
    Mode,
    /// Some of its text.
    Hunk(Hunk),
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Of which item.
    pub item: usize,
    /// What of it.
    pub part: Part,
    /// What the owner said.
    pub answer: Option<Wish>,
    /// The same for the same content, wherever in the file it stands.
    pub digest: Digest,
}

impl Question {
    /// The questions of an item, with its hunks as git shows them.
    pub(super) fn all(index: usize, item: &Item) -> Vec<Self> {
        let Some(text) = &item.text else {
            return vec![ask(index, Part::Whole, of_change(&item.change))];
        };
        let mut out = Vec::new();
        if let Some((old, new)) = item.modes() {
            let parts = [item.path().as_bytes(), &old.to_le_bytes(), &new.to_le_bytes()];
            out.push(ask(index, Part::Mode, Digest::of("review mode 1", &parts)));
        }
        out.extend(hunks(index, item, text, text.hunks()));
        out
    }

    /// The questions that a hunk's parts are.
    pub(super) fn split(&self, item: &Item) -> Vec<Self> {
        match (&self.part, &item.text) {
            (Part::Hunk(hunk), Some(text)) if hunk.len() > 1 => {
                // Counted over the whole file, so that a part has the same name however it was come by.
                let single = (0..text.edits()).map(|at| at..at + 1).collect();
                let all = hunks(self.item, item, text, single);
                all[hunk.clone()].to_vec()
            }
            (Part::Whole | Part::Mode | Part::Hunk(_), _) => Vec::new(),
        }
    }
}

fn ask(item: usize, part: Part, digest: Digest) -> Question {
    Question { item, part, answer: None, digest }
}

fn hunks(index: usize, item: &Item, text: &TextChange, hunks: Vec<Hunk>) -> Vec<Question> {
    // The same lines may be changed in the same way twice in a file.
    let mut seen: HashMap<Digest, u64> = HashMap::new();
    let mut out = Vec::new();
    for hunk in hunks {
        let [lead, old, new, trail] = text.identity(&hunk);
        let parts = [item.path().as_bytes(), lead, old, new, trail];
        let digest = Digest::of("review hunk 1", &parts);
        let before = seen.entry(digest).or_default();
        let digest = Digest::of("review hunk 1 again", &[&digest.0, &before.to_le_bytes()]);
        *before += 1;
        out.push(ask(index, Part::Hunk(hunk), digest));
    }
    out
}
