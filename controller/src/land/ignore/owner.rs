//! What only the owner's own git knows: their excludes file, and which paths a repository tracks.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The owner's git and where its configuration lies.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Absolute path of git; `None` where there is none.
    pub git: Option<PathBuf>,
    /// `$HOME`.
    pub home: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`, where set.
    pub config_home: Option<PathBuf>,
}

/// Git in `folder` that starts no hook, monitor or pager, waits for nobody, fetches nothing, replaces no object, and
/// takes nothing from our environment.
pub(in crate::land) fn harmless(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .arg("-C")
        .arg(folder)
        .args(["--no-pager", "--no-optional-locks", "--literal-pathspecs"])
        .args(["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"])
        // A landed folder that looks like a repository is none to us.
        .args(["-c", "safe.bareRepository=explicit"])
        .current_dir("/")
        .env_clear()
        .envs([
            ("PATH", "/usr/bin:/bin"),
            ("LC_ALL", "C"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

impl Owner {
    /// From the environment. A git inside `project` does not count: what runs must not be what a session may have made.
    pub fn from_env(project: &Path) -> Self {
        let path =
            std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        let git = std::env::split_paths(&path)
            .filter(|folder| folder.is_absolute())
            .filter_map(|folder| folder.join("git").canonicalize().ok())
            .find(|file| file.is_file() && !file.starts_with(project));
        let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        Self { git, home: set("HOME"), config_home: set("XDG_CONFIG_HOME") }
    }

    /// Git on the repository at `root`, able to read and nothing else: no hook, monitor, pager, lock or prompt.
    fn command(&self, root: &Path) -> Option<Command> {
        let mut command = harmless(self.git.as_ref()?, root);
        let mut trust = OsString::from("safe.directory=");
        trust.push(root);
        command
            .arg("-c")
            .arg(trust)
            .envs(self.home.as_ref().map(|v| ("HOME", v)))
            .envs(self.config_home.as_ref().map(|v| ("XDG_CONFIG_HOME", v)))
            .stderr(Stdio::null());
        Some(command)
    }

    /// The owner's excludes file for the repository at `root`.
    pub(super) fn excludes_file(&self, root: &Path) -> Option<PathBuf> {
        let configured = self.command(root).and_then(|mut command| {
            let command = command.args(["config", "--type=path", "--get", "core.excludesFile"]);
            let output = command.output().ok().filter(|o| o.status.success())?;
            let line = output.stdout.strip_suffix(b"\n").unwrap_or(&output.stdout);
            Some(root.join(OsStr::from_bytes(line)))
        });
        let standard = || {
            let folder =
                self.config_home.clone().or_else(|| Some(self.home.as_ref()?.join(".config")));
            Some(folder?.join("git/ignore"))
        };
        configured.or_else(standard)
    }

    /// Which of `paths` (relative to `root`) the index holds, themselves or something below them.
    pub(super) fn tracked(
        &self,
        root: &Path,
        paths: &HashSet<Vec<u8>>,
    ) -> Result<HashSet<Vec<u8>>, String> {
        let mut command = self.command(root).ok_or("git is not installed")?;
        let mut child =
            command.args(["ls-files", "-z", "--cached"]).spawn().map_err(|e| e.to_string())?;
        let mut found = HashSet::new();
        let mut read = Ok(());
        if let Some(out) = child.stdout.take() {
            let mut lines = BufReader::with_capacity(256 << 10, out);
            let mut line = Vec::new();
            loop {
                line.clear();
                match lines.read_until(0, &mut line) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(e) => {
                        read = Err(e.to_string());
                        break;
                    }
                }
                let path = line.strip_suffix(&[0]).unwrap_or(&line);
                let folders = path.iter().enumerate().filter(|(_, b)| **b == b'/');
                let ends = folders.map(|(at, _)| at).chain([path.len()]);
                found.extend(ends.filter_map(|end| paths.get(&path[..end])).cloned());
            }
        }
        let status = child.wait().map_err(|e| e.to_string())?;
        read?;
        if status.success() { Ok(found) } else { Err(format!("git ls-files: {status}")) }
    }
}

/// `path` as the standard library has it.
pub(super) fn os_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}
