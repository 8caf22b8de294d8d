//! Paths that say by themselves what a file does. The tables are data: kind, paths, reason.

mod builds;
mod owner;
mod services;
#[cfg(test)]
mod tests;

use super::{Lower, Risk, RiskKind, Site};
use crate::land::changeset::{Change, Node};
use landbox_shared::path::RelPath;
use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

/// A rule: this kind, these paths, this reason. The paths are words in lower case, which count at any depth:
///
/// - `name`, `start*`, `*end`: files of such a name;
/// - `.*end`: hidden files whose name ends so;
/// - `folder/`, `folder/folder/`: whatever lies in it;
/// - `~/start`: whatever of the owner's home begins so.
struct Rule(RiskKind, &'static str, &'static str);

/// What a word of a rule means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pattern {
    Name(&'static str),
    Start(&'static str),
    End(&'static str),
    Hidden(&'static str),
    In(&'static str),
    Home(&'static str),
}

use Pattern::{End, Hidden, Home, In, Name, Start};

impl Pattern {
    fn of(word: &'static str) -> Self {
        if let Some(start) = word.strip_prefix("~/") {
            Home(start)
        } else if let Some(folder) = word.strip_suffix('/') {
            In(folder)
        } else if let Some(end) = word.strip_prefix(".*") {
            Hidden(end)
        } else if let Some(end) = word.strip_prefix('*') {
            End(end)
        } else if let Some(start) = word.strip_suffix('*') {
            Start(start)
        } else {
            Name(word)
        }
    }
}

/// Every rule, in order, with its patterns.
fn rules() -> impl Iterator<Item = (&'static Rule, impl Iterator<Item = Pattern>)> {
    let tables = [owner::RULES, services::RULES, builds::RULES];
    tables.into_iter().flatten().map(|rule| (rule, rule.1.split_whitespace().map(Pattern::of)))
}

/// The rules by what is looked up: a landing may have very many paths.
#[derive(Default)]
struct Index {
    rules: Vec<&'static Rule>,
    names: HashMap<&'static [u8], Vec<usize>>,
    starts: Vec<(&'static [u8], usize)>,
    ends: Vec<(&'static [u8], usize)>,
    hidden: Vec<(&'static [u8], usize)>,
    /// By the first folder of those in a row.
    folders: HashMap<&'static [u8], Vec<(&'static [u8], usize)>>,
    home: Vec<(&'static [u8], usize)>,
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut index = Index::default();
    for (at, (rule, patterns)) in rules().enumerate() {
        index.rules.push(rule);
        for pattern in patterns {
            match pattern {
                Name(word) => index.names.entry(word.as_bytes()).or_default().push(at),
                Start(word) => index.starts.push((word.as_bytes(), at)),
                End(word) => index.ends.push((word.as_bytes(), at)),
                Hidden(word) => index.hidden.push((word.as_bytes(), at)),
                In(word) => {
                    let first = word.split('/').next().unwrap_or_default();
                    index.folders.entry(first.as_bytes()).or_default().push((word.as_bytes(), at));
                }
                Home(word) => index.home.push((word.as_bytes(), at)),
            }
        }
    }
    index
});

/// The flags of a path.
pub(super) fn judge(change: &Change, path: &RelPath, site: &Site<'_>) -> Vec<Risk> {
    // What is to be gone can run nothing; but rules that are gone let other things through.
    let comes = change.new.is_some() && *path == change.path;
    let is_folder = comes && matches!(change.new, Some(Node::Dir { .. }));
    let is_link = matches!(change.new, Some(Node::Symlink { .. }));
    let lower = Lower::of(path);
    let place = Place::of(&lower, site, is_link);
    let mut found = BTreeSet::new();
    INDEX.folders(&place, &mut found);
    if !is_folder {
        INDEX.names(lower.name(), &mut found);
        INDEX.home(&place, site, &mut found);
    }
    let rules = found.into_iter().map(|at| INDEX.rules[at]);
    let counts = rules.filter(|rule| comes || rule.0 == RiskKind::IgnoreRules);
    counts.map(|Rule(kind, _, why)| Risk::new(*kind, *why)).collect()
}

/// A path with the folders that the project lies in: a project may be a part of a folder that has a meaning.
struct Place {
    /// In lower case, without the first slash; a link, which may stand for a folder, ends in one.
    full: Vec<u8>,
    /// Where the path begins in it. What is the project's own place says nothing about a change.
    start: usize,
    is_link: bool,
}

impl Place {
    fn of(lower: &Lower, site: &Site<'_>, is_link: bool) -> Self {
        let mut full = folder(site.project.as_bytes());
        let start = full.len();
        full.extend_from_slice(&lower.path);
        if is_link {
            full.push(b'/');
        }
        Self { full, start, is_link }
    }
}

/// A folder as [`Place`] spells it: with a slash at its end, and none at its start.
fn folder(path: &[u8]) -> Vec<u8> {
    let mut folder = path.strip_prefix(b"/").unwrap_or(path).to_ascii_lowercase();
    if !folder.is_empty() {
        folder.push(b'/');
    }
    folder
}

impl Index {
    fn names(&self, name: &[u8], found: &mut BTreeSet<usize>) {
        found.extend(self.names.get(name).into_iter().flatten());
        let fits = |list: &[(&'static [u8], usize)], fit: &dyn Fn(&[u8]) -> bool| -> Vec<usize> {
            list.iter().filter(|(word, _)| fit(word)).map(|(_, at)| *at).collect()
        };
        let ends = |word: &[u8]| name.len() > word.len() && name.ends_with(word);
        found.extend(fits(&self.starts, &|word| name.starts_with(word)));
        found.extend(fits(&self.ends, &ends));
        if name.starts_with(b".") {
            found.extend(fits(&self.hidden, &ends));
        }
    }

    fn folders(&self, place: &Place, found: &mut BTreeSet<usize>) {
        let mut at = 0;
        while let Some(length) = place.full[at..].iter().position(|b| *b == b'/') {
            let rest = &place.full[at..];
            for (word, rule) in self.folders.get(&rest[..length]).into_iter().flatten() {
                let lies_in = rest.strip_prefix(*word).is_some_and(|r| r.first() == Some(&b'/'));
                let leads_to = place.is_link && word.starts_with(rest);
                if lies_in && at + word.len() > place.start || leads_to {
                    found.insert(*rule);
                }
            }
            at += length + 1;
        }
    }

    fn home(&self, place: &Place, site: &Site<'_>, found: &mut BTreeSet<usize>) {
        let home = folder(site.home.as_bytes());
        let Some(rest) = place.full.strip_prefix(home.as_slice()) else { return };
        let start = place.start.saturating_sub(home.len());
        for (word, rule) in &self.home {
            let lies_in = rest.starts_with(word) && word.len() > start;
            if lies_in || place.is_link && word.starts_with(rest) {
                found.insert(*rule);
            }
        }
    }
}
