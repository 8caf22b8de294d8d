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

/// Keys of the host program that are one edit away from one of ours. Their values are lists, and ours are not.
pub(super) const THEIRS: &[&str] = &["workingDirs"];

/// The key of ours that `key` comes near: one edit away once case, blanks, hyphens and underscores are put aside. Every
/// other unknown key belongs to the host program.
pub(super) fn near(key: &str) -> Option<&'static str> {
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
    within(0).or_else(|| within(1))
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
            ("evn", "env"),
            ("envs", "env"),
            ("nmae", "name"),
            ("cliIds", "cliId"),
            ("clId", "cliId"),
            ("workingDirs", "workingDir"),
        ] {
            assert_eq!(near(typed), Some(ours), "{typed}");
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
