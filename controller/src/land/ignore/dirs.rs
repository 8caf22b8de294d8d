//! The real folders on the way to changed paths: whose repository, which rules, ignored or not. Each is looked at once.

use super::Owner;
use super::owner::os_path;
use super::rules::matcher;
use ignore::Match;
use ignore::gitignore::Gitignore;
use landbox_shared::path::AbsPath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, openat, openat2, statat};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Larger files of rules are not read: nobody wrote them, and matching would take for ever.
const RULES_BYTES: u64 = 1 << 20;

/// One folder.
#[derive(Debug)]
struct Dir {
    /// The innermost repository it lies in.
    repo: Option<usize>,
    /// Its own rules and those above it, innermost first, up to the repository's root.
    rules: Option<Rc<Rules>>,
    /// Whether a rule covers it or a folder above it.
    covered: bool,
    /// Whether it is, or lies in, the common folder of linked worktrees.
    git: bool,
    /// Whether it is really there.
    exists: bool,
}

/// The rules of one `.gitignore`.
#[derive(Debug)]
struct Rules {
    matcher: Gitignore,
    /// Length of the folder's path and the slash after it.
    skip: usize,
    above: Option<Rc<Rules>>,
}

#[derive(Debug)]
struct Repo {
    root: PathBuf,
    /// Length of the root's path below the top and the slash after it.
    skip: usize,
    /// `info/exclude`, then the owner's excludes.
    excludes: [Gitignore; 2],
}

/// What is known so far. Paths inside are relative to `top`.
#[derive(Debug)]
pub(super) struct Dirs<'a> {
    owner: &'a Owner,
    top: PathBuf,
    /// `None` where the folder cannot be opened: then there is no repository.
    fd: Option<OwnedFd>,
    /// From `top` to the layer's target: empty, or with a slash at the end.
    prefix: Vec<u8>,
    known: HashMap<Vec<u8>, Rc<Dir>>,
    repos: Vec<Repo>,
}

