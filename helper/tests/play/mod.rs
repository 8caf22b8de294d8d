//! Plays the controller for the helper's tests: a session folder, a key, a plan, and the two descriptors.
#![allow(dead_code, clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

pub(crate) mod procs;

use command_fds::{CommandFdExt, FdMapping};
use ed25519_dalek::SigningKey;
use landbox_shared::digest::Digest;
use landbox_shared::event::Event;
use landbox_shared::exec::Exec;
use landbox_shared::id::{LayerId, SessionId};
use landbox_shared::path::AbsPath;
use landbox_shared::plan::{LayerOp, Op, Plan, Stdio};
use landbox_shared::policy::{Backend, Network, SeccompProfile};
use landbox_shared::wire::{self, Binding, EventAssembler, KeyId};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, send, socketpair,
};
use std::fs::{self, File, Permissions};
use std::io::{IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio as Process};

/// Everything of one session, made by hand.
pub(crate) struct Stage {
    dir: tempfile::TempDir,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) key: SigningKey,
    pub(crate) helper: PathBuf,
    trusted: PathBuf,
}

/// The users tests run as: the ordinary one only where root can become it.
pub(crate) fn users() -> Vec<u32> {
    if nix::unistd::geteuid().is_root() {
        vec![0, 1000]
    } else {
        vec![nix::unistd::geteuid().as_raw()]
    }
}

pub(crate) fn abs(path: impl AsRef<Path>) -> AbsPath {
    AbsPath::from_path(path.as_ref()).unwrap()
}

impl Stage {
    pub(crate) fn new(uid: u32) -> Self {
        let dir = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir();
        let dir = dir.unwrap();
        let gid = if uid == 0 { 0 } else { nix::unistd::getegid().as_raw().max(uid) };
        // Where the build lies may not be readable for the ordinary user.
        let helper = dir.path().join("landbox-helper");
        fs::copy(env!("CARGO_BIN_EXE_landbox-helper"), &helper).unwrap();
        // A test that starts a program at this moment may hold the copy open for writing.
        let run = || Command::new(&helper).arg("--version").output();
        while run().is_err_and(|e| e.kind() == std::io::ErrorKind::ExecutableFileBusy) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let mut seed = [0; 32];
        File::open("/dev/urandom").unwrap().read_exact(&mut seed).unwrap();
        let key = SigningKey::from_bytes(&seed);
        let home = dir.path().join("home");
        let config = if uid == 0 { PathBuf::from("/root/.config") } else { home.join(".config") };
        let this = Self { trusted: config.join("landbox/trusted.d"), dir, uid, gid, key, helper };
        for folder in ["home", "session", "session/layers/project/upper", "project"] {
            this.own_folder(&this.path(folder));
        }
        this.own_folder(&this.path("session/layers/project/work.1"));
        this.own_file("session/lock", b"");
        this.own_file("project/file", b"real\n");
        this.own_folder(&this.trusted);
        this.trust(&this.trust_line());
        this
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes a folder, and what is missing on the way, the user's with mode 0700.
    pub(crate) fn own_folder(&self, path: &Path) {
        if path.is_dir() {
            return;
        }
        self.own_folder(path.parent().unwrap());
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
        chown(path, Some(self.uid), Some(self.gid)).unwrap();
    }

    pub(crate) fn own_file(&self, name: &str, bytes: &[u8]) {
        self.own_path(&self.path(name), bytes);
    }

    fn own_path(&self, path: &Path, bytes: &[u8]) {
        fs::write(path, bytes).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
        chown(path, Some(self.uid), Some(self.gid)).unwrap();
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.trusted.join(format!("{}.pub", KeyId::of(&self.key.verifying_key())))
    }

    pub(crate) fn trusted(&self) -> &Path {
        &self.trusted
    }

    pub(crate) fn trust_line(&self) -> String {
        let hex: String =
            self.key.verifying_key().as_bytes().iter().map(|b| format!("{b:02x}")).collect();
        format!("{hex} {} a test\n", self.uid)
    }

    pub(crate) fn trust(&self, line: &str) {
        self.own_path(&self.key_file(), line.as_bytes());
    }

    /// A plan with the usual parts and one layer.
    pub(crate) fn plan(&self) -> Plan {
        Plan {
            session: SessionId::new("abcdefghij").unwrap(),
            policy_digest: Digest([7; 32]),
            session_dir: abs(self.path("session")),
            launch: 1,
            uid: self.uid,
            gid: self.gid,
            stdio: [Stdio::Pipe; 3],
            cwd: abs(self.path("project")),
            network: Network::Host,
            seccomp: SeccompProfile::Base,
            exec_digest: Digest([0; 32]),
            ops: vec![
                Op::Root,
                Op::Proc,
                Op::Dev { console: None },
                Op::Tmpfs { target: abs("/run"), mode: 0o755, size: 1 << 20 },
                Op::Layer(LayerOp {
                    id: LayerId::new("project").unwrap(),
                    target: abs(self.path("project")),
                    backend: Backend::Kernel,
                    masks: vec![],
                }),
            ],
        }
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.helper);
        command.env_clear().env("HOME", self.path("home")).current_dir("/");
        if nix::unistd::geteuid().as_raw() != self.uid {
            command.uid(self.uid).gid(self.gid);
        }
        command
    }

