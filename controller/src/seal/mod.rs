//! Sealing a plan: the signing key, its public half in the folder the helper trusts, and the envelope of one launch.
//!
//! The key lies in the owner's home: a signature says which key approved a plan (integrity, audit, evidence). It is no
//! wall between two programs of one user.

mod approved;
mod folder;
mod key;
mod trusted;

pub use approved::holds;
pub use key::Key;
pub use trusted::trusted;

use crate::error::{Context, Failure, Kind, Result};
use crate::session::store::show;
use landbox_shared::digest::Digest;
use landbox_shared::plan::Plan;
use landbox_shared::procfs;
use landbox_shared::wire::{self, Binding};
use std::path::Path;

/// A sealed plan.
#[derive(Debug)]
pub struct Sealed {
    /// The envelope as it goes down the pipe.
    pub envelope: Vec<u8>,
    /// Its digest, which the evidence must name.
    pub digest: Digest,
}

/// Seals `plan` for the helper that sent `challenge`.
pub fn seal(plan: &Plan, challenge: [u8; 32], key: &Key) -> Result<Sealed> {
    let binding = Binding { challenge, uid: plan.uid, boot_id: boot_id()? };
    let envelope = wire::seal(plan, &binding, key.signing()).map_err(|e| {
        Failure::new(Kind::Usage, format!("the plan of this session is too big: {e}"))
    })?;
    let digest_at = envelope.len() - wire::ENVELOPE_TAIL;
    let digest: [u8; 32] = envelope
        .get(digest_at..digest_at + 32)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| Failure::new(Kind::Failed, "the envelope has no digest"))?;
    Ok(Sealed { envelope, digest: Digest(digest) })
}

/// The kernel's boot id, so that no envelope outlives a boot.
fn boot_id() -> Result<[u8; 16]> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(path).context(|| format!("can't read {}", show(path)))?;
    procfs::boot_id(&text)
        .ok_or_else(|| Failure::new(Kind::Failed, format!("can't understand {}", show(path))))
}
