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
    use std::os::unix::ffi::OsStringExt;

    fn said(line: &str) -> String {
        let mut error = Cli::try_parse_from(line.split(' ')).unwrap_err();
        advise(&mut error, line.split(' ').skip(1).map(Into::into));
        error.render().to_string()
    }

    #[test]
    fn a_mistake_names_the_next_step() {
        for (line, tip) in [
            // The parser's own, and ours where that has none.
            ("landbox discrd s", "'discard'"),
            ("landbox rnu -- ls", "'run'"),
            ("landbox gd", "'gc'"),
            ("landbox help lnad", "'land'"),
            ("landbox discard", "tip: landbox ls lists the sessions"),
            ("landbox resume -- ls", "tip: landbox ls lists the sessions"),
            ("landbox --json rewind --yes", "tip: landbox ls lists the sessions"),
            ("landbox discard a b", "tip: landbox discard takes one session at a time"),
            ("landbox show a b", "tip: landbox show takes one session at a time"),
        ] {
            assert!(said(line).contains(tip), "{line}: {}", said(line));
        }
    }

    #[test]
    fn a_mistake_of_which_nothing_is_known_gets_no_tip() {
        for line in [
            "landbox nothing-like-it",
            "landbox discard a --bogus",
            // What is missing, or too much, is no session; one of the words is only called like a command.
            "landbox sandbox-network-policy explain show",
            "landbox receipt verify",
            "landbox ls a",
            "landbox doctor --color show",
        ] {
            let said = said(line);
            assert!(!said.contains("lists the sessions") && !said.contains("at a time"), "{said}");
            assert!(!said.contains("similar") || line.contains("--bogus"), "{said}");
        }
    }

    #[test]
    fn a_parser_that_says_less_or_other_things_is_listened_to_all_the_same() {
        let silent = [
            ErrorKind::InvalidSubcommand,
            ErrorKind::MissingRequiredArgument,
            ErrorKind::UnknownArgument,
        ];
        for kind in silent {
            for context in
                [None, Some(ContextValue::Bool(true)), Some(ContextValue::Strings(Vec::new()))]
            {
                let mut error = clap::Error::new(kind);
                for what in [ContextKind::InvalidArg, ContextKind::InvalidSubcommand] {
                    context.iter().for_each(|value| drop(error.insert(what, value.clone())));
                }
                advise(&mut error, ["show".into()].into_iter());
                assert!(error.get(ContextKind::Suggested).is_none(), "{kind:?} {context:?}");
                assert!(
                    error.get(ContextKind::SuggestedSubcommand).is_none(),
                    "{kind:?} {context:?}"
                );
            }
        }
        // Names are bytes: one that is no text is no command.
        let mut error = Cli::try_parse_from(["landbox", "show", "a", "b"]).unwrap_err();
        advise(&mut error, [OsString::from_vec(vec![0xff]), "show".into()].into_iter());
        assert!(error.render().to_string().contains("landbox show takes one"), "{error}");
    }

    #[test]
    fn the_nearest_name_is_near() {
        for (typed, name) in [
            ("lnd", Some("land")),
            ("shwo", Some("show")),
            ("checkpiont", Some("checkpoint")),
            ("sandbox-networkpolicy", Some("sandbox-network-policy")),
            ("util", None),
            ("", None),
            ("xyz", None),
        ] {
            assert_eq!(nearest(typed).as_deref(), name, "{typed}");
        }
    }

    #[test]
    fn checkpoints_to_throw_away_may_be_listed() {
        assert!(Cli::try_parse_from("landbox discard s --checkpoint 1,2".split(' ')).is_ok());
    }
}
