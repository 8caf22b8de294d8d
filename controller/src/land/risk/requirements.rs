//! Lists of Python packages: which packages is an ordinary edit; from where, and with which options, is not.

use super::{Lower, Risk, RiskKind};
use landbox_shared::path::RelPath;

/// What pip takes for files, by their names.
const ARCHIVES: &[&str] = &[".whl", ".zip", ".tar", ".tgz", ".tbz", ".txz", ".tlz", ".egg"];

/// Whether pip, or a tool that works like it, is given files of this name.
pub(super) fn is_one(path: &RelPath) -> bool {
    let lower = Lower::of(path);
    let name = lower.name();
    let has = |text: &[u8], word: &[u8]| text.windows(word.len()).any(|w| w == word);
    let above = &lower.path[..lower.path.len() - name.len()];
    (name.ends_with(b".txt") || name.ends_with(b".in"))
        && (has(name, b"requirements")
            || has(name, b"constraints")
            || above.ends_with(b"/requirements/")
            || above == b"requirements/")
}

/// Judges a list by its two contents.
pub(super) fn judge<'a>(
    path: &RelPath,
    new: &[u8],
    old: &dyn Fn() -> Option<&'a [u8]>,
) -> Option<Risk> {
    if !is_one(path) {
        return None;
    }
    let differs = match (sources(new), sources(old().unwrap_or_default())) {
        (Some(new), Some(old)) => new != old,
        (Some(new), None) => !new.is_empty(),
        // What we can't understand, pip may: it reads other encodings.
        (None, _) => true,
    };
    differs.then(|| {
        Risk::new(
            RiskKind::Install,
            "options, or the places that packages come from, changed in a list for pip",
        )
    })
}

/// The lines that say more than a name and a version; `None` for what is no plain text.
fn sources(bytes: &[u8]) -> Option<Vec<&str>> {
    let text = std::str::from_utf8(bytes).ok()?;
    // As Python splits lines.
    let ends = |c: char| matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let lines = text.split(ends).map(str::trim).filter(|line| says_more(line));
    (!text.contains('\0')).then(|| lines.collect())
}

fn says_more(line: &str) -> bool {
    if line.starts_with('#') {
        // What follows may be in another encoding.
        return line.contains("coding:") || line.contains("coding=");
    }
    let words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
    words.map(|word| word.trim_end_matches('\\')).any(|word| {
        let is_option = word.starts_with('-') && !word.starts_with("--hash");
        let lower = word.to_ascii_lowercase();
        is_option
            || word.starts_with('.')
            || word.contains(['/', '@', '$', '\\'])
            || ARCHIVES.iter().any(|end| lower.contains(end))
    })
}
