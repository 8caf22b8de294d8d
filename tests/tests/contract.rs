//! The command and its documents as scripts rely on them: every flag, every key with its type, where things lie. What is
//! more may come; what is here stays.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use landbox_tests::world::{Overlay, Who, World};
use landbox_tests::{Place, worlds};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Each command with its flags.
const FLAGS: &[(&str, &str)] = &[
    ("run", "--bot --name --workdir --hide --read-only --auth --network --overlay --report"),
    ("ls", "--scan"),
    ("show", ""),
    ("diff", "--stat --layer --with-ignored"),
    ("discard", "--yes"),
    ("resume", "--report"),
    ("land", "--apply --yes --expect --patch --with-ignored --interactive -i, --exclude"),
    ("land", "--only-group --to-branch --commit --mbox --keep-commits --accept-risk"),
    ("doctor", "--fix"),
    ("gc", "--dry-run --expired"),
    ("undo", ""),
    ("checkpoint", ""),
    ("rewind", ""),
    ("receipt", "verify"),
    ("sandbox-network-policy", "check explain suggest"),
];

/// What every command takes.
const GLOBAL: &str = "--config --color -q, -v, --quiet --verbose";

#[test]
fn every_command_has_its_flags() {
    let place = Place::new(World::USUAL);
    for (command, flags) in FLAGS {
        let help = place.landbox([command, "--help"]).output().ok().text();
        let words: Vec<&str> = help.split_whitespace().collect();
        for flag in flags.split(' ').chain(GLOBAL.split(' ')).filter(|flag| !flag.is_empty()) {
            assert!(words.contains(&flag), "{command}: {flag} is not in\n{help}");
        }
    }
    for hidden in
        [&["util", "man"][..], &["util", "completions", "bash"], &["util", "completions", "zsh"]]
    {
        assert!(place.landbox(hidden).output().ok().text().contains("landbox"), "{hidden:?}");
    }
}

/// The keys of the session document, each with the types that its value may have: `s`tring, `n`umber, `b`oolean,
/// `a`rray of strings, `o`bjects in an array, `m`ap, `0` for null.
const SESSION: &[(&str, &str)] = &[
    ("id", "s"),
    ("name", "s0"),
    ("bot", "s0"),
    ("command", "a"),
    ("workdir", "s"),
    ("home", "s"),
    ("created_at", "s"),
    ("ended_at", "s0"),
    ("state", "s"),
    ("exit", "m0"),
    ("failure", "m0"),
    ("failure.stage", "s0"),
    ("failure.path", "s0"),
    ("failure.message", "s"),
    ("isolated", "b"),
    ("boundary", "m0"),
    ("boundary.network", "s"),
    ("boundary.seccomp", "s"),
    ("boundary.owner_map", "s0"),
    ("boundary.namespaces", "a0"),
    ("boundary.policy_digest", "s"),
    ("boundary.evidence_digest", "s0"),
    ("boundary.landlock_abi", "n0"),
    ("layers", "o"),
    ("layers[].id", "s"),
    ("layers[].kind", "s"),
    ("layers[].target", "s"),
    ("layers[].overlay", "s"),
    ("layers[].bytes", "n0"),
    ("real_writes", "a"),
    ("reachable_sockets", "a"),
    ("changes", "m0"),
    ("changes.files", "n"),
    ("changes.added", "n"),
    ("changes.deleted", "n"),
    ("landing", "m"),
    ("landing.pending", "b"),
    ("landing.count", "n"),
    ("landing.last_at", "s0"),
    ("landing.discarded_at", "s0"),
    ("egress", "m0"),
];

