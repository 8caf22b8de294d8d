//! The CLIs Landbox knows: how they are called and which files hold their login.

/// One known CLI.
#[derive(Debug, PartialEq, Eq)]
pub struct KnownCli {
    /// The names a `cliId` may use; the first is the usual one.
    pub ids: &'static [&'static str],
    /// Base names of its program; the first one is run where a bot gives no command.
    pub programs: &'static [&'static str],
    /// Files that hold a login and nothing else, below the home folder. The rest of their folders stays isolated. What ends
    /// in a slash may be a folder of such files.
    pub credentials: &'static [&'static str],
    /// A variable that moves a folder: where it is set, it takes the place of the named part of the paths above.
    pub moved_by: Option<(&'static str, &'static str)>,
}

/// Every known CLI. Where a CLI keeps its login in one file with other state, no file is listed: it stays isolated.
pub const KNOWN: &[KnownCli] = &[
    KnownCli {
        ids: &["claude-code", "claude"],
        programs: &["claude"],
        credentials: &[".claude/.credentials.json"],
        moved_by: Some(("CLAUDE_CONFIG_DIR", ".claude")),
    },
    KnownCli {
        ids: &["codex", "codex-app"],
        programs: &["codex"],
        credentials: &[".codex/auth.json"],
        moved_by: Some(("CODEX_HOME", ".codex")),
    },
    KnownCli {
        ids: &["gemini"],
        programs: &["gemini"],
        credentials: &[".gemini/oauth_creds.json", ".gemini/google_accounts.json"],
        moved_by: None,
    },
    KnownCli {
        ids: &["antigravity"],
        programs: &["agy", "antigravity"],
        credentials: &[
            ".gemini/oauth_creds.json",
            ".gemini/google_accounts.json",
            ".gemini/antigravity-cli/antigravity-oauth-token",
        ],
        moved_by: None,
    },
    KnownCli {
        ids: &["opencode"],
        programs: &["opencode"],
        credentials: &[".local/share/opencode/auth.json"],
        moved_by: Some(("XDG_DATA_HOME", ".local/share")),
    },
    KnownCli {
        ids: &["opencode2"],
        programs: &["opencode2"],
        credentials: &[".local/share/opencode/auth.json"],
        moved_by: Some(("XDG_DATA_HOME", ".local/share")),
    },
    KnownCli {
        ids: &["mtr"],
        programs: &["mtr"],
        credentials: &[".local/share/opencode/auth.json"],
        moved_by: Some(("XDG_DATA_HOME", ".local/share")),
    },
    KnownCli {
        ids: &["genius"],
        programs: &["genius"],
        credentials: &[".genius/.credentials.json", ".genius/auth.json"],
        moved_by: None,
    },
    KnownCli {
        ids: &["kimi"],
        programs: &["kimi"],
        credentials: &[".kimi-code/credentials/", ".kimi-code/oauth/"],
        moved_by: Some(("KIMI_CODE_HOME", ".kimi-code")),
    },
    KnownCli {
        ids: &["pi"],
        programs: &["pi"],
        credentials: &[".pi/agent/auth.json"],
        moved_by: None,
    },
    KnownCli {
        ids: &["oh-my-pi"],
        programs: &["omp"],
        credentials: &[".omp/agent/auth.json"],
        moved_by: None,
    },
    KnownCli { ids: &["coco"], programs: &["coco"], credentials: &[], moved_by: None },
    KnownCli { ids: &["traex"], programs: &["traex"], credentials: &[], moved_by: None },
    KnownCli { ids: &["seed"], programs: &["seed"], credentials: &[], moved_by: None },
    KnownCli { ids: &["relay"], programs: &["relay"], credentials: &[], moved_by: None },
    KnownCli { ids: &["aiden"], programs: &["aiden"], credentials: &[], moved_by: None },
    KnownCli { ids: &["copilot"], programs: &["copilot"], credentials: &[], moved_by: None },
    KnownCli { ids: &["cursor"], programs: &["cursor-agent"], credentials: &[], moved_by: None },
    KnownCli { ids: &["hermes"], programs: &["hermes"], credentials: &[], moved_by: None },
    KnownCli { ids: &["mir"], programs: &["mir"], credentials: &[], moved_by: None },
    KnownCli { ids: &["mira"], programs: &["mira"], credentials: &[], moved_by: None },
];

/// The CLI that a `cliId` names.
pub fn by_id(id: &str) -> Option<&'static KnownCli> {
    KNOWN.iter().find(|cli| cli.ids.contains(&id))
}

/// The CLI whose program has this base name.
pub fn by_program(base_name: &str) -> Option<&'static KnownCli> {
    KNOWN.iter().find(|cli| cli.programs.contains(&base_name))
}

/// Whether a login of that name may be a folder of login files.
pub fn may_be_folder(name: &[u8]) -> bool {
    let all = KNOWN.iter().flat_map(|cli| cli.credentials);
    all.filter_map(|path| path.strip_suffix('/'))
        .any(|path| path.rsplit('/').next().is_some_and(|last| last.as_bytes() == name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use landbox_shared::path::RelPath;

    #[test]
    fn every_name_means_one_cli_and_every_credential_is_a_file_below_home() {
        let mut ids: Vec<_> = KNOWN.iter().flat_map(|cli| cli.ids).collect();
        let mut programs: Vec<_> = KNOWN.iter().flat_map(|cli| cli.programs).collect();
        let (all_ids, all_programs) = (ids.len(), programs.len());
        ids.sort();
        ids.dedup();
        programs.sort();
        programs.dedup();
        assert_eq!((ids.len(), programs.len()), (all_ids, all_programs));
        for cli in KNOWN {
            for path in cli.credentials {
                let path = path.trim_end_matches('/');
                assert!(RelPath::new(path).unwrap().components().count() > 1, "{path}");
            }
            if let Some((_, folder)) = cli.moved_by {
                assert!(cli.credentials.iter().all(|p| p.starts_with(folder)));
            }
        }
    }

    #[test]
    fn the_documented_clis_keep_their_documented_files() {
        let files = |id| by_id(id).unwrap().credentials;
        assert_eq!(files("claude-code"), [".claude/.credentials.json"]);
        assert_eq!(files("codex-app"), [".codex/auth.json"]);
        assert_eq!(files("opencode"), [".local/share/opencode/auth.json"]);
        assert!(may_be_folder(b"credentials") && may_be_folder(b"oauth"));
        assert!(!may_be_folder(b"auth.json") && !may_be_folder(b".kimi-code"));
        assert_eq!(by_program("claude"), by_id("claude-code"));
        assert_eq!(by_program("sh"), None);
    }
}
