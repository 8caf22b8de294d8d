//! Facts about this machine: the one place of the controller that asks the kernel where things are.
//!
//! [`Facts`] are gathered once a command; everything after takes them as arguments.

pub mod files;
pub mod helper;
mod launch;
pub mod link;
pub mod mounts;
pub mod owners;
pub mod places;
pub mod proxies;
mod root;
pub mod routes;
pub mod run;
pub mod sockets;
pub mod ssh;
pub mod storage;
mod system;
pub mod umask;

pub use files::{Files, Kind, Located};
pub use launch::{LaunchView, PRIVATE, is_private};
pub use mounts::Mount;
pub use run::Shown;
pub use storage::{Fuse, UpperSupport};
pub use system::{is_below, is_system};

use crate::error::{Context, Failure, Kind as FailureKind, Result};
use crate::session::store::{StateDir, show};
use landbox_shared::path::AbsPath;
use landbox_shared::trust;
use rustix::process::DumpableBehavior;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The folder that holds Landbox's own things inside a session.
pub const INSIDE: &str = "/run/landbox";

/// What is known about this machine and the caller.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The caller's effective user id.
    pub uid: u32,
    /// The caller's effective group id.
    pub gid: u32,
    /// Whether a session knows every owner's id: for root, outside a user namespace of few ids.
    pub maps_everyone: bool,
    /// `$HOME` as the caller wrote it.
    pub home_spelled: PathBuf,
    /// The canonical home folder.
    pub home: AbsPath,
    /// The canonical current folder; `None` where it is gone, or can't be looked at.
    pub cwd: Option<AbsPath>,
    /// Kernel version, first two numbers.
    pub kernel: (u32, u32),
    /// Every mount of this namespace.
    pub mounts: Vec<Mount>,
    /// Landbox's state folder, canonical as far as it exists.
    pub state_dir: AbsPath,
    /// `$XDG_CONFIG_HOME/landbox`, canonical as far as it exists.
    pub config_dir: AbsPath,
    /// The folder of the signing key and of `trusted.d`: [`Facts::config_dir`], but for root the one below the home folder
    /// that `/etc/passwd` names.
    pub key_dir: AbsPath,
    /// This program.
    pub exe: AbsPath,
    /// Whether layers in the state folder can be written by the kernel's overlay.
    pub upper: UpperSupport,
    /// Whether fuse-overlayfs can be used.
    pub fuse: Fuse,
    /// Path lookups.
    pub files: Files,
}

/// The folder of the signing key and of the keys that are trusted.
pub fn key_dir(home: &Path) -> Result<PathBuf> {
    Ok(root::config_dir()?.unwrap_or_else(|| config_dir(home)))
}

impl Facts {
    /// Who writes in a session.
    pub fn writer(&self) -> owners::Writer {
        owners::Writer { uid: self.uid, gid: self.gid, maps_everyone: self.maps_everyone }
    }

    /// The current folder, for what can't go on without one.
    pub fn cwd(&self) -> Result<&AbsPath> {
        self.cwd.as_ref().ok_or_else(|| {
            let message = "the current folder is gone, or can't be looked at";
            Failure::new(FailureKind::Usage, message).hint("go to one that is there: cd ~")
        })
    }

    /// Asks the kernel.
    pub fn gather() -> Result<Self> {
        let files = Files::default();
        let home_spelled = home()?;
        let home = existing_dir(&files, &home_spelled).ok_or_else(|| {
            let shown = show(&home_spelled);
            bad_home(format!("your home folder {shown} is not a folder that can be entered"))
        })?;
        // Before anything is made in it.
        if is_system(&home) {
            return Err(bad_home(format!(
                "your home folder can't be {home}: that is a system folder"
            )));
        }
        let cwd = std::env::current_dir().ok().and_then(|cwd| existing_dir(&files, &cwd));
        let state_dir = canonical(&files, &StateDir::locate(&home_spelled), "the state folder")?;
        let config_dir = canonical(&files, &config_dir(&home_spelled), "the configuration folder")?;
        let key_dir = match root::config_dir()? {
            Some(dir) => canonical(&files, &dir, "the folder of the signing key")?,
            None => config_dir.clone(),
        };
        let exe = std::env::current_exe().context(|| "can't find this program".into())?;
        let exe = canonical(&files, &exe, "this program")?;
        let upper = storage::upper_support(&files, &state_dir);
        let uid = rustix::process::geteuid().as_raw();
        Ok(Self {
            uid,
            maps_everyone: uid == 0 && is_wide(&read("/proc/self/uid_map")?),
            gid: rustix::process::getegid().as_raw(),
            home_spelled,
            home,
            cwd,
            kernel: kernel_version(),
            mounts: mounts::parse(&read("/proc/self/mountinfo")?),
            state_dir,
            config_dir,
            key_dir,
            exe,
            upper,
            fuse: storage::fuse(),
            files,
        })
    }
}

