//! Whether a commit holds what the session saw: only then can its changes be put on top of it.

use super::Source;
use super::repo::{Entry, GITLINK, Repo, above, nested};
use super::run::{argument, output, word};
use crate::error::{Context, Failure, Kind, Result};
use crate::land::changeset::{Base, Change, Node, OldBytes};
use crate::land::kind::ChangeKind;
use crate::ui::text::visible;
use landbox_shared::path::RelPath;
use std::collections::{HashMap, HashSet};

/// Commits of the past that are looked at, where the newest does not fit.
const PAST: &str = "--max-count=64";
/// Most paths that are named on a command line, or to the owner.
const FEW: usize = 200;
const NAMED: usize = 10;

/// What is to be found at a path of a commit.
enum Found<'a> {
    Nothing,
    /// A file of the change's old bytes.
    File(&'a Change),
    Link(&'a [u8]),
}

struct Expected<'a> {
    path: &'a RelPath,
    found: Found<'a>,
    /// Where git does not know the path, there is nothing to say about it: the session deleted it.
    or_nothing: bool,
}

fn expected<'a>(change: &'a Change) -> Result<Vec<Expected<'a>>> {
    let old = match &change.old {
        Base::Absent => Found::Nothing,
        Base::Known(Node::File { .. }) => Found::File(change),
        Base::Known(Node::Symlink { target }) => Found::Link(target),
        Base::Known(Node::Dir { .. } | Node::Special { .. } | Node::Unreadable { .. }) => {
            Found::Nothing
        }
        Base::Unknown => {
            let path = visible(change.path.as_bytes());
            return Err(Failure::new(
                Kind::Conflict,
                format!("nobody knows what {path} was when the session changed it"),
            )
            .hint("leave it out with --exclude"));
        }
    };
    let was_folder = matches!(change.old, Base::Known(Node::Dir { .. }));
    Ok(match (&change.old_path, change.kind) {
        (Some(from), ChangeKind::Renamed) => vec![
            Expected { path: from, found: old, or_nothing: false },
            Expected { path: &change.path, found: Found::Nothing, or_nothing: false },
        ],
        // What was in a folder is judged path by path.
        (_, _) if was_folder => Vec::new(),
        (_, _) => {
            let or_nothing = change.new.as_ref().is_none_or(|n| matches!(n, Node::Dir { .. }));
            vec![Expected { path: &change.path, found: old, or_nothing }]
        }
    })
}

/// A commit whose files are what the session saw, at every path that it changed.
#[derive(Debug)]
pub(super) struct Ground {
    /// `None` for the beginning of a repository.
    pub commit: Option<String>,
    /// What it holds at the changed paths.
    pub entries: HashMap<Vec<u8>, Entry>,
}

impl Ground {
    /// HEAD, if it is that. `undone`: a landing of the session was undone, whose commit may be there still.
    pub(super) fn head(repo: &Repo, source: &Source<'_>, undone: bool) -> Result<Self> {
        let head = repo.head()?;
        match Self::at(repo, source, head)? {
            Ok(ground) => Ok(ground),
            Err(paths) => {
                let mut failure = differs(&paths);
                if undone {
                    let hint = "a landing of this session was undone: where HEAD is the commit that it made, git reset HEAD~ takes that off the branch";
                    failure.hints.insert(0, hint.to_owned());
                }
                Err(failure)
            }
        }
    }

    /// The first of these commits that is that.
    pub(super) fn among(
        repo: &Repo,
        source: &Source<'_>,
        commits: impl Iterator<Item = String>,
    ) -> Result<Self> {
        let mut wrong = Vec::new();
        for commit in commits {
            match Self::at(repo, source, Some(commit))? {
                Ok(ground) => return Ok(ground),
                Err(paths) => wrong = paths,
            }
        }
        Err(differs(&wrong))
    }

