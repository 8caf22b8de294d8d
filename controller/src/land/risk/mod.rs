//! What in a change deserves a yes of its own: what can run later on the owner's machine, leave the project, give a
//! secret away, or be something else than what the eye sees. Pure: a change and its contents in, flags out.
//!
//! An ordinary edit of a source file has none, so that a flag means something.

pub mod consent;
mod content;
pub(super) mod link;
mod manifest;
mod names;
mod requirements;
#[cfg(test)]
mod tests;

use super::changeset::{Change, Node};
use super::kind::ChangeKind;
use landbox_shared::path::{AbsPath, RelPath};
use serde::Serialize;
use std::fmt;

/// A file of more bytes is large: no more than these are searched, so that none is half searched without a flag.
pub const LARGE: u64 = 4 << 20;

/// The kinds, as `--accept-risk` takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RiskKind {
    /// Git runs it, or takes other settings from it.
    Git,
    /// A login, a shell, an interpreter or another program obeys it when it starts or enters the folder.
    Startup,
    /// An editor runs commands from it.
    Editor,
    /// An AI coding CLI runs commands from it, or obeys it.
    Agent,
    /// A CI service runs it, with the rights of the repository.
    Ci,
    /// A package manager runs it or takes its settings from it.
    Install,
    /// A build or a tool's start runs it.
    Build,
    /// It became executable.
    Executable,
    /// It runs with somebody else's rights.
    SetId,
    /// A link leads out of the project.
    OutsideLink,
    /// It looks like a secret.
    Secret,
    /// Nobody reads it line by line.
    Generated,
    /// It is too large to be looked through.
    Large,
    /// Something in it is not what the eye sees.
    HiddenText,
    /// It decides what other tools overlook, or how they treat files.
    IgnoreRules,
}

/// Every kind, in the order of questions.
pub const KINDS: [RiskKind; 15] = [
    RiskKind::Git,
    RiskKind::Startup,
    RiskKind::Editor,
    RiskKind::Agent,
    RiskKind::Ci,
    RiskKind::Install,
    RiskKind::Build,
    RiskKind::Executable,
    RiskKind::SetId,
    RiskKind::OutsideLink,
    RiskKind::Secret,
    RiskKind::Generated,
    RiskKind::Large,
    RiskKind::HiddenText,
    RiskKind::IgnoreRules,
];

impl RiskKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Git => "git",
            Self::Startup => "startup",
            Self::Editor => "editor",
            Self::Agent => "agent",
            Self::Ci => "ci",
            Self::Install => "install",
            Self::Build => "build",
            Self::Executable => "executable",
            Self::SetId => "set-id",
            Self::OutsideLink => "outside-link",
            Self::Secret => "secret",
            Self::Generated => "generated",
            Self::Large => "large",
            Self::HiddenText => "hidden-text",
            Self::IgnoreRules => "ignore-rules",
        }
    }

    /// What files of this kind do, for the question: "N files that ...".
    pub fn does(self) -> &'static str {
        match self {
            Self::Git => "git takes commands or settings from",
            Self::Startup => "a login, a shell or a program takes commands or settings from",
            Self::Editor => "an editor takes commands or settings from",
            Self::Agent => "an AI coding CLI takes commands or instructions from",
            Self::Ci => "a CI service runs",
            Self::Install => "a package manager runs or takes settings from",
            Self::Build => "a build runs",
            Self::Executable => "can be run as a program, and could not before",
            Self::SetId => "would run with somebody else's rights",
            Self::OutsideLink => "may lead out of the project",
            Self::Secret => "may hold a secret",
            Self::Generated => "nobody reads line by line",
            Self::Large => "nobody can look through, large as it is",
            Self::HiddenText => "may hold something that the eye does not see",
            Self::IgnoreRules => "may decide what other tools overlook",
        }
    }

    /// The kind of that name.
    pub fn parse(name: &str) -> Option<Self> {
        KINDS.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for RiskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something that deserves a second look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Risk {
    /// The name `--accept-risk` takes.
    pub kind: RiskKind,
    /// One sentence.
    pub why: String,
}

impl Risk {
    fn new(kind: RiskKind, why: impl Into<String>) -> Self {
        Self { kind, why: why.into() }
    }
}

/// The bytes of a changed file, asked for only where they matter.
pub trait Contents {
    /// The first [`LARGE`] bytes as the session left them; `None` where they can't be had.
    fn new_bytes(&self) -> Option<Vec<u8>>;
    /// The first [`LARGE`] bytes as they were; `None` where there were none or nobody knows.
    fn old_bytes(&self) -> Option<Vec<u8>>;
}

/// Where changes land.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// The project.
    pub project: &'a AbsPath,
    /// The home of its owner.
    pub home: &'a AbsPath,
}

