//! Folders that are the machine's, not anybody's.

use super::INSIDE;
use landbox_shared::path::AbsPath;

/// Folders that hold the system: what a session wrote there could not be landed by anybody with sense.
const SYSTEM: &[&str] = &[
    "/",
    "/bin",
    "/boot",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/run",
    "/sbin",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/local",
    "/usr/sbin",
    "/usr/share",
    "/var",
    "/var/lib",
    "/var/log",
    "/nix",
    "/nix/store",
];

/// Whether `path` is `top` or lies below it.
pub fn is_below(path: &AbsPath, top: &str) -> bool {
    path.as_bytes()
        .strip_prefix(top.as_bytes())
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Whether `path` can be neither a project nor a home folder.
pub fn is_system(path: &AbsPath) -> bool {
    ["/proc", "/sys", "/dev", INSIDE].iter().any(|top| is_below(path, top))
        || SYSTEM.iter().any(|system| path.as_bytes() == system.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_folders_are_told_from_what_lies_beside_or_below_them() {
        let is = |path: &str| is_system(&AbsPath::new(path).unwrap());
        for path in ["/", "/usr", "/etc", "/proc/1", "/dev/shm/x", "/sys", "/run/landbox/outbox"] {
            assert!(is(path), "{path}");
        }
        for path in
            ["/home", "/usr/src/x", "/etc/nixos", "/process", "/run/landbox-x", "/run/user/1"]
        {
            assert!(!is(path), "{path}");
        }
    }
}
