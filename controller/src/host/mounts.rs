//! The mount table of this process: `/proc/self/mountinfo`.

use landbox_shared::path::AbsPath;

/// One mount as `/proc/self/mountinfo` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted.
    pub point: AbsPath,
    /// Which part of its file system it shows; `/` for all of it. Not always a path of this namespace.
    pub root: Vec<u8>,
    /// File-system type (`ext4`, `fuse.sshfs`).
    pub fs_type: String,
}

/// Reads a mount table. Lines that do not parse are left out: the kernel writes none, and a mount that is overlooked
/// here makes the helper refuse later, never widens anything.
pub fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|b| *b == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let root = unescape(fields.by_ref().nth(3)?);
    let point = AbsPath::new(unescape(fields.next()?)).ok()?;
    // Optional fields end at a single hyphen.
    fields.by_ref().find(|field| *field == b"-")?;
    let fs_type = String::from_utf8(fields.next()?.to_vec()).ok()?;
    Some(Mount { point, root, fs_type })
}

/// Undoes the kernel's octal escapes (`\040` for a space).
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if byte == b'\\' => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        out.push(octal.unwrap_or(byte));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    out
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
}
