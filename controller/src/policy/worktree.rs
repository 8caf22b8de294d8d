//! Where git keeps the metadata of a project that is a linked worktree, a submodule, or a folder of a repository that
//! lies outside every layer. Everything read here may be forged: a pointer is believed only where the place it names is
//! a git folder that points back.

use crate::host::{Files, Kind, Located};
use landbox_shared::path::AbsPath;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Larger than any pointer file, and than any configuration worth reading here.
const MAX_BYTES: u64 = 256 << 10;

/// Where the commits of a project are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Metadata {
    /// Inside the project, or nowhere.
    Inside,
    /// The `.git` of the repository that the project is a folder of.
    Above(AbsPath),
    /// The common folder of a linked worktree, or a submodule's git folder.
    Linked(AbsPath),
}

/// Finds the folder that commits of `project` are written to.
pub(super) fn metadata(files: &Files, project: &AbsPath) -> Metadata {
    match search(files, project) {
        Some(Metadata::Above(path) | Metadata::Linked(path)) if path.is_within(project) => {
            Metadata::Inside
        }
        found => found.unwrap_or(Metadata::Inside),
    }
}

fn search(files: &Files, project: &AbsPath) -> Option<Metadata> {
    let mut folder = Some(project.clone());
    while let Some(at) = folder {
        let dot_git = at.join(".git").ok()?;
        match files.locate(dot_git.as_path()) {
            Some(Located { path, kind: Kind::Dir, .. }) if is_git_dir(files, &path) => {
                return Some(Metadata::Above(path));
            }
            Some(Located { path, kind: Kind::File, .. }) => {
                return linked(files, &at, &path).map(Metadata::Linked);
            }
            Some(_) | None => folder = at.parent(),
        }
    }
    None
}

/// Follows a `.git` file of `tree` to the common folder.
fn linked(files: &Files, tree: &AbsPath, dot_git: &AbsPath) -> Option<AbsPath> {
    let text = read(dot_git)?;
    let target = text.strip_prefix(b"gitdir:")?.trim_ascii();
    let git_dir = folder(files, tree, target)?;
    // A linked worktree: <common>/worktrees/<name>, whose `gitdir` names our .git file.
    let worktrees = git_dir.parent()?;
    if worktrees.file_name() == Some(b"worktrees") {
        let common = worktrees.parent()?;
        let named = folder(files, &git_dir, read(&git_dir.join("commondir").ok()?)?.trim_ascii())?;
        let back = read(&git_dir.join("gitdir").ok()?)?;
        let back = files.locate(&resolve(&git_dir, back.trim_ascii()))?.path;
        return (named == common && back == *dot_git && is_git_dir(files, &common))
            .then_some(common);
    }
    // A submodule: a whole git folder, whose `core.worktree` names the tree.
    let back = core_worktree(&read(&git_dir.join("config").ok()?)?)?;
    let back = files.locate(&resolve(&git_dir, &back))?.path;
    (back == *tree && is_git_dir(files, &git_dir)).then_some(git_dir)
}

fn is_git_dir(files: &Files, path: &AbsPath) -> bool {
    let is = |name: &str, wanted| {
        path.join(name)
            .ok()
            .and_then(|p| files.locate(p.as_path()))
            .is_some_and(|l| l.kind == wanted && l.path.is_within(path))
    };
    is("HEAD", Kind::File) && is("objects", Kind::Dir) && is("refs", Kind::Dir)
}

fn folder(files: &Files, base: &AbsPath, target: &[u8]) -> Option<AbsPath> {
    let found = files.locate(&resolve(base, target))?;
    (found.kind == Kind::Dir).then_some(found.path)
}

fn resolve(base: &AbsPath, target: &[u8]) -> std::path::PathBuf {
    base.as_path().join(Path::new(OsStr::from_bytes(target)))
}

fn read(path: &AbsPath) -> Option<Vec<u8>> {
    use rustix::fs::{Mode, OFlags, open};
    // Not blocking: the name may be a FIFO by now.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = std::fs::File::from(open(path.as_path(), flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text).ok()?;
    Some(text)
}

