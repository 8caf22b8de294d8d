//! Where root's keys lie. The helper believes no environment when root calls, so it does not look below a home that
//! `HOME` or `XDG_CONFIG_HOME` names, but below the one of `/etc/passwd`.

use crate::error::{Context, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Landbox's folder below the configuration folder that the helper reads when root calls; `None` for anybody else, and
/// for root of a user namespace, who is an ordinary user to the host.
pub(super) fn config_dir() -> Result<Option<PathBuf>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let read = |path: &str| std::fs::read(path).context(|| format!("can't read {path}"));
    if !is_initial(&read("/proc/self/uid_map")?) {
        return Ok(None);
    }
    Ok(home_of_root(&read("/etc/passwd")?).map(|home| home.join(".config/landbox")))
}

fn is_initial(map: &[u8]) -> bool {
    let fields = map.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    fields.eq([&b"0"[..], b"0", b"4294967295"])
}

fn home_of_root(passwd: &[u8]) -> Option<PathBuf> {
    passwd.split(|b| *b == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|b| *b == b':').collect();
        let home = fields.get(5).filter(|_| fields.get(2) == Some(&&b"0"[..]))?;
        Some(Path::new(OsStr::from_bytes(home)))
            .filter(|home| home.is_absolute())
            .map(PathBuf::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_home_is_the_one_of_uid_0_whatever_its_name() {
        let passwd =
            b"a:x:10:0::/a:/bin/sh\ntoor:x:0:0::/toor:/bin/sh\nroot:x:0:0::/root:/bin/sh\n";
        assert_eq!(home_of_root(passwd), Some(PathBuf::from("/toor")));
        assert_eq!(home_of_root(b"a:x:10:0::/a:/bin/sh\nbroken:x:0\n"), None);
    }

    #[test]
    fn only_the_hosts_own_map_is_initial() {
        assert!(is_initial(b"         0          0 4294967295\n"));
        assert!(!is_initial(b"0 1000 1\n"));
        assert!(!is_initial(b"0 0 4294967295\n1 1 1\n"));
    }
}