    /// HEAD, or the newest of the commits before it that is.
    pub(super) fn newest(repo: &Repo, source: &Source<'_>) -> Result<Self> {
        let head = repo.head()?;
        let paths = match Self::at(repo, source, head.clone())? {
            Ok(ground) => return Ok(ground),
            Err(paths) => paths,
        };
        if head.is_some() && paths.len() <= FEW {
            let mut command = repo.command();
            command.args(["rev-list", "--first-parent", PAST, "HEAD", "--"]);
            // What is not the same now must have been made otherwise by a commit that touched it.
            command.args(paths.iter().map(|path| argument(path)));
            let list = word(&output(&mut command, "can't read the history")?)?;
            for commit in list.lines() {
                let mut command = repo.command();
                command.args(["rev-parse", "-q", "--verify", &format!("{commit}^1^{{commit}}")]);
                let Ok(parent) = output(&mut command, "can't read the history") else { break };
                if let Ok(ground) = Self::at(repo, source, Some(word(&parent)?))? {
                    return Ok(ground);
                }
            }
        }
        Err(differs(&paths))
    }

    /// This commit, if it is that; else the names at which it is not.
    pub(super) fn at(
        repo: &Repo,
        source: &Source<'_>,
        commit: Option<String>,
    ) -> Result<Result<Self, Vec<Vec<u8>>>> {
        let mut all = Vec::new();
        for change in &source.sayable.changes {
            all.extend(expected(change)?);
        }
        let names: HashSet<Vec<u8>> = all.iter().map(|e| repo.name(e.path)).collect();
        let entries = match &commit {
            Some(commit) => repo.entries(commit, &names)?,
            None => HashMap::new(),
        };
        let paths: Vec<&RelPath> = all.iter().map(|e| e.path).collect();
        repo.refuse_nested(&paths)?;
        // A folder of that name, which holds files.
        let folders: HashSet<&[u8]> = entries.keys().flat_map(|name| above(name)).collect();
        let mut wrong = Vec::new();
        for expected in &all {
            let name = repo.name(expected.path);
            for folder in above(&name).chain([name.as_slice()]) {
                if entries.get(folder).is_some_and(|entry| entry.mode == GITLINK) {
                    let folder = RelPath::new(folder).unwrap_or_else(|_| expected.path.clone());
                    return Err(nested(&folder));
                }
            }
            let entry = entries.get(&name);
            let right = match (&expected.found, entry) {
                (Found::Nothing, entry) => entry.is_none() && !folders.contains(name.as_slice()),
                (Found::File(_) | Found::Link(_), None) => expected.or_nothing,
                (Found::Link(target), Some(entry)) => {
                    let id = repo.format.blob(target.len() as u64, &mut &**target);
                    entry.mode == "120000" && entry.id == id.context(|| "can't hash".into())?
                }
                (Found::File(change), Some(entry)) => {
                    entry.mode.starts_with("100")
                        && old_id(repo, source, change)?.is_some_and(|id| id == entry.id)
                }
            };
            if !right {
                wrong.push(name);
            }
        }
        Ok(if wrong.is_empty() { Ok(Self { commit, entries }) } else { Err(wrong) })
    }
}

/// Git's name of what a file held; `None` where nobody has it any more.
fn old_id(repo: &Repo, source: &Source<'_>, change: &Change) -> Result<Option<String>> {
    let what = || format!("can't read what {} was", change.path);
    Ok(match source.bodies.old_bytes(change)? {
        None => None,
        Some(OldBytes::Kept(bytes)) => {
            Some(repo.format.blob(bytes.len() as u64, &mut bytes.as_slice()).context(what)?)
        }
        Some(OldBytes::Real(mut file)) => {
            let size = file.metadata().context(what)?.len();
            Some(repo.format.blob(size, &mut file).context(what)?)
        }
    })
}

fn differs(names: &[Vec<u8>]) -> Failure {
    let mut shown: Vec<String> = names.iter().take(NAMED).map(|name| visible(name)).collect();
    if names.len() > NAMED {
        shown.push(format!("and {} more", names.len() - NAMED));
    }
    Failure::new(
        Kind::Conflict,
        format!("what the session started from is not what is committed: {}", shown.join(", ")),
    )
    .hint("commit your own edits first, or leave these paths out with --exclude")
    .hint("a filter of git's (LFS, line endings) between file and commit looks the same; land those with --apply")
}
