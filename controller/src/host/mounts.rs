//! The mount table of this process: `/proc/self/mountinfo`.

use landbox_shared::mountinfo;
use landbox_shared::path::AbsPath;

/// One mount as `/proc/self/mountinfo` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted.
    pub point: AbsPath,
    /// The file system's device, `major:minor`.
    pub device: Vec<u8>,
    /// Which part of its file system it shows; `/` for all of it. Not always a path of this namespace.
    pub root: Vec<u8>,
    /// File-system type (`ext4`, `fuse.sshfs`).
    pub fs_type: String,
}

/// Reads a mount table. Lines that do not parse are left out: the kernel writes none, and a mount that is overlooked
/// here makes the helper refuse later, never widens anything.
pub fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|b| *b == b'\n').filter_map(|line| own(mountinfo::Mount::parse(line)?)).collect()
}

fn own(listed: mountinfo::Mount<'_>) -> Option<Mount> {
    Some(Mount {
        point: AbsPath::new(listed.point()).ok()?,
        device: listed.device.to_vec(),
        root: mountinfo::unescape(listed.root),
        fs_type: String::from_utf8(listed.fs_type.to_vec()).ok()?,
    })
}

/// The mount a path lies on: the deepest, and of several on one point the newest.
pub fn covering<'a>(mounts: &'a [Mount], path: &AbsPath) -> Option<&'a Mount> {
    mounts
        .iter()
        .enumerate()
        .filter(|(_, mount)| path.is_within(&mount.point))
        .max_by_key(|(at, mount)| (mount.point.depth(), *at))
        .map(|(_, mount)| mount)
}

/// Other paths of the same file: where its file system, or the part that holds it, is mounted a second time.
pub fn aliases(mounts: &[Mount], path: &AbsPath) -> Vec<AbsPath> {
    let Some(home) = covering(mounts, path) else { return Vec::new() };
    let Some(place) =
        AbsPath::new(home.root.clone()).ok().and_then(|root| match path.relative_to(&home.point) {
            Some(rest) => root.join(rest.as_bytes()).ok(),
            None => Some(root),
        })
    else {
        return Vec::new();
    };
    let alias = |mount: &Mount| {
        if mount.device != home.device {
            return None;
        }
        let root = AbsPath::new(mount.root.clone()).ok()?;
        let alias = match place.relative_to(&root) {
            Some(rest) => mount.point.join(rest.as_bytes()).ok()?,
            None if place == root => mount.point.clone(),
            None => return None,
        };
        // What another mount covers does not show there.
        (alias != *path && covering(mounts, &alias) == Some(mount)).then_some(alias)
    };
    mounts.iter().filter_map(alias).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_mount_points_and_optional_fields_are_read() {
        let table = b"29 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            36 29 0:32 /sub\\040dir /home/u/a\\040b\\134\\012c rw master:1 propagate_from:2 - fuse.sshfs x rw\n\
            broken line\n";
        let mounts = parse(table);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].fs_type, "ext4");
        assert_eq!(mounts[1].point, AbsPath::new(&b"/home/u/a b\\\nc"[..]).unwrap());
        assert_eq!(mounts[1].root, b"/sub dir");
        assert_eq!(mounts[1].fs_type, "fuse.sshfs");
    }

    #[test]
    fn a_file_system_mounted_twice_shows_a_file_by_two_names() {
        let mounts = parse(
            b"1 0 8:1 / / rw - ext4 a rw\n\
              2 1 8:2 / /data rw - ext4 b rw\n\
              3 1 8:2 /home /home rw - ext4 b rw\n\
              4 1 8:2 /home/u/p /srv/p rw - ext4 b rw\n\
              5 2 8:3 / /data/home/v rw - ext4 c rw\n",
        );
        let at = |path: &str| -> Vec<String> {
            let path = AbsPath::new(path).unwrap();
            aliases(&mounts, &path).iter().map(|p| p.to_string()).collect()
        };
        assert_eq!(at("/home/u/.ssh"), ["/data/home/u/.ssh"]);
        assert_eq!(at("/data/home/u/.ssh"), ["/home/u/.ssh"]);
        assert_eq!(at("/home/u/p/.env"), ["/data/home/u/p/.env", "/srv/p/.env"]);
        assert_eq!(at("/srv/p"), ["/data/home/u/p", "/home/u/p"]);
        // Covered by another file system, or on one that is mounted once.
        assert_eq!(at("/home/v/x"), [""; 0]);
        assert_eq!(at("/etc/passwd"), [""; 0]);
        assert_eq!(at("/data/home/v/x"), [""; 0]);
    }
}
