use super::*;

struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    fn new(bots: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join(".config/landbox");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("bots.json"), bots).unwrap();
        Self { dir }
    }

    fn load(&self, bot: &str, cmd: &[&str]) -> std::result::Result<Config, String> {
        let cmd: Vec<OsString> = cmd.iter().map(OsString::from).collect();
        load(None, Some(bot), &cmd, self.dir.path(), |_| None).map_err(|failure| {
            let mut text = failure.message;
            for hint in failure.hints {
                text.push('\n');
                text.push_str(&hint);
            }
            text.replace(self.dir.path().to_str().unwrap(), "~")
        })
    }
}

fn one(bot: &str) -> std::result::Result<Config, String> {
    Home::new(&format!("[{bot}]")).load("b", &[])
}

fn words(list: &[OsString]) -> Vec<&str> {
    list.iter().map(|w| w.to_str().unwrap()).collect()
}

#[test]
fn a_whole_bot_is_read_with_comments_trailing_commas_and_the_host_programs_keys() {
    let config = Home::new(
        r#"[
  // the host program's other bot
  {"larkAppId": "cli_1", "sandbox": {"anything": "goes in a bot nobody asked for"}},
  {
    "name": "oncall-bot", "cliId": "claude-code", "larkAppId": "cli_2", "allowedUsers": ["x"],
    "command": "claude --flag 'two words'",
    "workingDir": "~/work", /* here */
    "env": {"A": "x", "N": 1.50, "B": true},
    "sandbox": "oncall",
    "sandboxHidePaths": ["~/.ssh", "secrets"],
    "sandboxReadonlyPaths": ["/usr/share/doc"],
    "authPaths": ["~/.agent/token"],
    "sandboxNetwork": false, "backendType": "pty", "overlayBackend": "fuse",
    "checkpoints": "manual",
  },
]"#,
    )
    .load("oncall-bot", &[])
    .unwrap();
    assert_eq!(config.bot.as_deref(), Some("oncall-bot"));
    assert_eq!(config.cli.unwrap().ids[0], "claude-code");
    assert_eq!(words(&config.command), ["claude", "--flag", "two words"]);
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(config.env, [pair("A", "x"), pair("N", "1.50"), pair("B", "true")]);
    assert!(config.sandbox);
    assert_eq!(config.hide.len(), 2);
    assert_eq!(config.hide[1].text, "secrets");
    assert!(config.hide[1].to_string().contains("bots.json:10: \"secrets\""), "{}", config.hide[1]);
    assert_eq!(config.network, NetworkChoice::None);
    assert_eq!(config.overlay, OverlayChoice::Fuse);
    assert_eq!(config.checkpoints, Checkpoints::Manual);
    assert!(config.working_dir.is_some());
}

#[test]
fn the_command_is_what_was_typed_else_the_bots_else_the_clis_program() {
    let home = Home::new(
        r#"[{"name": "b", "command": ["x", "a b"], "cliId": "codex"}, {"name": "c", "cliId": "codex"},
            {"name": "d"}, {"cliId": "gemini"}, {"name": "t", "cliId": "whatever", "command": "claude"}]"#,
    );
    assert_eq!(words(&home.load("b", &["make", "all"]).unwrap().command), ["make", "all"]);
    assert_eq!(words(&home.load("b", &[]).unwrap().command), ["x", "a b"]);
    assert_eq!(words(&home.load("c", &[]).unwrap().command), ["codex"]);
    assert!(home.load("d", &[]).unwrap_err().contains("no command"));
    assert_eq!(words(&home.load("d", &["sh"]).unwrap().command), ["sh"]);
    // A bot without a name is found by its cliId; a CLI nobody knows is recognised by its program.
    assert_eq!(home.load("gemini", &[]).unwrap().bot.as_deref(), Some("gemini"));
    assert_eq!(home.load("t", &[]).unwrap().cli.unwrap().ids[0], "claude-code");
}

