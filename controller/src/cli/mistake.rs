//! What the parser does not say of a mistake in the command line: the next step.

use super::Cli;
use clap::CommandFactory;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;

/// Adds to a mistake what can be done about it.
pub(super) fn advise(error: &mut clap::Error, words: impl Iterator<Item = OsString>) {
    let wrong = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        Some(_) | None => None,
    };
    let session = |word: &str| SESSION.contains(&word);
    let command = words.filter_map(|word| word.into_string().ok()).find(|word| session(word));
    match (error.kind(), command) {
        (ErrorKind::InvalidSubcommand, _)
            if error.get(ContextKind::SuggestedSubcommand).is_none() =>
        {
            let near = wrong(ContextKind::InvalidSubcommand).and_then(|typed| nearest(&typed));
            if let Some(near) = near {
                let near = ContextValue::Strings(vec![near]);
                error.insert(ContextKind::SuggestedSubcommand, near);
            }
        }
        (ErrorKind::MissingRequiredArgument, Some(_))
            if wrong(ContextKind::InvalidArg).is_some_and(|what| what == "<ID>") =>
        {
            tip(error, "landbox ls lists the sessions".to_owned());
        }
        (ErrorKind::UnknownArgument, Some(command))
            if wrong(ContextKind::InvalidArg).is_some_and(|what| !what.starts_with('-')) =>
        {
            tip(error, format!("landbox {command} takes one session at a time"));
        }
        _ => {}
    }
}

/// The commands that take a session and may be typed with more than one.
const SESSION: [&str; 6] = ["discard", "show", "rewind", "checkpoint", "undo", "resume"];

fn tip(error: &mut clap::Error, text: String) {
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(text)]));
}

/// The command that somebody meant who typed that.
fn nearest(typed: &str) -> Option<String> {
    let all = Cli::command();
    let names = all.get_subcommands().filter(|one| !one.is_hide_set()).map(clap::Command::get_name);
    let near = names.map(|name| (strsim::osa_distance(name, typed), name));
    let near = near.filter(|(distance, name)| *distance <= 1 + name.len() / 4).min();
    near.map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn said(line: &str) -> String {
        let mut error = Cli::try_parse_from(line.split(' ')).unwrap_err();
        advise(&mut error, line.split(' ').skip(1).map(Into::into));
        error.render().to_string()
    }

    #[test]
    fn a_mistake_names_the_next_step() {
        for (line, tip) in [
            ("landbox rnu -- ls", "'run'"),
            ("landbox help lnad", "'land'"),
            ("landbox discard", "tip: landbox ls lists the sessions"),
            ("landbox --json rewind --yes", "tip: landbox ls lists the sessions"),
            ("landbox discard a b", "tip: landbox discard takes one session at a time"),
        ] {
            assert!(said(line).contains(tip), "{line}: {}", said(line));
        }
        assert!(!said("landbox discard a --bogus").contains("at a time"));
        assert!(!said("landbox nothing-like-it").contains("tip:"));
    }

    #[test]
    fn checkpoints_to_throw_away_may_be_listed() {
        assert!(Cli::try_parse_from("landbox discard s --checkpoint 1,2".split(' ')).is_ok());
    }
}
