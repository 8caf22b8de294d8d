//! The kernel's list of mounts, `/proc/PID/mountinfo`.

/// Room for the list of an ordinary host, so that reading it does not start with a few bytes.
pub(crate) const USUAL: usize = 16 << 10;

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mount<'a> {
    /// Unique while the mount exists.
    pub(crate) id: u32,
    /// `major:minor`.
    pub(crate) device: &'a [u8],
    /// What of the file system is shown, as listed.
    pub(crate) root: &'a [u8],
    /// Where, as listed: with octal escapes.
    pub(crate) escaped_point: &'a [u8],
    /// Options of the mount.
    pub(crate) options: &'a [u8],
    /// Whether it has a peer group or a master.
    pub(crate) propagates: bool,
    pub(crate) fs_type: &'a [u8],
    /// Options of the file system.
    pub(crate) super_options: &'a [u8],
}

/// Reads the whole list; `None` where a line isn't understood.
pub(crate) fn parse(table: &[u8]) -> Option<Vec<Mount<'_>>> {
    table.split(|b| *b == b'\n').filter(|line| !line.is_empty()).map(Mount::parse).collect()
}

/// The mount on top at `point`: of several at one place the last one listed.
pub(crate) fn at<'m, 'a>(mounts: &'m [Mount<'a>], point: &[u8]) -> Option<&'m Mount<'a>> {
    mounts.iter().rev().find(|mount| mount.point() == point)
}

impl<'a> Mount<'a> {
    /// Where.
    pub(crate) fn point(&self) -> Vec<u8> {
        unescape(self.escaped_point)
    }

    fn parse(line: &'a [u8]) -> Option<Self> {
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
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&b, tail)) = rest.split_first() {
        let octal = |d: u8| d.checked_sub(b'0').filter(|d| *d < 8).map(u32::from);
        let escaped = match (b, tail) {
            (b'\\', [a, b, c, ..]) => {
                let value =
                    octal(*a).zip(octal(*b)).zip(octal(*c)).map(|((a, b), c)| a * 64 + b * 8 + c);
                value.and_then(|value| u8::try_from(value).ok())
            }
            _ => None,
        };
        out.push(escaped.unwrap_or(b));
        rest = tail.get(if escaped.is_some() { 3 } else { 0 }..).unwrap_or_default();
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
    fn a_line_that_is_not_understood_is_no_list() {
        assert!(parse(b"21 1 254:0 / / rw\n").is_none());
        assert!(parse(b"x 1 254:0 / / rw - ext4 a b\n").is_none());
    }
}
