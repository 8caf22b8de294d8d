//! What a checkpoint says.
//!
//! Its file is called by its number and has two lines: a head, which is all that a list of them needs, and what the
//! layers held.

use crate::land::base::Stamp;
use crate::land::kind::EntryType;
use crate::land::tree::Time;
use landbox_shared::digest::Digest;
use landbox_shared::id::LayerId;
use landbox_shared::path::RelPath;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};

const VERSION: u16 = 2;
/// Longest head: a message is the owner's, who may write as much as a command line holds.
const HEAD: u64 = 4 << 20;

/// A checkpoint, for people and documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checkpoint {
    /// From 1. 0 is the beginning, which needs none.
    pub number: u32,
    /// RFC 3339, UTC.
    pub at: String,
    /// Of one that was taken by itself: the turn of the session that begins with it.
    pub turn: Option<u32>,
    /// What the owner said of it.
    pub message: Option<String>,
    /// Number of objects in its layers.
    pub entries: u64,
}

/// The first line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Head {
    version: u16,
    /// From the file's name.
    #[serde(skip)]
    pub(super) number: u32,
    at: String,
    pub(super) turn: Option<u32>,
    pub(super) message: Option<String>,
    entries: u64,
}

/// Why a picture is kept.
#[derive(Clone, Debug)]
pub(super) enum Reason {
    /// The owner asked for it.
    Asked(Option<String>),
    /// This turn begins.
    Turn(u32),
}

/// What every layer held.
#[derive(Clone, Debug)]
pub(super) struct Manifest {
    pub(super) head: Head,
    pub(super) layers: Layers,
}

/// What the layers held at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Layers {
    /// When the look at them began: a file that changed well before is known again by its stamp.
    pub(super) looked: Time,
    pub(super) pictures: Vec<Picture>,
}

/// What one layer held, folders before what is in them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Picture {
    pub(super) layer: LayerId,
    pub(super) entries: Vec<Entry>,
}

/// One object of a layer, as the overlay's back end wrote it: marks are objects like others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// `None` is the layer's root.
    #[serde(rename = "p")]
    pub(super) path: Option<RelPath>,
    #[serde(rename = "b")]
    pub(super) body: Body,
    #[serde(rename = "m")]
    pub(super) mode: u32,
    #[serde(rename = "o")]
    pub(super) owner: (u32, u32),
    #[serde(rename = "t")]
    pub(super) modified: (i64, u32),
    #[serde(rename = "x", default, skip_serializing_if = "Vec::is_empty")]
    pub(super) attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// Of a file: what it is known again by.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub(super) stamp: Option<Stamp>,
}

/// What an object is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Body {
    Dir,
    File {
        digest: Digest,
        size: u64,
    },
    Link(Vec<u8>),
    /// Another name of a file that came before.
    Same(RelPath),
    Special {
        kind: EntryType,
        device: (u32, u32),
    },
}

impl Head {
    pub(super) fn summary(&self) -> Checkpoint {
        Checkpoint {
            number: self.number,
            at: self.at.clone(),
            turn: self.turn,
            message: self.message.clone(),
            entries: self.entries,
        }
    }

    /// Reads no more than the first line.
    pub(super) fn read(number: u32, from: &mut impl BufRead) -> io::Result<Self> {
        let mut line = Vec::new();
        io::Read::take(&mut *from, HEAD).read_until(b'\n', &mut line)?;
        let head: Self = serde_json::from_slice(&line)?;
        if head.version != VERSION {
            let why = "it was made by another version of landbox";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(Self { number, ..head })
    }
}

impl Manifest {
    pub(super) fn new(at: String, reason: Reason, layers: Layers) -> Self {
        let (turn, message) = match reason {
            Reason::Asked(message) => (None, message),
            Reason::Turn(turn) => (Some(turn), None),
        };
        let entries = layers.entries();
        Self { head: Head { version: VERSION, number: 0, at, turn, message, entries }, layers }
    }

    pub(super) fn read(number: u32, mut from: impl BufRead) -> io::Result<Self> {
        let head = Head::read(number, &mut from)?;
        let mut rest = Vec::new();
        io::Read::read_to_end(&mut from, &mut rest)?;
        Ok(Self { head, layers: serde_json::from_slice(&rest)? })
    }

    pub(super) fn write(&self, mut to: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut to, &self.head)?;
        to.write_all(b"\n")?;
        serde_json::to_writer(&mut to, &self.layers)?;
        to.write_all(b"\n")
    }
}

impl Layers {
    /// Number of objects, the roots left out.
    pub(super) fn entries(&self) -> u64 {
        self.pictures.iter().map(|layer| layer.entries.len().saturating_sub(1) as u64).sum()
    }

    pub(super) fn digests(&self) -> impl Iterator<Item = &Digest> {
        self.pictures.iter().flat_map(|layer| &layer.entries).filter_map(|entry| {
            match &entry.body {
                Body::File { digest, .. } => Some(digest),
                Body::Dir | Body::Link(_) | Body::Same(_) | Body::Special { .. } => None,
            }
        })
    }

    /// Whether both hold the same. When something was put into a folder and taken out again is no difference, nor is what
    /// the back ends note for themselves.
    pub(super) fn holds_same(&self, other: &Self) -> bool {
        self.pictures.len() == other.pictures.len()
            && self.pictures.iter().zip(&other.pictures).all(|(a, b)| {
                a.layer == b.layer
                    && a.entries.len() == b.entries.len()
                    && a.entries.iter().zip(&b.entries).all(|(a, b)| a.is_same(b))
            })
    }
}

impl Entry {
    fn is_same(&self, other: &Self) -> bool {
        let timed = self.body == Body::Dir || self.modified == other.modified;
        timed
            && (&self.path, &self.body, self.mode, self.owner)
                == (&other.path, &other.body, other.mode, other.owner)
            && self.meant().eq(other.meant())
    }

    /// The attributes that say something.
    fn meant(&self) -> impl Iterator<Item = &(Vec<u8>, Vec<u8>)> {
        const NOTES: [&[u8]; 5] = [
            b"user.overlay.origin",
            b"user.overlay.impure",
            b"user.overlay.nlink",
            b"user.overlay.uuid",
            b"user.fuseoverlayfs.origin",
        ];
        self.attributes.iter().filter(|(name, _)| !NOTES.contains(&name.as_slice()))
    }
}
