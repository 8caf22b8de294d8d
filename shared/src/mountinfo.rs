//! The kernel's list of mounts, `/proc/PID/mountinfo`, and what evidence says of it.

use crate::bytes::escape;
use crate::digest::{Digest, Hasher};
use crate::evidence::MountRecord;
use crate::path::AbsPath;
use crate::policy::Backend;
use std::collections::HashMap;

/// Room for the list of an ordinary host, so that reading it does not start with a few bytes.
pub const USUAL: usize = 16 << 10;

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub struct Mount<'a> {
    /// Unique while the mount exists.
    pub id: u32,
    /// `major:minor`.
    pub device: &'a [u8],
    /// What of the file system is shown, as listed.
    pub root: &'a [u8],
    /// Where, as listed: with octal escapes.
    pub escaped_point: &'a [u8],
    /// Options of the mount.
    pub options: &'a [u8],
    /// Whether it has a peer group or a master.
    pub propagates: bool,
    /// File-system type.
    pub fs_type: &'a [u8],
    /// Options of the file system.
    pub super_options: &'a [u8],
}

/// Reads the whole list; `None` where a line isn't understood.
pub fn parse(table: &[u8]) -> Option<Vec<Mount<'_>>> {
    table.split(|b| *b == b'\n').filter(|line| !line.is_empty()).map(Mount::parse).collect()
}

/// The mount on top at `point`: of several at one place the last one listed.
pub fn at<'m, 'a>(mounts: &'m [Mount<'a>], point: &[u8]) -> Option<&'m Mount<'a>> {
    mounts.iter().rev().find(|mount| mount.point() == point)
}

/// The place of a mount among `ours`, by number and place, that is gone from there. `None` where the list is not readable.
pub fn lost(table: &[u8], ours: &[(u32, Box<[u8]>)]) -> Option<Option<Vec<u8>>> {
    let mounts = parse(table)?;
    let there: HashMap<u32, &Mount<'_>> = mounts.iter().map(|mount| (mount.id, mount)).collect();
    let in_place = |id: &u32, place: &[u8]| there.get(id).is_some_and(|m| m.point() == place);
    Some(ours.iter().find(|(id, place)| !in_place(id, place)).map(|(_, place)| place.to_vec()))
}

/// Digest over every mount: place, root, type, flags, device. Not the text of a file system's own options.
pub fn digest(mounts: &[Mount<'_>]) -> Digest {
    let mut hasher = Hasher::new("mounts");
    for mount in mounts {
        for field in [mount.escaped_point, mount.root, mount.fs_type, mount.options, mount.device] {
            hasher.update(field);
            // None of the fields can hold one: the kernel escapes it.
            hasher.update(b" ");
        }
        hasher.update(b"\n");
    }
    hasher.finish()
}

fn names(options: &[u8], name: &str) -> bool {
    options.split(|b| *b == b',').any(|option| option == name.as_bytes())
}

impl<'a> Mount<'a> {
    /// Whether the mount itself allows writing.
    pub fn is_writable(&self) -> bool {
        names(self.options, "rw")
    }

    /// The back end that serves this mount as a layer, with its marks where they are looked for: without `userxattr` an
    /// unprivileged overlay works, and then gives EIO on replaced folders.
    pub fn backend(&self) -> Option<Backend> {
        match self.fs_type {
            b"overlay" if names(self.super_options, "userxattr") => Some(Backend::Kernel),
            b"fuse" | b"fuse.fuse-overlayfs" => Some(Backend::Fuse),
            _ => None,
        }
    }

    /// What evidence holds of a mount at `point`.
    pub fn record(&self, point: &AbsPath) -> MountRecord {
        MountRecord {
            mount_point: point.clone(),
            fs_type: escape(self.fs_type),
            options: escape(self.options),
            device: escape(self.device),
        }
    }

    /// Where.
    pub fn point(&self) -> Vec<u8> {
        unescape(self.escaped_point)
    }

    /// Reads one line; `None` if it isn't understood.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|b| *b == b' ');
        let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let _parent = fields.next()?;
        let (device, root, escaped_point) = (fields.next()?, fields.next()?, fields.next()?);
        let options = fields.next()?;
        let mut propagates = false;
        loop {
            match fields.next()? {
                b"-" => break,
                field => {
                    propagates |= field.starts_with(b"shared:") || field.starts_with(b"master:")
                }
            }
        }
        let fs_type = fields.next()?;
        let _source = fields.next()?;
        let super_options = fields.next().unwrap_or_default();
        Some(Self { id, device, root, escaped_point, options, propagates, fs_type, super_options })
    }
}

/// Undoes the kernel's octal escapes (`\040` for a space).
pub fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
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

    const TABLE: &[u8] = b"21 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        22 21 0:5 /a /x\\040y\\134\\012z ro,nosuid shared:7 master:1 - overlay none rw,userxattr\n\
        23 22 0:6 / /x\\040y\\134\\012z rw propagate_from:3 - tmpfs tmpfs rw\n";

    #[test]
    fn lines_are_read_with_and_without_optional_fields() {
        let mounts = parse(TABLE).unwrap();
        assert_eq!(mounts.len(), 3);
        assert_eq!((mounts[0].fs_type, mounts[0].propagates), (&b"ext4"[..], false));
        assert_eq!((mounts[1].options, mounts[1].propagates), (&b"ro,nosuid"[..], true));
        assert_eq!((mounts[1].root, mounts[1].super_options), (&b"/a"[..], &b"rw,userxattr"[..]));
        assert!(!mounts[2].propagates);
    }

    #[test]
    fn the_mount_on_top_is_found_by_its_real_name() {
        let mounts = parse(TABLE).unwrap();
        assert_eq!(at(&mounts, b"/x y\\\nz").unwrap().id, 23);
        assert!(at(&mounts, b"/x").is_none());
    }

    #[test]
    fn a_mount_that_is_gone_or_elsewhere_is_lost() {
        let ours = |id, place: &str| [(id, place.as_bytes().into())];
        let first = ours(21, &String::from_utf8(parse(TABLE).unwrap()[0].point()).unwrap());
        assert_eq!(lost(TABLE, &first), Some(None));
        assert_eq!(lost(TABLE, &ours(21, "/moved")), Some(Some(b"/moved".to_vec())));
        assert_eq!(lost(TABLE, &ours(99, "/gone")), Some(Some(b"/gone".to_vec())));
        assert_eq!(lost(b"x", &first), None);
    }

    #[test]
    fn a_line_that_is_not_understood_is_no_list() {
        assert!(parse(b"21 1 254:0 / / rw\n").is_none());
        assert!(parse(b"x 1 254:0 / / rw - ext4 a b\n").is_none());
    }

    #[test]
    fn a_layer_counts_only_with_its_marks_in_user_attributes() {
        let mounts = parse(
            b"1 0 0:1 / /a rw - overlay none rw,userxattr,xino=off\n\
              2 0 0:2 / /b rw - overlay none rw,index=off\n\
              3 0 0:3 / /c ro - fuse.fuse-overlayfs none rw\n",
        )
        .unwrap();
        let backends: Vec<_> = mounts.iter().map(Mount::backend).collect();
        assert_eq!(backends, [Some(Backend::Kernel), None, Some(Backend::Fuse)]);
        assert!(mounts[0].is_writable() && !mounts[2].is_writable());
        assert_ne!(digest(&mounts), digest(&mounts[1..]));
    }
}
