//! Merging three texts: `git merge-file`, run on private copies in a folder of ours, outside every repository, with an
//! environment and a configuration of ours. It is the owner's own git, found where no session can have put it; nothing
//! in the three texts is a program, an attribute or a configuration to it.

use super::Clash;
use crate::error::{Context, Result};
use crate::land::ignore::Owner;
use crate::session::scratch::Scratch;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Largest text that is merged.
pub(super) const MOST: u64 = 8 << 20;
/// Bytes at the start in which git looks for a NUL to call content binary.
const HEAD: usize = 8000;
/// How long git may take: texts made to be slow to compare are not worth more.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) const BINARY: &str = "it is binary";
pub(super) const LARGE: &str = "it is too large to be merged";
pub(super) const NO_GIT: &str = "there is no git here to merge it with";
pub(super) const NOT_KEPT: &str = "what it was before is no longer to be had";
const SLOW: &str = "git does not get done with merging it";
const FAILED: &str = "git can't merge it";

/// What became of three texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Merged {
    /// One text.
    Clean(Vec<u8>),
    /// One text with conflict markers.
    Marked(Vec<u8>),
    /// None.
    Not(Clash),
}

/// Where merging is done.
#[derive(Debug)]
pub(super) struct Merger {
    git: Option<PathBuf>,
    dir: PathBuf,
}

impl Merger {
    /// With the owner's git, below `dir`, for files of `project`.
    pub(super) fn new(dir: &Path, project: &Path) -> Self {
        Self { git: Owner::from_env(project).git, dir: dir.to_owned() }
    }

    /// Merges.
    pub(super) fn merge(&self, base: &[u8], mine: &[u8], theirs: &[u8]) -> Result<Merged> {
        let binary = |bytes: &[u8]| bytes.iter().take(HEAD).any(|b| *b == 0);
        if [base, mine, theirs].into_iter().any(binary) {
            return Ok(Merged::Not(Clash::Content(BINARY)));
        }
        let Some(git) = &self.git else { return Ok(Merged::Not(Clash::Content(NO_GIT))) };
        let what = || "can't merge in the session's folder".to_owned();
        let scratch = Scratch::new(&self.dir)?;
        for (name, bytes) in [("mine", mine), ("base", base), ("theirs", theirs)] {
            std::fs::write(scratch.path().join(name), bytes).context(what)?;
        }
        let mut child = Command::new(git)
            .args(["merge-file", "-q"])
            .args(["-L", "mine", "-L", "base", "-L", "theirs", "mine", "base", "theirs"])
            .current_dir(scratch.path())
            .env_clear()
            .envs([
                ("PATH", "/usr/bin:/bin"),
                ("LC_ALL", "C"),
                ("HOME", "/dev/null"),
                ("GIT_CONFIG_NOSYSTEM", "1"),
                ("GIT_CONFIG_SYSTEM", "/dev/null"),
                ("GIT_CONFIG_GLOBAL", "/dev/null"),
                ("GIT_ATTR_NOSYSTEM", "1"),
                ("GIT_TERMINAL_PROMPT", "0"),
            ])
            // No repository around the state folder has a say.
            .env("GIT_CEILING_DIRECTORIES", scratch.path().parent().unwrap_or(Path::new("/")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context(|| "can't start git".into())?;
        let until = Instant::now() + PATIENCE;
        let mut pause = Duration::from_micros(200);
        let status = loop {
            if let Some(status) = child.try_wait().context(what)? {
                break status;
            }
            if Instant::now() > until {
                let _ = child.kill();
                let _ = child.wait();
                return Ok(Merged::Not(Clash::Content(SLOW)));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        };
        let result = || std::fs::read(scratch.path().join("mine")).context(what);
        match status.code() {
            Some(0) => Ok(Merged::Clean(result()?)),
            // The number of conflicts, cut off there.
            Some(1..=127) => Ok(Merged::Marked(result()?)),
            Some(_) | None => Ok(Merged::Not(Clash::Content(FAILED))),
        }
    }
}
