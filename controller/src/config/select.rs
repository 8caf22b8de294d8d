//! Which file, which bot, which CLI.

use super::document::{Source, failure, string};
use super::read::{self, BotFields};
use super::{Config, KnownCli, keys, known, recognise};
use crate::error::{Failure, Kind, Result};
use crate::session::store::show;
use crate::ui::text::visible;
use jsonc_parser::common::Ranged;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The bots file that somebody named.
pub(super) fn named(
    explicit: Option<&Path>,
    env: impl Fn(&str) -> Option<OsString>,
) -> Option<PathBuf> {
    let variable = || env("LANDBOX_BOTS").filter(|file| !file.is_empty()).map(PathBuf::from);
    explicit.map(Path::to_path_buf).or_else(variable)
}

/// Checks every bot of a file of which none is asked for.
pub(super) fn check(source: &Source) -> Result<()> {
    let bots = source.bots()?;
    let problems: Vec<_> = bots.iter().flat_map(|bot| read::check(source, bot)).collect();
    if problems.is_empty() { Ok(()) } else { Err(failure(source, problems)) }
}

/// The bots file: the named one, else the first that exists.
pub(super) fn find(
    explicit: Option<&Path>,
    home: &Path,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf> {
    if let Some(file) = named(explicit, &env) {
        return Ok(file);
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
    .hint(format!(
        "make {} (man bots.json, in the sources man -l packaging/man/bots.json.5, has an example)",
        show(&places[0])
    ))
    .hint("or name another: landbox run --config FILE --bot NAME"))
}

/// The bot that `wanted` names, by its `name`, else by a `cliId` that no other has.
pub(super) fn from_bot(source: &Source, wanted: &str, cmd: &[OsString]) -> Result<Config> {
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
            // It may be one whose name can't be told.
            let wrong: Vec<_> = bots.iter().flat_map(|bot| read::naming(source, bot)).collect();
            if !wrong.is_empty() {
                return Err(failure(source, wrong));
            }
            let names = bots.iter().filter_map(|b| string(b, "name").or(string(b, "cliId")));
            let missing = Failure::new(Kind::Usage, format!("there is no bot {shown} in {file}"));
            return Err(match keys::nearest(wanted, names.clone()) {
                Some(near) => missing.hint(format!("did you mean {}?", visible(near.as_bytes()))),
                None => {
                    let names: Vec<_> = names.map(|n| visible(n.as_bytes())).collect();
                    missing.hint(match names.as_slice() {
                        [] => "no bot in it has a \"name\" or a \"cliId\"".to_owned(),
                        names => format!("it has: {}", names.join(", ")),
                    })
                }
            });
        }
        [_, second, ..] => {
            return Err(source
                .problem(second.range().start, format!("more than one bot is called {shown}"))
                .hint("give each bot a \"name\" of its own"));
        }
    };
    let fields = read::bot(source, bot).map_err(|problems| failure(source, problems))?;
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
            .hint(format!("add \"command\", or type it: landbox run --bot {shown} -- CMD")));
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
        outside: fields.outside,
        overlay: fields.overlay.unwrap_or_default(),
        packaged_helper: fields.packaged_helper.unwrap_or(false),
        checkpoints: fields.checkpoints.unwrap_or_default(),
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
