//! What a tree is, down to what a program could change: to be taken before and after, and compared.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A description of each path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<PathBuf, String>);

impl Snapshot {
    /// Takes every path below `roots` (themselves too), without `except` and what lies below.
    ///
    /// Content, type, mode, owner, size, times of modification and change, link count, extended attributes, the flags that
    /// chattr sets, link texts, device numbers. Not the access time: reading is allowed.
    pub fn take(roots: &[&Path], except: &[PathBuf]) -> Self {
        let mut found = Vec::new();
        for root in roots {
            walk(root, except, &mut found);
        }
        // Gigabytes are read: by every processor.
        let next = AtomicUsize::new(0);
        let work = || {
            let mut mine = Vec::new();
            while let Some(path) = found.get(next.fetch_add(1, Ordering::Relaxed)) {
                mine.push((path.clone(), describe(path)));
            }
            mine
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        Self(thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        }))
    }

    /// The same without a folder's own line, but with what lies in it: its times tell of entries that were left out, too.
    #[must_use]
    pub fn forget(mut self, folder: &Path) -> Self {
        self.0.remove(folder);
        self
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

fn walk(path: &Path, except: &[PathBuf], found: &mut Vec<PathBuf>) {
    if except.iter().any(|e| path.starts_with(e)) {
        return;
    }
    found.push(path.to_owned());
    if !path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        return;
    }
    // A folder that the tests may not read, the session of the same user may not either.
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return,
        entries => entries.unwrap(),
    };
    for entry in entries {
        walk(&entry.unwrap().path(), except, found);
    }
}

fn describe(path: &Path) -> String {
    let Ok(meta) = path.symlink_metadata() else { return "absent".to_owned() };
    let kind = meta.file_type();
    let body = if kind.is_symlink() {
        format!("-> {:?}", fs::read_link(path).unwrap())
    } else if kind.is_char_device() || kind.is_block_device() {
        format!("device {:#x}", meta.rdev())
    } else if kind.is_file() || kind.is_dir() {
        opened(path, &meta)
    } else {
        String::new()
    };
    // An overlay numbers its folders anew when it has forgotten them; another folder shows by the time of the one above.
    let inode = if kind.is_dir() { 0 } else { meta.ino() };
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

/// What only an open file or folder tells: its flags, and a file's content.
fn opened(path: &Path, meta: &Metadata) -> String {
    let mut file = match File::open(path) {
        // As of a folder that may not be read.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return "closed".to_owned(),
        file => file.unwrap(),
    };
    // Not every file system has them.
    let flags = rustix::fs::ioctl_getflags(&file).map_or(0, |flags| flags.bits());
    if meta.is_dir() {
        return format!("flags {flags:#x}");
    }
    let (mut digest, mut buffer) = (Sha256::new(), vec![0; 256 << 10]);
    loop {
        match file.read(&mut buffer).unwrap() {
            0 => break,
            length => digest.update(&buffer[..length]),
        }
    }
    let digest: String = digest.finalize().iter().map(|b| format!("{b:02x}")).collect();
    format!("flags {flags:#x} {digest}")
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
