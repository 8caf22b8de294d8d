//! Which files a command starts.

use crate::config::Config;
use crate::host::{Facts, Kind};
use landbox_shared::path::AbsPath;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// `PATH` as the task gets it.
pub(super) fn search_path(config: &Config, env: &impl Fn(&str) -> Option<OsString>) -> OsString {
    let set = config.env.iter().find(|(name, _)| name == "PATH");
    set.map(|(_, value)| OsString::from(value)).or_else(|| env("PATH")).unwrap_or_default()
}

/// The program of a command by the names it is reached by, and its interpreter where it is a script.
pub(super) fn files(
    command: &[OsString],
    search_path: &OsStr,
    project: &AbsPath,
    facts: &Facts,
) -> Vec<AbsPath> {
    let Some(program) = command.first().filter(|program| !program.is_empty()) else {
        return Vec::new();
    };
    let is_file = |path: &Path| facts.files.locate(path).filter(|at| at.kind == Kind::File);
    let spelled = if program.as_bytes().contains(&b'/') {
        Some(project.as_path().join(program))
    } else {
        search_path
            .as_bytes()
            .split(|b| *b == b':')
            .filter(|folder| folder.starts_with(b"/"))
            .map(|folder| Path::new(OsStr::from_bytes(folder)).join(program))
            .find(|path| is_file(path).is_some())
    };
    let Some(at) = spelled.as_deref().and_then(is_file) else { return Vec::new() };
    let interpreter = interpreter(at.path.as_path()).as_deref().and_then(is_file).map(|at| at.path);
    at.links.into_iter().chain([at.path]).chain(interpreter).collect()
}

/// Where a program lies outside, as the caller would find it, and its interpreter where it is a script.
pub(crate) fn outside(program: &OsStr) -> Option<(PathBuf, Option<PathBuf>)> {
    let found = if program.as_bytes().contains(&b'/') {
        Some(std::env::current_dir().ok()?.join(program)).filter(|path| path.is_file())
    } else {
        let folders = std::env::var_os("PATH")?;
        std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|p| p.is_file())
    }?;
    let interpreter = interpreter(&found);
    Some((found, interpreter))
}

/// What a script's first line names.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut head = Vec::new();
    std::fs::File::open(script).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let word = line.trim_ascii().split(|b| matches!(b, b' ' | b'\t')).next()?;
    word.starts_with(b"/").then(|| PathBuf::from(OsStr::from_bytes(word)))
}
