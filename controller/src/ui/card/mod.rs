//! The review card on a terminal. Every change of the selection has its line: only the text of the diff is ever cut.

mod line;
mod next;
#[cfg(test)]
mod tests;

use super::patch::Preview;
use super::text::{counted, visible_name};
use crate::land::card::{Card, CardChange};
use crate::land::kind::{ChangeState, Durability, EntryType, Group};
use crate::land::risk::RiskKind;
use line::{folder, is_plain, one, summary};
pub(crate) use next::word;
pub use next::{Asked, Past};
use std::collections::BTreeMap;
use std::fmt::Write;

/// How to show a card.
#[derive(Clone, Copy, Debug, Default)]
pub struct View<'a> {
    /// The first lines of the patch.
    pub preview: Option<&'a Preview>,
    /// Whether to say what to type next.
    pub next: bool,
    /// What was asked for besides the session.
    pub asked: Option<&'a Asked>,
    /// Whether to say that the layer is not all on disk: where nothing is about to write it there.
    pub storage: bool,
    /// Whether folders with many plain changes get one line for all of them.
    pub summarise: bool,
    /// Whether to colour.
    pub color: bool,
}

/// From so many changes on, folders are summarised.
const MANY: usize = 100;
/// So many plain changes of one folder are listed in any case.
const FEW: usize = 12;

/// Where the names begin: what stands before is ours and plain, so a name cannot push it about.
const COLUMN: usize = 34;

/// The card as lines of text.
pub fn render(card: &Card, view: &View<'_>) -> String {
    let mut page = Page { text: String::new(), color: view.color };
    head(&mut page, card, view);
    let mut changes: Vec<&CardChange> = card.changes.iter().filter(|c| c.selected).collect();
    changes.sort_by(|a, b| folder(&a.path).cmp(folder(&b.path)).then(a.path.cmp(&b.path)));
    if !changes.is_empty() {
        page.line("");
    }
    let summarise = view.summarise && changes.len() > MANY;
    for group in changes.chunk_by(|a, b| folder(&a.path) == folder(&b.path)) {
        let (plain, telling): (Vec<_>, Vec<_>) = group.iter().partition(|c| is_plain(c));
        if summarise && plain.len() > FEW {
            summary(&mut page, &plain);
            telling.into_iter().for_each(|change| one(&mut page, change));
        } else {
            group.iter().for_each(|change| one(&mut page, change));
        }
    }
    let rest: Vec<&CardChange> = card.changes.iter().filter(|c| !c.selected).collect();
    left_out(&mut page, &rest);
    if let Some(preview) = view.preview {
        show_preview(&mut page, preview, card, view);
    }
    if view.next {
        next::next(&mut page, card, view);
    }
    page.text
}

/// One change as the card shows it, with its notes.
pub fn render_change(change: &CardChange, color: bool) -> String {
    let mut page = Page { text: String::new(), color };
    one(&mut page, change);
    page.text
}

struct Page {
    text: String,
    color: bool,
}

const BOLD: &str = "\x1b[1m";
const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";