/// The flags that need no content.
pub fn judge_names(change: &Change, site: &Site<'_>) -> Vec<Risk> {
    let mut found = Vec::new();
    for path in super::digest::paths(change) {
        found.extend(names::judge(change, path, site));
        found.extend(content::hidden_in_name(path.as_bytes()));
    }
    match &change.new {
        Some(Node::Symlink { target: to }) => {
            found.extend(link::judge(&change.path, to, site.project));
            found.extend(content::hidden_in_name(to));
            found.extend(content::git_folder(&change.path, to, true));
            if is_for_packages(&change.path) {
                found.push(Risk::new(
                    RiskKind::Install,
                    "a package manager obeys what it leads to, and a later change there is not named for it",
                ));
            }
        }
        Some(Node::File { mode, size, .. }) => {
            found.extend(modes(change, *mode));
            if *size > LARGE && is_rewritten(change) {
                let why = format!("{size} bytes: only the first {LARGE} were searched");
                found.push(Risk::new(RiskKind::Large, why));
            }
        }
        Some(Node::Dir { .. } | Node::Special { .. } | Node::Unreadable { .. }) | None => {}
    }
    settle(found)
}

/// All flags of a change.
pub fn judge(change: &Change, contents: &dyn Contents, site: &Site<'_>) -> Vec<Risk> {
    let mut found = judge_names(change, site);
    if !matches!(change.new, Some(Node::File { .. })) {
        return found;
    }
    let (rewritten, of_git) = (is_rewritten(change), content::is_of_git(&change.path));
    // What only moved is looked at where its new place gives it a meaning, and as if it were new there.
    let moved = change.kind == ChangeKind::Renamed;
    let has_meaning = rewritten || of_git || moved && is_for_packages(&change.path);
    if !has_meaning {
        return found;
    }
    // What can't be read can't be shown either, and a landing of it fails.
    let Some(new) = contents.new_bytes() else { return found };
    if of_git {
        found.extend(content::git_folder(&change.path, &new, false));
    }
    let old = std::cell::OnceCell::new();
    let old = || match moved {
        true => None,
        false => old.get_or_init(|| contents.old_bytes()).as_deref(),
    };
    found.extend(manifest::judge(&change.path, &new, &old));
    found.extend(requirements::judge(&change.path, &new, &old));
    if rewritten {
        found.extend(content::judge(&change.path, &new, &old));
    }
    settle(found)
}

/// Whether what is in a file of this name is judged for what a package manager does with it.
fn is_for_packages(path: &RelPath) -> bool {
    manifest::is_one(path) || requirements::is_one(path)
}

/// One flag a kind, in the order of kinds: the first reason is enough.
fn settle(mut found: Vec<Risk>) -> Vec<Risk> {
    found.sort_by_key(|risk| risk.kind);
    found.dedup_by_key(|risk| risk.kind);
    found
}

/// Whether the session wrote the content.
fn is_rewritten(change: &Change) -> bool {
    match change.kind {
        ChangeKind::Added | ChangeKind::Modified | ChangeKind::Type | ChangeKind::Special => true,
        ChangeKind::Renamed | ChangeKind::Deleted | ChangeKind::Symlink | ChangeKind::Mode => false,
    }
}

fn modes(change: &Change, mode: u32) -> Option<Risk> {
    let had = match change.old_node() {
        Some(Node::File { mode, .. }) => *mode,
        Some(
            Node::Dir { .. }
            | Node::Symlink { .. }
            | Node::Special { .. }
            | Node::Unreadable { .. },
        )
        | None => 0,
    };
    if mode & 0o6000 != 0 {
        return Some(Risk::new(RiskKind::SetId, "it runs with the rights of its owner or group"));
    }
    let fresh = mode & 0o111 != 0 && had & 0o111 == 0;
    fresh.then(|| {
        Risk::new(RiskKind::Executable, "it can be run as a program, and could not before")
    })
}

/// A path, and its components, in lower case: some file systems and tools see no difference.
struct Lower {
    path: Vec<u8>,
}

impl Lower {
    fn of(path: &RelPath) -> Self {
        Self { path: path.as_bytes().to_ascii_lowercase() }
    }

    fn name(&self) -> &[u8] {
        let at = self.path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
        &self.path[at..]
    }
}
