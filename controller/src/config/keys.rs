//! The keys of ours in a bot, and how a misspelt one is noticed.

/// Every key of ours.
pub(super) const KEYS: &[&str] = &[
    "name",
    "cliId",
    "command",
    "workingDir",
    "env",
    "sandbox",
    "sandboxHidePaths",
    "sandboxReadonlyPaths",
    "sandboxNetwork",
    "sandboxNetworkPolicy",
    "backendType",
    "authPaths",
    "overlayBackend",
    "requirePackagedHelper",
    "checkpoints",
];

/// How a key comes near one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Near {
    /// Without a doubt.
    Misspelt(&'static str),
    /// One edit away from a short key, as half of the language is: meant where ours is missing and the value fits it.
    Perhaps(&'static str),
}

/// The key of ours that `key` comes near: one edit away once case, blanks, hyphens and underscores are put aside. Every
/// other unknown key belongs to the host program.
pub(super) fn near(key: &str) -> Option<Near> {
    if KEYS.contains(&key) {
        return None;
    }
    let plain = |text: &str| {
        text.chars()
            .filter(|c| !c.is_whitespace() && !matches!(c, '-' | '_'))
            .flat_map(char::to_lowercase)
            .collect::<String>()
    };
    let wanted = plain(key);
    let within = |bound: usize| {
        KEYS.iter().copied().find(|ours| strsim::osa_distance(&plain(ours), &wanted) <= bound)
    };
    if let Some(ours) = within(0) {
        return Some(Near::Misspelt(ours));
    }
    within(1).map(|ours| if ours.len() > 5 { Near::Misspelt(ours) } else { Near::Perhaps(ours) })
}

/// The nearest of `names`, for a message. `None` where nothing is near.
pub(super) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (strsim::osa_distance(name, wanted), name))
        .filter(|(distance, name)| *distance <= 1 + name.chars().count() / 4)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_one_edit_away_is_named_and_the_host_programs_keys_are_left_alone() {
        for (typed, ours) in [
            ("sandboxHidePath", "sandboxHidePaths"),
            ("sandboxhidepaths", "sandboxHidePaths"),
            ("sandbox_hide_paths", "sandboxHidePaths"),
            ("sandboxNetworks", "sandboxNetwork"),
            ("Sandbox", "sandbox"),
            ("sandbox ", "sandbox"),
            ("sanbdox", "sandbox"),
            ("authPath", "authPaths"),
            ("requirePackagedHelpers", "requirePackagedHelper"),
            ("backendTyp", "backendType"),
            ("checkpoint", "checkpoints"),
            ("check_points", "checkpoints"),
            ("ENV", "env"),
            ("cli_id", "cliId"),
        ] {
            assert_eq!(near(typed), Some(Near::Misspelt(ours)), "{typed}");
        }
        for (typed, ours) in [
            ("evn", "env"),
            ("envs", "env"),
            ("ens", "env"),
            ("nmae", "name"),
            ("game", "name"),
            ("cliIds", "cliId"),
            ("clId", "cliId"),
        ] {
            assert_eq!(near(typed), Some(Near::Perhaps(ours)), "{typed}");
        }
        for theirs in ["larkAppId", "allowedUsers", "model", "network", "name", "id", "cli"] {
            assert_eq!(near(theirs), None, "{theirs}");
        }
    }

    #[test]
    fn the_nearest_name_is_offered_only_when_it_is_near() {
        let names = || ["oncall-bot", "reviewer"].into_iter();
        assert_eq!(nearest("oncal-bot", names()), Some("oncall-bot"));
        assert_eq!(nearest("zzz", names()), None);
    }
}