/// The value of `worktree` in the `[core]` section. Quotes and escapes are rare there and are not understood.
fn core_worktree(config: &[u8]) -> Option<Vec<u8>> {
    let mut in_core = false;
    for line in config.split(|b| *b == b'\n').map(<[u8]>::trim_ascii) {
        if let [b'[', name @ ..] = line {
            in_core = name.eq_ignore_ascii_case(b"core]");
        } else if in_core && let Some(at) = line.iter().position(|b| *b == b'=') {
            let (key, value) = (line[..at].trim_ascii(), line[at + 1..].trim_ascii());
            if key.eq_ignore_ascii_case(b"worktree") && !value.contains(&b'"') {
                return Some(value.to_vec());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    struct Repo {
        _dir: tempfile::TempDir,
        root: PathBuf,
    }

    impl Repo {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().canonicalize().unwrap();
            let repo = Self { _dir: dir, root };
            repo.git_dir("main/.git");
            fs::create_dir_all(repo.at("wt/sub")).unwrap();
            fs::create_dir_all(repo.at("main/.git/worktrees/wt")).unwrap();
            repo.write("wt/.git", &format!("gitdir: {}\n", repo.text("main/.git/worktrees/wt")));
            repo.write("main/.git/worktrees/wt/commondir", "../..\n");
            repo.write("main/.git/worktrees/wt/gitdir", &format!("{}\n", repo.text("wt/.git")));
            repo
        }

        fn at(&self, path: &str) -> PathBuf {
            self.root.join(path)
        }

        fn text(&self, path: &str) -> String {
            self.at(path).to_str().unwrap().to_owned()
        }

        fn write(&self, path: &str, text: &str) {
            fs::write(self.at(path), text).unwrap();
        }

        fn git_dir(&self, path: &str) {
            fs::create_dir_all(self.at(path).join("objects")).unwrap();
            fs::create_dir_all(self.at(path).join("refs")).unwrap();
            self.write(&format!("{path}/HEAD"), "ref: refs/heads/main\n");
        }

        /// What was found, below the test's folder; "above" and "linked" told apart by a mark.
        fn found(&self, project: &str) -> String {
            let project = AbsPath::from_path(&self.at(project)).unwrap();
            let (mark, path) = match metadata(&Files::default(), &project) {
                Metadata::Inside => return String::new(),
                Metadata::Above(path) => ("above ", path),
                Metadata::Linked(path) => ("linked ", path),
            };
            format!("{mark}{}", path.as_path().strip_prefix(&self.root).unwrap().display())
        }
    }

    #[test]
    fn a_linked_worktree_leads_to_its_common_folder() {
        let repo = Repo::new();
        assert_eq!(repo.found("wt"), "linked main/.git");
        assert_eq!(repo.found("wt/sub"), "linked main/.git");
        repo.write("wt/.git", "gitdir: ../main/.git/worktrees/wt");
        repo.write("main/.git/worktrees/wt/gitdir", "../../../../wt/.git");
        assert_eq!(repo.found("wt"), "linked main/.git");
    }

    #[test]
    fn a_project_that_holds_its_own_metadata_needs_nothing() {
        let repo = Repo::new();
        assert_eq!(repo.found("main"), "");
        fs::create_dir_all(repo.at("main/src")).unwrap();
        assert_eq!(repo.found("main/src"), "above main/.git");
        fs::create_dir_all(repo.at("plain")).unwrap();
        assert_eq!(repo.found("plain"), "");
    }

    #[test]
    fn a_submodule_leads_to_its_own_git_folder() {
        let repo = Repo::new();
        repo.git_dir("main/.git/modules/lib");
        fs::create_dir_all(repo.at("main/lib")).unwrap();
        repo.write("main/lib/.git", "gitdir: ../.git/modules/lib\n");
        repo.write(
            "main/.git/modules/lib/config",
            "[core]\n\tbare = false\n\tworktree = ../../../lib\n",
        );
        assert_eq!(repo.found("main/lib"), "linked main/.git/modules/lib");
        assert_eq!(repo.found("main"), "");
    }

    #[test]
    fn a_forged_pointer_widens_nothing() {
        let repo = Repo::new();
        fs::create_dir_all(repo.at(".ssh/worktrees/wt")).unwrap();
        // A folder that is no git folder.
        repo.write("wt/.git", &format!("gitdir: {}\n", repo.text(".ssh")));
        assert_eq!(repo.found("wt"), "");
        // One dressed up as a worktree's, in a place that is no git folder.
        repo.write(".ssh/worktrees/wt/commondir", "../..");
        repo.write(".ssh/worktrees/wt/gitdir", &repo.text("wt/.git"));
        repo.write("wt/.git", &format!("gitdir: {}\n", repo.text(".ssh/worktrees/wt")));
        assert_eq!(repo.found("wt"), "");
        // A real git folder that knows nothing of this tree.
        repo.write("wt/.git", &format!("gitdir: {}\n", repo.text("main/.git")));
        assert_eq!(repo.found("wt"), "");
        // Somebody else's worktree.
        repo.write("main/.git/worktrees/wt/gitdir", &repo.text("other/.git"));
        repo.write("wt/.git", &format!("gitdir: {}\n", repo.text("main/.git/worktrees/wt")));
        assert_eq!(repo.found("wt"), "");
        repo.write("wt/.git", "no pointer at all");
        assert_eq!(repo.found("wt"), "");
    }
}
