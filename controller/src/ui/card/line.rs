//! One change, or the plain ones of a folder, as lines of the card.

use super::{COLUMN, GREEN, Page, RED, YELLOW};
use crate::land::card::{CardChange, octal};
use crate::land::kind::{ChangeKind, ChangeState, EntryType};
use crate::ui::text::{visible, visible_name};

/// The folder that a path lies in.
pub(super) fn folder(path: &[u8]) -> &[u8] {
    path.iter().rposition(|b| *b == b'/').map_or(&[], |at| &path[..at])
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

/// One change.
pub(super) fn one(page: &mut Page, change: &CardChange) {
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
pub(super) fn is_plain(change: &CardChange) -> bool {
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
pub(super) fn summary(page: &mut Page, changes: &[&&CardChange]) {
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
