//! What the prober says: the documents it prints inside a session and the harness reads outside.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One thing the prober tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// What was tried.
    pub way: String,
    /// On what.
    pub on: String,
    /// 0, or the error number; negative: the process that tried was ended by that signal.
    pub errno: i32,
}

impl Attempt {
    /// Whether the kernel let it happen.
    pub fn worked(&self) -> bool {
        self.errno == 0
    }
}

/// What a process can see about itself and its world.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    /// `Uid:` of its status: real, effective, saved, file system.
    pub uids: Vec<u32>,
    /// `Gid:` of its status.
    pub gids: Vec<u32>,
    /// Its number in its own process namespace.
    pub pid: u32,
    /// Its parent's.
    pub ppid: i32,
    /// Its working folder.
    pub cwd: String,
    /// Its host name.
    pub hostname: String,
    /// All of `/proc/self/status`.
    pub status: BTreeMap<String, String>,
    /// Link texts of `/proc/self/ns`.
    pub namespaces: BTreeMap<String, String>,
    /// `/proc/self/uid_map`, fields separated by one space.
    pub uid_map: String,
    /// Lines of `/proc/self/mountinfo`.
    pub mounts: Vec<Mount>,
    /// Open descriptors and what they lead to.
    pub fds: BTreeMap<u32, String>,
    /// The environment.
    pub env: BTreeMap<String, String>,
    /// Process numbers in `/proc`.
    pub pids: Vec<u32>,
    /// Entries of `/dev`.
    pub dev: Vec<String>,
    /// What descriptors 0 to 2 are.
    pub stdio: Vec<Stdio>,
}

/// One line of mountinfo.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Root within the file system.
    pub root: String,
    /// Mount point, octal escapes as they are.
    pub point: String,
    /// Per-mount options.
    pub options: String,
    /// Optional fields: peer groups and masters.
    pub optional: Vec<String>,
    /// File-system type.
    pub kind: String,
    /// Options of the file system.
    pub super_options: String,
}

impl Mount {
    /// Reads one line of mountinfo.
    pub fn parse(line: &str) -> Option<Self> {
        let (head, tail) = line.split_once(" - ")?;
        let mut head = head.split(' ').skip(3);
        let mut tail = tail.split(' ');
        Some(Self {
            root: head.next()?.to_owned(),
            point: head.next()?.to_owned(),
            options: head.next()?.to_owned(),
            optional: head.map(str::to_owned).collect(),
            kind: tail.next()?.to_owned(),
            super_options: tail.nth(1)?.to_owned(),
        })
    }

    /// Whether one of the per-mount options is `option`.
    pub fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|o| o == option)
    }
}

/// What one descriptor is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stdio {
    /// Whether it is a terminal.
    pub tty: bool,
    /// Columns and rows, of a terminal.
    pub size: Option<(u16, u16)>,
    /// Whether it is the controlling terminal and this process is in its foreground.
    pub foreground: bool,
}

/// What a hostile program is told to attack.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Attack {
    /// Files and folders of the real machine.
    pub targets: Vec<std::path::PathBuf>,
    /// Places that are tried without changing anything.
    pub gently: Vec<std::path::PathBuf>,
    /// A folder of its own to work from.
    pub scratch: std::path::PathBuf,
    /// Sockets of the host, by path.
    pub sockets: Vec<std::path::PathBuf>,
    /// Sockets of the host, by abstract name.
    pub abstract_sockets: Vec<String>,
    /// FIFOs with a reader on the host.
    pub fifos: Vec<std::path::PathBuf>,
    /// Processes of the host.
    pub pids: Vec<i32>,
    /// Link text of the host's `/proc/self/ns/pid`: inside, it must be another.
    pub host_pid_namespace: String,
}
