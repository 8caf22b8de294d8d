//! What a network policy needs of this machine. Nothing is installed by itself.

use crate::error::{Failure, Kind, Result};
use landbox_shared::network::link::{FLAGS, PROGRAM};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The device that the link's interface is made with.
pub const TUN: &str = "/dev/net/tun";
/// The Debian package of [`PROGRAM`].
pub const PACKAGE: &str = "slirp4netns";
/// How long the program may take to say what it can do.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why sessions can't have a network policy here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The link's program is not there.
    Program,
    /// The link's program can't be run.
    Broken(String),
    /// The link's program does not know a flag.
    Flag(&'static str),
    /// The device can't be opened: what is wrong, and whether it is there.
    Tun {
        /// A clause.
        why: String,
        /// Whether something of that name exists.
        exists: bool,
    },
}

impl Lack {
    /// One clause for a line.
    pub fn found(&self) -> String {
        match self {
            Self::Program => format!("{PROGRAM} is not installed"),
            Self::Broken(why) => format!("{PROGRAM} can't be used: {why}"),
            Self::Flag(flag) => format!("{PROGRAM} is too old: it does not know {flag}"),
            Self::Tun { why, .. } => why.clone(),
        }
    }

    /// The command that mends it.
    pub fn fix(&self, sudo: &str) -> String {
        match self {
            Self::Program | Self::Broken(_) => format!("{sudo}apt-get install -y {PACKAGE}"),
            Self::Flag(_) => format!(
                "{sudo}apt-get install -y {PACKAGE}    (1.1.0 or newer; landbox installs nothing by itself)"
            ),
            Self::Tun { exists: true, .. } => {
                format!("{sudo}chmod 755 /dev/net && {sudo}chmod 666 {TUN}")
            }
            Self::Tun { exists: false, .. } => {
                format!("{sudo}modprobe tun    (in a container: docker run --device {TUN})")
            }
        }
    }
}

/// What the link's program lacks.
pub fn program() -> Option<Lack> {
    program_at(Path::new(PROGRAM))
}

/// What is wrong with the device.
pub fn tun() -> Option<Lack> {
    tun_at(Path::new(TUN))
}

/// The question whether everything is there that a network policy needs. It is asked on another processor while the
/// session is thought out, since a program has to be run for it.
#[derive(Debug)]
pub struct Probe(std::thread::JoinHandle<Option<Lack>>);

impl Probe {
    /// Asks.
    pub fn start() -> Self {
        Self(std::thread::spawn(|| tun().or_else(program)))
    }

    /// The answer; an error says what is missing and what to type.
    pub fn answer(self) -> Result<()> {
        match self.0.join() {
            Ok(lack) => refuse(lack),
            Err(_) => {
                Err(Failure::new(Kind::Failed, "what a network policy needs can't be found out"))
            }
        }
    }
}

fn refuse(lack: Option<Lack>) -> Result<()> {
    let Some(lack) = lack else { return Ok(()) };
    let sudo = if rustix::process::geteuid().is_root() { "" } else { "sudo " };
    Err(Failure::new(
        Kind::Unavailable,
        format!("a network policy can't be enforced here: {}", lack.found()),
    )
    .hint(lack.fix(sudo))
    .hint("--network off needs none of this"))
}

fn program_at(path: &Path) -> Option<Lack> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    if std::fs::symlink_metadata(path).is_err() {
        return Some(Lack::Program);
    }
    if let Err(e) = accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS) {
        return Some(Lack::Broken(e.to_string()));
    }
    match help(path) {
        Ok(text) => FLAGS.iter().find(|flag| !knows(&text, flag)).map(|flag| Lack::Flag(flag)),
        Err(why) => Some(Lack::Broken(why)),
    }
}

/// Whether a help text names `flag` itself, not a longer one.
fn knows(help: &str, flag: &str) -> bool {
    help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).any(|word| word == flag)
}

fn help(path: &Path) -> std::result::Result<String, String> {
    let mut child = Command::new(path)
        .arg("--help")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| e.to_string())?;
    let out = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(out) = out {
            let _ = out.take(64 << 10).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let until = Instant::now() + PATIENCE;
    // The end of its output comes with its own end; a program that keeps it open is not the one we know.
    while !reader.is_finished() {
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("it does not answer --help within {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    // Once its output has ended there is nothing more to learn.
    let _ = child.kill();
    let _ = child.wait();
    reader.join().map_err(|_| "its help can't be read".to_owned())
}

/// Opens the device as the link will, which also meets what permission bits don't show. An opened one does nothing.
fn tun_at(path: &Path) -> Option<Lack> {
    let error = match std::fs::File::options().read(true).write(true).open(path) {
        Ok(_) => return None,
        Err(error) => error,
    };
    let shown = crate::session::store::show;
    let exists = !matches!(error.raw_os_error(), Some(2 | 6 | 19 | 20));
    let mode = |path: &Path| {
        let meta = std::fs::symlink_metadata(path).ok()?;
        Some(format!("{} has mode {:04o}", shown(path), meta.permissions().mode() & 0o7777))
    };
    let modes: Vec<String> = path.parent().into_iter().chain([path]).filter_map(mode).collect();
    let mut why = format!("{} can't be opened: {}", shown(path), plain(&error));
    if exists && !modes.is_empty() {
        why.push_str(&format!(" ({})", modes.join(", ")));
    }
    Some(Lack::Tun { why, exists })
}

fn plain(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(2 | 20) => "it is not there".into(),
        Some(6 | 19) => "the kernel has no driver for it".into(),
        Some(1) => "a device rule of the container or of a security module refuses it".into(),
        Some(_) | None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(dir: &Path, text: &str) -> std::path::PathBuf {
        let path = dir.join("slirp");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_program_without_a_flag_is_named_with_the_flag() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(program_at(&dir.path().join("none")), Some(Lack::Program));
        let all = FLAGS.join(" text\n");
        let whole = script(dir.path(), &format!("echo '{all} text'"));
        assert_eq!(program_at(&whole), None);
        let without = all.replace("--disable-dns", "--disable-dnsx");
        let old = script(dir.path(), &format!("echo '{without}'"));
        let lack = program_at(&old).unwrap();
        assert_eq!(lack, Lack::Flag("--disable-dns"));
        assert!(lack.found().contains("--disable-dns") && lack.fix("").contains(PACKAGE));
        std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(program_at(&old), Some(Lack::Broken(_))));
    }

    #[test]
    fn a_missing_device_and_a_closed_one_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tun");
        let Some(Lack::Tun { why, exists: false }) = tun_at(&path) else { panic!("it is there") };
        assert!(why.contains("not there"), "{why}");
        std::fs::create_dir(&path).unwrap();
        let Some(Lack::Tun { why, exists: true }) = tun_at(&path) else { panic!("it opened") };
        assert!(why.contains("has mode 0"), "{why}");
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        assert_eq!(tun_at(&path), None);
    }
}