/// Those of the card.
const CARD: &[(&str, &str)] = &[
    ("session", "s"),
    ("targets", "a"),
    ("digest", "s"),
    ("files", "n"),
    ("added", "n"),
    ("deleted", "n"),
    ("changes", "o"),
    ("changes[].layer", "s"),
    ("changes[].path", "s"),
    ("changes[].kind", "s"),
    ("changes[].old_path", "s0"),
    ("changes[].old_type", "s0"),
    ("changes[].new_type", "s0"),
    ("changes[].old_mode", "s0"),
    ("changes[].new_mode", "s0"),
    ("changes[].old_target", "s0"),
    ("changes[].new_target", "s0"),
    ("changes[].old_size", "n0"),
    ("changes[].new_size", "n0"),
    ("changes[].binary", "b"),
    ("changes[].added", "n0"),
    ("changes[].deleted", "n0"),
    ("changes[].group", "s"),
    ("changes[].state", "s"),
    ("changes[].landable", "b"),
    ("changes[].reason", "s0"),
    ("changes[].in_patch", "b"),
    ("changes[].risks", "o"),
    ("changes[].risks[].kind", "s"),
    ("changes[].risks[].why", "s"),
    ("groups", "m"),
    ("groups.project", "n"),
    ("groups.ignored", "n"),
    ("groups.git", "n"),
    ("other_layers", "o"),
    ("other_layers[].layer", "s"),
    ("other_layers[].files", "n"),
    ("applied", "b"),
    ("durability", "s"),
];

fn letter(value: &Value) -> char {
    match value {
        Value::Null => '0',
        Value::Bool(_) => 'b',
        Value::Number(_) => 'n',
        Value::String(_) => 's',
        Value::Object(_) => 'm',
        Value::Array(values) if values.iter().all(Value::is_string) => 'a',
        Value::Array(_) => 'o',
    }
}

/// Every value at `path`, with whatever it lies in that is null or empty left out.
fn at<'v>(document: &'v Value, path: &str) -> Vec<&'v Value> {
    let mut values = vec![document];
    for part in path.split('.') {
        let (key, each) = part.strip_suffix("[]").map_or((part, false), |key| (key, true));
        let inside = values.into_iter().filter(|value| !value.is_null()).map(|value| {
            let found = value.as_object().unwrap().get(key);
            found.unwrap_or_else(|| panic!("{path} is missing in {document:#}"))
        });
        values = match each {
            true => inside.flat_map(|list| list.as_array().unwrap()).collect(),
            false => inside.collect(),
        };
    }
    values
}

fn check(document: &Value, keys: &[(&str, &str)]) {
    for (path, types) in keys {
        for value in at(document, path) {
            let found = letter(value);
            // An empty list is one of whatever it may hold.
            let empty = value.as_array().is_some_and(Vec::is_empty) && types.contains('o');
            assert!(empty || types.contains(found), "{path} is {value} in {document:#}");
        }
    }
}