impl Page {
    fn line(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn field(&mut self, name: &str, value: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "  {name:<8} {value}");
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.color && !text.is_empty() {
            format!("{code}{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn lines(&self, added: u64, deleted: u64) -> String {
        let added = self.paint(GREEN, &format!("+{added}"));
        let deleted = self.paint(RED, &format!("-{deleted}"));
        format!("{added} {deleted}")
    }
}

/// How many of each are selected.
fn files_and_folders(card: &Card) -> String {
    let is_folder = |c: &&CardChange| {
        c.selected && c.new_type.or(c.old_type).is_some_and(|kind| kind == EntryType::Dir)
    };
    let folders = card.changes.iter().filter(is_folder).count() as u64;
    let files = card.files.saturating_sub(folders);
    match (files, folders) {
        (_, 0) => counted(files, "file", "files"),
        (0, _) => counted(folders, "folder", "folders"),
        (_, _) => {
            let folders = counted(folders, "folder", "folders");
            format!("{} and {folders}", counted(files, "file", "files"))
        }
    }
}

fn head(page: &mut Page, card: &Card, view: &View<'_>) {
    let title = if card.applied { "Landed changes of" } else { "Changes of" };
    page.line(&page.paint(BOLD, &format!("{title} session {}", card.session)));
    for target in &card.targets {
        page.field("into", &visible_name(target.as_bytes()));
    }
    if let Some(asked) = view.asked {
        next::past(page, asked);
    }
    let files = files_and_folders(card);
    page.field("changes", &format!("{files}, {}", page.lines(card.added, card.deleted)));
    if card.groups.ignored > 0 {
        let count = counted(card.groups.ignored, "file", "files");
        let included = card.changes.iter().any(|c| c.selected && c.group == Group::Ignored);
        let what = if included { "included" } else { "left out; --with-ignored takes them in" };
        page.field("ignored", &format!("{count} covered by the project's ignore rules, {what}"));
    }
    if card.unchosen > 0 {
        let count = counted(card.unchosen, "file", "files");
        page.field("others", &format!("{count} that you did not choose, kept for later"));
    }
    if card.groups.git > 0 {
        let count = counted(card.groups.git, "file", "files");
        page.field("git", &format!("{count} of git's own, never landed"));
    }
    for other in &card.other_layers {
        let count = counted(other.files, "file", "files");
        // The project stands here where another layer is looked at.
        let what = match other.layer.as_str() {
            "project" => "in the project: landbox diff without --layer shows them",
            _ => "kept for resume, never landed",
        };
        page.field(other.layer.as_str(), &format!("{count}, {what}"));
    }
    let count = |state| card.changes.iter().filter(|c| c.state == state).count();
    let mut met = |name: &str, state, text: &str| match count(state) {
        0 => {}
        n => {
            let text = page.paint(YELLOW, &format!("{n} {text}"));
            page.field(name, &text);
        }
    };
    met("merged", ChangeState::Merged, "with edits of your own");
    met("drift", ChangeState::Drifted, "changed in the project meanwhile");
    met(
        "conflict",
        ChangeState::Conflict,
        "with edits of your own: --resolve PATH=mine|theirs|markers|skip",
    );
    let mut risks: BTreeMap<RiskKind, u64> = BTreeMap::new();
    let landing = card.changes.iter().filter(|c| c.landable && c.selected);
    landing.flat_map(|c| &c.risks).for_each(|risk| *risks.entry(risk.kind).or_default() += 1);
    if !risks.is_empty() {
        let words: Vec<String> = risks.iter().map(|(kind, n)| format!("{kind} ({n})")).collect();
        let text = format!("{}; each kind needs a yes of its own", words.join(", "));
        page.field("risks", &page.paint(YELLOW, &text));
    }
    page.field("digest", &card.digest.to_string());
    match card.durability {
        Durability::Synced => {}
        Durability::Unsynced if !view.storage && !card.applied => {}
        Durability::Unsynced => {
            page.field("storage", "not yet all on disk: a power cut could lose some")
        }
    }
}

/// Changes outside the selection, by their topmost folder: `node_modules` has no place on a card line by line.
fn left_out(page: &mut Page, changes: &[&CardChange]) {
    let mut tops: BTreeMap<(Group, &[u8]), (u64, u64)> = BTreeMap::new();
    for change in changes {
        let end =
            change.path.iter().position(|b| *b == b'/').map_or(change.path.len(), |at| at + 1);
        let (count, runs) = tops.entry((change.group, &change.path[..end])).or_default();
        *count += 1;
        *runs += u64::from(is_hook(change));
    }
    if !tops.is_empty() {
        page.line("");
    }
    for ((group, top), (count, runs)) in tops {
        let word = match group {
            Group::Project => "project",
            Group::Ignored => "ignored",
            Group::Git => "git",
        };
        let mut count = counted(count, "file", "files");
        if group == Group::Project {
            count.push_str(", for later");
        }
        page.line(&format!("  {word:<9}   {count:<20}  {}", visible_name(top)));
        if runs > 0 {
            let text =
                format!("among them {}", counted(runs, "hook or setting", "hooks or settings"));
            let text = page.paint(YELLOW, &format!("{text} that git would run programs by"));
            page.line(&format!("{:COLUMN$}    {text}", ""));
        }
    }
}

/// Whether a change to git's own files is to its hooks or configuration.
fn is_hook(change: &CardChange) -> bool {
    let path = change.path.to_ascii_lowercase();
    let mut parts = path.split(|b| *b == b'/').skip_while(|part| *part != b".git").skip(1);
    let told = parts.any(|part| [&b"hooks"[..], b"config", b"config.worktree"].contains(&part));
    change.group == Group::Git && change.new_type.is_some() && told
}

fn show_preview(page: &mut Page, preview: &Preview, card: &Card, view: &View<'_>) {
    if preview.is_empty() {
        return;
    }
    page.line("");
    for line in preview.lines(page.color) {
        page.line(&format!("  | {line}"));
    }
    if preview.hidden() > 0 {
        let count = counted(preview.hidden(), "more line", "more lines");
        let whole = next::whole(card, view);
        page.line(&page.paint(YELLOW, &format!("  {count}: {whole}")));
    }
}
