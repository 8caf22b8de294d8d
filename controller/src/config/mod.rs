//! What the owner asked for: one bot of `bots.json` and the command typed.
//!
//! `bots.json` is an array of bots; the keys of ours are listed in [`keys`], every other key belongs to the host program.
//! Entries of the path lists are taken alike everywhere: see [`crate::policy::paths`].

mod document;
mod keys;
pub mod known;
mod read;

pub use document::Place;
pub use known::KnownCli;

use crate::error::{Failure, Kind, Result};
use crate::session::store::show;
use crate::ui::text::visible;
use document::{Source, string};
use jsonc_parser::common::Ranged;
use read::BotFields;
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
    /// `overlayBackend`.
    pub overlay: OverlayChoice,
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
    /// A policy, which this version cannot enforce yet; refused at launch.
    Policy(Origin),
}

impl NetworkChoice {
    fn from_flag(on: bool) -> Self {
        if on { Self::Host } else { Self::None }
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
        if let Some(file) = explicit {
            Source::read(file)?.bots()?;
        }
        return from_command(cmd);
    };
    let file = find(explicit, home, env)?;
    let source = Source::read(&file)?;
    let mut config = from_bot(&source, bot, cmd)?;
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

/// The bots file: the named one, else the first that exists.
fn find(
    explicit: Option<&Path>,
    home: &Path,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf> {
    if let Some(file) = explicit {
        return Ok(file.to_path_buf());
    }
    if let Some(file) = env("LANDBOX_BOTS").filter(|file| !file.is_empty()) {
        return Ok(PathBuf::from(file));
    }
    let config_home = env("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .unwrap_or_else(|| home.join(".config"));
    let places = [config_home.join("landbox/bots.json"), home.join(".botmux/bots.json")];
    for place in &places {
        // Anything but "not there" is for the reader to complain about: a file that can't be read is not a missing one.
        match std::fs::symlink_metadata(place) {
            Err(e) if matches!(e.raw_os_error(), Some(2 | 20)) => {}
            Ok(_) | Err(_) => return Ok(place.clone()),
        }
    }
    Err(Failure::new(
        Kind::Usage,
        format!("there is no bots file: neither {} nor {}", show(&places[0]), show(&places[1])),
    )
    .hint("name one: landbox run --config FILE --bot NAME"))
}

fn from_bot(source: &Source, wanted: &str, cmd: &[OsString]) -> Result<Config> {
    let bots = source.bots()?;
    let shown = visible(wanted.as_bytes());
    let file = show(&source.file);
    let mut matching: Vec<_> =
        bots.iter().filter(|bot| string(bot, "name") == Some(wanted)).collect();
    if matching.is_empty() {
        matching = bots.iter().filter(|bot| string(bot, "cliId") == Some(wanted)).collect();
    }
    let bot = match matching.as_slice() {
        [one] => *one,
        [] => {
            let names = bots.iter().filter_map(|b| string(b, "name").or(string(b, "cliId")));
            let failure = Failure::new(Kind::Usage, format!("there is no bot {shown} in {file}"));
            return Err(match keys::nearest(wanted, names.clone()) {
                Some(near) => failure.hint(format!("did you mean {}?", visible(near.as_bytes()))),
                None => {
                    let names: Vec<_> = names.map(|n| visible(n.as_bytes())).collect();
                    failure.hint(format!("it has: {}", names.join(", ")))
                }
            });
        }
        [_, second, ..] => {
            return Err(source
                .problem(second.range().start, format!("more than one bot is called {shown}"))
                .hint("give each bot a \"name\" of its own"));
        }
    };
    let fields = read::bot(source, bot).map_err(|problems| {
        let mut problems = problems.into_iter().map(|(at, what)| source.problem(at, what));
        // There is a first one, or reading would not have failed.
        let first = problems.next().unwrap_or_else(|| Failure::new(Kind::Usage, file.clone()));
        problems.fold(first, |failure, next| failure.hint(format!("also: {}", next.message)))
    })?;
    let bot_name = fields.name.clone().or_else(|| fields.cli_id.as_ref().map(|id| id.0.clone()));
    let cli = cli_of(&fields)?;
    let command: Vec<OsString> = if !cmd.is_empty() {
        cmd.to_vec()
    } else if let Some(words) = &fields.command {
        words.iter().map(OsString::from).collect()
    } else if let Some(program) = cli.and_then(|cli| cli.programs.first()) {
        vec![OsString::from(program)]
    } else {
        return Err(source
            .problem(bot.range().start, format!("bot {shown} has no command to run"))
            .hint("add \"command\", or type it: landbox run --bot NAME -- CMD"));
    };
    if command.first().is_none_or(|program| program.is_empty()) {
        return Err(Failure::new(Kind::Usage, "the command to run is empty"));
    }
    Ok(Config {
        bot: bot_name,
        file: None,
        cli: cli.or_else(|| recognise(command.first())),
        command,
        working_dir: fields.working_dir,
        env: fields.env,
        sandbox: fields.sandbox.unwrap_or(true),
        hide: fields.hide,
        read_only: fields.read_only,
        auth: fields.auth,
        network: fields.network.unwrap_or_default(),
        overlay: fields.overlay.unwrap_or_default(),
    })
}

/// The CLI a bot names. One that Landbox does not know is the host program's affair, unless it is a slip of the pen.
fn cli_of(fields: &BotFields) -> Result<Option<&'static KnownCli>> {
    let Some((id, place)) = &fields.cli_id else { return Ok(None) };
    if let Some(cli) = known::by_id(id) {
        return Ok(Some(cli));
    }
    let ids = known::KNOWN.iter().flat_map(|cli| cli.ids).copied();
    let near = ids.filter(|ours| ours.len() > 4).find(|ours| strsim::osa_distance(ours, id) == 1);
    match near {
        Some(near) => {
            let place = place.as_ref().map(|p| format!("{p}: ")).unwrap_or_default();
            let shown = visible(id.as_bytes());
            Err(Failure::new(
                Kind::Usage,
                format!("{place}unknown \"cliId\" \"{shown}\"; did you mean \"{near}\"?"),
            ))
        }
        None => Ok(None),
    }
}

/// A list entry for messages.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: \"{}\"", self.origin, visible(OsStr::as_bytes(&self.text)))
    }
}

#[cfg(test)]
mod tests;
