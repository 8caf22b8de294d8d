//! The review card on a terminal. Every change of the selection has its line: only the text of the diff is ever cut.

use super::patch::Preview;
use super::text::{counted, visible, visible_name};
use crate::land::card::{Card, CardChange, octal};
use crate::land::kind::{ChangeKind, ChangeState, Durability, EntryType, Group};
use crate::land::risk::RiskKind;
use std::collections::BTreeMap;
use std::fmt::Write;

/// How to show a card.
#[derive(Clone, Copy, Debug, Default)]
pub struct View<'a> {
    /// The first lines of the patch.
    pub preview: Option<&'a Preview>,
    /// Whether to say what to type next.
    pub next: bool,
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
        show_preview(&mut page, preview, card);
    }
    if view.next {
        next(&mut page, card);
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

fn folder(path: &[u8]) -> &[u8] {
    path.iter().rposition(|b| *b == b'/').map_or(&[], |at| &path[..at])
}

fn head(page: &mut Page, card: &Card, view: &View<'_>) {
    let title = if card.applied { "Landed changes of" } else { "Changes of" };
    page.line(&page.paint(BOLD, &format!("{title} session {}", card.session)));
    for target in &card.targets {
        page.field("into", &visible_name(target.as_bytes()));
    }
    let files = counted(card.files, "file", "files");
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

fn type_name(kind: Option<EntryType>) -> &'static str {
    match kind {
        None => "nothing",
        Some(EntryType::File) => "file",
        Some(EntryType::Dir) => "folder",
        Some(EntryType::Symlink) => "link",
        Some(EntryType::Fifo) => "pipe",
        Some(EntryType::Socket) => "socket",
        Some(EntryType::CharDevice | EntryType::BlockDevice) => "device",
    }
}

fn kind_name(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Special => "special",
        ChangeKind::Type => "type",
        ChangeKind::Renamed => "renamed",
        ChangeKind::Added => "added",
        ChangeKind::Deleted => "deleted",
        ChangeKind::Symlink => "link",
        ChangeKind::Modified => "modified",
        ChangeKind::Mode => "mode",
    }
}

/// Everything about a change that is not a name: types, modes, sizes.
fn facts(change: &CardChange) -> Vec<String> {
    let mut facts = Vec::new();
    let (old, new) = (change.old_type, change.new_type);
    match change.kind {
        ChangeKind::Type | ChangeKind::Special => {
            facts.push(format!("{} -> {}", type_name(old), type_name(new)));
        }
        ChangeKind::Added if new != Some(EntryType::File) => facts.push(type_name(new).into()),
        ChangeKind::Deleted if old != Some(EntryType::File) => facts.push(type_name(old).into()),
        ChangeKind::Added
        | ChangeKind::Deleted
        | ChangeKind::Renamed
        | ChangeKind::Symlink
        | ChangeKind::Modified
        | ChangeKind::Mode => {}
    }
    match (change.old_mode, change.new_mode) {
        (Some(a), Some(b)) if a != b => facts.push(format!("{} -> {}", octal(a), octal(b))),
        // What everybody expects of a new file or folder needs no words.
        (None, Some(mode))
            if !matches!(mode & !0o022, 0o644) && new != Some(EntryType::Dir)
                || mode & !0o022 != 0o755 && new == Some(EntryType::Dir) =>
        {
            facts.push(octal(mode));
        }
        _ => {}
    }
    if change.binary {
        facts.push(match (change.old_size, change.new_size) {
            (Some(a), Some(b)) => format!("binary {a} -> {b} bytes"),
            (Some(size), None) | (None, Some(size)) => format!("binary {size} bytes"),
            (None, None) => "binary".into(),
        });
    }
    facts
}

