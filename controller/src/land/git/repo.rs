//! The owner's repository around the project.

use super::run::{self, Git, line, outcome, output, path, word};
use crate::error::{Failure, Kind, Result};
use landbox_shared::path::{AbsPath, RelPath};
use sha2::Digest;
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};

/// How a repository names its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Sha1,
    Sha256,
}

impl Format {
    /// Its word.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }

    /// The name of no object.
    pub(super) fn nothing(self) -> String {
        "0".repeat(match self {
            Self::Sha1 => 40,
            Self::Sha256 => 64,
        })
    }

    /// The name of a blob of `size` bytes.
    pub(super) fn blob(self, size: u64, bytes: &mut dyn Read) -> std::io::Result<String> {
        self.object("blob", size, bytes)
    }

    /// The name of an object.
    pub(super) fn object(
        self,
        kind: &str,
        size: u64,
        bytes: &mut dyn Read,
    ) -> std::io::Result<String> {
        let head = format!("{kind} {size}\0");
        match self {
            Self::Sha1 => hash(sha1::Sha1::new(), &head, bytes),
            Self::Sha256 => hash(sha2::Sha256::new(), &head, bytes),
        }
    }
}

fn hash<D: Digest>(mut hash: D, head: &str, bytes: &mut dyn Read) -> std::io::Result<String> {
    hash.update(head.as_bytes());
    let mut buffer = vec![0; 64 << 10];
    loop {
        match bytes.read(&mut buffer)? {
            0 => break,
            got => hash.update(&buffer[..got]),
        }
    }
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

/// One entry of a tree, a file or link or another repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub mode: String,
    pub id: String,
}

/// Mode of another repository in a tree.
pub(super) const GITLINK: &str = "160000";

/// The repository that the project lies in.
#[derive(Clone, Debug)]
pub(super) struct Repo {
    pub git: Git,
    /// The project.
    pub project: PathBuf,
    /// Top of the work tree.
    pub top: PathBuf,
    /// This work tree's own folder in the repository.
    pub git_dir: PathBuf,
    /// The repository's folder, shared by its work trees.
    pub common: PathBuf,
    /// Where the project lies in the work tree: nothing, or a path and a slash.
    pub prefix: Vec<u8>,
    pub format: Format,
}

fn none(project: &AbsPath) -> Failure {
    Failure::new(Kind::Refused, format!("{project} is in no git repository with a work tree"))
        .hint("--apply, and --patch FILE, need none")
}

impl Repo {
    /// Finds it.
    pub(super) fn find(git: Git, project: &AbsPath) -> Result<Self> {
        let folder = project.as_path();
        let ask = |what: &[&str]| git.at(folder).arg("rev-parse").args(what).output();
        let inside = ask(&["--is-inside-work-tree"])
            .map_err(|e| Failure::new(Kind::Failed, format!("can't run git: {e}")))?;
        if !inside.status.success() {
            let said = String::from_utf8_lossy(&inside.stderr).into_owned();
            if said.contains("not a git repository") {
                return Err(none(project));
            }
            let said = crate::ui::text::visible(said.lines().next().unwrap_or("").as_bytes());
            return Err(Failure::new(Kind::Refused, format!("git refuses {project}: {said}")));
        }
        if inside.stdout != b"true\n" {
            return Err(none(project));
        }
        let what = "can't ask git about the repository";
        let get = |args: &[&str]| line(git.at(folder).arg("rev-parse").args(args), what);
        let absolute = "--path-format=absolute";
        let format = match get(&["--show-object-format"])?.as_slice() {
            b"sha1" => Format::Sha1,
            b"sha256" => Format::Sha256,
            other => {
                let name = crate::ui::text::visible(other);
                return Err(Failure::new(
                    Kind::Refused,
                    format!("this repository names its objects by {name}"),
                )
                .hint("--patch FILE in its place writes a patch"));
            }
        };
        Ok(Self {
            project: folder.to_owned(),
            top: path(get(&[absolute, "--show-toplevel"])?),
            git_dir: path(get(&[absolute, "--git-dir"])?),
            common: path(get(&[absolute, "--git-common-dir"])?),
            prefix: get(&["--show-prefix"])?,
            format,
            git,
        })
    }