#[test]
fn every_problem_is_named_with_its_line_and_value() {
    let text = Home::new(
        "[{\"name\": \"b\", \"command\": \"x\",\n\"sandbox\": {\"x\": 1},\n\"sandboxHidePaths\": [1, null, {}, \"ok\"],\n\
         \"sandboxHidePath\": [],\n\"authPaths\": \"~/.ssh\",\n\"sandboxNetwork\": \"no\",\n\"env\": {\"A\": null, \"B=C\": 1, \"HOME\": \"/x\"},\n\
         \"overlayBackend\": \"overlay2\",\n\"workingDir\": 7,\n\"hide \": [], \"sandboxNetworkPolicy\": [],\n\"authPaths\": [],\n\"checkpoints\": \"never\"}]",
    )
    .load("b", &[])
    .unwrap_err();
    for wanted in [
        "bots.json:2: \"sandbox\" must be true, false or \"oncall\", not {\"x\": 1}",
        "bots.json:3: \"sandboxHidePaths\" must be a list of paths, not 1",
        "bots.json:3: \"sandboxHidePaths\" must be a list of paths, not null",
        "bots.json:3: \"sandboxHidePaths\" must be a list of paths, not {}",
        "bots.json:4: unknown key \"sandboxHidePath\"; did you mean \"sandboxHidePaths\"?",
        "bots.json:6: \"sandboxNetwork\" must be true or false, not \"no\"",
        "bots.json:7: \"env.A\" must be a string, number or boolean, not null",
        "bots.json:7: \"env.B=C\" can't be a variable",
        "bots.json:7: \"env.HOME\"",
        "bots.json:8: \"overlayBackend\"",
        "bots.json:9: \"workingDir\"",
        "bots.json:10: \"sandboxNetworkPolicy\" must be an object, not []",
        "bots.json:11: \"authPaths\" is given twice",
        "bots.json:12: \"checkpoints\" must be \"turn\" or \"manual\", not \"never\"",
    ] {
        assert!(text.contains(wanted), "{wanted}\nis not in\n{text}");
    }
    assert!(!text.contains("hide "), "{text}");
}

