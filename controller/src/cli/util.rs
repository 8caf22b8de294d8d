//! `landbox util`: what packages are built from, made from the one definition of the command.

use super::{Cli, Invocation, manual};
use crate::credentials;
use crate::error::{Context, Failure, Kind, Result};
use crate::host;
use crate::session::store::{Session, StateDir, show};
use clap::{Arg, Args, Command, CommandFactory, Subcommand};
use clap_complete::Shell;
use jiff::Timestamp;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct UtilArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Print the manual of every command as one page, or write one page a command
    Man {
        /// Write them here; SOURCE_DATE_EPOCH dates them
        #[arg(value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Print completions
    Completions {
        /// For which shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Wake who is named on stdin if that ends without a word
    #[command(hide = true)]
    Thaw,
    /// Put what comes on stdin in the place of a running session's login file
    #[command(hide = true)]
    HandIn {
        /// Id of the session
        id: String,
        /// The file, as the session's snapshot names it
        file: OsString,
        /// Digest of what is there inside, or none
        expected: String,
    },
    /// Let a running session see what comes on stdin: what has landed
    #[command(hide = true)]
    CatchUp {
        /// Id of the session
        id: String,
    },
}

pub(super) fn util(call: &Invocation, args: UtilArgs) -> Result<u8> {
    let failed = || "can't write the manual".to_owned();
    let text = match args.what {
        What::Man { dir: None } => manual::one(Cli::command()).context(failed)?,
        What::Man { dir: Some(dir) } => {
            write_pages(&dir)?;
            return Ok(0);
        }
        What::Completions { shell } => completions(shell),
        What::Thaw => {
            crate::land::live::guard_main(std::io::stdin().lock());
            return Ok(0);
        }
        What::HandIn { id, file, expected } => return hand_in(&id, &file, &expected),
        What::CatchUp { id } => {
            crate::land::live::catch_up_inside(&session(&id)?, std::io::stdin())?
        }
    };
    call.ui.result(text)?;
    Ok(0)
}

fn session(id: &str) -> Result<Session> {
    StateDir::open(&StateDir::locate(&host::home()?))?.find(Some(id), None)
}

fn hand_in(id: &str, file: &OsStr, expected: &str) -> Result<u8> {
    let session = session(id)?;
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).context(|| "can't read the file".into())?;
    credentials::hand_in(&session, file, expected, &bytes)
}

/// One file a page.
fn write_pages(dir: &Path) -> Result<()> {
    let date = release_date(std::env::var("SOURCE_DATE_EPOCH").ok().as_deref())?;
    for page in manual::pages(Cli::command(), &date).context(|| "can't make the manual".into())? {
        let path = dir.join(page.file);
        std::fs::write(&path, page.text).context(|| format!("can't write {}", show(&path)))?;
    }
    Ok(())
}

/// The day of the release, so that two builds of one release are equal. Empty where nobody says.
fn release_date(epoch: Option<&str>) -> Result<String> {
    let Some(epoch) = epoch else { return Ok(String::new()) };
    let time = epoch.parse().ok().and_then(|second| Timestamp::from_second(second).ok());
    let time = time.ok_or_else(|| {
        Failure::new(Kind::Usage, "SOURCE_DATE_EPOCH is not a time in seconds since 1970")
    })?;
    Ok(time.strftime("%Y-%m-%d").to_string())
}

fn completions(shell: Shell) -> Vec<u8> {
    let mut command = shown(&Cli::command(), &[]);
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut command, "landbox", &mut out);
    out
}

/// A command without what of it is hidden, subcommands and options, which the generator would complete like any other. The
/// options that every command takes are given to each by hand: one that hides such an option would else be given it again.
fn shown(command: &Command, outer: &[Arg]) -> Command {
    // A name has to outlive everything: this is run once, and then the program ends.
    let forever = |text: &str| -> &'static str { text.to_owned().leak() };
    let copy = Command::new(forever(command.get_name()));
    let copy = match command.get_about() {
        Some(about) => copy.about(about.clone()),
        None => copy,
    };
    // With it comes the flag that prints it.
    let copy = match command.get_version() {
        Some(version) => copy.version(forever(version)),
        None => copy,
    };
    let own: Vec<Arg> = command.get_arguments().cloned().collect();
    let has = |arg: &Arg| own.iter().any(|one| one.get_id() == arg.get_id());
    let taken: Vec<Arg> = outer.iter().filter(|arg| !has(arg)).cloned().collect();
    let everywhere: Vec<Arg> =
        own.iter().filter(|arg| arg.is_global_set()).chain(&taken).cloned().collect();
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    let inner = inner.map(|inner| shown(inner, &everywhere)).collect::<Vec<_>>();
    let seen = own.into_iter().chain(taken).filter(|arg| !arg.is_hide_set());
    copy.args(seen.map(|arg| arg.global(false))).subcommands(inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn the_manual_bears_the_date_of_the_release_and_not_of_the_day() {
        assert_eq!(release_date(None).unwrap(), "");
        assert_eq!(release_date(Some("1796000000")).unwrap(), "2026-11-30");
        assert!(release_date(Some("yesterday")).is_err());
    }

    #[test]
    fn every_shell_completes_every_command_that_is_shown() {
        for shell in Shell::value_variants() {
            let text = String::from_utf8(completions(*shell)).unwrap();
            assert!(text.contains("discard") && text.contains("accept-risk"), "{shell}");
            for hidden in ["Send a message", "util", "Clear an app", "landbox send"] {
                assert!(!text.contains(hidden), "{shell}: {hidden}");
            }
        }
    }

    /// Every command that is completed, by its words, with what it offers.
    fn offered(command: &Command, words: &str, all: &mut Vec<(String, Vec<String>)>) {
        let flags = command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned));
        all.push((words.to_owned(), flags.collect()));
        for inner in command.get_subcommands() {
            offered(inner, &format!("{words} {}", inner.get_name()), all);
        }
    }

    #[test]
    fn every_command_offers_what_it_takes_and_nothing_that_it_hides() {
        let mut all = Vec::new();
        offered(&shown(&Cli::command(), &[]), "landbox", &mut all);
        assert!(all.len() > 15, "{all:?}");
        for (words, flags) in all {
            for flag in ["config", "color", "quiet", "verbose", "json"] {
                let never = flag == "json" && ["landbox run", "landbox resume"].contains(&&*words);
                let times = flags.iter().filter(|one| *one == flag).count();
                assert_eq!(times, usize::from(!never), "{words} --{flag}");
            }
        }
        let bash = String::from_utf8(completions(Shell::Bash)).unwrap();
        let run = bash.split_once("        landbox__subcmd__run)\n").unwrap().1;
        let run = run.lines().next().unwrap();
        assert!(run.contains("--report") && !run.contains("--json"), "{run}");
    }

    #[test]
    fn the_definition_of_the_command_is_sound() {
        Cli::command().debug_assert();
    }
}
