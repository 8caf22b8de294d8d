//! What the owner asked for: one bot of `bots.json` and the command typed.
//!
//! `bots.json` is an array of bots; the keys of ours are listed in `keys.rs`, every other key belongs to the host program.
//! Entries of the path lists are taken alike everywhere: see [`crate::policy::paths`].

mod document;
mod keys;
pub mod known;
pub mod network;
mod outside;
mod read;
mod select;

pub use document::Place;
pub use known::KnownCli;
pub use outside::names_mcp_socket;

use crate::error::{Failure, Kind, Result};
use crate::ui::text::visible;
use document::Source;
use landbox_shared::network::NetworkPolicy;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the owner asked for, apart from flags.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The bot's name (its `name`, else its `cliId`), where one was asked for.
    pub bot: Option<String>,
    /// The file it came from.
    pub file: Option<PathBuf>,
    /// The CLI, where it is a known one.
    pub cli: Option<&'static KnownCli>,
    /// The program and its arguments; not empty.
    pub command: Vec<OsString>,
    /// `workingDir`.
    pub working_dir: Option<Entry>,
    /// `env`, in order.
    pub env: Vec<(String, String)>,
    /// False for `sandbox: false`: the command runs bare.
    pub sandbox: bool,
    /// `sandboxHidePaths`.
    pub hide: Vec<Entry>,
    /// `sandboxReadonlyPaths`.
    pub read_only: Vec<Entry>,
    /// `authPaths`.
    pub auth: Vec<Entry>,
    /// `sandboxNetwork`, `sandboxNetworkPolicy`.
    pub network: NetworkChoice,
    /// What else the bot asks for that a network policy can't hold, a sentence each.
    pub outside: Vec<String>,
    /// `overlayBackend`.
    pub overlay: OverlayChoice,
    /// `requirePackagedHelper`.
    pub packaged_helper: bool,
    /// `checkpoints`.
    pub checkpoints: Checkpoints,
}

/// A path as the owner wrote it, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The text, nothing expanded.
    pub text: OsString,
    /// Where it was written.
    pub origin: Origin,
}

/// Where something was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A line of a file.
    File(Place),
    /// A flag.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(place) => place.fmt(f),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// What the session may reach over the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NetworkChoice {
    /// The host's network.
    #[default]
    Host,
    /// Loopback alone.
    None,
    /// What a policy lets through.
    Policy(Box<NetworkPolicy>, Origin),
}

impl NetworkChoice {
    fn from_flag(on: bool) -> Self {
        if on { Self::Host } else { Self::None }
    }

    /// Reads what `--network` was given: `on`, `off` or a file that holds a policy.
    pub fn from_text(text: &OsStr) -> Result<Self> {
        match text.as_bytes() {
            b"on" => Ok(Self::Host),
            b"off" => Ok(Self::None),
            name if !Path::new(text).exists() => {
                let shown = visible(name);
                let message =
                    format!("--network must be on, off or a policy file, not \"{shown}\"");
                Err(Failure::new(Kind::Usage, message).hint("there is no file of that name"))
            }
            _ => {
                let policy = Box::new(network::load(Path::new(text))?);
                Ok(Self::Policy(policy, Origin::Flag("--network")))
            }
        }
    }
}

/// Which overlay writes the layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverlayChoice {
    /// The best one each layer can have.
    #[default]
    Auto,
    /// The kernel's, or nothing.
    Kernel,
    /// fuse-overlayfs, or nothing.
    Fuse,
}

impl OverlayChoice {
    /// Reads `auto`, `kernel` or `fuse`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "kernel" => Some(Self::Kernel),
            "fuse" => Some(Self::Fuse),
            _ => None,
        }
    }
}

/// When checkpoints are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checkpoints {
    /// By themselves, before each turn that finds something changed; and when their owner asks.
    #[default]
    Turn,
    /// When their owner asks.
    Manual,
}

impl Checkpoints {
    /// Reads `turn` or `manual`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "turn" => Some(Self::Turn),
            "manual" => Some(Self::Manual),
            _ => None,
        }
    }
}

/// Reads the configuration. `explicit` is `--config`, `bot` is `--bot`, `cmd` what was typed after the flags, `home` the
/// caller's home folder and `env` a look into the environment.
pub fn load(
    explicit: Option<&Path>,
    bot: Option<&str>,
    cmd: &[OsString],
    home: &Path,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<Config> {
    let Some(bot) = bot else {
        // A named file is checked although no bot of it is used: never a silent default.
        if let Some(file) = select::named(explicit, env) {
            select::check(&Source::read(&file, "bots")?)?;
        }
        return from_command(cmd);
    };
    let file = select::find(explicit, home, env)?;
    let source = Source::read(&file, "bots")?;
    let mut config = select::from_bot(&source, bot, cmd)?;
    config.file = Some(file);
    Ok(config)
}

fn from_command(cmd: &[OsString]) -> Result<Config> {
    if cmd.first().is_none_or(|program| program.is_empty()) {
        return Err(Failure::new(Kind::Usage, "there is no command to run")
            .hint("landbox run -- claude")
            .hint("landbox run --bot NAME"));
    }
    Ok(Config {
        cli: recognise(cmd.first()),
        command: cmd.to_vec(),
        sandbox: true,
        ..Config::default()
    })
}

fn recognise(program: Option<&OsString>) -> Option<&'static KnownCli> {
    Path::new(program?).file_name()?.to_str().and_then(known::by_program)
}

/// A list entry for messages.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: \"{}\"", self.origin, visible(OsStr::as_bytes(&self.text)))
    }
}

#[cfg(test)]
mod tests;
