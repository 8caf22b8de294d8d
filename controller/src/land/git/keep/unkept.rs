//! What a session committed and its owner has not got: it would go with the session, whatever of its files has landed.
//!
//! Only names are compared, and nothing that the session wrote is followed: every branch, tag and HEAD that lies in a layer
//! must name an object of the owner's, or a commit that was kept.

use super::batch::Batch;
use crate::error::{Context, Result};
use crate::land::changeset::{Bodies, Node};
use crate::land::git::repo::Repo;
use crate::land::git::run::Git;
use crate::land::kind::Group;
use crate::land::layer::LayerView;
use crate::session::store::{Session, show};
use landbox_shared::policy::LayerKind;
use std::collections::BTreeSet;
use std::io::{Read, Write};

/// In the session's folder: the names that the kept commits had in the session, one a line.
const KEPT: &str = "kept-commits";
/// Largest file of refs that is read.
const REFS: u64 = 16 << 20;

/// Notes commits of the session that its owner has now, under names of their own.
pub(in crate::land::git) fn note(dir: &std::path::Path, ids: &[String]) -> Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let path = dir.join(KEPT);
    let what = || format!("can't write {}", show(&path));
    let mut file = std::fs::File::options().append(true).create(true).open(&path).context(what)?;
    file.write_all((ids.join("\n") + "\n").as_bytes()).context(what)
}

/// Number of the names for commits in a session's layers that mean nothing to its owner. `project` is the project's layer.
pub fn unkept(session: &Session, project: &LayerView) -> Result<u64> {
    let mut named = named(project, false)?;
    for layer in &session.snapshot.policy.layers {
        if layer.kind == LayerKind::Worktree {
            named.extend(self::named(&LayerView::read(session, layer, project.live)?, true)?);
        }
    }
    let kept = std::fs::read_to_string(session.dir.join(KEPT)).unwrap_or_default();
    let kept: BTreeSet<&str> = kept.lines().collect();
    named.retain(|id| !kept.contains(id.as_str()));
    if named.is_empty() {
        return Ok(0);
    }
    let target = &project.changeset.target;
    let repo = Git::find(target.as_path()).and_then(|git| Repo::find(git, target));
    // Without a repository of the owner's, nothing of it is theirs.
    let Ok(repo) = repo else { return Ok(named.len() as u64) };
    let mut have = Batch::start(repo.command(), "--batch-check")?;
    let mut count = 0;
    for id in &named {
        count += u64::from(!have.has(id)?);
    }
    Ok(count)
}

/// The objects that the refs in a layer name. `all_git` says that the layer is a repository's folder.
fn named(view: &LayerView, all_git: bool) -> Result<BTreeSet<String>> {
    let mut out = BTreeSet::new();
    for change in view.changeset.changes.iter().filter(|c| c.group == Group::Git) {
        let refs = matches!(change.new, Some(Node::File { size: ..=REFS, .. }))
            && holds_refs(change.path.as_bytes(), all_git);
        if !refs {
            continue;
        }
        let mut bytes = Vec::new();
        let what = || format!("can't read {} in the layer", change.path);
        view.new_bytes(change)?.take(REFS).read_to_end(&mut bytes).context(what)?;
        out.extend(bytes.split(|b| *b == b'\n').filter_map(id));
    }
    Ok(out)
}

/// Whether a file of a repository's may say which commit a branch, a tag or HEAD is at. What was fetched is others' work.
fn holds_refs(path: &[u8], all_git: bool) -> bool {
    let mut parts = path.split(|b| *b == b'/');
    if !all_git && !parts.any(|part| part.eq_ignore_ascii_case(b".git")) {
        return false;
    }
    let parts: Vec<&[u8]> = parts.collect();
    if parts.contains(&&b"logs"[..]) {
        return false;
    }
    match parts.iter().position(|part| *part == b"refs") {
        Some(at) => parts.get(at + 1).is_some_and(|kind| *kind != b"remotes"),
        None => matches!(parts.last(), Some(&b"HEAD" | &b"packed-refs")),
    }
}

/// The object that a line of a file of refs names.
fn id(line: &[u8]) -> Option<String> {
    let mut words = line.split(|b| *b == b' ');
    let word = words.next()?.trim_ascii();
    let is_id = matches!(word.len(), 40 | 64)
        && word.iter().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b))
        && word.iter().any(|b| *b != b'0');
    let fetched = words.next().is_some_and(|name| name.starts_with(b"refs/remotes/"));
    (is_id && !fetched).then(|| String::from_utf8_lossy(word).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_tags_and_heads_name_commits_and_what_was_fetched_or_logged_does_not() {
        for path in [".git/refs/heads/a/b", ".git/HEAD", "sub/.git/packed-refs", ".git/refs/stash"]
        {
            assert!(holds_refs(path.as_bytes(), false), "{path}");
        }
        for path in [
            "refs/heads/a",
            ".git/index",
            ".git/logs/HEAD",
            ".git/refs/remotes/o/m",
            ".git/logs/refs/heads/a",
        ] {
            assert!(!holds_refs(path.as_bytes(), false), "{path}");
        }
        assert!(holds_refs(b"worktrees/w/HEAD", true) && holds_refs(b"refs/heads/a", true));
        let one = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(id(one.as_bytes()).as_deref(), Some(one));
        assert_eq!(id(format!("{one} refs/heads/a").as_bytes()).as_deref(), Some(one));
        for other in
            ["ref: refs/heads/a", "# pack-refs with: peeled", &format!("^{one}"), &"0".repeat(40)]
        {
            assert_eq!(id(other.as_bytes()), None, "{other}");
        }
        assert_eq!(id(format!("{one} refs/remotes/o/m").as_bytes()), None);
    }
}
