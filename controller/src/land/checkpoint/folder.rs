//! The folder in which a session's checkpoints lie.

use super::model::{Checkpoint, Head, Manifest};
use super::{Skipped, lift, start};
use crate::error::{Context, Failure, Kind, Result};
use crate::session::store::{Session, show, write_json};
use landbox_shared::digest::Digest;
use landbox_shared::id::SessionId;
use rustix::fs::{FlockOperation, flock};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FOLDER: &str = "checkpoints";
const REWINDING: &str = "rewinding";
const SKIPPED: &str = "skipped";
const NEXT: &str = "next";
const LIFTED: &str = "lifted";

/// The folder of a session's checkpoints, held against others.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    _lock: File,
}

/// The checkpoints of a session, oldest first.
pub fn list(session: &Session) -> Vec<Checkpoint> {
    heads(&session.dir.join(FOLDER)).iter().map(Head::summary).collect()
}

/// What the session's checkpoints take on the disk.
pub fn bytes(session: &Session) -> u64 {
    crate::overlay::remove::disk_usage(&session.dir.join(FOLDER))
}

/// Why the newest turn began without a checkpoint, if it did.
pub fn skipped(session: &Session) -> Option<Skipped> {
    serde_json::from_slice(&std::fs::read(session.dir.join(FOLDER).join(SKIPPED)).ok()?).ok()
}

/// Whether a look has opened something up that its session had closed.
pub(super) fn is_lifting(session: &Session) -> bool {
    session.dir.join(FOLDER).join(LIFTED).exists()
}

/// Whether going back was cut short.
pub(super) fn is_rewinding(session: &Session) -> bool {
    session.dir.join(FOLDER).join(REWINDING).exists()
}

const KEPT: &str = ".json";
const GONE: &str = ".gone";

