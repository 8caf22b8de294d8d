//! Running git: the owner's own program, with an environment of our making.

use crate::error::{Context, Failure, Kind, Result};
use crate::land::ignore::{Owner, harmless};
use crate::ui::text::visible;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};

/// Who the owner is may be said by the environment, too; nothing else of git's is taken from there.
const IDENTITY: [&str; 5] =
    ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "EMAIL"];
/// Most of git's own words that are passed on.
const SAID: usize = 400;

/// The owner's git.
#[derive(Clone, Debug)]
pub(super) struct Git {
    program: PathBuf,
    owner: Owner,
    identity: Vec<(&'static str, OsString)>,
}

impl Git {
    /// Finds it; one inside the project does not count.
    pub(super) fn find(project: &Path) -> Result<Self> {
        Self::of(Owner::from_env(project))
    }

    pub(super) fn of(owner: Owner) -> Result<Self> {
        let program = owner.git.clone().ok_or_else(|| {
            Failure::new(Kind::Unavailable, "git is not installed")
                .hint("--patch FILE needs no git")
        })?;
        let set = |name| Some((name, std::env::var_os(name).filter(|v| !v.is_empty())?));
        let identity = IDENTITY.into_iter().filter_map(set).collect();
        Ok(Self { program, owner, identity })
    }

    /// Git in a folder of the owner's, with the owner's configuration.
    pub(super) fn at(&self, folder: &Path) -> Command {
        let mut command = self.bare(folder);
        command
            .envs(self.owner.home.as_ref().map(|v| ("HOME", v)))
            .envs(self.owner.config_home.as_ref().map(|v| ("XDG_CONFIG_HOME", v)))
            .envs(self.identity.iter().map(|(name, value)| (name, value)));
        // Root works on other people's repositories; whoever else does is refused by git, with its reasons.
        if rustix::process::geteuid().is_root() {
            command.args(["-c", "safe.directory=*"]);
        }
        command
    }

    /// Git in a repository of ours, with no configuration but what lies there.
    pub(super) fn private(&self, folder: &Path) -> Command {
        let mut command = self.bare(folder);
        command
            .envs([("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null")])
            .envs([("GIT_ATTR_NOSYSTEM", "1"), ("HOME", "/nonexistent")])
            .env("GIT_DIR", folder)
            .args(["-c", "safe.directory=*"]);
        command
    }

    fn bare(&self, folder: &Path) -> Command {
        let mut command = harmless(&self.program, folder);
        command
            .args(["-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "core.pager=cat"])
            .stderr(Stdio::piped());
        command
    }
}

/// Runs a command to its end and gives what it said, whether it succeeded or not.
pub(super) fn outcome(command: &mut Command) -> Result<Output> {
    command.output().context(|| "can't run git".into())
}

/// Runs a command that must succeed; gives its standard output.
pub(super) fn output(command: &mut Command, what: &str) -> Result<Vec<u8>> {
    let out = outcome(command)?;
    if out.status.success() { Ok(out.stdout) } else { Err(failed(what, &out)) }
}

/// The same, of a command that gets no more than so many seconds of a processor, because of what it is given to work on.
pub(super) fn bounded(command: &mut Command, seconds: u64, what: &str) -> Result<Vec<u8>> {
    let child = command.spawn().context(|| "can't run git".into())?;
    let limit = Rlimit { current: Some(seconds), maximum: Some(seconds) };
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // One that has ended already needs no bound.
    let _ = pid.map(|pid| prlimit(Some(pid), Resource::Cpu, limit));
    let out = child.wait_with_output().context(|| "can't run git".into())?;
    if out.status.success() { Ok(out.stdout) } else { Err(failed(what, &out)) }
}

/// The same, of one line without its end.
pub(super) fn line(command: &mut Command, what: &str) -> Result<Vec<u8>> {
    let mut out = output(command, what)?;
    if out.last() == Some(&b'\n') {
        out.pop();
    }
    Ok(out)
}

/// Runs a command that says little, writing to it from `write`, and gives its standard output.
pub(super) fn feed(
    command: &mut Command,
    what: &str,
    write: impl FnOnce(&mut ChildStdin) -> Result<()>,
) -> Result<Vec<u8>> {
    let spawned = command.stdin(Stdio::piped()).spawn();
    let mut child: Child = spawned.context(|| "can't run git".into())?;
    let written = match child.stdin.take() {
        Some(mut stdin) => write(&mut stdin),
        None => Ok(()),
    };
    if written.is_err() {
        // A stream that was cut short must not be taken for a whole one.
        let _ = child.kill();
    }
    let out = child.wait_with_output().context(|| "can't run git".into())?;
    match written {
        Ok(()) if out.status.success() => Ok(out.stdout),
        // What git says about its end explains a pipe that broke.
        Ok(()) => Err(failed(what, &out)),
        Err(failure) if out.stderr.is_empty() => Err(failure),
        Err(_) => Err(failed(what, &out)),
    }
}

/// Runs `command` with these bytes on its standard input, however much it says meanwhile.
pub(super) fn given(command: &mut Command, what: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    output(command.stdin(Stdio::from(memory(bytes)?)), what)
}

/// Bytes as a file without a name.
pub(super) fn memory(bytes: &[u8]) -> Result<File> {
    let make = || -> std::io::Result<File> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::memfd_create("landbox-git", flags)?);
        file.write_all(bytes)?;
        file.rewind()?;
        Ok(file)
    };
    make().context(|| "can't prepare what git is told".into())
}

fn failed(what: &str, out: &Output) -> Failure {
    let said = String::from_utf8_lossy(&out.stderr);
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let said: Vec<&str> = lines.filter(|line| !line.starts_with("hint:")).collect();
    let said = visible(said.join("; ").as_bytes());
    let (said, _) = crate::ui::text::cut(&said, SAID);
    if said.is_empty() {
        return Failure::new(Kind::Failed, format!("{what}: git failed ({})", out.status));
    }
    Failure::new(Kind::Failed, format!("{what}: {said}"))
}

/// A path that git printed.
pub(super) fn path(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    PathBuf::from(OsString::from_vec(bytes))
}

/// An object name, or another word of git's that is plain text.
pub(super) fn word(bytes: &[u8]) -> Result<String> {
    let text = std::str::from_utf8(bytes).map(str::trim).context(|| "git said no words".into())?;
    Ok(text.to_owned())
}

/// Bytes as an argument.
pub(super) fn argument(bytes: &[u8]) -> &OsStr {
    use std::os::unix::ffi::OsStrExt;
    OsStr::from_bytes(bytes)
}
