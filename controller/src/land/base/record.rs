//! What is known of one path, and how a file is known again.

use crate::land::changeset::Base;
use crate::land::tree::{Meta, Time};
use serde::{Deserialize, Serialize};

/// What is known of one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// What was there.
    #[serde(rename = "b")]
    pub base: Base,
    /// The real file when it was seen to be the base: while it has this stamp, it need not be read again.
    #[serde(rename = "s")]
    pub stamp: Option<Box<Stamp>>,
    /// Where the bytes are kept.
    #[serde(rename = "x")]
    pub extent: Option<(u64, u64)>,
    /// Every name below it that was part of the base has a record of its own.
    #[serde(rename = "c")]
    pub complete: bool,
    /// It landed while the session ran, so the layer holds it too: where the layer does not, the session has deleted it.
    /// (Below what was no folder or file at the start, not every back end notes that.)
    #[serde(rename = "l", default, skip_serializing_if = "std::ops::Not::not")]
    pub in_layer: bool,
    /// The real name has left while the session may have seen it: where it is not there, nobody knows what was.
    #[serde(rename = "g", default, skip_serializing_if = "std::ops::Not::not")]
    pub left: bool,
}

impl Record {
    /// A record of a base and nothing more.
    pub(crate) fn of(base: Base) -> Self {
        Self { base, stamp: None, extent: None, complete: false, in_layer: false, left: false }
    }
}

/// Identity of a file's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Stamp {
    dev: (u32, u32),
    ino: u64,
    ctime: Time,
    size: u64,
    mode: u32,
}

impl Stamp {
    /// Whether `meta` was taken of the same object, whatever became of it.
    pub(crate) fn is_of(&self, meta: &Meta) -> bool {
        (self.dev, self.ino) == (meta.dev, meta.ino)
    }

    /// When content or attributes last changed.
    pub(crate) fn changed_at(&self) -> Time {
        self.ctime
    }

    /// The stamp of what `meta` was taken of.
    pub(crate) fn of(meta: &Meta) -> Self {
        Self { dev: meta.dev, ino: meta.ino, ctime: meta.ctime, size: meta.size, mode: meta.mode }
    }
}
