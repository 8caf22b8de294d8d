//! A private repository in the session's folder, in which commits are made before the owner's repository hears of them.

use super::repo::Repo;
use super::run::{self, given, line, output, word};
use crate::error::{Context, Failure, Kind, Result};
use crate::session::scratch::Scratch;
use std::path::Path;
use std::process::{Command, Stdio};

/// Up to this many changes become single objects in the owner's repository, as git does itself; more stay a pack.
const SINGLE: usize = 100;

/// The repository. It goes with this.
#[derive(Debug)]
pub(super) struct Workshop {
    dir: Scratch,
    repo: Repo,
}

impl Workshop {
    /// Makes one that borrows the objects of `repo`.
    pub(super) fn open(repo: &Repo, session_dir: &Path) -> Result<Self> {
        let what = || "can't make a repository to work in".to_owned();
        let dir = Scratch::new(session_dir)?;
        let made = Self { dir, repo: repo.clone() };
        let format = format!("--object-format={}", repo.format.name());
        let mut init = made.command();
        init.args(["init", "-q", "--bare", "--template=", &format]);
        output(&mut init, "can't make a repository to work in")?;
        // By a link, because no path needs quoting then.
        let owner = repo.common.join("objects");
        std::os::unix::fs::symlink(owner, made.dir.path().join("owner")).context(what)?;
        let info = made.dir.path().join("objects/info");
        std::fs::create_dir_all(&info).context(what)?;
        std::fs::write(info.join("alternates"), "../owner\n").context(what)?;
        match std::fs::copy(repo.common.join("shallow"), made.dir.path().join("shallow")) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e).context(what),
            Ok(_) | Err(_) => Ok(made),
        }
    }

    /// Git in it.
    pub(super) fn command(&self) -> Command {
        self.repo.git.private(self.dir.path())
    }

    /// Where private files can lie.
    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A commit or tree by any of its names.
    pub(super) fn object(&self, name: &str) -> Result<String> {
        let mut command = self.command();
        command.args(["rev-parse", "-q", "--verify", name]);
        word(&line(&mut command, "can't find what was made")?)
    }

    /// Writes an object of ours and gives its name.
    pub(super) fn write(&self, kind: &str, bytes: &[u8]) -> Result<String> {
        let mut command = self.command();
        command.args(["hash-object", "-w", "--stdin", "-t", kind]);
        word(&given(&mut command, "can't write a commit", bytes)?)
    }

    /// Moves what `commit` needs beyond `from` to the owner's repository, checked object by object. `changes` is about how
    /// many that are.
    pub(super) fn hand_over(&self, commit: &str, from: &[String], changes: usize) -> Result<()> {
        let what = "can't write to the repository";
        let mut revs = format!("{commit}\n");
        for from in from {
            revs.push_str(&format!("^{from}\n"));
        }
        let mut pack = self.command();
        pack.args(["pack-objects", "-q", "--revs", "--stdout", "--delta-base-offset"]);
        let input = private_file(revs.as_bytes())?;
        pack.stdin(input).stderr(Stdio::null());
        let mut packing = pack.spawn().context(|| "can't run git".into())?;
        let Some(stream) = packing.stdout.take() else {
            return Err(Failure::new(Kind::Failed, what));
        };
        let mut take = self.repo.command();
        if changes <= SINGLE {
            take.args(["unpack-objects", "-q", "--strict"]);
        } else {
            take.args(["index-pack", "--stdin", "--strict"]);
        }
        let taken = output(take.stdin(stream), what);
        // With it goes our own end of the pipe: a writer whose reader has died (of a full disk) waits for no other.
        drop(take);
        let packed = packing.wait().context(|| "can't run git".into())?;
        taken?;
        if packed.success() {
            return Ok(());
        }
        Err(Failure::new(Kind::Failed, format!("{what}: git could not pack it ({packed})")))
    }
}

/// Bytes as the standard input of a command, without a pipe that could fill up.
pub(super) fn private_file(bytes: &[u8]) -> Result<Stdio> {
    run::memory(bytes).map(Stdio::from)
}
