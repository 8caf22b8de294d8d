//! What a session may do: configuration and flags, resolved against the facts of this host.

pub mod environment;
pub(crate) mod layers;
mod masks;
pub mod paths;
mod worktree;

use crate::config::{Config, Entry, NetworkChoice, Origin, OverlayChoice};
use crate::error::{Failure, Kind, Result};
use crate::host::{Facts, Kind as FileKind, Located, run};
use crate::ui::text::visible;
use landbox_shared::path::AbsPath;
use landbox_shared::policy::{Network, POLICY_VERSION, Policy, SeccompProfile};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The flags of `run` that add to the configuration or decide over it.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--workdir`.
    pub workdir: Option<PathBuf>,
    /// `--hide`.
    pub hide: Vec<OsString>,
    /// `--read-only`.
    pub read_only: Vec<OsString>,
    /// `--auth`.
    pub auth: Vec<OsString>,
    /// `--network`.
    pub network: Option<OsString>,
    /// `--overlay`.
    pub overlay: Option<String>,
}

/// A policy and what the owner should know about it.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// What the session may do.
    pub policy: Policy,
    /// Sentences for the terminal.
    pub warnings: Vec<String>,
}

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

pub(crate) fn refuse(message: String) -> Failure {
    Failure::new(Kind::Usage, message)
}

/// Decides what a session may do. `env` is a look into the caller's environment.
pub fn resolve(
    config: &Config,
    flags: &Flags,
    facts: &Facts,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<Resolved> {
    let mut warnings = Vec::new();
    let project = working_dir(config, flags, facts)?;
    check_folder(&project, "the project", true)?;
    check_folder(&facts.home, "your home folder", false)?;
    let network = network(config, flags)?;
    let overlay = overlay(config, flags)?;

    let hide = merged(&config.hide, &flags.hide, "--hide");
    let masks = masks::decide(&hide, &project, facts, &mut warnings)?;
    let is_masked = |path: &AbsPath| masks.iter().any(|mask| path.is_within(&mask.path));

    let mut read_only = Vec::new();
    for entry in merged(&config.read_only, &flags.read_only, "--read-only") {
        let at = paths::locate(&entry, &project, facts)?;
        let covers = if facts.home.is_within(&at.path) {
            Some("your home folder")
        } else if project.is_within(&at.path) {
            Some("the project")
        } else {
            None
        };
        if let Some(covered) = covers {
            warnings.push(format!("{entry}: ignored, it would make {covered} read-only"));
        } else if is_masked(&at.path) {
            warnings.push(format!("{entry}: {} is hidden, which wins over read-only", at.path));
        } else if matches!(at.kind, FileKind::Dir | FileKind::File) && !read_only.contains(&at.path)
        {
            read_only.push(at.path);
        }
    }

    let mut auth: Vec<AbsPath> = Vec::new();
    for entry in merged(&config.auth, &flags.auth, "--auth") {
        let at = paths::locate(&entry, &project, facts)?;
        if facts.home.is_within(&at.path) || project.is_within(&at.path) {
            return Err(paths::refusal(
                &entry,
                "this would give the session your real home folder or project",
            )
            .hint("name the login files alone"));
        }
        match at.kind {
            FileKind::Missing => warnings.push(format!(
                "{entry}: {} does not exist, so nothing is shared; make it first",
                at.path
            )),
            FileKind::Denied => {
                warnings.push(format!("{entry}: you can't reach it yourself; nothing is shared"));
            }
            FileKind::Dir
            | FileKind::File
            | FileKind::Socket
            | FileKind::Special
            | FileKind::Link => {
                if is_masked(&at.path) {
                    warnings.push(format!("{entry}: {} is hidden, which wins", at.path));
                } else if read_only.contains(&at.path) {
                    // The stricter of two rules for one path.
                    warnings.push(format!("{entry}: {} is read-only, which wins", at.path));
                } else if !auth.contains(&at.path) {
                    auth.push(at.path);
                }
            }
        }
    }

    let common = match worktree::metadata(&facts.files, &project) {
        worktree::Metadata::Linked(path) => Some(path),
        // The home layer holds it already, if it lies there.
        worktree::Metadata::Above(path) => Some(path).filter(|path| !path.is_within(&facts.home)),
        worktree::Metadata::Inside => None,
    };
    let decided = layers::decide(facts, &project, common, &masks, &read_only, overlay)?;
    warnings.extend(decided.warnings);
    for path in decided.read_only {
        if !read_only.contains(&path) {
            read_only.push(path);
        }
    }

    let credentials = credentials(config, facts, &project, &env, &mut warnings)
        .into_iter()
        .filter(|path| {
            let is_real = |real: &AbsPath| path.is_within(real);
            !is_masked(path) && !auth.iter().any(is_real) && !read_only.iter().any(is_real)
        })
        .collect();
    let search_path = search_path(config, &env);
    let programs = programs(&config.command, &search_path, &project, facts);
    for program in &programs {
        if is_masked(program) {
            warnings.push(format!("{program} is hidden, so the command can't start"));
        }
    }
    let run_folders = run::folders(&facts.files, &search_path, programs);

    Ok(Resolved {
        policy: Policy {
            version: POLICY_VERSION,
            uid: facts.uid,
            gid: facts.gid,
            home: facts.home.clone(),
            project,
            layers: decided.layers,
            masks,
            read_only,
            auth,
            credentials,
            run_folders,
            network,
            seccomp: SeccompProfile::Base,
            env: config.env.clone(),
            env_removed: environment::REMOVED.iter().map(|name| (*name).to_owned()).collect(),
        },
        warnings,
    })
}

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
fn check_folder(path: &AbsPath, what: &str, is_project: bool) -> Result<()> {
    let bytes = path.as_bytes();
    let below = |top: &[u8]| bytes.strip_prefix(top).is_some_and(|r| r.is_empty() || r[0] == b'/');
    let kernel = below(b"/proc")
        || below(b"/sys")
        || (below(b"/dev") && bytes.strip_prefix(b"/dev/shm/").is_none())
        || below(crate::host::INSIDE.as_bytes());
    // Everybody's files; as a home folder they are somebody's choice (some containers set HOME=/tmp).
    let shared = is_project && matches!(bytes, b"/tmp" | b"/var/tmp" | b"/dev/shm");
    if kernel || shared || SYSTEM.iter().any(|system| bytes == system.as_bytes()) {
        return Err(refuse(format!("{what} can't be {path}: that is a system folder"))
            .hint("go to a folder of your own, or name one: --workdir DIR"));
    }
    Ok(())
}

fn merged(config: &[Entry], flags: &[OsString], name: &'static str) -> Vec<Entry> {
    let flags = flags.iter().map(|text| Entry { text: text.clone(), origin: Origin::Flag(name) });
    config.iter().cloned().chain(flags).collect()
}

fn network(config: &Config, flags: &Flags) -> Result<Network> {
    let choice = match flags.network.as_deref().map(OsStr::as_bytes) {
        None => config.network.clone(),
        Some(b"on") => NetworkChoice::Host,
        Some(b"off") => NetworkChoice::None,
        Some(_) => NetworkChoice::Policy(Origin::Flag("--network")),
    };
    match choice {
        NetworkChoice::Host => Ok(Network::Host),
        NetworkChoice::None => Ok(Network::None),
        NetworkChoice::Policy(origin) => Err(Failure::new(
            Kind::Unavailable,
            format!("{origin}: a network policy is not supported yet"),
        )
        .hint("--network off cuts the session off; --network on gives it the host's network")),
    }
}

fn overlay(config: &Config, flags: &Flags) -> Result<OverlayChoice> {
    let Some(text) = &flags.overlay else { return Ok(config.overlay) };
    OverlayChoice::parse(text).ok_or_else(|| {
        let shown = visible(text.as_bytes());
        refuse(format!("--overlay must be auto, kernel or fuse, not \"{shown}\""))
    })
}

/// Where the CLI's login files are declared to be, as seen inside.
fn credentials(
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

fn search_path(config: &Config, env: &impl Fn(&str) -> Option<OsString>) -> OsString {
    let set = config.env.iter().find(|(name, _)| name == "PATH");
    set.map(|(_, value)| OsString::from(value)).or_else(|| env("PATH")).unwrap_or_default()
}

/// The program of a command by the names it is reached by, and its interpreter where it is a script.
fn programs(
    command: &[OsString],
    search_path: &OsStr,
    project: &AbsPath,
    facts: &Facts,
) -> Vec<AbsPath> {
    let Some(program) = command.first().filter(|program| !program.is_empty()) else {
        return Vec::new();
    };
    let is_file = |path: &Path| facts.files.locate(path).filter(|at| at.kind == FileKind::File);
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
    let interpreter = interpreter(&at.path).as_deref().and_then(is_file).map(|at| at.path);
    at.links.into_iter().chain([at.path]).chain(interpreter).collect()
}

/// What a script's first line names.
fn interpreter(script: &AbsPath) -> Option<PathBuf> {
    let mut head = Vec::new();
    std::fs::File::open(script.as_path()).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let word = line.trim_ascii().split(|b| matches!(b, b' ' | b'\t')).next()?;
    word.starts_with(b"/").then(|| PathBuf::from(OsStr::from_bytes(word)))
}

#[cfg(test)]
mod tests;
