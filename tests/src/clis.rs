//! Real coding CLIs and the scripted model server they take turns against.

use crate::net::Outer;
use crate::place::Place;
use crate::world;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The scripted model server of one test, ended with it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    host: String,
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
fn programs() -> PathBuf {
    let dir = world::base().join("clis/node_modules/.bin");
    assert!(
        dir.join("codex").exists(),
        "the CLIs are not installed: start the suite by tests/run.sh"
    );
    dir
}

impl Server {
    /// A model on loopback that has `shell` run, then says that it is done.
    pub fn start(place: &Place, shell: &str) -> Self {
        Self::begin(place, shell, Command::new("python3"), "127.0.0.1", "0")
    }

    /// The same in a test's network, at an address of it.
    pub fn start_within(outer: &Outer, place: &Place, shell: &str, host: &str, port: u16) -> Self {
        Self::begin(place, shell, outer.command(["python3"]), host, &port.to_string())
    }

    fn begin(place: &Place, shell: &str, mut python: Command, host: &str, port: &str) -> Self {
        let script = place.root().join("script.json");
        let steps = json!([{"shell": shell}, {"text": "DONE-{token}.{turn}"}]);
        fs::write(&script, steps.to_string()).unwrap();
        let log = place.root().join("model.log");
        let mut child = python
            .args(["-B".as_ref(), fixture("model_server.py").as_os_str()])
            .args(["--host", host, "--port", port])
            .args(["--log".as_ref(), log.as_os_str(), "--script".as_ref(), script.as_os_str()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line = || lines.next().unwrap().unwrap();
        Self { host: host.to_owned(), port: line(), token: line(), child, log }
    }

    /// Texts of the tool results that the CLI sent back.
    pub fn results(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .flat_map(|entry| entry["tool_results"].as_array().cloned().unwrap_or_default())
            .filter_map(|result| result["text"].as_str().map(str::to_owned))
            .collect()
    }
}

/// One turn of a CLI.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// Its name.
    pub cli: &'a str,
    /// On a terminal, or through pipes.
    pub terminal: bool,
    /// Whether it continues the last one.
    pub resume: bool,
    /// The network it starts in, if that is the test's own.
    pub outer: Option<&'a Outer>,
}

impl Turn<'_> {
    /// Takes it by `landbox WRAPPER..`; gives what was printed. Fails the test unless the CLI says that it is done.
    #[track_caller]
    pub fn take(self, place: &Place, server: &Server, wrapper: &[&str]) -> String {
        let Self { cli, terminal, resume, outer } = self;
        let program = fixture(if terminal { "interactive.py" } else { "realcli.py" });
        let want = format!("DONE-{}.{}", server.token, if resume { 2 } else { 1 });
        let mut words: Vec<String> = Vec::new();
        let ids = world::is_root().then(|| place.world.ids());
        words.extend(outer.iter().flat_map(|outer| outer.enter_as(ids, &[])));
        words.push("/usr/bin/python3".into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg("-B").arg(program);
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
        let path =
            format!("{}:{}", programs().display(), std::env::var("PATH").unwrap_or_default());
        command
            .env_clear()
            .env("PATH", path)
            .env("HOME", &place.home)
            .env("USER", "tester")
            .env("SHELL", "/bin/bash")
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .env("REALCLI_BIN", programs())
            .env("REALCLI_HOST", &server.host)
            .env("REALCLI_STATE", "home")
            .env("REALCLI_RESUME", if resume { "1" } else { "" })
            .current_dir(&place.project)
            .stdin(Stdio::null());
        if let (Some((uid, gid)), None) = (ids, outer) {
            use std::os::unix::process::CommandExt;
            command.uid(uid).gid(gid);
        }
        let out = command.output().unwrap();
        let mut text = String::from_utf8_lossy(&out.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&out.stderr));
        if terminal {
            text.push_str(&fs::read_to_string(place.home.join("screen")).unwrap_or_default());
        }
        let results = server.results();
        assert!(text.contains(&want), "{cli}: no {want} in {text}\nresults: {results:?}");
        text
    }
}
