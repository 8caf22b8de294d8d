//! The signing key: made on first use, read with suspicion ever after.

use super::folder::{check, own_folder};
use crate::error::{Context, Failure, Kind, Result};
use crate::session::store::show;
use ed25519_dalek::{SigningKey, VerifyingKey};
use landbox_shared::trust;
use landbox_shared::wire::KeyId;
use rustix::fs::{Mode, OFlags};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use zeroize::Zeroizing;

/// Anything for group or others.
const OTHERS: u32 = 0o077;
/// Writing for group or others.
const OTHERS_WRITE: u32 = 0o022;

/// The owner's signing key.
pub struct Key(SigningKey);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.id())
    }
}

impl Key {
    /// Reads the key of the configuration folder, making it on first use, and sees to it that its public half lies in
    /// `trusted.d`. Any number of first uses at once agree on one key.
    pub fn load(config_dir: &Path) -> Result<Self> {
        own_folder(config_dir, OTHERS_WRITE)?;
        let keys = config_dir.join("keys");
        own_folder(&keys, OTHERS)?;
        let path = keys.join("signing.key");
        let key = match read(&path)? {
            Some(key) => key,
            None => {
                make(&keys, &path)?;
                read(&path)?.ok_or_else(|| {
                    Failure::new(
                        Kind::Failed,
                        format!("{} vanished while it was made", show(&path)),
                    )
                })?
            }
        };
        let this = Self(key);
        this.enrol(&config_dir.join("trusted.d"))?;
        Ok(this)
    }

    /// The name of the public half.
    pub fn id(&self) -> KeyId {
        KeyId::of(&self.0.verifying_key())
    }

    /// The public half.
    pub fn public(&self) -> VerifyingKey {
        self.0.verifying_key()
    }

    pub(crate) fn signing(&self) -> &SigningKey {
        &self.0
    }

    /// Puts the public half where the helper looks for it. Checked at every launch, because a crash between making the
    /// key and enrolling it must not leave a key that nobody trusts.
    fn enrol(&self, trusted: &Path) -> Result<()> {
        own_folder(trusted, OTHERS)?;
        let path = trusted.join(format!("{}.pub", self.id()));
        let uid = rustix::process::geteuid().as_raw();
        let line = trust::line(&self.0.verifying_key(), uid, "landbox signing key");
        match std::fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_file() => {
                check(&path, &meta, OTHERS_WRITE)?;
                if std::fs::read(&path).is_ok_and(|found| found == line.as_bytes()) {
                    return Ok(());
                }
            }
            Ok(_) => {
                return Err(Failure::new(
                    Kind::Refused,
                    format!("{} is not a regular file", show(&path)),
                )
                .hint(format!("rm -r {}", show(&path))));
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(e).context(|| format!("can't read {}", show(&path))),
        }
        let what = || format!("can't write {}", show(&path));
        staged(trusted, line.as_bytes()).context(what)?.persist(&path).context(what)?;
        Ok(())
    }
}

/// A file of `bytes` with mode 0600 beside its later place.
fn staged(dir: &Path, bytes: &[u8]) -> std::io::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::Builder::new()
        .prefix(".new-")
        .permissions(PermissionsExt::from_mode(0o600))
        .tempfile_in(dir)?;
    file.write_all(bytes)?;
    // A key that is empty after a power cut would stop every later launch.
    file.as_file().sync_all()?;
    Ok(file)
}

/// Makes a key. Losing the race against another first use is no failure: both then read the winner's.
fn make(keys: &Path, path: &Path) -> Result<()> {
    let what = || format!("can't make the signing key {}", show(path));
    let mut seed = Zeroizing::new([0u8; 32]);
    getrandom::fill(seed.as_mut()).context(what)?;
    let file = staged(keys, seed.as_ref()).context(what)?;
    // link(2) refuses an existing name, so the first one wins and no reader ever sees half a key.
    match std::fs::hard_link(file.path(), path) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(e).context(what),
        Ok(()) | Err(_) => file.close().context(what),
    }
}

