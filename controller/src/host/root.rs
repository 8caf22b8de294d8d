//! Where root's keys lie. The helper believes no environment when root calls, so it does not look below a home that
//! `HOME` or `XDG_CONFIG_HOME` names, but below the one of `/etc/passwd`.

use crate::error::{Context, Result};
use landbox_shared::{procfs, trust};
use std::path::PathBuf;

/// Landbox's folder below the configuration folder that the helper reads when root calls; `None` for anybody else, and
/// for root of a user namespace, who is an ordinary user to the host.
pub(super) fn config_dir() -> Result<Option<PathBuf>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let read = |path: &str| std::fs::read(path).context(|| format!("can't read {path}"));
    if !procfs::is_initial_map(&String::from_utf8_lossy(&read("/proc/self/uid_map")?)) {
        return Ok(None);
    }
    Ok(trust::home_of(&read("/etc/passwd")?, 0).map(|home| home.join(".config/landbox")))
}
