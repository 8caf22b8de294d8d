//! What a session may do: configuration and flags, resolved against the facts of this host.

mod credentials;
pub mod environment;
pub(crate) mod layers;
mod masks;
pub mod network;
pub mod paths;
pub(crate) mod program;
mod project;
pub mod suggest;
mod worktree;

pub use project::working_dir;

use crate::config::{Config, Entry, NetworkChoice, Origin, OverlayChoice};
use crate::error::{Failure, Kind, Result};
use crate::host::{Facts, Kind as FileKind, run};
use crate::ui::text::visible;
use landbox_shared::path::AbsPath;
use landbox_shared::policy::{POLICY_VERSION, Policy};
use std::ffi::OsString;
use std::path::PathBuf;

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
    pub network: Option<NetworkChoice>,
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

pub(crate) fn refuse(message: String) -> Failure {
    Failure::new(Kind::Usage, message)
}

/// Refuses flags that ask for a boundary where the bot has none: never silently less than what was typed.
pub fn bare(config: &Config, flags: &Flags) -> Result<()> {
    let asked = [("--hide", &flags.hide), ("--read-only", &flags.read_only)];
    match asked.into_iter().find(|(_, paths)| !paths.is_empty()) {
        Some((flag, _)) if !config.sandbox => Err(Failure::new(
            Kind::Refused,
            format!("{flag} needs the sandbox, and this bot has \"sandbox\": false"),
        )
        .hint("let it have its sandbox, or leave the flag out")),
        Some(_) | None => Ok(()),
    }
}

/// Decides what a session may do. `env` is a look into the caller's environment.
pub fn resolve(
    config: &Config,
    flags: &Flags,
    facts: &Facts,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<Resolved> {
    let mut warnings = Vec::new();
    let project = project::working_dir(config, flags, facts)?;
    project::check(&project)?;
    let (network, seccomp) = network::resolve(config, flags, &mut warnings);
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

    let credentials = credentials::decide(config, facts, &project, &env, &mut warnings)
        .into_iter()
        .filter(|path| {
            let is_real = |real: &AbsPath| path.is_within(real);
            !is_masked(path) && !auth.iter().any(is_real) && !read_only.iter().any(is_real)
        })
        .collect();
    let search_path = program::search_path(config, &env);
    let programs = program::files(&config.command, &search_path, &project, facts);
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
            seccomp,
            env: config.env.clone(),
            env_removed: environment::REMOVED.iter().map(|name| (*name).to_owned()).collect(),
        },
        warnings,
    })
}

fn merged(config: &[Entry], flags: &[OsString], name: &'static str) -> Vec<Entry> {
    let flags = flags.iter().map(|text| Entry { text: text.clone(), origin: Origin::Flag(name) });
    config.iter().cloned().chain(flags).collect()
}

fn overlay(config: &Config, flags: &Flags) -> Result<OverlayChoice> {
    let Some(text) = &flags.overlay else { return Ok(config.overlay) };
    OverlayChoice::parse(text).ok_or_else(|| {
        let shown = visible(text.as_bytes());
        refuse(format!("--overlay must be auto, kernel or fuse, not \"{shown}\""))
    })
}

#[cfg(test)]
mod tests;