fn read(path: &Path) -> Result<Option<SigningKey>> {
    let what = || format!("can't read the signing key {}", show(path));
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => std::fs::File::from(fd),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => {
            return Err(Failure::new(
                Kind::Refused,
                format!("the signing key {} is a symbolic link", show(path)),
            )
            .hint(format!("rm {} (a new key is made at the next run)", show(path))));
        }
        Err(e) => return Err(e).context(what),
    };
    let meta = file.metadata().context(what)?;
    let broken = |why: &str| {
        Failure::new(Kind::Refused, format!("the signing key {} {why}", show(path)))
            .hint(format!("rm -r {} (a new key is made at the next run)", show(path)))
    };
    if !meta.is_file() {
        return Err(broken("is not a regular file"));
    }
    check(path, &meta, OTHERS)?;
    if meta.len() != 32 {
        return Err(broken("is damaged"));
    }
    // More than one name for a moment is the first use of another process; two for good is somebody's copy.
    if meta.nlink() > 2 {
        return Err(broken("has more than one name"));
    }
    let mut seed = Zeroizing::new([0u8; 32]);
    file.read_exact(seed.as_mut()).context(what)?;
    Ok(Some(SigningKey::from_bytes(&seed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_leaves_nothing_in_memory_when_it_is_dropped() {
        fn is_wiped<T: zeroize::ZeroizeOnDrop>() {}
        is_wiped::<SigningKey>();
        is_wiped::<Zeroizing<[u8; 32]>>();
    }

    #[test]
    fn twenty_first_uses_at_once_agree_on_one_key_and_leave_no_temporary() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("landbox");
        let ids: Vec<String> = std::thread::scope(|scope| {
            let uses: Vec<_> = (0..20)
                .map(|_| scope.spawn(|| Key::load(&config).unwrap().id().to_string()))
                .collect();
            uses.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]));
        let names = |d: &str| {
            std::fs::read_dir(config.join(d))
                .unwrap()
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(names("keys"), ["signing.key"]);
        assert_eq!(names("trusted.d"), [format!("{}.pub", ids[0])]);
    }

    #[test]
    fn key_and_trust_are_the_owners_alone_and_the_public_line_names_the_uid() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("landbox");
        let key = Key::load(&config).unwrap();
        let mode = |p: &Path| std::fs::metadata(p).unwrap().mode() & 0o7777;
        assert_eq!(mode(&config.join("keys")), 0o700);
        assert_eq!(mode(&config.join("trusted.d")), 0o700);
        assert_eq!(mode(&config.join("keys/signing.key")), 0o600);
        let path = config.join(format!("trusted.d/{}.pub", key.id()));
        let line = std::fs::read_to_string(path).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let mut words = line.split_whitespace();
        assert_eq!(words.next().unwrap().len(), 64);
        assert_eq!(words.next().unwrap(), uid.to_string());
        assert_eq!(line.lines().count(), 1);
    }

    #[test]
    fn an_open_or_damaged_key_is_refused_with_the_command_that_repairs_it() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("landbox");
        Key::load(&config).unwrap();
        let path = config.join("keys/signing.key");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        let failure = Key::load(&config).unwrap_err();
        assert_eq!(failure.kind, Kind::Refused);
        assert!(failure.hints[0].starts_with("chmod 600 "), "{:?}", failure.hints);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(Key::load(&config).unwrap_err().kind, Kind::Refused);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert_eq!(Key::load(&config).unwrap_err().kind, Kind::Refused);
        std::fs::remove_file(&path).unwrap();
        std::fs::set_permissions(config.join("trusted.d"), PermissionsExt::from_mode(0o755))
            .unwrap();
        assert_eq!(Key::load(&config).unwrap_err().kind, Kind::Refused);
    }

    #[test]
    fn trust_that_was_lost_is_renewed() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("landbox");
        let key = Key::load(&config).unwrap();
        let path = config.join(format!("trusted.d/{}.pub", key.id()));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(Key::load(&config).unwrap().id(), key.id());
        assert!(path.exists());
    }
}
