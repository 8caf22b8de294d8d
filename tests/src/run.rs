//! Running `landbox` as a person would: with an environment of its own, as the session's user, with every kind of stdin,
//! stdout and stderr.

use crate::net::Outer;
use crate::place::Place;
use crate::procs;
use crate::terminal::Terminal;
use crate::world::{self, Who};
use serde::de::DeserializeOwned;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A script for [`Run::within_changed`]: the usual devices of a container, and no other.
pub const BARE_DEV: &str = "mount -t tmpfs -o mode=0755 none /dev; mkdir /dev/pts /dev/shm; \
    mknod -m 0666 /dev/null c 1 3; mknod -m 0666 /dev/zero c 1 5; mknod -m 0666 /dev/full c 1 7; \
    mknod -m 0666 /dev/random c 1 8; mknod -m 0666 /dev/urandom c 1 9; mknod -m 0666 /dev/tty c 5 0; \
    mount -t devpts -o newinstance,ptmxmode=0666 none /dev/pts; ln -s pts/ptmx /dev/ptmx; \
    ln -s /proc/self/fd /dev/fd; test ! -e /dev/fuse";

/// A command that was not started yet.
#[derive(Debug)]
pub struct Run {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    ids: Option<(u32, u32)>,
    outer: Option<Vec<String>>,
    stdin: Input,
    stderr: Option<File>,
    prefix: Option<String>,
    limit: Duration,
}

#[derive(Debug)]
enum Input {
    Null,
    Bytes(Vec<u8>),
    Open,
    File(File),
}

