//! Installing fuse-overlayfs.

use super::{has_program, sudo};
use crate::error::{Context, Failure, Kind, Result};
use std::process::{Command, Stdio};

/// Package managers and how each is told to install without asking.
const MANAGERS: &[(&str, &str)] = &[
    ("apt-get", "apt-get install -y fuse-overlayfs"),
    ("dnf", "dnf install -y fuse-overlayfs"),
    ("zypper", "zypper --non-interactive install fuse-overlayfs"),
    ("pacman", "pacman -S --noconfirm fuse-overlayfs"),
    ("apk", "apk add fuse-overlayfs"),
];

/// The command a person types.
pub(super) fn command() -> String {
    let known = MANAGERS.iter().find(|(manager, _)| has_program(manager));
    let (_, command) = known.unwrap_or(&MANAGERS[0]);
    format!("{}{command}", sudo())
}

/// Installs fuse-overlayfs by apt, as root or where sudo asks for no password. Its output goes to stderr.
pub fn install_fuse() -> Result<()> {
    let by_hand = || {
        Failure::new(Kind::Unavailable, "fuse-overlayfs can't be installed from here")
            .hint(format!("type: {}", command()))
    };
    if !has_program("apt-get") {
        return Err(by_hand());
    }
    let is_root = rustix::process::geteuid().is_root();
    if !is_root && !run(&["true"], false)? {
        return Err(by_hand());
    }
    let install = ["apt-get", "install", "-y", "--no-install-recommends", "fuse-overlayfs"];
    if run(&install, is_root)? {
        return Ok(());
    }
    // Lists that were never fetched, as on a fresh image, name no package at all.
    if run(&["apt-get", "update"], is_root)? && run(&install, is_root)? {
        return Ok(());
    }
    Err(by_hand())
}

/// Runs one command as root; whether it worked.
fn run(words: &[&str], is_root: bool) -> Result<bool> {
    let words: Vec<&str> = if is_root { words.to_vec() } else { [&["sudo", "-n"], words].concat() };
    let (program, args) = (words[0], &words[1..]);
    if !has_program(program) {
        return Ok(false);
    }
    let status = Command::new(program)
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        // stdout is the document's.
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .context(|| format!("can't run {program}"))?;
    Ok(status.success())
}