/// Times are in UTC and digests say by which function they are.
fn check_forms(session: &Value) {
    for key in ["created_at", "ended_at"] {
        if let Some(time) = session[key].as_str() {
            assert!(time.len() > 19 && &time[10..11] == "T" && time.ends_with('Z'), "{time}");
        }
    }
    let id = session["id"].as_str().unwrap();
    assert!(id.len() == 10 && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()));
    for digest in at(session, "boundary.policy_digest") {
        let hex = digest.as_str().unwrap().strip_prefix("sha256:").unwrap();
        assert!(hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()), "{digest}");
    }
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_session_is_told_by_the_same_keys_while_it_runs_when_it_has_ended_and_without_a_boundary(world) {
        let place = Place::new(world);
        let report = place.outside.join("report.json");
        let told = |document: &Value, state: &str| {
            check(document, SESSION);
            check_forms(document);
            assert_eq!(document["state"], state, "{document:#}");
        };
        let read = || -> Value { serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap() };

        let options = ["--name", "s", "--report", report.to_str().unwrap()];
        place.session(options, ["sh", "-c", "echo x > new; exit 3"]).output().expect(3);
        let shown = place.json(["show", "s"]);
        told(&shown, "exited");
        assert_eq!(read(), shown);
        assert_eq!(shown["exit"], serde_json::json!({"code": 3}));
        assert_eq!(shown["changes"], serde_json::json!({"files": 1, "added": 1, "deleted": 0}));
        assert_eq!((&shown["landing"]["pending"], &shown["egress"]), (&true.into(), &Value::Null));
        let kinds: Vec<&Value> = at(&shown, "layers[].kind");
        assert_eq!(kinds, ["home", "project"], "{shown:#}");
        let (overlay, map) = match (world.overlay, world.who) {
            (Overlay::Fuse, Who::User) => ("fuse", "single"),
            (Overlay::Fuse, Who::Root) => ("fuse", "full"),
            (Overlay::Kernel, Who::User) => ("kernel-user", "single"),
            (Overlay::Kernel, Who::Root) => ("kernel-root", "full"),
        };
        assert_eq!(at(&shown, "layers[].overlay"), [overlay, overlay], "{shown:#}");
        assert_eq!(shown["boundary"]["owner_map"], map);

        let mut live = place.session(["--name", "t"], ["sh", "-c", "echo up; read x"]);
        let mut live = live.stdin_open().start();
        live.expect("up");
        told(&place.json(["show", "t"]), "running");
        let listed = place.json(["ls"]);
        let first = &listed["sessions"][0];
        told(first, "running");
        assert_eq!((&first["name"], &first["changes"]), (&"t".into(), &Value::Null));
        told(&place.json(["ls", "--scan"])["sessions"][1], "exited");
        live.wait().expect(1);

        place.sh("kill -9 $$").output().expect(137);
        assert_eq!(place.json(["show"])["exit"], serde_json::json!({"signal": 9}));

        let bots = r#"[{"name": "b", "sandbox": false}]"#;
        place.write(place.home.join(".config/landbox/bots.json"), bots);
        let bare = |command: &str| {
            std::fs::remove_file(&report).unwrap();
            place.landbox(["run", "--bot", "b", options[2], options[3], "--", command]).output()
        };
        bare("true").ok();
        told(&read(), "exited");
        told(&place.json(["show"]), "exited");
        let sessions = place.sessions().len();
        // A program that is not there leaves no session, and a report that says so, with a sandbox and without one.
        bare("landbox-test-nothing").expect(127);
        told(&read(), "failed");
        std::fs::remove_file(&report).unwrap();
        place.session(&options[2..], ["landbox-test-nothing"]).output().expect(127);
        told(&read(), "failed");
        assert_eq!(place.sessions().len(), sessions);
    }
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_card_is_told_by_the_same_keys_whatever_changed(world) {
        let place = Place::new(world);
        place.git(&["init", "-q"]);
        place.write(place.project.join(".gitignore"), "out/\n");
        place.write(place.project.join("old.txt"), "the same content\n");
        place.git(&["add", "."]);
        let script = "mkdir out; echo o > out/o; mv old.txt moved.txt; ln -sfn src link; printf '\\0' > bin; mkfifo pipe; \
                      chmod 700 README.md; rm src/main.py; mkdir src/main.py; mkdir empty; git config a.b c; echo h > ~/h";
        place.sh(script).output().ok();
        let card = place.json(["diff"]);
        check(&card, CARD);
        check(&place.json(["land"]), CARD);
        let change = |path: &str| {
            let changes = card["changes"].as_array().unwrap();
            changes.iter().find(|c| c["path"] == path).unwrap_or_else(|| panic!("{path}: {card:#}"))
        };
        for (path, kind, group, landable, in_patch) in [
            ("moved.txt", "renamed", "project", true, true),
            ("link", "symlink", "project", true, true),
            ("bin", "added", "project", true, true),
            ("pipe", "special", "project", false, false),
            ("README.md", "mode", "project", true, false),
            ("src/main.py", "type", "project", true, false),
            ("empty", "added", "project", true, false),
            ("out/o", "added", "ignored", true, true),
            (".git/config", "modified", "git", false, false),
        ] {
            let found = change(path);
            let said = [&found["kind"], &found["group"], &found["landable"], &found["in_patch"]];
            let wanted: [Value; 4] = [kind.into(), group.into(), landable.into(), in_patch.into()];
            assert_eq!(said, wanted.each_ref(), "{found:#}");
        }
        assert_eq!(change("moved.txt")["old_path"], "old.txt");
        assert_eq!(
            (&change("link")["old_target"], &change("link")["new_target"]),
            (&"src/main.py".into(), &"src".into())
        );
        let modes = (&change("README.md")["old_mode"], &change("README.md")["new_mode"]);
        assert_eq!(modes, (&"0644".into(), &"0700".into()));
        assert_eq!((&change("bin")["added"], &change("bin")["binary"]), (&Value::Null, &true.into()));
        assert_eq!(card["other_layers"], serde_json::json!([{"layer": "home", "files": 1}]));
        assert_eq!(card["groups"]["ignored"], 1);
        let told = place.landbox(["diff"]).output().ok().text();
        assert!(told.contains("\n  home     1 file, kept for resume, never landed\n"), "{told}");
        let home = place.landbox(["diff", "--layer", "home"]).output().ok().text();
        assert!(home.contains("\n+h\n") && !home.contains("moved.txt"), "{home}");
        assert_eq!(card["targets"][0], place.project.to_str().unwrap());
    }
}

