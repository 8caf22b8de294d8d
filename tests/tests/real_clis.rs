//! Real coding CLIs take turns inside a session against a scripted model server on loopback: a turn and its resumption,
//! through pipes and on a terminal. What they write is in the changeset, not in the project, and lands.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::world::{self, World};
use landbox_tests::{Place, worlds};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const MADE: &str = "made-by-agent.txt";
const DOOMED: &str = "doomed.txt";

/// The scripted model server of one test, ended with it.
struct Server {
    child: Child,
    port: String,
    token: String,
    log: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// The programs, installed from npm by `tests/run.sh`.
fn clis() -> PathBuf {
    let dir = world::base().join("clis/node_modules/.bin");
    assert!(
        dir.join("codex").exists(),
        "the CLIs are not installed: start the suite by tests/run.sh"
    );
    dir
}

impl Server {
    fn start(place: &Place) -> Self {
        let script = place.root().join("script.json");
        let steps = serde_json::json!([
            {"shell": format!("pwd && echo HELLO >> {MADE} && {{ test ! -e {DOOMED} || rm {DOOMED}; }} \
                               && cat {MADE} && sleep 0.3")},
            {"text": "DONE-{token}.{turn}"},
        ]);
        fs::write(&script, steps.to_string()).unwrap();
        let log = place.root().join("model.log");
        let mut child = Command::new("python3")
            .args(["-B".as_ref(), fixture("model_server.py").as_os_str()])
            .args(["--log".as_ref(), log.as_os_str(), "--script".as_ref(), script.as_os_str()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line = || lines.next().unwrap().unwrap();
        Self { port: line(), token: line(), child, log }
    }

    /// Texts of the tool results that the CLI sent back.
    fn results(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .flat_map(|entry| entry["tool_results"].as_array().cloned().unwrap_or_default())
            .filter_map(|result| result["text"].as_str().map(str::to_owned))
            .collect()
    }
}

/// One turn of `cli` behind `wrapper`; with a terminal or through pipes; gives what it printed.
fn turn(
    place: &Place,
    server: &Server,
    cli: &str,
    terminal: bool,
    resume: bool,
    wrapper: &[&str],
) -> String {
    let program = fixture(if terminal { "interactive.py" } else { "realcli.py" });
    let want = format!("DONE-{}.{}", server.token, if resume { 2 } else { 1 });
    let mut command = Command::new("python3");
    command.arg("-B").arg(program);
    if !terminal {
        command.arg("turn");
    }
    command.arg(cli).arg(&place.project).arg(&server.port);
    if terminal {
        command.args(["--token", &server.token, "--expect", &want, "--timeout", "60"]);
        command.arg("--screen").arg(place.home.join("screen"));
        if resume {
            command.arg("--resume");
        }
    }
    command.arg("--").arg(world::bin("landbox")).args(wrapper);
    let path = format!("{}:{}", clis().display(), std::env::var("PATH").unwrap_or_default());
    command
        .env_clear()
        .env("PATH", path)
        .env("HOME", &place.home)
        .env("USER", "tester")
        .env("SHELL", "/bin/bash")
        .env("TERM", "xterm-256color")
        .env("LANG", "C.UTF-8")
        .env("REALCLI_BIN", clis())
        .env("REALCLI_STATE", "home")
        .env("REALCLI_RESUME", if resume { "1" } else { "" })
        .current_dir(&place.project)
        .stdin(Stdio::null());
    if world::is_root() {
        let (uid, gid) = place.world.ids();
        command.uid(uid).gid(gid);
    }
    let out = command.output().unwrap();
    let mut text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&out.stderr));
    if terminal {
        text.push_str(&fs::read_to_string(place.home.join("screen")).unwrap_or_default());
    }
    assert!(text.contains(&want), "{cli}: no {want} in {text}\nresults: {:?}", server.results());
    text
}

/// Changes of session `name` as (path, kind).
fn changes(place: &Place, name: &str) -> Vec<(String, String)> {
    let card = place.json(["diff", name]);
    let text = |v: &Value, key: &str| v[key].as_str().unwrap_or_default().to_owned();
    let mut found: Vec<_> = card["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (text(c, "path"), text(c, "kind")))
        .collect();
    found.sort();
    found
}

fn hellos(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().matches("HELLO").count()
}

/// A turn, its resumption and the landing of both.
fn whole_story(world: World, cli: &str, terminal: bool) {
    let place = Place::new(world);
    let server = Server::start(&place);
    place.write(place.project.join(DOOMED), "x\n");
    let name = format!("{cli}-{}", if terminal { "terminal" } else { "pipes" });
    let first = ["-q", "run", "--overlay", world.overlay_name(), "--name", &name, "--"];
    turn(&place, &server, cli, terminal, false, &first);
    let project = place.project.display().to_string();
    let results = server.results();
    assert!(
        results.iter().any(|r| r.contains(&project) && r.contains("HELLO")),
        "{cli}: the shell call's result is not there: {results:?}"
    );
    // Nothing real has changed; the layer has the change.
    assert!(!place.project.join(MADE).exists() && place.project.join(DOOMED).exists());
    let expected =
        [(DOOMED.to_owned(), "deleted".to_owned()), (MADE.to_owned(), "added".to_owned())];
    assert_eq!(changes(&place, &name), expected);

    turn(&place, &server, cli, terminal, true, &["-q", "resume", &name, "--"]);
    assert!(!place.project.join(MADE).exists() && place.project.join(DOOMED).exists());
    assert_eq!(changes(&place, &name), expected);

    place.landbox(["land", &name, "--apply", "--yes"]).risks_accepted().output().ok();
    assert_eq!(hellos(&place.project.join(MADE)), 2, "both turns landed");
    assert!(!place.project.join(DOOMED).exists());
}

macro_rules! stories {
    ($($cli:ident),+) => {
        $(
            mod $cli {
                use super::*;

                worlds! {
                    [user_kernel, user_fuse, root_kernel]
                    fn takes_a_turn_resumes_and_lands(world) {
                        whole_story(world, stringify!($cli), false);
                    }

                    [user_kernel, root_kernel]
                    fn takes_a_turn_on_a_terminal_resumes_and_lands(world) {
                        whole_story(world, stringify!($cli), true);
                    }
                }
            }
        )+
    };
}

stories!(codex, claude, opencode, gemini);
