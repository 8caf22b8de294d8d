//! Which folder is the project, and which folders can't be anybody's.

use super::{Flags, paths, refuse};
use crate::config::{Config, Entry, Origin};
use crate::error::Result;
use crate::host::{Facts, Kind as FileKind, Located, is_system};
use landbox_shared::path::AbsPath;
use std::os::unix::ffi::OsStrExt;

/// The project: `--workdir` (below the current folder if relative), else the bot's `workingDir`, else the current folder.
pub fn working_dir(config: &Config, flags: &Flags, facts: &Facts) -> Result<AbsPath> {
    let entry = match (&flags.workdir, &config.working_dir) {
        (Some(dir), _) => {
            Entry { text: dir.clone().into_os_string(), origin: Origin::Flag("--workdir") }
        }
        (None, Some(entry)) => {
            let text = entry.text.as_bytes();
            if !text.starts_with(b"/") && !text.starts_with(b"~") {
                return Err(paths::refusal(
                    entry,
                    "a bot's folder must be absolute or start with ~, or it would depend on where you are",
                ));
            }
            entry.clone()
        }
        (None, None) => return facts.cwd().cloned(),
    };
    let whole = entry.text.as_bytes().starts_with(b"/") || entry.text.as_bytes().starts_with(b"~");
    // What is whole by itself needs no other folder.
    let below = if whole { &facts.home } else { facts.cwd()? };
    match paths::locate(&entry, below, facts)? {
        Located { path, kind: FileKind::Dir, .. } => Ok(path),
        Located { kind: FileKind::Missing, .. } => {
            Err(paths::refusal(&entry, "there is no such folder")
                .hint("make it first, or name another: --workdir DIR"))
        }
        Located { .. } => Err(paths::refusal(&entry, "this is not a folder you can enter")),
    }
}

/// Refuses folders that can't be anybody's project.
pub(super) fn check(project: &AbsPath) -> Result<()> {
    // Everybody's files. (As a home folder they are somebody's choice: some containers set HOME=/tmp.)
    let shared = matches!(project.as_bytes(), b"/tmp" | b"/var/tmp");
    if shared || is_system(project) {
        return Err(refuse(format!("the project can't be {project}: that is a system folder"))
            .hint("go to a folder of your own, or name one: --workdir DIR"));
    }
    Ok(())
}
