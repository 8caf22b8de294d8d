//! The stage a test plays on.

use super::super::{FuseRequest, Mounted, build};
use landbox_shared::digest::Digest;
use landbox_shared::event::Failure;
use landbox_shared::id::{LayerId, SessionId};
use landbox_shared::path::{AbsPath, RelPath};
use landbox_shared::plan::{Access, LayerMask, LayerOp, Loss, Op, Plan, Stdio};
use landbox_shared::policy::{Backend, MaskKind, Network, SeccompProfile};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio as Pipe};
use std::sync::atomic::{AtomicU32, Ordering};

const FOLDER: &str = "LANDBOX_MOUNT_TEST_FOLDER";
const WHO: &str = "LANDBOX_MOUNT_TEST_WHO";

/// Who the session belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Root,
    User,
}

/// A home, a project in it, and a session's folder, seen by the process that will be init.
pub(super) struct Stage {
    pub(super) home: PathBuf,
    pub(super) project: PathBuf,
    pub(super) session: PathBuf,
    pub(super) fuse_processes: RefCell<Vec<Child>>,
}

/// Plays the named test: outside it starts the stages and returns nothing; inside it returns the stage.
pub(super) fn enter(test: &str) -> Option<Stage> {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return Some(Stage::new(Path::new(&folder)));
    }
    if is_root() {
        play(test, Who::Root, false);
    }
    play(test, Who::User, false);
    None
}

/// The same, with another file system on `inner` in the project, mounted by the host (so that the kernel locks it).
pub(super) fn enter_around_a_mount(test: &str) -> Option<Stage> {
    if std::env::var_os(FOLDER).is_some() {
        return enter(test);
    }
    play(test, Who::User, true);
    None
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn play(test: &str, who: Who, around_a_mount: bool) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = PathBuf::from(format!("/var/tmp/landbox-mount-{}-{number}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let inner = ["--mount", "--pid", "--fork", "--kill-child", "--propagation=private"];
    let mut command;
    if is_root() && who == Who::User {
        chown(&folder, Some(1000), Some(1000)).unwrap();
        command = Command::new("setpriv");
        command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "unshare"]);
    } else {
        command = Command::new("unshare");
    }
    match who {
        // The map is written from outside, below; only then does the shell go on, as root in there.
        Who::Root => command
            .args(["--user", "sh", "-c", "echo ready; read go; exec unshare \"$@\"", "sh"])
            .args(inner),
        Who::User if around_a_mount => command
            .args(["--user", "--map-root-user", "--mount", "sh", "-c"])
            .arg("mkdir -p $0/home/project/inner; mount -t tmpfs none $0/home/project/inner; exec unshare \"$@\"")
            .arg(&folder)
            .args(["--user", "--map-root-user"])
            .args(inner),
        Who::User => command.args(["--user", "--map-root-user"]).args(inner),
    };
    let mut child = command
        .arg(std::env::current_exe().unwrap())
        .args([&format!("mount::tests::{test}"), "--exact", "--test-threads=1", "--nocapture"])
        .env(FOLDER, &folder)
        .env(WHO, if who == Who::Root { "root" } else { "user" })
        .stdin(Pipe::piped())
        .stdout(Pipe::piped())
        .stderr(Pipe::piped())
        .spawn()
        .unwrap();
    if who == Who::Root {
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
        for map in ["uid_map", "gid_map"] {
            fs::write(format!("/proc/{}/{map}", child.id()), "0 0 4294967295").unwrap();
        }
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }
    let output = child.wait_with_output().unwrap();
    fs::remove_dir_all(&folder).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test} as {who:?}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

