//! Files that need not be read again, since an earlier look has read them and they have not changed.

use super::model::{Body, Entry, Layers};
use crate::land::base::Stamp;
use crate::land::tree::{Meta, Time};
use std::collections::HashMap;
use std::time::Duration;

/// How long a file must have been as it is to be known again. A program that maps a file and writes to a page of it once
/// more leaves no trace before the kernel has brought that page to the disk, which it does within 35 seconds.
const SETTLED: Duration = Duration::from_secs(60);

/// What earlier looks have read.
#[derive(Debug, Default)]
pub(super) struct Known<'a> {
    entries: HashMap<Stamp, &'a Entry>,
}

impl<'a> Known<'a> {
    /// What these looks have read.
    pub(super) fn of(earlier: impl IntoIterator<Item = &'a Layers>) -> Self {
        let mut entries = HashMap::new();
        for layers in earlier {
            for entry in layers.pictures.iter().flat_map(|picture| &picture.entries) {
                let settled = |stamp: &&Stamp| is_settled(stamp.changed_at(), layers.looked);
                if let (Body::File { .. }, Some(stamp)) =
                    (&entry.body, entry.stamp.as_ref().filter(settled))
                {
                    entries.insert(*stamp, entry);
                }
            }
        }
        Self { entries }
    }

    /// What was read of the file of which `meta` was just taken, if that holds still.
    pub(super) fn get(&self, meta: &Meta) -> Option<&'a Entry> {
        self.entries.get(&Stamp::of(meta)).copied()
    }
}

fn is_settled(changed: Time, looked: Time) -> bool {
    let settled = i64::try_from(SETTLED.as_secs()).unwrap_or(i64::MAX);
    changed.0.saturating_add(settled) < looked.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::land::checkpoint::model::Picture;
    use crate::land::content::digest_of;
    use crate::land::tree::meta_of;
    use landbox_shared::id::LayerId;

    #[test]
    fn a_file_is_known_again_if_it_had_long_been_as_it_was_and_has_not_changed_since() {
        let meta = meta_of(tempfile::tempfile().unwrap()).unwrap();
        let entry = Entry {
            path: None,
            body: Body::File { digest: digest_of(b""), size: 0 },
            mode: meta.mode,
            owner: (meta.uid, meta.gid),
            modified: meta.mtime,
            attributes: Vec::new(),
            stamp: Some(Stamp::of(&meta)),
        };
        let picture = Picture { layer: LayerId::new("project").unwrap(), entries: vec![entry] };
        let looked = |seconds: i64| Layers {
            looked: (meta.ctime.0 + seconds, 0),
            pictures: vec![picture.clone()],
        };
        let (soon, late) = (looked(60), looked(61));
        assert!(Known::of([&soon]).get(&meta).is_none(), "it may have been written once more");
        assert!(Known::of([&late]).get(&meta).is_some());
        let written = Meta { ctime: (meta.ctime.0, meta.ctime.1 ^ 1), ..meta };
        assert!(Known::of([&late]).get(&written).is_none());
    }
}