    /// Starts the helper; its challenge is read.
    pub(crate) fn start(&self) -> Launch {
        self.start_with(|_| {})
    }

    pub(crate) fn start_with(&self, change: impl FnOnce(&mut Command)) -> Launch {
        let (envelope_out, envelope) = nix::unistd::pipe().unwrap();
        let flags = SockFlag::SOCK_CLOEXEC;
        let (events, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
        let mut command = self.command();
        command.stdin(Process::piped()).stdout(Process::piped()).stderr(Process::piped());
        change(&mut command);
        command
            .fd_mappings(vec![
                FdMapping { parent_fd: envelope_out, child_fd: 3 },
                FdMapping { parent_fd: theirs, child_fd: 4 },
            ])
            .unwrap();
        let child = command.spawn().unwrap();
        drop(command);
        Launch { child, envelope: Some(File::from(envelope)), events }
    }

    /// Runs argv with this plan to the end and gives its output and the last event.
    pub(crate) fn run(&self, plan: Plan, argv: &[&str]) -> (String, Event) {
        let mut launch = self.start();
        launch.send(self, plan, argv);
        match launch.next().0 {
            Event::Ready(_) => launch.release(),
            other => return (String::new(), other),
        }
        let output = launch.output();
        (output, launch.next().0)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.key_file());
    }
}

/// A started helper.
pub(crate) struct Launch {
    pub(crate) child: Child,
    pub(crate) envelope: Option<File>,
    pub(crate) events: OwnedFd,
}

impl Launch {
    /// The next event and the descriptors beside it. Panics when the helper is gone.
    pub(crate) fn next(&mut self) -> (Event, Vec<OwnedFd>) {
        let mut assembler = EventAssembler::default();
        let mut beside = Vec::new();
        loop {
            let (packet, fds) = self.packet();
            assert!(!packet.is_empty(), "the helper ended without a word: {}", self.complaint());
            beside.extend(fds);
            if let Some(event) = assembler.push(&packet).unwrap() {
                return (event, beside);
            }
        }
    }