#[test]
fn each_wrong_value_is_refused() {
    for (bot, wanted) in [
        (r#""command": "unclosed 'quote""#, "\"command\""),
        (r#""command": []"#, "\"command\""),
        (r#""command": ["x", 1]"#, "\"command\""),
        (r#""command": """#, "\"command\""),
        (r#""command": "x", "backendType": "tmux""#, "tmux panes outlive"),
        (r#""command": "x", "backendType": "zellij""#, "zellij panes"),
        (r#""command": "x", "backendType": "herdr""#, "herdr panes"),
        (r#""command": "x", "backendType": "zmx""#, "zmx panes"),
        (r#""command": "x", "backendType": "screen""#, "must be \"pty\""),
        (r#""command": "x", "sandbox": "yes""#, "\"sandbox\""),
        (r#""command": "x", "sandbox": null"#, "\"sandbox\""),
        (r#""command": "x", "cliId": "claude-cod""#, "did you mean \"claude-code\""),
        (r#""command": "x", "Sandbox": false"#, "did you mean \"sandbox\""),
    ] {
        let text = one(&format!("{{\"name\": \"b\", {bot}}}")).unwrap_err();
        assert!(text.contains(wanted), "{bot}: {text}");
    }
}

#[test]
fn a_key_one_edit_away_from_any_of_ours_is_named_whatever_its_value() {
    for ours in keys::KEYS {
        let (first, rest) = ours.split_at(1);
        let swapped = format!("{}{first}{}", &rest[..1], &rest[1..]);
        for typed in [rest.to_owned(), format!("{ours}x"), format!("x{rest}"), swapped] {
            let mut bots = vec![format!(r#"{{"name": "b", "command": "x", "{typed}": [1]}}"#)];
            if ["name", "cliId"].contains(ours) {
                bots.push(format!(r#"{{"{typed}": "b", "command": "x"}}"#));
            }
            for bot in bots {
                let text = one(&bot).unwrap_err();
                let wanted =
                    format!("bots.json:1: unknown key \"{typed}\"; did you mean \"{ours}\"?");
                assert!(text.contains(&wanted), "{bot}: {text}");
            }
        }
    }
}

#[test]
fn keys_of_the_host_program_are_left_alone_also_the_one_that_comes_near_ours() {
    for key in [
        r#""larkAppId": "cli_x", "larkAppSecret": "s", "allowedUsers": ["ou_x"], "lang": "en""#,
        r#""workingDirs": ["~/a", "~/b"], "workingDir": "~/a""#,
        r#""workingDirs": []"#,
        r#""defaultWorkingDir": 1, "sandboxPaths": {}, "model": "m", "brand": "lark", "riff": {}"#,
    ] {
        one(&format!("{{\"name\": \"b\", \"command\": \"x\", {key}}}")).unwrap();
    }
    let text = one(r#"{"name": "b", "command": "x", "workingDirs": "~/a"}"#).unwrap_err();
    assert!(text.contains("did you mean \"workingDir\"?"), "{text}");
}

#[test]
fn a_policy_takes_precedence_over_the_boolean_and_null_clears_it() {
    let network = |bot: &str| {
        one(&format!("{{\"name\": \"b\", \"command\": \"x\", {bot}}}")).unwrap().network
    };
    let policy = r#"{"version": 1, "public": {"mode": "allow"}, "private": {"mode": "block"}}"#;
    let both = network(&format!(r#""sandboxNetwork": false, "sandboxNetworkPolicy": {policy}"#));
    assert!(matches!(both, NetworkChoice::Policy(_, Origin::File(Place { line: 1, .. }))));
    assert_eq!(
        network(r#""sandboxNetwork": false, "sandboxNetworkPolicy": null"#),
        NetworkChoice::None
    );
    assert_eq!(network(r#""sandboxNetwork": true"#), NetworkChoice::Host);
}

#[test]
fn a_broken_or_missing_file_or_bot_is_an_error_that_says_where() {
    for (text, wanted) in [
        ("[{]", "bots.json:1: not valid JSON"),
        ("[\n{\"name\": \"b\",\n\"sandbox\": tru}]", "bots.json:3: not valid JSON"),
        ("{\"name\": \"b\"}", "must hold an array of bots, not {\"name\": \"b\"}"),
        ("", "empty"),
        ("[1]", "a bot must be an object, not 1"),
        ("[{'name': 'b'}]", "not valid JSON"),
        ("[{\"name\": \"b\"} {\"name\": \"c\"}]", "not valid JSON"),
        ("[{\"name\": \"bee\"}, {\"cliId\": \"codex\"}]", "it has: bee, codex"),
        ("[{\"name\": \"bot\"}]", "no bot b in"),
        ("[]", "no bot in it has a \"name\""),
        ("[{},\n{\"name\": 5}]", "bots.json:2: \"name\" must be a string that is not empty, not 5"),
        (
            "[{\"cliId\": [\"b\"]}]",
            "bots.json:1: \"cliId\" must be a string that is not empty, not [\"b\"]",
        ),
        ("[{\"name\": \"b\",\n\"name\": \"c\"}]", "bots.json:2: \"name\" is given twice"),
        ("[{\"name\": \"b\"},\n{\"name\": \"b\"}]", "bots.json:2: more than one bot is called b"),
    ] {
        let found = Home::new(text).load("b", &["x"]).unwrap_err();
        assert!(found.contains(wanted), "{text}: {found}");
    }
    let near = Home::new("[{\"name\": \"oncall-bot\"}]").load("oncal-bot", &["x"]).unwrap_err();
    assert!(near.contains("did you mean oncall-bot?"), "{near}");

    let empty = tempfile::tempdir().unwrap();
    let missing = load(None, Some("b"), &[], empty.path(), |_| None).unwrap_err();
    assert!(missing.message.contains(".botmux/bots.json"), "{missing}");
    for named in ["nowhere.json", ""] {
        let named = empty.path().join(named);
        let failure = load(Some(&named), None, &["x".into()], empty.path(), |_| None).unwrap_err();
        assert_eq!(failure.kind, Kind::Usage);
        let env = |name: &str| (name == "LANDBOX_BOTS").then(|| named.clone().into_os_string());
        assert!(load(None, Some("b"), &[], empty.path(), env).is_err());
    }
}

#[test]
fn every_bot_of_a_named_file_is_checked_also_where_none_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bots.json");
    let run = |explicit: bool| {
        let env = |name: &str| (name == "LANDBOX_BOTS").then(|| file.clone().into_os_string());
        let nothing = |_: &str| None;
        match explicit {
            true => load(Some(&file), None, &["true".into()], dir.path(), nothing),
            false => load(None, None, &["true".into()], dir.path(), env),
        }
    };
    for explicit in [true, false] {
        let _ = std::fs::remove_file(&file);
        assert_eq!(run(explicit).unwrap_err().kind, Kind::Usage);
        for (bots, wanted) in [
            ("[{\"name\": \"a\"},\n{\"sandboxHidePath\": []}]", "bots.json:2: unknown key"),
            ("[{\"sandboxHidePaths\": \"~/.ssh\"}]", "must be a list of paths"),
            ("[", "not valid JSON"),
        ] {
            std::fs::write(&file, bots).unwrap();
            let failure = run(explicit).unwrap_err();
            assert!(failure.message.contains(wanted), "{failure}");
        }
        // How the host program runs its bots is its own affair.
        std::fs::write(&file, "[{\"name\": \"a\", \"backendType\": \"tmux\"}]").unwrap();
        assert_eq!(run(explicit).unwrap().command, ["true"]);
    }
}

#[test]
fn the_first_file_that_exists_is_the_file() {
    let home = Home::new("[{\"name\": \"b\", \"command\": \"first\"}]");
    let other = home.dir.path().join(".botmux");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("bots.json"), "[{\"name\": \"b\", \"command\": \"second\"}]")
        .unwrap();
    assert_eq!(words(&home.load("b", &[]).unwrap().command), ["first"]);
    // One that can't be read is not a missing one.
    std::fs::remove_file(home.dir.path().join(".config/landbox/bots.json")).unwrap();
    std::os::unix::fs::symlink("loop", home.dir.path().join(".config/landbox/bots.json")).unwrap();
    assert!(home.load("b", &[]).is_err());
    std::fs::remove_file(home.dir.path().join(".config/landbox/bots.json")).unwrap();
    assert_eq!(words(&home.load("b", &[]).unwrap().command), ["second"]);
    let named = home.dir.path().join("third.json");
    std::fs::write(&named, "[{\"name\": \"b\", \"command\": \"third\"}]").unwrap();
    let env = |name: &str| (name == "LANDBOX_BOTS").then(|| named.clone().into_os_string());
    let config = load(None, Some("b"), &[], home.dir.path(), env).unwrap();
    assert_eq!(words(&config.command), ["third"]);
}

#[test]
fn without_a_bot_the_cli_is_recognised_by_its_base_name() {
    let at = |cmd: &[&str]| {
        let cmd: Vec<OsString> = cmd.iter().map(OsString::from).collect();
        load(None, None, &cmd, Path::new("/nowhere"), |_| None)
    };
    assert_eq!(at(&["/opt/x/claude", "-p"]).unwrap().cli.unwrap().ids[0], "claude-code");
    let shell = at(&["sh"]).unwrap();
    assert_eq!((shell.cli, shell.sandbox, shell.bot), (None, true, None));
    assert!(at(&[]).is_err());
    assert!(at(&[""]).is_err());
}

#[test]
fn a_bots_policy_is_read_strictly_and_what_needs_the_outside_is_noted() {
    let policy = r#""version": 1, "private": {"mode": "block"}"#;
    let bad = one(&format!(
        "{{\"name\": \"b\", \"command\": \"x\", \"sandboxNetworkPolicy\": {{{policy},\n\"public\": {{\"mode\": \"none\"}}}}}}"
    ))
    .unwrap_err();
    assert!(bad.contains("bots.json:2: \"sandboxNetworkPolicy.public.mode\" must be"), "{bad}");
    let outside = |more: &str| {
        one(&format!("{{\"name\": \"b\", \"command\": \"x\", {more}}}")).unwrap().outside
    };
    for (more, wanted) in [
        (r#""existingAppServer": {"url": "x"}"#, "bots.json:1: \"existingAppServer\": "),
        (r#""adopt": true"#, "\"adopt\": true"),
        (r#""mcpGatewaySocket": "/run/x""#, "Unix socket of the host"),
    ] {
        let found = outside(more);
        assert!(found.len() == 1 && found[0].contains(wanted), "{found:?}");
    }
    for more in [r#""existingAppServer": null"#, r#""adopt": false"#, r#""mcpTimeout": "3""#] {
        assert_eq!(outside(more), [""; 0], "{more}");
    }
}

#[test]
fn the_manual_page_names_every_key_and_its_example_is_a_valid_file() {
    let page = include_str!("../../../packaging/man/bots.json.5");
    for key in keys::KEYS {
        assert!(page.contains(&format!("\n.BR {key} \" (")), "{key} is not in bots.json(5)");
    }
    let example = page.split("\n.nf\n").nth(1).unwrap().split("\n.fi\n").next().unwrap();
    let home = Home::new(&example.replace("\\-", "-"));
    assert_eq!(
        words(&home.load("oncall-bot", &[]).unwrap().command),
        ["claude", "--model", "opus"]
    );
}