/// The path that a document means by `key`, whatever bytes it has.
fn path(document: &Value, key: &str) -> PathBuf {
    match document[format!("{key}_b64")].as_str() {
        Some(text) => OsString::from_vec(BASE64_STANDARD.decode(text).unwrap()).into(),
        None => document[key].as_str().unwrap().into(),
    }
}

#[test]
fn paths_of_any_bytes_come_with_their_bytes_in_every_document() {
    let place = Place::new(World::USUAL);
    let odd = OsStr::from_bytes(b"st\\a\xffte \x1b[1m");
    let (state, project) = (place.outside.join(odd), place.home.join(odd));
    place.mkdir(&project);
    let landbox = |args: &[&str]| {
        let mut run = place.landbox(args);
        run.env("LANDBOX_STATE_DIR", &state).cwd(&project).args(["--json"]);
        run.output().ok().json::<Value>()
    };
    let mut run = place.session(["--name", "s"], ["sh", "-c", "echo x > new"]);
    run.env("LANDBOX_STATE_DIR", &state).cwd(&project).output().ok();
    let landed = landbox(&["land", "s", "--apply", "--yes"]);
    let session = landbox(&["show", "s"]);
    assert_eq!(path(&session, "workdir"), project);
    let receipt = path(&landed, "receipt");
    assert!(receipt.starts_with(&state) && receipt.is_file(), "{landed:#}");
    let landing = &session["landing"];
    assert_eq!(landing["receipts"].as_array().unwrap().len(), 1, "{landing:#}");
    let listed =
        serde_json::json!({"r": landing["receipts"][0], "r_b64": landing["receipts_b64"][0]});
    assert_eq!(path(&listed, "r"), receipt);
    let undone = landbox(&["undo", "s"]);
    assert_eq!(path(&undone, "project"), project);
    assert!(path(&undone, "receipt").is_file(), "{undone:#}");
}

#[test]
fn a_session_is_meant_by_its_id_its_name_a_beginning_of_either_or_its_folder() {
    let place = Place::new(World::USUAL);
    for name in ["tidy", "tidy-up"] {
        place.session(["--name", name], ["true"]).output().ok();
    }
    let tidy = place.json(["show", "tidy"]);
    assert_eq!(tidy["name"], "tidy");
    let id = tidy["id"].as_str().unwrap();
    for words in [&["show", id][..], &["show", &id[..9]], &["show", "tidy"]] {
        assert_eq!(place.json(words)["id"], tidy["id"], "{words:?}");
    }
    assert_eq!(place.json(["show", "tidy-"])["name"], "tidy-up");
    assert_eq!(place.json(["show"])["name"], "tidy-up");
    for unknown in ["tid", "", "nothing"] {
        place.landbox(["show", unknown]).output().expect(2);
    }
    let mut elsewhere = place.landbox(["show"]);
    elsewhere.cwd(&place.home).output().expect(2);
}