impl Stage {
    fn new(folder: &Path) -> Self {
        let home = folder.join("home");
        let project = home.join("project");
        // Below the home, as in life: the upper lies inside the home layer's lower.
        let session = home.join(".local/state/landbox/sessions/abcdefghij");
        fs::create_dir_all(&project).unwrap();
        for private in ["tmp", "vartmp", "outbox"] {
            fs::create_dir_all(session.join(private)).unwrap();
        }
        fs::set_permissions(session.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
        Self { home, project, session, fuse_processes: RefCell::default() }
    }

    /// A layer over a folder, with its upper and work folders made.
    pub(super) fn layer(&self, id: &str, target: &Path, backend: Backend) -> LayerOp {
        for name in ["upper", "work.1"] {
            fs::create_dir_all(self.session.join("layers").join(id).join(name)).unwrap();
        }
        LayerOp { id: LayerId::new(id).unwrap(), target: abs(target), backend, masks: Vec::new() }
    }

    /// What the session wrote in a layer. Only before the tree is built.
    pub(super) fn upper(&self, id: &str) -> PathBuf {
        self.session.join("layers").join(id).join("upper")
    }

    /// The parts every session has.
    pub(super) fn basics(&self) -> Vec<Op> {
        vec![
            Op::Root,
            Op::Proc,
            Op::Dev { console: None },
            private("tmp", "/tmp"),
            tmpfs("/run"),
            tmpfs("/dev/shm"),
        ]
    }

    pub(super) fn plan(&self, ops: Vec<Op>) -> Plan {
        Plan {
            session: SessionId::new("abcdefghij").unwrap(),
            policy_digest: Digest([0; 32]),
            session_dir: abs(&self.session),
            launch: 1,
            uid: 0,
            gid: 0,
            stdio: [Stdio::Pipe; 3],
            cwd: abs(&self.project),
            network: Network::Host,
            seccomp: SeccompProfile::Base,
            exec_digest: Digest([0; 32]),
            ops,
        }
    }

    /// Builds the basics and these operations.
    pub(super) fn build(&self, ops: impl IntoIterator<Item = Op>) -> Mounted {
        self.try_build(self.basics().into_iter().chain(ops).collect())
            .unwrap_or_else(|failure| panic!("{failure}"))
    }

    pub(super) fn try_build(&self, ops: Vec<Op>) -> Result<Mounted, Failure> {
        let session = fs::File::open(&self.session).unwrap();
        build(&self.plan(ops), session.as_fd(), &mut |request| {
            self.fuse_processes.borrow_mut().push(start_fuse(request));
            Ok(())
        })
    }
}

/// Does what the monitor does: enters init's mount namespace and takes one of its own from it.
fn start_fuse(request: FuseRequest) -> Child {
    let FuseRequest { fuse, lowers, upper, work, layer: _ } = request;
    let path = |fd: &OwnedFd| {
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
        format!("/proc/self/fd/{}", fd.as_raw_fd())
    };
    let lower: Vec<String> = lowers.iter().map(path).collect();
    let (upper, work) = (path(&upper), path(&work));
    let options = format!("lowerdir={},upperdir={upper},workdir={work}", lower.join(":"));
    path(&fuse);
    // Entering a mount namespace leads to its root, which must still be the old one.
    Command::new("nsenter")
        .args(["--mount=/proc/self/ns/mnt", "unshare", "--mount"])
        .args(["fuse-overlayfs", "-f", "-o", &options])
        .arg(format!("/dev/fd/{}", fuse.as_raw_fd()))
        .stdin(Pipe::piped())
        .spawn()
        .unwrap()
}

/// Somebody on the host: the same user, in a mount namespace that does not follow into the new root.
pub(super) struct Host {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Host {
    /// Must be called before the tree is built.
    pub(super) fn arrive() -> Self {
        let mut child = Command::new("unshare")
            .args(["--mount", "sh"])
            .stdin(Pipe::piped())
            .stdout(Pipe::piped())
            .spawn()
            .unwrap();
        let mut host = Self { out: BufReader::new(child.stdout.take().unwrap()), child };
        host.run("true");
        host
    }

    /// Runs a script and returns what it printed.
    pub(super) fn run(&mut self, script: &str) -> String {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin
            .write_all(format!("{{ {script}\n}} 2>&1; printf '\\n=%s\\n' $?\n").as_bytes())
            .unwrap();
        let mut text = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.out.read_line(&mut line).unwrap(), 0, "{script}: {text}");
            if let Some(status) = line.strip_prefix('=') {
                assert_eq!(status.trim(), "0", "{script}: {text}");
                text.pop();
                return text;
            }
            text.push_str(&line);
        }
    }
}

pub(super) fn abs(path: &Path) -> AbsPath {
    AbsPath::from_path(path).unwrap()
}

pub(super) fn rel(path: impl AsRef<OsStr>) -> RelPath {
    RelPath::new(path.as_ref().as_bytes()).unwrap()
}

pub(super) fn tmpfs(target: &str) -> Op {
    Op::Tmpfs { target: AbsPath::new(target).unwrap(), mode: 0o755, size: 1 << 20 }
}

pub(super) fn private(source: &str, target: &str) -> Op {
    Op::Private { source: rel(source), target: abs(Path::new(target)), access: Access::ReadWrite }
}

pub(super) fn bind(path: &Path, access: Access) -> Op {
    Op::Bind { source: abs(path), target: abs(path), access }
}

pub(super) fn hide(path: &Path, kind: MaskKind) -> Op {
    Op::Mask { target: abs(path), kind, loss: Loss::EndsSession }
}

pub(super) fn masked(mut layer: LayerOp, masks: &[(&str, MaskKind)]) -> Op {
    layer.masks =
        masks.iter().map(|(path, kind)| LayerMask { path: rel(path), kind: *kind }).collect();
    Op::Layer(layer)
}

/// A line of the mount table.
pub(super) struct Line {
    pub(super) point: String,
    pub(super) options: Vec<String>,
    pub(super) tags: Vec<String>,
    pub(super) kind: String,
    pub(super) super_options: String,
}

pub(super) fn mount_table() -> Vec<Line> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let parse = |line: &str| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let dash = words.iter().position(|word| word == "-").unwrap();
        Line {
            point: words[4].clone(),
            options: words[5].split(',').map(str::to_owned).collect(),
            tags: words[6..dash].to_vec(),
            kind: words[dash + 1].clone(),
            super_options: words[dash + 3].clone(),
        }
    };
    text.lines().map(parse).collect()
}

/// The topmost mount at a point.
pub(super) fn mount_at(point: &str) -> Line {
    mount_table().into_iter().rfind(|line| line.point == point).unwrap()
}

/// The error number of a failed operation.
pub(super) fn errno<T>(result: std::io::Result<T>) -> i32 {
    result.err().and_then(|error| error.raw_os_error()).unwrap_or(0)
}
