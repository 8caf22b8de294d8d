//! Whether layers can be kept in the state folder, and by which overlay.

use super::Mount;
use super::files::{Files, Kind};
use super::mounts::covering;
use crate::error::{Failure, Kind as FailureKind, Result};
use landbox_shared::path::AbsPath;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::time::Duration;

/// Whether the kernel's overlay can write to a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpperSupport {
    /// It can.
    Yes,
    /// It can't, for this reason ("it lies on nfs").
    No(String),
}

/// Whether fuse-overlayfs can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fuse {
    /// It can.
    Yes,
    /// The program is not installed.
    NoProgram,
    /// `/dev/fuse` is missing or closed to the caller.
    NoDevice,
}

/// Where the helper looks for fuse-overlayfs.
pub const FUSE_PROGRAM: &str = "/usr/bin/fuse-overlayfs";

/// File systems that cannot hold an upper of the kernel's overlay: no whiteouts, no attributes, or no exchange rename.
const NOT_AN_UPPER: &[(u64, &str)] = &[
    (0x794c_7630, "overlay"),
    (0x6969, "nfs"),
    (0x6573_5546, "fuse"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb3"),
    (0x517b, "smb"),
    (0x0102_1997, "9p"),
    (0x4d44, "vfat"),
    (0x2011_bab0, "exfat"),
    (0xf15f, "ecryptfs"),
    (0x00c3_6400, "ceph"),
    (0x7366_746e, "ntfs"),
];

/// Asks the deepest existing part of `state_dir`. Reads alone: the probe that writes is `doctor`'s.
pub(super) fn upper_support(files: &Files, state_dir: &AbsPath) -> UpperSupport {
    let mut at = state_dir.clone();
    while files.locate(at.as_path()).is_none_or(|l| l.kind != Kind::Dir) {
        match at.parent() {
            Some(parent) => at = parent,
            None => break,
        }
    }
    let Ok(fs) = rustix::fs::statfs(at.as_path()) else {
        return UpperSupport::No(format!("{at} can't be examined"));
    };
    // The type is signed on some machines; the magic numbers are 32 bits everywhere.
    let magic = u64::try_from(i128::from(fs.f_type) & 0xffff_ffff).unwrap_or(0);
    if let Some((_, name)) = NOT_AN_UPPER.iter().find(|(number, _)| *number == magic) {
        return UpperSupport::No(format!("{at} lies on {name}"));
    }
    let mut value = [0; 16];
    match rustix::fs::getxattr(at.as_path(), "user.landbox.probe", &mut value) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            UpperSupport::No(format!("{at} lies on a file system without user attributes"))
        }
        Ok(_) | Err(_) => UpperSupport::Yes,
    }
}

pub(super) fn fuse() -> Fuse {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let may = |path: &str, access| accessat(CWD, path, access, AtFlags::EACCESS).is_ok();
    if !may(FUSE_PROGRAM, Access::EXEC_OK) {
        Fuse::NoProgram
    } else if !may("/dev/fuse", Access::READ_OK | Access::WRITE_OK) {
        Fuse::NoDevice
    } else {
        Fuse::Yes
    }
}

/// File systems whose server may be away, so that even looking at them may hang.
pub fn may_hang(fs_type: &str) -> bool {
    fs_type.starts_with("fuse")
        || matches!(fs_type, "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "autofs" | "ceph" | "afs")
}

/// How long a server may take to say that a folder is there.
const PATIENCE: Duration = Duration::from_secs(5);

/// Refuses folders on file systems whose server does not answer: whoever asks of them hangs, and hears no signal.
pub fn require_answers<'a>(
    mounts: &[Mount],
    folders: impl IntoIterator<Item = &'a AbsPath>,
) -> Result<()> {
    let served = |folder: &&AbsPath| covering(mounts, folder).is_some_and(|m| may_hang(&m.fs_type));
    let Some(silent) = folders.into_iter().filter(served).find(|folder| !answers(folder)) else {
        return Ok(());
    };
    let seconds = PATIENCE.as_secs();
    Err(Failure::new(
        FailureKind::Unavailable,
        format!("the file system at {silent} has not answered within {seconds} s"),
    )
    .hint(format!("unmount it: umount -l {silent} as root, or fusermount -uz {silent}")))
}

fn answers(folder: &AbsPath) -> bool {
    let (tell, told) = std::sync::mpsc::channel();
    let path = folder.clone();
    let ask = move || {
        // What is in a folder may be known without asking for a while; opening it is not.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let _ = rustix::fs::open(path.as_path(), flags, Mode::empty());
        let _ = tell.send(());
    };
    // Without room for a thread nothing can be said, and the start will say what it lacks.
    let Ok(asked) = std::thread::Builder::new().spawn(ask) else { return true };
    // One that does not come back ends with this program.
    told.recv_timeout(PATIENCE).is_ok() && asked.join().is_ok()
}

/// File systems that the kernel's overlay refuses as a lower (names that fold case, or that hand out mounts).
pub fn refused_as_lower(fs_type: &str) -> bool {
    matches!(fs_type, "vfat" | "msdos" | "exfat" | "ntfs" | "ntfs3" | "cifs" | "smb3" | "autofs")
}

/// File systems that hold no files of anybody's: nothing to layer.
pub fn is_pseudo(fs_type: &str) -> bool {
    matches!(
        fs_type,
        "proc"
            | "sysfs"
            | "devpts"
            | "devtmpfs"
            | "cgroup"
            | "cgroup2"
            | "mqueue"
            | "debugfs"
            | "tracefs"
            | "securityfs"
            | "pstore"
            | "bpf"
            | "configfs"
            | "fusectl"
            | "efivarfs"
            | "binfmt_misc"
            | "rpc_pipefs"
            | "nsfs"
            | "hugetlbfs"
            | "autofs"
            | "fuse.portal"
            | "fuse.gvfsd-fuse"
    )
}