impl<'a> Dirs<'a> {
    pub(super) fn new(target: &AbsPath, owner: &'a Owner) -> Self {
        // Rules apply from the root of the repository down, also where the project is a folder inside it.
        let path = target.as_path();
        let top = path.ancestors().find(|p| git_folder(p).is_some()).unwrap_or(path);
        let mut prefix = Vec::new();
        if let Some(rest) = AbsPath::from_path(top).ok().and_then(|top| target.relative_to(&top)) {
            prefix = [rest.as_bytes(), b"/"].concat();
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(top, flags, Mode::empty()).ok();
        Self { owner, top: top.to_owned(), fd, prefix, known: HashMap::new(), repos: Vec::new() }
    }

    /// Whether a path of the layer lies in the common folder of linked worktrees, or is one.
    pub(super) fn in_git_folder(&mut self, path: &[u8], folder: bool) -> bool {
        let full = [&self.prefix, path].concat();
        self.dir(if folder { &full } else { parent(&full) }).git
    }

    /// If a rule covers a path of the layer: which repository's, and the path in it.
    pub(super) fn covered(&mut self, path: &[u8], folder: bool) -> Option<(usize, Vec<u8>)> {
        let full = [&self.prefix, path].concat();
        let dir = self.dir(parent(&full));
        let repo = dir.repo?;
        let covered = dir.covered || self.matches(&dir, repo, &full, folder);
        covered.then(|| (repo, full[self.repos[repo].skip..].to_vec()))
    }

    pub(super) fn repo_root(&self, repo: usize) -> &Path {
        &self.repos[repo].root
    }

    fn matches(&self, dir: &Dir, repo: usize, path: &[u8], folder: bool) -> bool {
        let decide = |matcher: &Gitignore, skip: usize| {
            if matcher.is_empty() {
                return None;
            }
            match matcher.matched(os_path(&path[skip..]), folder) {
                Match::None => None,
                Match::Ignore(_) => Some(true),
                Match::Whitelist(_) => Some(false),
            }
        };
        let mut rules = dir.rules.as_ref();
        while let Some(level) = rules {
            if let Some(decided) = decide(&level.matcher, level.skip) {
                return decided;
            }
            rules = level.above.as_ref();
        }
        let repo = &self.repos[repo];
        repo.excludes.iter().find_map(|e| decide(e, repo.skip)).unwrap_or(false)
    }

    /// The folder at `path`, empty for the top.
    fn dir(&mut self, path: &[u8]) -> Rc<Dir> {
        // From the deepest known folder down; a path has at most 2,048 components.
        let mut missing = Vec::new();
        let mut at = path;
        let mut dir = loop {
            if let Some(dir) = self.known.get(at) {
                break dir.clone();
            }
            missing.push(at);
            if at.is_empty() {
                let outside = Dir {
                    repo: None,
                    rules: None,
                    covered: false,
                    git: false,
                    exists: self.fd.is_some(),
                };
                break Rc::new(outside);
            }
            at = parent(at);
        };
        while let Some(path) = missing.pop() {
            dir = Rc::new(self.look(&dir, path));
            self.known.insert(path.to_vec(), dir.clone());
        }
        dir
    }

    fn look(&mut self, above: &Dir, path: &[u8]) -> Dir {
        let fd = above.exists.then(|| self.open(path)).flatten();
        let mut dir = Dir {
            repo: above.repo,
            rules: above.rules.clone(),
            covered: above.covered,
            git: above.git,
            exists: fd.is_some(),
        };
        let Some(fd) = fd else {
            // Not really there, so it has no rules of its own, but it may be covered by those above it.
            dir.covered |= above.repo.is_some_and(|repo| self.matches(above, repo, path, true));
            return dir;
        };
        let skip = if path.is_empty() { 0 } else { path.len() + 1 };
        let root = self.top.join(os_path(path));
        dir.git |= is(&fd, "worktrees", FileType::Directory)
            && is(&fd, "objects", FileType::Directory)
            && is(&fd, "HEAD", FileType::RegularFile);
        if let Some(common) = git_folder(&root) {
            let excludes = [
                matcher(&read_file(open_file(&common.join("info/exclude")))),
                matcher(&read_file(
                    self.owner.excludes_file(&root).and_then(|p| File::open(p).ok()),
                )),
            ];
            dir.repo = Some(self.repos.len());
            (dir.rules, dir.covered) = (None, false);
            self.repos.push(Repo { root, skip, excludes });
        } else if let Some(repo) = above.repo
            && !dir.covered
        {
            dir.covered = self.matches(above, repo, path, true);
        }
        // Git reads no rules in a covered folder: nothing below it can be taken back in.
        if dir.repo.is_some() && !dir.covered {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = openat(&fd, ".gitignore", flags, Mode::empty()).ok();
            let matcher = matcher(&read_file(file.map(File::from)));
            if !matcher.is_empty() {
                dir.rules = Some(Rc::new(Rules { matcher, skip, above: dir.rules.take() }));
            }
        }
        dir
    }

    /// Opens a folder below the top; a link on the way is no folder of this tree.
    fn open(&self, path: &[u8]) -> Option<OwnedFd> {
        let path = if path.is_empty() { b"." } else { path };
        openat2(
            self.fd.as_ref()?,
            path,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
        )
        .ok()
    }
}

fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|b| *b == b'/').map_or(&[], |at| &path[..at])
}

fn is(dir: impl AsFd, name: &str, kind: FileType) -> bool {
    statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == kind)
}

/// The common git folder of the repository whose work tree starts at `root`, if one does.
fn git_folder(root: &Path) -> Option<PathBuf> {
    let dot_git = root.join(".git");
    let meta = std::fs::symlink_metadata(&dot_git).ok()?;
    let line = |file: PathBuf| {
        let text = read_file(open_file(&file));
        let end = text.iter().position(|b| matches!(b, b'\n' | b'\r')).unwrap_or(text.len());
        text[..end].to_vec()
    };
    let folder = if meta.is_file() {
        root.join(os_path(line(dot_git).strip_prefix(b"gitdir: ")?))
    } else {
        dot_git
    };
    // An empty `.git` is no repository to git either.
    std::fs::symlink_metadata(folder.join("HEAD")).ok()?;
    match line(folder.join("commondir")) {
        common if common.is_empty() => Some(folder),
        common => Some(folder.join(os_path(&common))),
    }
}

/// Opens without waiting for whoever may hold the other end of a pipe.
fn open_file(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok().map(File::from)
}

/// The bytes of a regular file of reasonable size, else nothing.
fn read_file(file: Option<File>) -> Vec<u8> {
    let mut text = Vec::new();
    let Some(file) =
        file.filter(|f| f.metadata().is_ok_and(|m| m.is_file() && m.len() <= RULES_BYTES))
    else {
        return text;
    };
    match file.take(RULES_BYTES).read_to_end(&mut text) {
        Ok(_) => text,
        Err(_) => Vec::new(),
    }
}