    /// Git at the top of the work tree.
    pub(super) fn command(&self) -> std::process::Command {
        self.git.at(&self.top)
    }

    /// The commit that HEAD is at; `None` where there is none yet.
    pub(super) fn head(&self) -> Result<Option<String>> {
        let out = outcome(self.command().args(["rev-parse", "-q", "--verify", "HEAD^{commit}"]))?;
        if out.status.success() { word(&out.stdout).map(Some) } else { Ok(None) }
    }

    /// The branch that HEAD names; `None` where it names a commit.
    pub(super) fn branch(&self) -> Result<Option<String>> {
        let out = outcome(self.command().args(["symbolic-ref", "-q", "HEAD"]))?;
        if out.status.success() { word(&out.stdout).map(Some) } else { Ok(None) }
    }

    /// How a path of the project is called in the repository.
    pub(super) fn name(&self, path: &RelPath) -> Vec<u8> {
        [self.prefix.as_slice(), path.as_bytes()].concat()
    }

    /// Of a commit's files, those of these names, those below them, and every other repository.
    pub(super) fn entries(
        &self,
        commit: &str,
        names: &HashSet<Vec<u8>>,
    ) -> Result<HashMap<Vec<u8>, Entry>> {
        let mut command = self.command();
        command.args(["ls-tree", "-r", "-z", "--full-tree", commit]);
        let list = output(&mut command, "can't read the commit that HEAD is at")?;
        let mut found = HashMap::new();
        for line in list.split(|b| *b == 0).filter(|line| !line.is_empty()) {
            let Some(tab) = line.iter().position(|b| *b == b'\t') else { continue };
            let (facts, name) = (word(&line[..tab])?, &line[tab + 1..]);
            let mut facts = facts.split(' ');
            let (Some(mode), Some(_), Some(id)) = (facts.next(), facts.next(), facts.next()) else {
                continue;
            };
            if mode == GITLINK || names.contains(name) || above(name).any(|n| names.contains(n)) {
                let entry = Entry { mode: mode.to_owned(), id: id.to_owned() };
                found.insert(name.to_vec(), entry);
            }
        }
        Ok(found)
    }

    /// A setting of the owner's.
    pub(super) fn config(&self, key: &str) -> Result<Option<String>> {
        let out = outcome(self.command().args(["config", "--get", key]))?;
        if out.status.success() { word(&out.stdout).map(Some) } else { Ok(None) }
    }

    /// Refuses changes that belong to another repository.
    pub(super) fn refuse_nested(&self, paths: &[&RelPath]) -> Result<()> {
        let mut looked = HashSet::new();
        for path in paths {
            for folder in std::iter::successors(path.parent(), RelPath::parent) {
                if !looked.insert(folder.clone()) {
                    break;
                }
                if is_there(&self.project.join(folder.as_path()).join(".git")) {
                    return Err(nested(&folder));
                }
            }
        }
        Ok(())
    }
}

/// Another repository lies in the project.
pub(super) fn nested(folder: &RelPath) -> Failure {
    let name = crate::ui::text::visible_name(folder.as_bytes());
    Failure::new(
        Kind::Refused,
        format!("{name} is a repository of its own, and this commit can't hold its changes"),
    )
    .hint("leave it out with --exclude, or land it with --apply and commit there")
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// The folders a name lies in.
pub(super) fn above(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    name.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| &name[..at])
}

/// Moves refs in one go, each only from where it is expected: lines as `git update-ref --stdin` takes them.
pub(super) fn move_refs(repo: &Repo, lines: &str, note: &str) -> Result<()> {
    let mut command = repo.command();
    command.args(["update-ref", "-m", note, "--stdin"]);
    let text = format!("start\n{lines}prepare\ncommit\n");
    run::given(&mut command, "can't move the branch", text.as_bytes()).map(|_| ())
}
