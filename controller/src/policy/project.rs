//! Which folder is the project, and which folders can't be anybody's.

use super::{Flags, paths, refuse};
use crate::config::{Config, Entry, Origin};
use crate::error::Result;
use crate::host::{Facts, Kind as FileKind, Located};
use landbox_shared::path::AbsPath;
use std::os::unix::ffi::OsStrExt;

/// Folders that hold the system: what a session wrote there could not be landed by anybody with sense.
const SYSTEM: &[&str] = &[
    "/",
    "/bin",
    "/boot",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/run",
    "/sbin",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/local",
    "/usr/sbin",
    "/usr/share",
    "/var",
    "/var/lib",
    "/var/log",
    "/nix",
    "/nix/store",
];

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
        (None, None) => return Ok(facts.cwd.clone()),
    };
    match paths::locate(&entry, &facts.cwd, facts)? {
        Located { path, kind: FileKind::Dir, .. } => Ok(path),
        Located { kind: FileKind::Missing, .. } => {
            Err(paths::refusal(&entry, "there is no such folder"))
        }
        Located { .. } => Err(paths::refusal(&entry, "this is not a folder you can enter")),
    }
}

/// Refuses folders that can't be anybody's project or home.
pub(super) fn check_folder(path: &AbsPath, what: &str, is_project: bool) -> Result<()> {
    let bytes = path.as_bytes();
    let below = |top: &[u8]| bytes.strip_prefix(top).is_some_and(|r| r.is_empty() || r[0] == b'/');
    let kernel = [&b"/proc"[..], b"/sys", b"/dev", crate::host::INSIDE.as_bytes()];
    let kernel = kernel.into_iter().any(below);
    // Everybody's files; as a home folder they are somebody's choice (some containers set HOME=/tmp).
    let shared = is_project && matches!(bytes, b"/tmp" | b"/var/tmp");
    if kernel || shared || SYSTEM.iter().any(|system| bytes == system.as_bytes()) {
        return Err(refuse(format!("{what} can't be {path}: that is a system folder"))
            .hint("go to a folder of your own, or name one: --workdir DIR"));
    }
    Ok(())
}
