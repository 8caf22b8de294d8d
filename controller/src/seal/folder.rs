//! The folders the key and the trust lie in: ours alone, or refused with the command that repairs them.

use crate::error::{Context, Failure, Kind, Result};
use crate::session::store::{self, show};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Makes `path` (and its parents) where missing, and refuses it unless it is a folder of the caller that grants
/// others none of the bits in `refused`.
pub(super) fn own_folder(path: &Path, refused: u32) -> Result<()> {
    store::own_folder(path).context(|| format!("can't make the folder {}", show(path)))?;
    let meta = std::fs::symlink_metadata(path).context(|| format!("can't read {}", show(path)))?;
    if !meta.is_dir() {
        return Err(Failure::new(Kind::Refused, format!("{} is not a folder", show(path)))
            .hint(format!("move it away: mv {0} {0}.old", show(path))));
    }
    check(path, &meta, refused)
}

/// Refuses a file or folder of another owner, or one that grants others any of the bits in `refused`.
pub(super) fn check(path: &Path, meta: &std::fs::Metadata, refused: u32) -> Result<()> {
    let uid = rustix::process::geteuid().as_raw();
    if meta.uid() != uid {
        return Err(Failure::new(
            Kind::Refused,
            format!("{} belongs to uid {}, not to you ({uid})", show(path), meta.uid()),
        )
        .hint(format!("sudo chown {uid} {}", show(path))));
    }
    if meta.mode() & refused != 0 {
        let right = (meta.mode() & 0o777) & !refused;
        return Err(Failure::new(
            Kind::Refused,
            format!("{} is open to other users (mode {:04o})", show(path), meta.mode() & 0o7777),
        )
        .hint(format!("chmod {right:o} {}", show(path))));
    }
    Ok(())
}