#[test]
fn the_first_of_the_four_places_of_a_configuration_counts() {
    let place = Place::new(World::USUAL);
    let (option, variable) = (place.outside.join("a.json"), place.outside.join("b.json"));
    let (xdg, host) = (place.outside.join("xdg"), place.home.join(".botmux/bots.json"));
    let own = xdg.join("landbox/bots.json");
    // A key that root enrolled goes along.
    let enrolled = place.home.join(".config/landbox/keys");
    if enrolled.exists() {
        place.mkdir(xdg.join("landbox"));
        std::fs::rename(enrolled, xdg.join("landbox/keys")).unwrap();
    }
    for (file, said) in
        [(&option, "option"), (&variable, "variable"), (&own, "own"), (&host, "host")]
    {
        place.write(file, format!(r#"[{{"name": "b", "command": ["echo", "{said}"]}}]"#));
    }
    let ask = |args: &[&str], with: bool| {
        let mut run = place.landbox(args);
        if with {
            run.env("LANDBOX_BOTS", &variable);
        }
        run.env("XDG_CONFIG_HOME", &xdg).output().ok().text()
    };
    let all = ["run", "--config", option.to_str().unwrap(), "--bot", "b"];
    let plain = ["run", "--bot", "b"];
    assert_eq!(ask(&all, true), "option\n");
    assert_eq!(ask(&plain, true), "variable\n");
    assert_eq!(ask(&plain, false), "own\n");
    std::fs::remove_file(&own).unwrap();
    assert_eq!(ask(&plain, false), "host\n");
    // The key lies beside the file that is ours, closed to others.
    for folder in ["landbox/keys", "landbox/trusted.d"] {
        let mode = std::fs::metadata(xdg.join(folder)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700, "{folder}");
    }
}

#[test]
fn the_state_lies_where_the_environment_says_and_is_closed_to_others() {
    let place = Place::new(World::USUAL);
    let usual = place.state();
    let (named, xdg) = (place.outside.join("named"), place.outside.join("xdg"));
    let sessions = |state: &Path| std::fs::read_dir(state.join("sessions")).unwrap().count();
    let run = |env: &[(&str, &OsStr)]| {
        let mut run = place.landbox(["run", "--", "true"]);
        env.iter().for_each(|(name, value)| {
            run.env(name, value);
        });
        run.output()
    };
    let both = [("LANDBOX_STATE_DIR", named.as_os_str()), ("XDG_STATE_HOME", xdg.as_os_str())];
    run(&both).ok();
    run(&both[1..]).ok();
    run(&[]).ok();
    // The base directory rules have a relative one ignored; ours has to be what it says.
    run(&[("XDG_STATE_HOME", OsStr::new("relative"))]).ok();
    run(&[("LANDBOX_STATE_DIR", OsStr::new("relative"))]).expect(125);
    assert_eq!((sessions(&named), sessions(&xdg.join("landbox")), sessions(&usual)), (1, 1, 2));
    assert!(!place.project.join("relative").exists());
    for state in [&named, &xdg.join("landbox"), &usual] {
        assert_eq!(std::fs::metadata(state).unwrap().permissions().mode() & 0o7777, 0o700);
    }
    std::fs::set_permissions(&usual, PermissionsExt::from_mode(0o750)).unwrap();
    run(&[]).expect(125);
    let out = place.landbox(["ls"]).output().expect(6);
    assert!(out.errors().contains("chmod 700"), "{}", out.errors());
}

#[test]
fn a_boundary_that_was_typed_is_never_left_out() {
    let place = Place::new(World::USUAL);
    let bots = r#"[{"name": "b", "command": "true", "sandbox": false}]"#;
    place.write(place.home.join(".config/landbox/bots.json"), bots);
    for flags in [&["--hide", "~/.ssh"][..], &["--read-only", "~/.profile"], &["--network", "off"]]
    {
        let out = place.landbox(["run", "--bot", "b"]).args(flags).output().expect(125);
        assert!(out.errors().contains("needs the sandbox"), "{}", out.errors());
    }
    place.landbox(["run", "--bot", "b", "--overlay", "overlay2"]).output().expect(125);
    assert!(place.sessions().is_empty());
}

#[test]
fn people_read_standard_error_and_results_go_to_standard_output() {
    let place = Place::new(World::USUAL);
    let out = place.sh("echo x > new").output().ok();
    assert_eq!(out.text(), "");
    assert!(out.errors().starts_with("landbox: 1 file changed"), "{}", out.errors());
    let quiet = |args: &[&str]| {
        let out = place.landbox(args).args(["-q"]).output().ok();
        assert_eq!(out.errors(), "", "{args:?}");
        out.text()
    };
    for (args, wanted) in [
        (&["ls"][..], "1 (+1 -0)"),
        (&["show"], "boundary"),
        (&["diff"], "+x"),
        (&["diff", "--stat"], "sha256:"),
        (&["land"], "sha256:"),
    ] {
        let said = quiet(args);
        assert!(said.contains(wanted), "{args:?}: {said}");
    }
    quiet(&["land", "--apply", "--yes"]);
    assert!(quiet(&["gc", "--dry-run"]).starts_with("would remove "));
    assert_eq!(quiet(&["gc"]), "");
    for (color, wanted) in [("always", true), ("never", false), ("auto", false)] {
        let said = place.landbox(["doctor", "--color", color]).env("NO_COLOR", "1").output();
        assert_eq!(said.text().contains('\x1b'), wanted, "{color}");
    }
}

#[test]
fn inside_a_session_one_sentence_is_said_and_nothing_else_works() {
    let place = Place::new(World::USUAL);
    for (args, code) in [
        (&["ls"][..], 6),
        (&["land", "--apply", "--yes"], 6),
        (&["doctor"], 6),
        (&["gc"], 6),
        (&["undo"], 6),
        (&["run", "--", "true"], 125),
        (&["resume", "x"], 125),
    ] {
        let words = [&["run", "--", "landbox"][..], args].concat();
        let out = place.landbox(&words).output().expect(code);
        assert!(
            out.errors().contains("this is the inside of a session"),
            "{args:?}: {}",
            out.errors()
        );
    }
    for send in ["landbox", "botmux"] {
        let out = place.landbox(["run", "--", send, "send", "hello"]).output().expect(6);
        assert!(out.errors().contains("no receiver"), "{send}: {}", out.errors());
    }
}

#[test]
fn a_question_that_is_answered_with_no_or_not_at_all_changes_nothing_and_is_no_failure() {
    let place = Place::new(World::USUAL);
    place.session(["--name", "s"], ["sh", "-c", "echo x > new"]).output().ok();
    for (args, said) in [
        (&["land", "s"][..], "Nothing was changed."),
        (&["land", "s", "--apply"], "Nothing was changed."),
        (&["discard", "s"], "Nothing was thrown away."),
        (&["rewind", "s", "0"], "Nothing was changed."),
    ] {
        for answer in ["n\n", "\n", "\x04"] {
            let mut terminal = place.landbox(args).terminal(100, 40);
            terminal.expect("[y/N]");
            terminal.send(answer);
            assert_eq!(terminal.wait(), 0, "{args:?}");
            let shown = terminal.shown();
            let last = shown.lines().rfind(|line| !line.trim().is_empty()).unwrap();
            assert_eq!(last.trim(), said, "{args:?} {answer:?}: {shown}");
        }
    }
    assert_eq!(place.json(["show", "s"])["landing"]["pending"], true);
    assert!(!place.project.join("new").exists());
}

#[test]
fn what_is_refused_names_the_next_step() {
    let place = Place::new(World::USUAL);
    place.session(["--name", "s"], ["true"]).output().ok();
    let id = place.json(["show", "s"])["id"].as_str().unwrap().to_owned();
    let sub = place.project.join("src");
    let out = place.landbox(["land"]).cwd(&sub).output().expect(2);
    let named = format!("{id} is the newest of {}", place.project.display());
    assert!(out.errors().contains(&named), "{}", out.errors());
    let said = |args: &[&str]| place.landbox(args).output().errors();
    let landing = said(&["land", "s"]);
    assert!(landing.contains(&format!("landbox show {id} says")), "{landing}");
    let program = said(&["run", "--", "/etc/passwd"]);
    assert!(
        program.contains("it must be a program") && !program.contains("chmod +x /"),
        "{program}"
    );
    let folder = said(&["run", "--workdir", "/nowhere-at-all", "--", "true"]);
    assert!(folder.contains("--workdir DIR"), "{folder}");
    let bots = said(&["--config", "/nowhere-at-all", "run", "--bot", "b"]);
    assert!(bots.contains("name a file that is there"), "{bots}");
    let mut live =
        place.session(["--name", "r"], ["sh", "-c", "echo ready; read x"]).stdin_open().start();
    live.expect("ready");
    let busy = said(&["resume", "r", "--", "true"]);
    assert!(busy.contains("wait for it, or end its command"), "{busy}");
    live.write(b"\n");
    live.wait().ok();
    place.landbox(["discard", "s", "--yes"]).output().ok();
    let again = said(&["discard", "s", "--yes"]);
    assert!(again.contains("landbox gc removes"), "{again}");
}