fn one(page: &mut Page, change: &CardChange) {
    let attention = match change.state {
        ChangeState::Drifted | ChangeState::Conflict => true,
        ChangeState::Clean | ChangeState::Merged => !change.landable,
    };
    let mut parts = Vec::new();
    let mut painted = Vec::new();
    let counted = match (change.added, change.deleted) {
        (Some(added), Some(deleted)) if added + deleted > 0 => Some((added, deleted)),
        _ => None,
    };
    if let Some((added, deleted)) = counted {
        parts.push(format!("+{added} -{deleted}"));
        painted.push(page.lines(added, deleted));
    }
    parts.extend(facts(change));
    painted.extend(facts(change));
    let mark = if attention { page.paint(YELLOW, "!") } else { " ".into() };
    let kind = format!("{:<9}", kind_name(change.kind));
    let kind = match change.kind {
        ChangeKind::Added => page.paint(GREEN, &kind),
        ChangeKind::Deleted => page.paint(RED, &kind),
        ChangeKind::Special | ChangeKind::Type => page.paint(YELLOW, &kind),
        ChangeKind::Renamed | ChangeKind::Symlink | ChangeKind::Modified | ChangeKind::Mode => kind,
    };
    let gap = COLUMN.saturating_sub(14 + parts.join(", ").len());
    let name = visible_name(&change.path);
    page.line(&format!("{mark} {kind}   {}{:gap$}  {name}", painted.join(", "), ""));
    let mut more = |word: &str, name: &[u8]| {
        page.line(&format!("{:COLUMN$}  {word} {}", "", visible_name(name)));
    };
    if let Some(old) = &change.old_path {
        more("  from", old);
    }
    match (&change.old_target, &change.new_target) {
        (Some(old), Some(new)) => {
            more("  pointed to", old);
            more("  points to", new);
        }
        (Some(old), None) => more("  pointed to", old),
        (None, Some(new)) => more("  points to", new),
        (None, None) => {}
    }
    notes(page, change);
}

/// Lines of their own, so that no name can touch them.
fn notes(page: &mut Page, change: &CardChange) {
    let mut note = |text: &str| {
        let text = page.paint(YELLOW, text);
        page.line(&format!("{:COLUMN$}    {text}", ""));
    };
    match change.state {
        ChangeState::Clean => {}
        ChangeState::Merged => note("merged with your own edit"),
        ChangeState::Drifted => note("changed in the project meanwhile"),
        ChangeState::Conflict => note("conflicts with your own edit"),
    }
    if !change.landable {
        note("cannot be landed");
    }
    if let Some(reason) = &change.reason {
        note(&visible(reason.as_bytes()));
    }
    for risk in &change.risks {
        note(&format!("risk {}: {}", risk.kind, visible(risk.why.as_bytes())));
    }
}

/// Whether a change is nothing but a file with new or other content: no deletion, link, mode, risk, nothing to note.
fn is_plain(change: &CardChange) -> bool {
    let content = match change.kind {
        ChangeKind::Added | ChangeKind::Modified => change.new_type == Some(EntryType::File),
        ChangeKind::Special
        | ChangeKind::Type
        | ChangeKind::Renamed
        | ChangeKind::Deleted
        | ChangeKind::Symlink
        | ChangeKind::Mode => false,
    };
    content
        && change.landable
        && change.state == ChangeState::Clean
        && change.reason.is_none()
        && change.risks.is_empty()
        && facts(change).len() == usize::from(change.binary)
}

