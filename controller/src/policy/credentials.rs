//! Where the login files of a known CLI are.

use crate::config::Config;
use crate::host::Facts;
use landbox_shared::path::AbsPath;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Where the CLI's login files are declared to be, as seen inside.
pub(super) fn decide(
    config: &Config,
    facts: &Facts,
    project: &AbsPath,
    env: &impl Fn(&str) -> Option<OsString>,
    warnings: &mut Vec<String>,
) -> Vec<AbsPath> {
    let Some(cli) = config.cli else { return Vec::new() };
    let moved = cli.moved_by.and_then(|(variable, part)| {
        let set = config.env.iter().find(|(name, _)| name == variable);
        let value = set.map(|(_, value)| OsString::from(value)).or_else(|| env(variable))?;
        let value = PathBuf::from(value);
        value.is_absolute().then_some((part, value))
    });
    let mut found = Vec::new();
    for file in cli.credentials {
        let place = match &moved {
            Some((part, folder)) if file.starts_with(part) => {
                folder.join(file[part.len()..].trim_start_matches('/'))
            }
            Some(_) | None => facts.home.as_path().join(file),
        };
        // The folder by its canonical name, the file by its declared one: it may be a link of a dotfile manager.
        let folder = place.parent().and_then(|dir| facts.files.locate(dir)).map(|at| at.path);
        let (Some(folder), Some(name)) = (folder, place.file_name()) else { continue };
        let Ok(place) = folder.join(name.as_bytes()) else { continue };
        if place.is_within(&facts.home) || place.is_within(project) {
            found.push(place);
        } else {
            warnings.push(format!(
                "the login file {place} lies outside your home folder and the project, so it is read-only inside; share it with --auth {place}"
            ));
        }
    }
    found
}