impl Run {
    pub(crate) fn new<S: AsRef<OsStr>>(place: &Place, args: impl IntoIterator<Item = S>) -> Self {
        let ids = place.world.ids();
        let user = match place.world.who {
            Who::User => "tester",
            Who::Root => "root",
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let env: [(&str, &OsStr); 5] = [
            ("HOME", place.home.as_ref()),
            ("PATH", &path),
            ("USER", user.as_ref()),
            ("TERM", "xterm-256color".as_ref()),
            ("LANG", "C.UTF-8".as_ref()),
        ];
        Self {
            program: world::bin("landbox"),
            args: args.into_iter().map(|a| a.as_ref().to_owned()).collect(),
            env: env.map(|(k, v)| (k.into(), v.into())).into(),
            cwd: place.project.clone(),
            ids: world::is_root().then_some(ids),
            outer: None,
            stdin: Input::Null,
            stderr: None,
            prefix: None,
            limit: Duration::from_secs(60),
        }
    }

    /// Runs this program in place of the `landbox` under test.
    pub fn program(&mut self, path: impl AsRef<Path>) -> &mut Self {
        self.program = path.as_ref().to_owned();
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(&mut self, args: impl IntoIterator<Item = S>) -> &mut Self {
        self.args.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// Says yes to every kind of risk, for `land --apply`.
    pub fn risks_accepted(&mut self) -> &mut Self {
        let kinds = [
            "git",
            "startup",
            "editor",
            "agent",
            "ci",
            "install",
            "build",
            "executable",
            "set-id",
            "outside-link",
            "secret",
            "generated",
            "large",
            "hidden-text",
            "ignore-rules",
        ];
        self.args(kinds.iter().flat_map(|kind| ["--accept-risk", kind]))
    }

    /// Sets a variable of the environment.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.env.retain(|(n, _)| n != name.as_ref());
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Starts in another folder than the project.
    pub fn cwd(&mut self, path: impl AsRef<Path>) -> &mut Self {
        self.cwd = path.as_ref().to_owned();
        self
    }

    /// Feeds stdin from a pipe.
    pub fn stdin(&mut self, bytes: impl Into<Vec<u8>>) -> &mut Self {
        self.stdin = Input::Bytes(bytes.into());
        self
    }

    /// Leaves stdin a pipe that stays open while the command runs.
    pub fn stdin_open(&mut self) -> &mut Self {
        self.stdin = Input::Open;
        self
    }

    /// Gives an open file as stdin.
    pub fn stdin_file(&mut self, file: File) -> &mut Self {
        self.stdin = Input::File(file);
        self
    }

    /// Gives an open file as stderr.
    pub fn stderr_file(&mut self, file: File) -> &mut Self {
        self.stderr = Some(file);
        self
    }

    /// Runs shell commands first, in the process that becomes `landbox`: `exec 7<>file`, `ulimit`, `umask`.
    pub fn prefix(&mut self, script: &str) -> &mut Self {
        self.prefix = Some(script.to_owned());
        self
    }

    /// Starts in a network of the test's own.
    pub fn within(&mut self, outer: &Outer) -> &mut Self {
        self.outer = Some(outer.enter_as(self.ids, &[]));
        self
    }

    /// The same after root has run a script there, in a mount namespace of its own.
    pub fn within_changed(&mut self, outer: &Outer, script: &str) -> &mut Self {
        let line = format!("set -e\n{script}\nexec \"$@\"");
        let unshare = ["/usr/bin/unshare", "--mount", "--propagation=private", "--"];
        let words = [&unshare[..], &["/bin/sh", "-c", &line, "sh"]].concat();
        self.outer = Some(outer.enter_as(self.ids, &words));
        self
    }

    /// The same with a hand of root's in what the helper says to the packet filter: see the prober's `meddle`.
    pub fn within_meddled(&mut self, outer: &Outer, fault: &str) -> &mut Self {
        let prober = world::bin("prober");
        let words = [prober.to_str().expect("a plain path"), "meddle", fault];
        self.outer = Some(outer.enter_as(self.ids, &words));
        self
    }

    /// How long it may take before it is killed and the test fails.
    pub fn limit(&mut self, seconds: u64) -> &mut Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// The command for the standard library; `leader` words come before it.
    pub(crate) fn command(&self, leader: &[&str]) -> Command {
        let mut words: Vec<OsString> = leader.iter().map(Into::into).collect();
        words.extend(self.outer.iter().flatten().map(Into::into));
        if let Some(script) = &self.prefix {
            let line = format!("{script}\nexec \"$0\" \"$@\"");
            words.extend(["bash".into(), "-c".into(), line.into()]);
        }
        words.push(self.program.clone().into());
        words.extend(self.args.iter().cloned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_clear().envs(self.env.iter().cloned());
        command.current_dir(&self.cwd);
        // Entering a network is root's; the words that do it take these ids on afterwards.
        if let (Some((uid, gid)), None) = (self.ids, &self.outer) {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Starts it and comes back at once.
    pub fn start(&mut self) -> Live {
        let mut command = self.command(&[]);
        let (stdin, feed) = match std::mem::replace(&mut self.stdin, Input::Null) {
            Input::Null => (Stdio::null(), None),
            Input::Bytes(bytes) => (Stdio::piped(), Some(bytes)),
            Input::Open => (Stdio::piped(), None),
            Input::File(file) => (file.into(), None),
        };
        command.stdin(stdin).stdout(Stdio::piped());
        command.stderr(self.stderr.take().map_or_else(Stdio::piped, Into::into));
        let mut child = command.spawn().unwrap_or_else(|e| panic!("can't start {command:?}: {e}"));
        let feeder = feed.map(|bytes| {
            let mut pipe = child.stdin.take().unwrap();
            // A command that doesn't read all of its input is no failure of the harness.
            std::thread::spawn(move || drop(pipe.write_all(&bytes)))
        });
        Live {
            stdout: child.stdout.take().map(Stream::of),
            stderr: child.stderr.take().map(Stream::of),
            feeder,
            what: format!("{command:?}"),
            limit: self.limit,
            child,
        }
    }

    /// Runs it to its end.
    pub fn output(&mut self) -> Out {
        self.start().wait()
    }

    /// Runs it on a terminal of its own.
    pub fn terminal(&mut self, columns: u16, rows: u16) -> Terminal {
        Terminal::start(self, columns, rows)
    }

    pub(crate) fn owner(&self) -> Option<u32> {
        self.ids.map(|(uid, _)| uid)
    }
}

/// What comes out of a pipe, readable while it comes.
#[derive(Debug)]
struct Stream {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Stream {
    fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&bytes);
        let reader = std::thread::spawn(move || {
            let mut buffer = vec![0; 65536];
            // An error is an end: what was read so far counts.
            while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                sink.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Self { bytes, reader }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    fn all(self) -> Vec<u8> {
        self.reader.join().unwrap();
        std::mem::take(&mut self.bytes.lock().unwrap())
    }
}

/// A command that runs.
#[derive(Debug)]
pub struct Live {
    child: Child,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    feeder: Option<JoinHandle<()>>,
    what: String,
    limit: Duration,
}

impl Live {
    /// Its process number.
    pub fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    /// Waits until it has said `text` on stdout.
    #[track_caller]
    pub fn expect(&mut self, text: &str) {
        let end = Instant::now() + self.limit;
        let said =
            |stream: &Option<Stream>| stream.as_ref().map(Stream::so_far).unwrap_or_default();
        while !said(&self.stdout).contains(text) {
            let ended = self.child.try_wait().unwrap();
            if ended.is_some() || Instant::now() > end {
                // The readers get what is still in the pipes.
                std::thread::sleep(Duration::from_millis(50));
                if said(&self.stdout).contains(text) {
                    return;
                }
                let (out, err) = (said(&self.stdout), said(&self.stderr));
                panic!(
                    "{} did not say {text:?} ({ended:?})\nstdout: {out}\nstderr: {err}",
                    self.what
                );
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Writes to an open stdin.
    pub fn write(&mut self, bytes: &[u8]) {
        self.child.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Closes an open stdin.
    pub fn close_stdin(&mut self) {
        self.child.stdin = None;
    }

    /// Waits for its end; kills it and fails the test when that takes too long.
    pub fn wait(mut self) -> Out {
        self.close_stdin();
        self.wait_open()
    }

    /// Waits for its end without closing stdin.
    pub fn wait_open(mut self) -> Out {
        let end = Instant::now() + self.limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > end {
                let tree = procs::descendants(self.pid());
                let _ = self.child.kill();
                procs::kill_all(&tree);
                panic!(
                    "took longer than {:?}: {}\nits processes: {tree:#?}",
                    self.limit, self.what
                );
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        if let Some(feeder) = self.feeder {
            feeder.join().unwrap();
        }
        let all = |stream: Option<Stream>| stream.map(Stream::all).unwrap_or_default();
        Out { status, stdout: all(self.stdout), stderr: all(self.stderr), what: self.what }
    }
}

/// How a command ended and what it said.
#[derive(Debug)]
pub struct Out {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its stdout.
    pub stdout: Vec<u8>,
    /// Its stderr.
    pub stderr: Vec<u8>,
    what: String,
}

impl Out {
    /// Exit code, or 1000 + the signal that ended it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 1000 + self.status.signal().unwrap_or(0))
    }

    /// Fails the test unless the exit code is `code`.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.code(),
            code,
            "exit code of {}\nstdout: {}\nstderr: {}",
            self.what,
            self.text(),
            self.errors()
        );
        self
    }

    /// Fails the test unless it succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.expect(0)
    }

    /// Its stdout as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Its stderr as text.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The last line of its stdout as a document, for programs that were made to say other things before.
    #[track_caller]
    pub fn json_of_last_line<T: DeserializeOwned>(mut self) -> T {
        let text = self.stdout.trim_ascii_end();
        let start = text.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        self.stdout.drain(..start);
        self.json()
    }

    /// Its stdout as a document.
    #[track_caller]
    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|e| {
            panic!("no document from {}: {e}\n{}\n{}", self.what, self.text(), self.errors())
        })
    }
}