/// `$HOME`. It decides what the home layer covers, so there is no guess where it is unset.
pub fn home() -> Result<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let Some(home) = home else {
        return Err(bad_home("HOME is not set".into()));
    };
    if home.is_absolute() {
        Ok(home)
    } else {
        Err(bad_home(format!("HOME must be an absolute path, not {}", show(&home))))
    }
}

/// What is wrong with `HOME`, and what it should be. A shell makes of `~` what `HOME` says.
fn bad_home(message: String) -> Failure {
    let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
    let listed = trust::home_of(&passwd, rustix::process::geteuid().as_raw());
    let good = |home: &PathBuf| {
        let usable = existing_dir(&Files::default(), home).is_some_and(|home| !is_system(&home));
        usable && show(home) == home.to_string_lossy()
    };
    let failure = Failure::new(FailureKind::Usage, message);
    match listed.filter(good) {
        Some(home) => {
            let home = home.to_string_lossy();
            let quoted = shell_words::quote(&home);
            failure.hint(format!("set HOME to your home folder: export HOME={quoted}"))
        }
        None => failure.hint("set HOME to a folder of your own: export HOME=DIR"),
    }
}

/// `$XDG_CONFIG_HOME/landbox`, else `~/.config/landbox`. As the base directory rules say, a relative value is ignored.
pub fn config_dir(home: &Path) -> PathBuf {
    std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .unwrap_or_else(|| home.join(".config"))
        .join("landbox")
}

/// Lets no core be made of this process, which holds the signing key, and no other process of the user look into it. What it
/// executes begins anew, with the limit of core files that the caller has.
pub fn close_memory() {
    // Nothing depends on it, so a refusal is no reason not to work.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Whether this program runs inside a session, where Landbox's own state is masked.
pub fn is_inside() -> bool {
    let outbox = Path::new(INSIDE).join("outbox");
    // The quick question first: outside there is no such folder, as a rule.
    outbox.is_dir()
        && std::fs::read("/proc/self/mountinfo").is_ok_and(|table| {
            mounts::parse(&table).iter().any(|mount| mount.point.as_path() == outbox)
        })
}

/// Whether an id map covers more than a few users. A session of root's has its caller's own map.
fn is_wide(map: &[u8]) -> bool {
    let lines = String::from_utf8_lossy(map);
    let count = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
    lines.lines().filter_map(count).sum::<u64>() > u64::from(u16::MAX)
}

fn kernel_version() -> (u32, u32) {
    let uname = rustix::system::uname();
    parse_version(&uname.release().to_string_lossy())
}

fn parse_version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let mut next = || numbers.next().and_then(std::result::Result::ok).unwrap_or(0);
    (next(), next())
}

/// Reads a file of `/proc`, which says no size: at once, where it is no larger than usual.
fn read(path: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(16 << 10);
    let read = std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    read.context(|| format!("can't read {path}"))?;
    Ok(bytes)
}

fn canonical(files: &Files, path: &Path, what: &str) -> Result<AbsPath> {
    files.locate(path).map(|at| at.path).ok_or_else(|| {
        Failure::new(
            FailureKind::Usage,
            format!("{what} must be an absolute path without a loop of links, not {}", show(path)),
        )
    })
}

/// The canonical form of a folder, if it is there.
fn existing_dir(files: &Files, path: &Path) -> Option<AbsPath> {
    files.locate(path).filter(|at| at.kind == Kind::Dir).map(|at| at.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_releases_of_distributions_are_understood() {
        assert_eq!(parse_version("6.18.0-0.bpo.1-amd64"), (6, 18));
        assert_eq!(parse_version("5.10"), (5, 10));
        assert_eq!(parse_version("nonsense"), (0, 0));
    }

    #[test]
    fn a_map_of_one_user_is_told_from_a_whole_one() {
        assert!(is_wide(b"         0          0 4294967295\n"));
        assert!(!is_wide(b"         0       1000          1\n"));
        assert!(is_wide(b"0 1000 1\n1 100000 65536\n"));
        assert!(!is_wide(b""));
    }

    #[test]
    fn this_machine_can_be_asked() {
        let facts = Facts::gather().unwrap();
        assert!(facts.kernel > (2, 6));
        assert!(facts.mounts.iter().any(|mount| mount.point.is_root()));
        assert_eq!(files::kind_of(facts.exe.as_path()), Kind::File);
    }
}
