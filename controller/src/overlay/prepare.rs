//! The folders of a launch, made just before it.

use crate::error::{Context, Result};
use crate::plan::Compiled;
use crate::session::model::Epoch;
use crate::session::store::show;
use landbox_shared::id::LayerId;
use landbox_shared::policy::{LayerKind, LayerPolicy, Policy};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// Longest attribute value that is copied to an upper folder (the kernel's own limit).
const VALUE_BYTES: usize = 64 << 10;
/// How often the clock of a file system is read again, and after how long: it moves each 1 to 10 ms (the kernel's tick).
const TICKS: usize = 12;
const TICK: Duration = Duration::from_millis(2);

/// Makes the folders below the session's that a plan shows, where missing, and writes the files it shows anew.
pub fn private(session_dir: &Path, plan: &Compiled) -> Result<()> {
    for (name, mode) in &plan.private_dirs {
        let path = session_dir.join(name);
        if make(&path, 0o700)? {
            // Apart from mkdir: the umask has no say in it.
            std::fs::set_permissions(&path, PermissionsExt::from_mode(*mode))
                .context(|| format!("can't set the mode of {}", show(&path)))?;
        }
    }
    for file in &plan.private_files {
        let path = session_dir.join(&file.path);
        replace(&path, &file.bytes, file.mode)
            .context(|| format!("can't write {}", show(&path)))?;
    }
    Ok(())
}

fn replace(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let mut file = tempfile::Builder::new()
        .prefix(".new-")
        .permissions(PermissionsExt::from_mode(mode))
        .tempfile_in(path.parent().unwrap_or(Path::new("/")))?;
    file.write_all(bytes)?;
    file.as_file().set_permissions(PermissionsExt::from_mode(mode))?;
    file.persist(path)?;
    Ok(())
}

/// Makes each layer's upper (where missing) and its work folder of this launch. A new work folder for every launch: the
/// mark of a volatile mount stays in the old one, and the kernel refuses to mount over it.
pub fn layers(session_dir: &Path, policy: &Policy, launch: u32) -> Result<()> {
    let all = session_dir.join("layers");
    make(&all, 0o700)?;
    for layer in &policy.layers {
        let dir = all.join(layer.id.as_str());
        make(&dir, 0o700)?;
        let upper = dir.join("upper");
        if make(&upper, 0o700)? {
            dress(&upper, layer).context(|| format!("can't prepare the layer {}", layer.id))?;
        }
        let work = dir.join(format!("work.{launch}"));
        // There if a launch of this number was cut short before it was written down.
        super::remove::remove_tree(&work)
            .and_then(|()| std::fs::DirBuilder::new().mode(0o700).create(&work))
            .context(|| format!("can't make the work folder {}", show(&work)))?;
        for old in 1..launch {
            // Only room is lost where this fails.
            let _ = super::remove::remove_tree(&dir.join(format!("work.{old}")));
        }
    }
    Ok(())
}

/// The time just before mounting, per layer that may land, on the clock of its lower file system: the time of a file
/// without a name, so that the owner's folder does not change, or of one in a folder of ours, which are `own`, on the same
/// file system. Absent where that is impossible: then every path counts as drifted.
pub fn epochs(policy: &Policy, own: &[&Path]) -> BTreeMap<LayerId, Epoch> {
    let lands = |layer: &&LayerPolicy| match layer.kind {
        LayerKind::Project | LayerKind::Worktree => true,
        LayerKind::Home | LayerKind::Mount => false,
    };
    let timed = |layer: &LayerPolicy| Some((layer.id.clone(), epoch(layer.target.as_path(), own)?));
    policy.layers.iter().filter(lands).filter_map(timed).collect()
}

