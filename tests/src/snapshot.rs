//! What a tree is, down to what a program could change: to be taken before and after, and compared.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A description of each path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<PathBuf, String>);

/// How closely to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Content too.
    Content,
    /// The content of files up to [`SMALL`], the larger ones as for [`Depth::Metadata`].
    Small,
    /// Not the content: the change time, which no program can set, gives every change away.
    Metadata,
}

/// What is read of a system folder without waiting for it.
pub const SMALL: u64 = 256 << 10;

impl Snapshot {
    /// Takes every path below `roots` (themselves too), without `except` and what lies below.
    ///
    /// Content, type, mode, owner, size, times of modification and change, link count, extended attributes, link texts,
    /// device numbers. Not the access time: reading is allowed.
    pub fn take(roots: &[&Path], except: &[PathBuf], depth: Depth) -> Self {
        let mut all = Self::default();
        for root in roots {
            all.add(root, except, depth);
        }
        all
    }

    fn add(&mut self, path: &Path, except: &[PathBuf], depth: Depth) {
        if except.iter().any(|e| path.starts_with(e)) {
            return;
        }
        let Ok(meta) = path.symlink_metadata() else {
            self.0.insert(path.to_owned(), "absent".to_owned());
            return;
        };
        self.0.insert(path.to_owned(), describe(path, &meta, depth));
        if meta.is_dir() {
            // A folder that the tests may not read, the session of the same user may not either.
            let entries = match fs::read_dir(path) {
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return,
                entries => entries.unwrap(),
            };
            for entry in entries {
                self.add(&entry.unwrap().path(), except, depth);
            }
        }
    }

    /// How many paths there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Fails the test, naming every difference, unless `later` is the same.
    #[track_caller]
    pub fn same_as(&self, later: &Self) {
        let mut differences = Vec::new();
        for path in self.0.keys().chain(later.0.keys().filter(|p| !self.0.contains_key(*p))) {
            let (before, after) = (self.0.get(path), later.0.get(path));
            if before != after {
                differences
                    .push(format!("{}\n  before {before:?}\n  after  {after:?}", path.display()));
            }
        }
        assert!(differences.is_empty(), "real files changed:\n{}", differences.join("\n"));
    }
}

fn describe(path: &Path, meta: &fs::Metadata, depth: Depth) -> String {
    let kind = meta.file_type();
    let read = match depth {
        Depth::Content => true,
        Depth::Small => meta.size() <= SMALL,
        Depth::Metadata => false,
    };
    let body = if kind.is_symlink() {
        format!("-> {:?}", fs::read_link(path).unwrap())
    } else if kind.is_file() && read {
        let digest = Sha256::digest(fs::read(path).unwrap());
        digest.iter().map(|b| format!("{b:02x}")).collect()
    } else if kind.is_char_device() || kind.is_block_device() {
        format!("device {:#x}", meta.rdev())
    } else {
        String::new()
    };
    // An overlay numbers its folders anew when it has forgotten them; another folder shows by the time of the one above.
    let inode = if kind.is_dir() && depth != Depth::Content { 0 } else { meta.ino() };
    format!(
        "{:o} {}:{} size {} links {} inode {} modified {}.{:09} changed {}.{:09} {} {}",
        meta.mode(),
        meta.uid(),
        meta.gid(),
        meta.size(),
        meta.nlink(),
        inode,
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec(),
        attributes(path),
        body
    )
}

fn attributes(path: &Path) -> String {
    // Most have none.
    if rustix::fs::llistxattr(path, &mut [0_u8; 0]).is_ok_and(|length| length == 0) {
        return String::new();
    }
    let mut names = vec![0; 65536];
    let Ok(length) = rustix::fs::llistxattr(path, names.as_mut_slice()) else {
        return String::new();
    };
    let names = names[..length].split_inclusive(|b| *b == 0);
    let mut all: Vec<String> = names
        .map(|name| {
            let name = CStr::from_bytes_with_nul(name).unwrap();
            let mut value = vec![0; 65536];
            let length = rustix::fs::lgetxattr(path, name, value.as_mut_slice()).unwrap_or(0);
            format!("{name:?}={:?}", std::ffi::OsStr::from_bytes(&value[..length]))
        })
        .collect();
    all.sort();
    all.join(" ")
}
