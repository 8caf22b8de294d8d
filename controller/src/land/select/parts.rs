//! What a review by hand leaves of a selection: whole changes, and parts of texts.

use crate::land::changeset::{Base, Change, Node};
use crate::land::content;
use crate::land::digest::of_change;
use crate::land::rules;
use landbox_shared::digest::Digest;
use landbox_shared::path::RelPath;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

const STAYS: &str = "only the parts that you chose; the rest stays in the session";

/// What the owner has picked.
#[derive(Debug, Default)]
pub struct Reviewed {
    /// The changes by path, each with the digest of what was picked of it: nothing else is ever taken for it.
    pub paths: HashMap<RelPath, Digest>,
    /// Files of which not everything was picked.
    pub parts: BTreeMap<RelPath, Part>,
    /// Whether the owner has edited any of it: the session has another text there, which is not what landed.
    pub edited: bool,
}

impl Reviewed {
    /// Picks all of a change.
    pub fn take(&mut self, change: &Change) {
        self.paths.insert(change.path.clone(), of_change(change));
    }

    /// Picks of a change what makes this file of it.
    pub fn take_part(&mut self, change: &Change, part: Part) {
        let mut narrow = change.clone();
        part.narrow(&mut narrow);
        self.take(&narrow);
        self.parts.insert(change.path.clone(), part);
    }
}

/// A file as it is to land: the base with some of what the session made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    mode: u32,
    bytes: Arc<Vec<u8>>,
}

impl Part {
    /// A file of these bytes.
    pub fn new(mode: u32, bytes: Vec<u8>) -> Self {
        Self { mode, bytes: Arc::new(bytes) }
    }

    /// The file.
    pub fn node(&self) -> Node {
        let digest = content::digest_of(&self.bytes);
        Node::File { mode: self.mode, size: self.bytes.len() as u64, digest }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes as a file that nobody else can reach.
    pub(crate) fn file(&self) -> io::Result<File> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::memfd_create("landbox-part", flags)?);
        file.write_all(&self.bytes)?;
        io::Seek::rewind(&mut file)?;
        Ok(file)
    }

    /// Makes of a change the one that lands only this. Gives whether it is a change of which there are parts.
    pub(crate) fn narrow(&self, change: &mut Change) -> bool {
        let is_file = |node: &Node| matches!(node, Node::File { .. });
        let was = match &change.old {
            Base::Absent => true,
            Base::Known(node) => is_file(node),
            Base::Unknown => false,
        };
        if !was || !change.new.as_ref().is_some_and(is_file) || change.old_path.is_some() {
            return false;
        }
        change.new = Some(self.node());
        change.kind = rules::kind(&change.old, change.new.as_ref());
        change.reason.get_or_insert_with(|| STAYS.to_owned());
        true
    }
}