fn epoch(target: &Path, own: &[&Path]) -> Option<Epoch> {
    let mut stamp = stamp(target, own)?;
    // What changed within this tick of the clock has the same time, and would seem to change under the session; and on an
    // overlay, as in a container, a folder that nobody has written to is copied up for the file, and so changes just now.
    for _ in 0..TICKS {
        let folder = fs::stat(target).ok()?;
        if (folder.st_ctime, folder.st_ctime_nsec) < (stamp.seconds, stamp.nanoseconds.into()) {
            break;
        }
        std::thread::sleep(TICK);
        stamp = self::stamp(target, own)?;
    }
    Some(stamp)
}

/// The time on a folder's file system. Linux 6.13 gives a change a time of its own, later than all before it and earlier
/// than all after it, where the time before that was looked at; an older one that of the clock's last tick.
fn stamp(target: &Path, own: &[&Path]) -> Option<Epoch> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    match fs::open(target, flags, mode) {
        Ok(file) => time_of(&file, mode),
        // NFS and most of FUSE know no files without names.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            let device = fs::stat(target).ok()?.st_dev;
            let same = own.iter().filter(|dir| fs::stat(**dir).is_ok_and(|at| at.st_dev == device));
            let mut made = same.filter_map(|dir| tempfile::NamedTempFile::new_in(dir).ok());
            time_of(made.next()?.as_file(), mode)
        }
        Err(_) => None,
    }
}

fn time_of(file: impl AsFd, mode: Mode) -> Option<Epoch> {
    fs::fstat(&file).ok()?;
    fs::fchmod(&file, mode).ok()?;
    let stat = fs::fstat(&file).ok()?;
    Some(Epoch { seconds: stat.st_ctime, nanoseconds: u32::try_from(stat.st_ctime_nsec).ok()? })
}

/// Makes a folder; false where it is there already.
fn make(path: &Path, mode: u32) -> Result<bool> {
    match std::fs::DirBuilder::new().mode(mode).create(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(e).context(|| format!("can't make the folder {}", show(path))),
    }
}

/// Gives an upper folder what the real root has, since the merged root shows the upper's own mode, times, attributes.
fn dress(upper: &Path, layer: &LayerPolicy) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let ours = fs::open(upper, flags, Mode::empty())?;
    let stat = fs::statat(fs::CWD, layer.target.as_path(), AtFlags::SYMLINK_NOFOLLOW)?;
    // A root that can be entered but not read has attributes that can't be read either.
    let real = fs::open(layer.target.as_path(), flags, Mode::empty()).ok();
    dress_like(&ours, &stat, real.as_ref())
}

/// The same for any folder of a layer: what is known of the real one, and the real one itself where it can be read.
pub(crate) fn dress_like(
    ours: &OwnedFd,
    stat: &fs::Stat,
    real: Option<&OwnedFd>,
) -> Result<(), Errno> {
    if rustix::process::geteuid().is_root() {
        // Nobody else can give a folder away; and a group that the session's world does not map would keep the task
        // from making any file in it.
        let owner = rustix::process::Uid::from_raw(stat.st_uid);
        let group = rustix::process::Gid::from_raw(stat.st_gid);
        fs::fchown(ours, Some(owner), Some(group))?;
    }
    fs::fchmod(ours, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    if let Some(real) = real {
        copy_attributes(real, ours)?;
    }
    let time = |tv_sec, nanoseconds| {
        Ok(Timespec { tv_sec, tv_nsec: i64::try_from(nanoseconds).map_err(|_| Errno::OVERFLOW)? })
    };
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec)?,
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec)?,
    };
    fs::futimens(ours, &times)
}

/// Whether an attribute of the real root belongs on the upper: ACLs and the user's own, never an overlay's marks.
pub(crate) fn is_copied(name: &[u8]) -> bool {
    let acl = name == b"system.posix_acl_access" || name == b"system.posix_acl_default";
    let marks: [&[u8]; 3] = [b"user.overlay.", b"user.fuseoverlayfs.", b"user.containers."];
    acl || (name.starts_with(b"user.") && !marks.iter().any(|mark| name.starts_with(mark)))
}