/// The numbers of what lies there, in order.
fn numbers(path: &Path, suffix: &str) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let name = entry?.file_name();
        found.extend(name.to_str().and_then(|n| n.strip_suffix(suffix)?.parse::<u32>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

/// One that a power cut has torn is none.
fn heads(path: &Path) -> Vec<Head> {
    let head = |number: u32| {
        let file = File::open(path.join(format!("{number}.json"))).ok()?;
        Head::read(number, &mut BufReader::new(file)).ok()
    };
    numbers(path, KEPT).unwrap_or_default().into_iter().filter_map(head).collect()
}

/// Fails where none of a session's checkpoints has this number.
pub(super) fn check(id: &SessionId, all: &[Head], number: u32) -> Result<()> {
    if all.iter().any(|head| head.number == number) {
        return Ok(());
    }
    let lists = format!("landbox show {id} lists them; ");
    let lists = if all.is_empty() { "" } else { &lists };
    let what = format!("session {id} has no checkpoint {number}");
    Err(Failure::new(Kind::Usage, what).hint(format!("{lists}landbox checkpoint {id} takes one")))
}

/// Whether an error of reading a checkpoint says that there is none: nothing there, or what a power cut has left of one.
fn is_none(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, NotFound, UnexpectedEof};
    matches!(error.kind(), NotFound | InvalidData | UnexpectedEof)
}

/// What of the free blocks may be taken. As df(1) has it, a disk is what is used and what is to be had: blocks that are
/// reserved for others are neither.
fn spare(used: u64, free: u64) -> u64 {
    free.saturating_sub(used.saturating_add(free) / 10)
}

impl Folder {
    /// Waits until nobody else has it.
    pub(super) fn open(session: &Session) -> Result<Self> {
        let path = session.dir.join(FOLDER);
        let what = || format!("can't use {}", show(&path));
        let mut make = std::fs::DirBuilder::new();
        make.recursive(true).mode(0o700).create(path.join("objects")).context(what)?;
        let mut options = File::options();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(path.join("lock")).context(what)?;
        flock(&lock, FlockOperation::LockExclusive).context(what)?;
        Ok(Self { path, _lock: lock }.mended(session))
    }

    /// The folder of a session that has one, if nobody has it now.
    pub(super) fn try_open(session: &Session) -> Option<Self> {
        let path = session.dir.join(FOLDER);
        let lock = File::options().write(true).open(path.join("lock")).ok()?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Self { path, _lock: lock }.mended(session))
    }

    fn mended(self, session: &Session) -> Self {
        lift::mend(session, &self.lifted());
        self
    }

    /// There while a look has opened something up.
    pub(super) fn lifted(&self) -> PathBuf {
        self.path.join(LIFTED)
    }

    pub(super) fn heads(&self) -> Vec<Head> {
        heads(&self.path)
    }

    /// One that is there.
    pub(super) fn read(&self, number: u32) -> io::Result<Manifest> {
        Manifest::read(number, BufReader::new(File::open(self.manifest(number))?))
    }

    /// The number of the newest.
    pub(super) fn newest_number(&self) -> Option<u32> {
        Some(self.heads().last()?.number)
    }

    /// The newest that can be read.
    pub(super) fn newest(&self) -> Option<Manifest> {
        self.read(self.newest_number()?).ok()
    }

    /// The checkpoint of that number, 0 being the beginning; without one the newest, or else the beginning.
    pub(super) fn find(&self, session: &Session, number: Option<u32>) -> Result<Manifest> {
        let id = &session.snapshot.id;
        let all = self.heads();
        let number = number.or_else(|| all.last().map(|head| head.number)).unwrap_or(0);
        if number == 0 {
            return start::beginning(session);
        }
        check(id, &all, number)?;
        self.read(number).context(|| format!("can't read checkpoint {number} of session {id}"))
    }

    /// The highest number that was ever given.
    fn last(&self) -> u32 {
        let gone = numbers(&self.path, GONE).unwrap_or_default();
        let heads = self.heads();
        let newest = heads.last().map(|head| head.number);
        newest.into_iter().chain(gone).max().unwrap_or(0)
    }

    /// Removes a checkpoint for good. Of the newest the name stays, so that no other gets its number; where there is no
    /// room for as much as that (a name costs none on most file systems), it goes, too.
    pub(super) fn drop_for_good(&self, number: u32) -> Result<()> {
        if number < self.last() {
            return self.remove(number);
        }
        let (path, gone) = (self.manifest(number), self.path.join(format!("{number}{GONE}")));
        if std::fs::rename(&path, &gone).is_err() {
            return self.remove(number);
        }
        // Nobody reads it, nor the names before it, so it is no harm if they stay.
        let _ = File::options().write(true).truncate(true).open(&gone);
        for earlier in numbers(&self.path, GONE).unwrap_or_default() {
            if earlier < number {
                let _ = std::fs::remove_file(self.path.join(format!("{earlier}{GONE}")));
            }
        }
        Ok(())
    }

    /// Keeps a picture as the next checkpoint.
    pub(super) fn write(&self, manifest: &mut Manifest) -> Result<()> {
        manifest.head.number = self.last().saturating_add(1);
        self.put(manifest, &self.manifest(manifest.head.number))
    }

    /// Makes a picture ready that becomes the next checkpoint if a turn begins now.
    pub(super) fn write_next(&self, manifest: &Manifest) -> Result<()> {
        self.put(manifest, &self.next())
    }

    /// Keeps what was made ready, if it is still there. Gives its number.
    pub(super) fn keep_next(&self) -> Result<Option<u32>> {
        let number = self.last().saturating_add(1);
        match std::fs::rename(self.next(), self.manifest(number)) {
            Ok(()) => Ok(Some(number)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).context(|| "can't keep a checkpoint".into()),
        }
    }

    /// Forgets what was made ready.
    pub(super) fn forget_next(&self) {
        let _ = std::fs::remove_file(self.next());
    }

    fn put(&self, manifest: &Manifest, path: &Path) -> Result<()> {
        let write = || -> io::Result<()> {
            let mut file = tempfile::Builder::new().prefix(".write-").tempfile_in(&self.path)?;
            let mut out = BufWriter::with_capacity(256 << 10, &mut file);
            manifest.write(&mut out)?;
            out.flush()?;
            drop(out);
            file.persist(path)?;
            Ok(())
        };
        write().context(|| format!("can't write {}", show(path)))
    }

    pub(super) fn remove(&self, number: u32) -> Result<()> {
        let path = self.manifest(number);
        std::fs::remove_file(&path).context(|| format!("can't remove {}", show(&path)))
    }

    /// Says why a turn begins without one, or takes that back.
    pub(super) fn note_skipped(&self, skipped: Option<&Skipped>) -> Result<()> {
        let path = self.path.join(SKIPPED);
        match skipped {
            Some(skipped) => write_json(&path, skipped, 0o600),
            None => match std::fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    Err(e).context(|| format!("can't remove {}", show(&path)))
                }
                Ok(()) | Err(_) => Ok(()),
            },
        }
    }

    /// There while a session is on its way back to the checkpoint that it names.
    pub(super) fn marker(&self) -> PathBuf {
        self.path.join(REWINDING)
    }

    pub(super) fn rewinding(&self) -> Option<u32> {
        serde_json::from_slice(&std::fs::read(self.marker()).ok()?).ok()
    }

    fn manifest(&self, number: u32) -> PathBuf {
        self.path.join(format!("{number}.json"))
    }

    fn next(&self) -> PathBuf {
        self.path.join(NEXT)
    }

    fn objects(&self) -> PathBuf {
        self.path.join("objects")
    }

    /// Where content of that digest lies.
    pub(super) fn object(&self, digest: &Digest) -> PathBuf {
        self.objects().join(digest.to_string().trim_start_matches("sha256:"))
    }

    /// Whether content is there: whole, as far as its size tells after a power cut.
    pub(super) fn holds(&self, digest: &Digest, size: u64) -> bool {
        std::fs::symlink_metadata(self.object(digest)).is_ok_and(|meta| meta.len() == size)
    }

    /// A file for content whose digest is not known yet.
    pub(super) fn fresh(&self) -> io::Result<tempfile::NamedTempFile> {
        tempfile::Builder::new().prefix(".new-").tempfile_in(self.objects())
    }

    /// Bytes that the content takes on disk.
    pub(super) fn bytes(&self) -> u64 {
        crate::overlay::remove::disk_usage(&self.objects())
    }

    /// Bytes that may be written to the file system without filling it: a tenth of it stays free.
    pub(super) fn free(&self) -> u64 {
        let Ok(stat) = rustix::fs::statvfs(&self.path) else { return 0 };
        let used = stat.f_blocks.saturating_sub(stat.f_bfree);
        spare(used, stat.f_bavail).saturating_mul(stat.f_frsize)
    }

    /// Removes content that no checkpoint names, nor what was made ready. One that a power cut has torn names nothing.
    pub(super) fn sweep(&self) -> Result<()> {
        let what = || format!("can't sweep {}", show(&self.path));
        let all = numbers(&self.path, KEPT).context(what)?;
        let files = all.into_iter().map(|number| self.manifest(number)).chain([self.next()]);
        let mut used = HashSet::new();
        for file in files {
            let read = File::open(file).and_then(|file| Manifest::read(0, BufReader::new(file)));
            match read {
                Ok(manifest) => {
                    used.extend(manifest.layers.digests().map(|digest| self.object(digest)));
                }
                Err(e) if is_none(&e) => {}
                Err(e) => return Err(e).context(what),
            }
        }
        for entry in std::fs::read_dir(self.objects()).context(what)? {
            let path = entry.context(what)?.path();
            if !used.contains(&path) {
                std::fs::remove_file(&path).context(what)?;
            }
        }
        // What a writer that was killed has left.
        for entry in std::fs::read_dir(&self.path).context(what)?.flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(b".write-") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_what_can_be_had_stays_free_however_much_is_reserved() {
        assert_eq!(spare(0, 100), 90);
        assert_eq!(spare(80, 20), 10);
        assert_eq!(spare(90, 10), 0);
        assert_eq!(spare(95, 5), 0);
        assert_eq!(spare(u64::MAX, 10), 0);
    }
}