    /// Whether the helper has closed the socket without another word.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.packet().0.is_empty()
    }

    fn packet(&mut self) -> (Vec<u8>, Vec<OwnedFd>) {
        let mut buffer = vec![0; 1 << 17];
        let mut space = nix::cmsg_space!([RawFd; 70]);
        let mut iov = [IoSliceMut::new(&mut buffer)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        // Whatever is never said fails a test and does not hang it.
        let mut events = [PollFd::new(self.events.as_fd(), PollFlags::POLLIN)];
        let waited = loop {
            match poll(&mut events, 120_000_u32.try_into().unwrap_or(PollTimeout::MAX)) {
                Err(Errno::EINTR) => {}
                waited => break waited.unwrap(),
            }
        };
        assert_eq!(waited, 1, "nothing was said");
        let fd = self.events.as_raw_fd();
        let message = match recvmsg::<()>(fd, &mut iov, Some(&mut space), flags) {
            // Gone, with something unheard.
            Err(Errno::ECONNRESET) => return (vec![], vec![]),
            received => received.unwrap(),
        };
        let mut beside = Vec::new();
        for control in message.cmsgs().unwrap() {
            if let ControlMessageOwned::ScmRights(raw) = control {
                // SAFETY: just received.
                beside.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
            }
        }
        let length = message.bytes;
        buffer.truncate(length);
        (buffer, beside)
    }

    fn complaint(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.read_to_string(&mut text);
        }
        text
    }

    pub(crate) fn challenge(&mut self) -> [u8; 32] {
        match self.next().0 {
            Event::Challenge(challenge) => challenge,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn binding(&mut self, uid: u32) -> Binding {
        let challenge = self.challenge();
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let id = u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap();
        Binding { challenge, uid, boot_id: id.to_be_bytes() }
    }

    /// Answers the challenge properly.
    pub(crate) fn send(&mut self, stage: &Stage, plan: Plan, argv: &[&str]) {
        let binding = self.binding(stage.uid);
        let (envelope, exec) = frames(plan, argv, &binding, &stage.key);
        self.write(&[envelope, exec].concat());
    }

    /// Writes bytes and closes the pipe.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        // A helper that has refused already may be gone.
        let _ = self.envelope.take().unwrap().write_all(bytes);
    }

    pub(crate) fn release(&mut self) {
        self.say(wire::RELEASE);
    }

    pub(crate) fn say(&mut self, word: &[u8]) {
        send(self.events.as_raw_fd(), word, MsgFlags::MSG_NOSIGNAL).unwrap();
    }

    pub(crate) fn output(&mut self) -> String {
        drop(self.child.stdin.take());
        let mut text = Vec::new();
        self.child.stdout.take().unwrap().read_to_end(&mut text).unwrap();
        let mut complaint = Vec::new();
        self.child.stderr.take().unwrap().read_to_end(&mut complaint).unwrap();
        text.extend(complaint);
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Copies a program. By another process: one that a test starts at this moment would hold a copy of ours open for writing.
pub(crate) fn copy_program(from: impl AsRef<Path>, to: &Path) {
    assert!(Command::new("cp").arg(from.as_ref()).arg(to).status().unwrap().success());
}

/// Gives the stage's helper capabilities, as `setcap` writes them.
pub(crate) fn set_capabilities(stage: &Stage, text: &str) {
    let done = Command::new("setcap").arg(text).arg(&stage.helper).status();
    assert!(done.unwrap().success(), "setcap {text}");
}

/// Starts the helper behind another program with these arguments: as the stage's user, unless it is `setpriv`.
pub(crate) fn behind(stage: &Stage, wrapper: &[&str]) -> Launch {
    let helper = stage.helper.clone();
    stage.start_with(|command| {
        let mut wrapped = Command::new(wrapper[0]);
        wrapped.args(&wrapper[1..]).arg(helper).env_clear();
        wrapped.env("HOME", stage.path("home")).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        wrapped.stdin(Process::piped()).stdout(Process::piped()).stderr(Process::piped());
        if nix::unistd::geteuid().as_raw() != stage.uid && wrapper[0] != "setpriv" {
            wrapped.uid(stage.uid).gid(stage.gid);
        }
        *command = wrapped;
    })
}

/// `setpriv` to the user with more arguments.
pub(crate) fn as_user<'a>(uid: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"], more].concat()
}

/// A script that runs as root in a mount namespace with an `/etc` of its own, in which `landbox-audit` enrolled these lines,
/// and goes on as the stage's user, after `more` shell words, with the program it is given.
pub(crate) fn enrolled(stage: &Stage, lines: &[String], more: &str) -> String {
    let audit = env!("CARGO_BIN_EXE_landbox-audit");
    let add = |line: &String| format!("{audit} trust add {} >/dev/null && ", line.trim());
    let (uid, lines) = (stage.uid, lines.iter().map(add).collect::<String>());
    format!(
        "mount --make-rprivate / && mount -t tmpfs -o mode=755 tmpfs /etc && {lines}\
         exec setpriv --reuid {uid} --regid {uid} --clear-groups {more} \"$0\" \"$@\""
    )
}

/// The two frames for a plan and a command.
pub(crate) fn frames(
    mut plan: Plan,
    argv: &[&str],
    binding: &Binding,
    key: &SigningKey,
) -> (Vec<u8>, Vec<u8>) {
    let exec = Exec {
        argv: argv.iter().map(|a| a.as_bytes().to_vec()).collect(),
        env: vec![b"PATH=/usr/bin:/bin".to_vec(), b"MARK=1".to_vec()],
    };
    let (frame, digest) = wire::exec_frame(&exec).unwrap();
    plan.exec_digest = digest;
    (wire::seal(&plan, binding, key).unwrap(), frame)
}