/// One line for the plain changes of a folder.
fn summary(page: &mut Page, changes: &[&&CardChange]) {
    let count = |kind| changes.iter().filter(|c| c.kind == kind).count();
    let words = [(ChangeKind::Added, "added"), (ChangeKind::Modified, "modified")]
        .map(|(kind, word)| (count(kind), word));
    let words: Vec<String> =
        words.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
    let sum = |of: fn(&CardChange) -> Option<u64>| changes.iter().filter_map(|c| of(c)).sum();
    let lines = page.lines(sum(|c| c.added), sum(|c| c.deleted));
    let name = match changes.first().map(|c| folder(&c.path)) {
        Some(name) if !name.is_empty() => visible_name(&[name, b"/"].concat()),
        Some(_) | None => "the project's own folder".to_owned(),
    };
    page.line(&format!("  {}, {lines}: plain files in {name}", words.join(", ")));
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
        let count = counted(count, "file", "files");
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

fn show_preview(page: &mut Page, preview: &Preview, card: &Card) {
    if preview.is_empty() {
        return;
    }
    page.line("");
    for line in preview.lines(page.color) {
        page.line(&format!("  | {line}"));
    }
    if preview.hidden() > 0 {
        let count = counted(preview.hidden(), "more line", "more lines");
        page.line(&page.paint(YELLOW, &format!("  {count}: landbox diff {}", card.session)));
    }
}

fn next(page: &mut Page, card: &Card) {
    let id = &card.session;
    page.line("");
    if card.applied {
        page.line(&format!("  landbox show {id}"));
        return;
    }
    for (command, what) in [
        (format!("landbox diff {id}"), "read all of it"),
        (
            format!("landbox land {id} --apply --yes"),
            "apply all of it (paths and options again: a part)",
        ),
        (format!("landbox land {id} --patch FILE"), "write it as a patch"),
        (format!("landbox discard {id}"), "throw it away"),
    ] {
        page.line(&format!("  {command:<38} {what}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::land::card::samples::{card, change};
    use crate::land::risk::Risk;
    use std::io::Write as _;

    fn shown(card: &Card) -> String {
        render(card, &View { next: true, ..View::default() })
    }

    #[test]
    fn the_card_shows_every_kind_of_change_sorted_by_folder() {
        let mut changes = vec![
            change(b"src/main.rs", ChangeKind::Modified),
            change(b"zeta", ChangeKind::Modified),
            change(b"run.sh", ChangeKind::Added),
            change(b"src/old.rs", ChangeKind::Deleted),
            change(b"tool", ChangeKind::Mode),
            change(b"current", ChangeKind::Symlink),
            change(b"thing", ChangeKind::Type),
            change(b"b.rs", ChangeKind::Renamed),
            change(b"logo.png", ChangeKind::Modified),
            change(b"target/debug/a", ChangeKind::Added),
            change(b"target/debug/b", ChangeKind::Added),
            change(b".git/index", ChangeKind::Modified),
        ];
        changes[1].state = ChangeState::Drifted;
        (changes[2].old_type, changes[2].old_mode, changes[2].new_mode) = (None, None, Some(0o755));
        (changes[3].new_type, changes[3].new_mode) = (None, None);
        (changes[4].new_mode, changes[4].added, changes[4].deleted) =
            (Some(0o755), Some(0), Some(0));
        changes[5].old_target = Some(b"v1".to_vec());
        changes[5].new_target = Some(b"v2".to_vec());
        changes[6].new_type = Some(EntryType::Symlink);
        changes[6].new_target = Some(b"/etc/passwd".to_vec());
        changes[7].old_path = Some(b"src/a.rs".to_vec());
        (changes[7].added, changes[7].deleted) = (Some(0), Some(0));
        (changes[8].binary, changes[8].added, changes[8].deleted) = (true, None, None);
        for (at, group) in [(9, Group::Ignored), (10, Group::Ignored), (11, Group::Git)] {
            (changes[at].group, changes[at].selected) = (group, false);
        }
        changes[0].risks.push(Risk { kind: RiskKind::Ci, why: "runs on the server".into() });
        let text = shown(&card(changes));
        assert_eq!(text, include_str!("card.snapshot"));
    }

    #[test]
    fn no_name_target_or_content_can_fake_the_card_or_touch_the_terminal() {
        let mut evil = change(
            b"x\n  digest   sha256:00\r\x1b[2J\x1b]0;t\x07\xff\xe2\x80\xae",
            ChangeKind::Symlink,
        );
        evil.new_target = Some(b"v2\n  landbox land --apply\xc2\x9b".to_vec());
        evil.old_path = Some("a \u{202e}\u{200b}\u{301}".into());
        evil.reason = Some("line\nbreak \u{1b}[1m".into());
        let mut quiet = change(b"q", ChangeKind::Modified);
        (quiet.group, quiet.selected) = (Group::Ignored, false);
        quiet.path = b"\x1b[8m/x".to_vec();
        let mut preview = Preview::new();
        preview.write_all(b"@@ -1 +1 @@\n+\x1b[2J\r  digest   sha256:00\n").unwrap();
        let card = card(vec![evil, quiet]);
        let view = View { preview: Some(&preview), next: true, ..View::default() };
        let text = render(&card, &view);
        assert!(text.chars().all(|c| c == '\n' || (' '..='~').contains(&c)), "{text:?}");
        assert_eq!(text.lines().filter(|l| l.trim_start().starts_with("digest ")).count(), 1);
        assert!(text.contains("  | +\\u{1b}[2J\\r  digest"));
        assert!(!text.lines().any(|l| l.trim_start().starts_with("landbox land --apply")));
    }

    #[test]
    fn colours_change_nothing_but_colours() {
        let mut deleted = change(b"a", ChangeKind::Deleted);
        deleted.state = ChangeState::Conflict;
        let card = card(vec![deleted, change(b"b", ChangeKind::Added)]);
        let plain = render(&card, &View::default());
        let mut painted = render(&card, &View { color: true, ..View::default() });
        assert_ne!(plain, painted);
        for code in [BOLD, GREEN, RED, YELLOW, "\x1b[0m"] {
            painted = painted.replace(code, "");
        }
        assert_eq!(plain, painted);
    }

    #[test]
    fn a_summary_of_a_folder_hides_nothing_but_plain_files() {
        let plain = (0..200).map(|i| change(format!("gen/f{i}").as_bytes(), ChangeKind::Modified));
        let mut telling: Vec<CardChange> = ["mode", "risk", "note", "drift", "stuck"]
            .map(|name| change(format!("gen/{name}").as_bytes(), ChangeKind::Modified))
            .into();
        telling[0].new_mode = Some(0o600);
        telling[1].risks.push(Risk { kind: RiskKind::Secret, why: "it holds a key".into() });
        telling[2].reason = Some("hard links".into());
        telling[3].state = ChangeState::Drifted;
        telling[4].landable = false;
        for (name, kind) in [("gone", ChangeKind::Deleted), ("link", ChangeKind::Symlink)] {
            telling.push(change(format!("gen/{name}").as_bytes(), kind));
        }
        let mut fresh = change(b"gen/fresh", ChangeKind::Added);
        (fresh.old_type, fresh.old_mode, fresh.old_size) = (None, None, None);
        let card = card(plain.chain(telling.clone()).chain([fresh]).collect());
        let text = render(&card, &View { summarise: true, ..View::default() });
        assert!(
            text.contains("  1 added, 200 modified, +402 -201: plain files in gen/\n"),
            "{text}"
        );
        for change in &telling {
            assert!(text.contains(&visible_name(&change.path)), "{text}");
        }
        assert_eq!(text.matches("  gen/").count(), telling.len());
        let whole = render(&card, &View::default());
        assert_eq!(whole.matches("  gen/").count(), 208);
    }

    #[test]
    fn that_a_layer_is_not_on_disk_is_said_where_nothing_is_about_to_write_it() {
        let mut card = card(vec![change(b"a", ChangeKind::Modified)]);
        let says = |card: &Card, storage| {
            render(card, &View { storage, ..View::default() }).contains("  storage ")
        };
        assert!(!says(&card, false));
        assert!(says(&card, true));
        card.applied = true;
        assert!(says(&card, false));
    }

    #[test]
    fn only_diff_text_is_cut() {
        let many = (0..500).map(|i| change(format!("f{i}").as_bytes(), ChangeKind::Deleted));
        let long = change(&[b'x'; 4000], ChangeKind::Deleted);
        let text = shown(&card(many.chain([long]).collect()));
        assert_eq!(text.matches("  deleted  ").count(), 501);
        assert!(text.contains(&"x".repeat(4000)));
    }
}
