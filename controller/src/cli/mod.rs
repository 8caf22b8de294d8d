//! The command: one definition, from which help, man pages and completions come too. One file per command.

mod bare;
mod by_hand;
mod checkpoint;
mod conflict;
mod creation;
mod diff;
mod discard;
mod doctor;
mod elsewhere;
mod gc;
mod land;
mod landed;
mod ls;
mod manual;
mod mistake;
mod outcome;
mod policy;
mod receipt;
mod remedy;
mod resume;
mod run;
mod select;
mod send;
mod show;
mod start;
mod undo;
mod util;

use crate::error::{Failure, Kind, Result};
use crate::host;
use crate::land::apply;
use crate::session::store::StateDir;
use crate::ui::{ColorChoice, Ui};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Run an AI coding CLI in a sandbox, review what it changed, land it.
#[derive(Debug, Parser)]
#[command(name = "landbox", version, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
struct Global {
    /// Read bots from FILE
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON document, as landbox-json(5) describes it
    #[arg(long, global = true)]
    json: bool,
    /// When to colour
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
    /// Print results, warnings and errors alone
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Print more
    #[arg(short, long, global = true)]
    verbose: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a command in a new session
    Run(run::RunArgs),
    /// List sessions
    Ls(ls::LsArgs),
    /// Show one session
    Show(show::ShowArgs),
    /// Show what a session changed
    Diff(diff::DiffArgs),
    /// Review a session's changes and apply them to the real project
    Land(land::LandArgs),
    /// Take the last landing back
    Undo(undo::UndoArgs),
    /// Check the receipt of a landing
    Receipt(receipt::ReceiptArgs),
    /// Keep a picture of what a session wrote so far
    Checkpoint(checkpoint::CheckpointArgs),
    /// Bring a session back to a checkpoint
    Rewind(checkpoint::RewindArgs),
    /// Throw a session's changes away
    Discard(discard::DiscardArgs),
    /// Run another command in a session that ended
    Resume(resume::ResumeArgs),
    /// Check this machine
    Doctor(doctor::DoctorArgs),
    /// Remove sessions that were landed or discarded
    Gc(gc::GcArgs),
    /// Check, explain and suggest network policies
    SandboxNetworkPolicy(policy::PolicyArgs),
    /// Send a message to the chat a session belongs to
    #[command(hide = true)]
    Send(send::SendArgs),
    /// Print man pages and completions
    #[command(hide = true)]
    Util(util::UtilArgs),
}

/// The command with `run` alone. Every start of a session would else pay for the arguments of all others.
#[derive(Debug, Parser)]
#[command(name = "landbox", version, max_term_width = 100)]
struct Starting {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Started,
}

#[derive(Debug, Subcommand)]
enum Started {
    Run(run::RunArgs),
}

/// What was typed. What is not a plain `run`, and every mistake, is for the whole definition.
fn parse() -> Result<Cli, clap::Error> {
    if names_a_run(std::env::args_os().skip(1))
        && let Ok(Starting { global, command: Started::Run(args) }) = Starting::try_parse()
    {
        return Ok(Cli { global, command: Command::Run(args) });
    }
    Cli::try_parse()
}

/// What every command is given.
#[derive(Debug)]
pub struct Invocation {
    /// How to speak.
    pub ui: Ui,
    /// `--config`.
    pub config: Option<PathBuf>,
}

/// Inside a session Landbox's state is masked: say so instead of failing on it.
fn refuse_inside() -> Result<()> {
    if host::is_inside() {
        return Err(Failure::new(
            Kind::Refused,
            "this is the inside of a session, where landbox's own state is hidden",
        )
        .hint("leave the session first"));
    }
    Ok(())
}

/// Finishes, or rolls back, whatever landing or undo broke off, and says so. What can't be put right is no obstacle to
/// a command that is about something else.
fn put_right(call: &Invocation, state: &StateDir) {
    match apply::recover_all(state) {
        Ok(notes) => notes.into_iter().for_each(|note| call.ui.warning(note)),
        Err(failure) => call.ui.warning(failure.message),
    }
}

/// The same before any command: whoever types one next is who hears of it. Nothing is made where nothing ever landed.
fn put_right_first(call: &Invocation) {
    let dir = host::home().map(|home| StateDir::locate(&home));
    if let Ok(dir) = dir
        && dir.join("landings").is_dir()
        && let Ok(state) = StateDir::open(&dir)
    {
        put_right(call, &state);
    }
}

/// What a session's command says on stdout is its own.
fn refuse_json(call: &Invocation) -> Result<()> {
    if call.ui.json {
        return Err(Failure::new(
            Kind::Usage,
            "stdout belongs to the command, so --json can't be had",
        )
        .hint("--report FILE writes the session's document at exit"));
    }
    Ok(())
}

