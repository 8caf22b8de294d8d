//! What the files of a layer held when they were last read, so that a landing need not read again what was shown moments
//! ago. It decides nothing by itself: what lands is read once more when it is copied, and must be what was shown.

use crate::land::apply::MOST;
use crate::land::base::Stamp;
use crate::land::tree::{self, Meta, Time};
use landbox_shared::digest::Digest;
use std::collections::HashMap;

/// Digests of files, by what they are known again by.
#[derive(Debug)]
pub(crate) struct Seen {
    digests: HashMap<Stamp, Digest>,
    /// The time before which a file must have been written to be known again.
    before: Time,
}

impl Default for Seen {
    fn default() -> Self {
        // A file that was written shortly before it is read may be written again without a trace in its times.
        Self { digests: HashMap::new(), before: tree::settled() }
    }
}

impl Seen {
    /// Whether whoever writes to the file of which `meta` was taken leaves a trace in its times.
    pub(super) fn is_settled(&self, meta: &Meta) -> bool {
        meta.ctime < self.before
    }

    /// What the file held of which `meta` was just taken.
    pub(super) fn get(&self, meta: &Meta) -> Option<Digest> {
        self.digests.get(&Stamp::of(meta)).copied()
    }

    /// Whether no more is kept.
    pub(super) fn is_full(&self) -> bool {
        self.digests.len() >= MOST
    }

    /// Keeps that for later.
    pub(super) fn put(&mut self, meta: &Meta, digest: Digest) {
        if self.is_settled(meta) && !self.is_full() {
            self.digests.insert(Stamp::of(meta), digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::land::content::digest_of;
    use crate::land::tree::meta_of;

    #[test]
    fn a_file_is_known_again_if_it_had_long_been_written_and_was_not_written_since() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let meta = meta_of(&file).unwrap();
        let mut seen = Seen::default();
        seen.put(&meta, digest_of(b""));
        assert_eq!(seen.get(&meta), None, "written just now");
        let old = Meta { ctime: (meta.ctime.0 - 10, 0), ..meta };
        seen.put(&old, digest_of(b""));
        assert_eq!(seen.get(&old), Some(digest_of(b"")));
        assert_eq!(seen.get(&meta), None, "written since");
    }
}
