//! The keys the owner trusts, as `trusted.d` names them.

use super::folder::check;
use crate::error::{Context, Result};
use crate::session::store::show;
use ed25519_dalek::VerifyingKey;
use landbox_shared::trust;
use std::path::Path;

/// Larger than any line of a key.
const MOST: u64 = 64 << 10;

/// Every trusted key with the user id it speaks for. A folder or file that others can write speaks for nobody and is an
/// error; what is no key is passed over.
pub fn trusted(config_dir: &Path) -> Result<Vec<(VerifyingKey, u32)>> {
    let dir = config_dir.join("trusted.d");
    let what = || format!("can't read {}", show(&dir));
    let meta = match std::fs::symlink_metadata(&dir) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e).context(what),
    };
    check(&dir, &meta, 0o022)?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&dir).context(what)? {
        let path = entry.context(what)?.path();
        let meta = std::fs::symlink_metadata(&path).context(what)?;
        if path.extension().is_none_or(|end| end != "pub") || !meta.is_file() || meta.len() > MOST {
            continue;
        }
        check(&path, &meta, 0o022)?;
        let text =
            std::fs::read_to_string(&path).context(|| format!("can't read {}", show(&path)))?;
        found.extend(trust::read_line(&text));
    }
    Ok(found)
}