/// Whether the first word that is neither a flag nor a flag's value is `run` or `resume`.
fn names_a_run(mut words: impl Iterator<Item = std::ffi::OsString>) -> bool {
    while let Some(word) = words.next() {
        if word == "--config" || word == "--color" {
            words.next();
        } else if !word.as_encoded_bytes().starts_with(b"-") {
            return word == "run" || word == "resume";
        }
    }
    false
}

/// Whether `--json` was typed, before any `--`.
fn wants_json(words: impl Iterator<Item = std::ffi::OsString>) -> bool {
    words.take_while(|word| word != "--").any(|word| word == "--json")
}

/// A mistake in the command line as a failure: what the parser says first is what is wrong.
fn usage(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let mut parts =
        text.split("\n\n").map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    let message = parts.next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(&message).to_owned();
    let failure = Failure::new(Kind::Usage, message);
    parts.filter(|part| !part.is_empty()).fold(failure, Failure::hint)
}

/// Runs the command that was typed and gives its exit code.
pub fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(mut error) => {
            mistake::advise(&mut error, std::env::args_os().skip(1));
            // 125 where Landbox itself failed on the way to a CLI; clap prints help and version through here too.
            let runs = names_a_run(std::env::args_os().skip(1));
            if error.use_stderr() && wants_json(std::env::args_os().skip(1)) {
                Ui::new(true, false, false, ColorChoice::Never).failure(&usage(&error));
            } else {
                let _ = error.print();
            }
            return ExitCode::from(if !error.use_stderr() {
                0
            } else if runs {
                125
            } else {
                2
            });
        }
    };
    let Global { config, json, color, quiet, verbose } = cli.global;
    let call = Invocation { ui: Ui::new(json, quiet, verbose, color), config };
    let (result, failed) = dispatch(&call, cli.command);
    match result {
        Ok(code) => {
            call.ui.release();
            ExitCode::from(code)
        }
        Err(failure) => {
            let failure = remedy::explain(failure);
            call.ui.failure(&failure);
            ExitCode::from(failed.unwrap_or_else(|| failure.kind.exit_code()))
        }
    }
}

/// Runs a command; gives its result, and the exit code of a failure where that is fixed. Only two commands make sense
/// inside a session.
fn dispatch(call: &Invocation, command: Command) -> (Result<u8>, Option<u8>) {
    let outside = refuse_inside();
    // `run` and `resume` do it themselves, and do not start where it fails for their own project.
    let elsewhere = matches!(
        command,
        Command::Run(_) | Command::Resume(_) | Command::Send(_) | Command::Util(_)
    );
    if outside.is_ok() && !elsewhere {
        put_right_first(call);
    }
    match command {
        Command::Run(args) => (
            outside.and_then(|()| refuse_json(call)).and_then(|()| run::run(call, args)),
            Some(125),
        ),
        Command::Resume(args) => {
            let ready = outside.and_then(|()| refuse_json(call));
            (ready.and_then(|()| resume::resume(call, args)), Some(125))
        }
        Command::Ls(args) => (outside.and_then(|()| ls::ls(call, args)), None),
        Command::Show(args) => (outside.and_then(|()| show::show(call, args)), None),
        Command::Diff(args) => (outside.and_then(|()| diff::diff(call, args)), None),
        Command::Land(args) => (outside.and_then(|()| land::land(call, args)), None),
        Command::Undo(args) => (outside.and_then(|()| undo::undo(call, args)), None),
        Command::Receipt(args) => (outside.and_then(|()| receipt::receipt(call, args)), None),
        Command::Checkpoint(args) => {
            (outside.and_then(|()| checkpoint::checkpoint(call, args)), None)
        }
        Command::Rewind(args) => (outside.and_then(|()| checkpoint::rewind(call, args)), None),
        Command::Discard(args) => (outside.and_then(|()| discard::discard(call, args)), None),
        Command::Doctor(args) => (outside.and_then(|()| doctor::doctor(call, args)), None),
        Command::Gc(args) => (outside.and_then(|()| gc::gc(call, args)), None),
        Command::SandboxNetworkPolicy(args) => {
            (outside.and_then(|()| policy::policy(call, args)), None)
        }
        Command::Send(args) => (send::send(call, args), None),
        Command::Util(args) => (util::util(call, args), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_errors_of_run_are_known_behind_global_flags() {
        let runs = |line: &str| names_a_run(line.split(' ').map(Into::into));
        assert!(runs("run --bogus"));
        assert!(runs("-q --config run resume --bogus"));
        assert!(!runs("ls --bogus run"));
        assert!(!runs("--bogus"));
    }
}