fn copy_attributes(real: &OwnedFd, ours: &OwnedFd) -> Result<(), Errno> {
    // Most folders have none.
    let mut list = vec![0; 1 << 10];
    let used = match fs::flistxattr(real, list.as_mut_slice()) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(()),
        Err(Errno::RANGE) => {
            list.resize(VALUE_BYTES, 0);
            fs::flistxattr(real, list.as_mut_slice())?
        }
        used => used?,
    };
    let mut value = vec![0; VALUE_BYTES];
    for name in list.get(..used).unwrap_or_default().split(|b| *b == 0).filter(|n| is_copied(n)) {
        let Ok(length) = fs::fgetxattr(real, name, value.as_mut_slice()) else { continue };
        let bytes = value.get(..length).unwrap_or_default();
        match fs::fsetxattr(ours, name, bytes, XattrFlags::empty()) {
            // A state folder without these attributes still carries layers.
            Ok(()) | Err(Errno::NOTSUP | Errno::NOSPC | Errno::DQUOT | Errno::TOOBIG) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use landbox_shared::path::AbsPath;
    use landbox_shared::policy::Backend;
    use std::os::unix::fs::MetadataExt;

    fn layer(target: &Path) -> LayerPolicy {
        LayerPolicy {
            id: LayerId::new("project").unwrap(),
            kind: LayerKind::Project,
            target: AbsPath::from_path(&target.canonicalize().unwrap()).unwrap(),
            backend: Backend::Kernel,
        }
    }

    #[test]
    fn an_upper_looks_like_the_real_root() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        let upper = dir.path().join("upper");
        std::fs::create_dir(&real).unwrap();
        std::fs::create_dir(&upper).unwrap();
        std::fs::set_permissions(&real, PermissionsExt::from_mode(0o2751)).unwrap();
        let set = |name: &str| fs::setxattr(&real, name, b"v", XattrFlags::empty());
        let attributes = set("user.mine").is_ok() && set("user.overlay.opaque").is_ok();
        dress(&upper, &layer(&real)).unwrap();
        let (a, b) = (std::fs::metadata(&real).unwrap(), std::fs::metadata(&upper).unwrap());
        assert_eq!(a.mode(), b.mode());
        assert_eq!((a.mtime(), a.mtime_nsec()), (b.mtime(), b.mtime_nsec()));
        if attributes {
            let mut value = [0; 8];
            assert_eq!(fs::getxattr(&upper, "user.mine", &mut value[..]).unwrap(), 1);
            assert!(fs::getxattr(&upper, "user.overlay.opaque", &mut value[..]).is_err());
        }
    }

    #[test]
    fn an_epoch_is_later_than_what_was_there_and_leaves_no_trace() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("old"), "1").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let before = std::fs::metadata(dir.path()).unwrap();
        let epoch = epoch(dir.path(), &[]).unwrap();
        let old = std::fs::metadata(dir.path().join("old")).unwrap();
        assert!((old.ctime(), old.ctime_nsec()) < (epoch.seconds, epoch.nanoseconds.into()));
        let after = std::fs::metadata(dir.path()).unwrap();
        assert_eq!((before.mtime(), before.mtime_nsec()), (after.mtime(), after.mtime_nsec()));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_epoch_is_later_than_what_lies_anywhere_below_and_earlier_than_what_comes() {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        let fine = (numbers.next().unwrap(), numbers.next().unwrap()) >= (6, 13);
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        for number in 0..50 {
            let file = dir.path().join("sub").join(number.to_string());
            let time = || {
                let meta = std::fs::metadata(&file).unwrap();
                (meta.ctime(), meta.ctime_nsec())
            };
            std::fs::write(&file, "1").unwrap();
            if number % 2 == 0 {
                // Looked at, it gets a time of its own when it changes.
                time();
                std::fs::write(&file, "2").unwrap();
            }
            let epoch = epoch(dir.path(), &[]).unwrap();
            let epoch = (epoch.seconds, i64::from(epoch.nanoseconds));
            assert!(if fine { time() < epoch } else { time() <= epoch }, "{number}");
            std::fs::write(&file, "3").unwrap();
            assert!(time() >= epoch, "{number}");
        }
    }
}
