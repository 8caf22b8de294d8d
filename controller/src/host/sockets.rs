//! Unix sockets that are bound to a path: `/proc/net/unix`.

use super::is_private;
use landbox_shared::path::AbsPath;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Where the sockets of a table may lie. It names each as its owner bound it: relative to a folder that only the owner
/// knows, or by a name that was changed since.
pub fn places(table: &[u8]) -> Vec<PathBuf> {
    let (mut places, relative): (Vec<_>, Vec<_>) =
        parse(table).into_iter().partition(|path| path.is_absolute());
    let moved: BTreeSet<PathBuf> = places
        .iter()
        .filter(|path| path.symlink_metadata().is_err())
        .filter_map(|path| path.parent())
        .filter(|folder| AbsPath::from_path(folder).is_ok_and(|at| !is_private(&at)))
        .map(Path::to_owned)
        .collect();
    for folder in moved {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let is_socket = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_socket());
        places.extend(entries.filter(is_socket).map(|entry| entry.path()));
    }
    if !relative.is_empty() {
        let folders = working_folders();
        places.extend(relative.iter().flat_map(|name| folders.iter().map(move |f| f.join(name))));
    }
    places
}

/// The working folders of all processes that the caller may ask.
fn working_folders() -> BTreeSet<PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| fs::read_link(process.path().join("cwd")).ok()).collect()
}

/// Every path a socket is bound to. Datagram sockets count too: they can be sent to without listening.
fn parse(table: &[u8]) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    let mut current: Option<Vec<u8>> = None;
    for line in table.split(|b| *b == b'\n').skip(1) {
        if is_entry(line) {
            found.extend(current.take());
            // Num RefCount Protocol Flags Type St Inode Path
            current = path_field(line).map(<[u8]>::to_vec);
        } else if let Some(path) = &mut current
            && !line.is_empty()
        {
            // The kernel does not escape: a newline in a path continues on the next line.
            path.push(b'\n');
            path.extend_from_slice(line);
        }
    }
    found.extend(current);
    found.into_iter().map(|path| OsStr::from_bytes(&path).into()).collect()
}

fn is_entry(line: &[u8]) -> bool {
    line.iter().position(|b| *b == b':').is_some_and(|at| {
        at >= 8 && line[..at].iter().all(u8::is_ascii_hexdigit) && line.get(at + 1) == Some(&b' ')
    })
}

fn path_field(line: &[u8]) -> Option<&[u8]> {
    let mut rest = line;
    for _ in 0..7 {
        let start = rest.iter().position(|b| *b != b' ')?;
        rest = &rest[start..];
        let end = rest.iter().position(|b| *b == b' ')?;
        rest = &rest[end..];
    }
    // One blank between the inode number, which is padded on its left, and the path. Abstract names begin with "@".
    rest.strip_prefix(b" ").filter(|path| !path.is_empty() && !path.starts_with(b"@"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_paths_are_found_and_abstract_or_unnamed_sockets_are_not() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01    14 /srv/app/my sock\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 14155 @/tmp/.X11-unix/X0\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 14156\n\
            0000000000000000: 00000002 00000000 00000000 0002 01 14157 /srv/app/two\nlines: x\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 14158 /srv/app/my sock\n\
            0000000000000000: 00000002 00000000 00000000 0002 01 14159 relative\n";
        let paths = ["/srv/app/my sock", "/srv/app/two\nlines: x", "relative"];
        assert_eq!(parse(table), paths.map(PathBuf::from));
    }
}
