//! A change as it is put before the owner: whole, or taken apart.

use crate::error::{Context, Result};
use crate::land::changeset::{Base, Bodies, Change, Node, OldBytes};
use crate::land::hunks::{TextChange, is_text};
use crate::land::kind::ChangeKind;
use landbox_shared::path::RelPath;
use std::io::Read;

/// Larger files are taken or left whole.
const TEXT: u64 = 4 << 20;
/// Most bytes of text that are held for one review.
const ALL: u64 = 256 << 20;

/// One change.
#[derive(Debug)]
pub struct Item {
    /// The change.
    pub change: Change,
    /// Its text, where it can be taken apart.
    pub text: Option<TextChange>,
}

impl Item {
    /// Its path.
    pub fn path(&self) -> &RelPath {
        &self.change.path
    }

    /// Mode before and after, where the content changed, too.
    pub fn modes(&self) -> Option<(u32, u32)> {
        let old = self.change.old_node().and_then(Node::mode);
        let new = self.change.new.as_ref().and_then(Node::mode);
        let (old, new) = old.zip(new).filter(|(old, new)| old != new)?;
        self.text.as_ref().map(|_| (old, new))
    }

    /// Reads what there is to show of each change.
    pub fn read<'a>(
        changes: impl Iterator<Item = &'a Change>,
        bodies: &dyn Bodies,
    ) -> Result<Vec<Self>> {
        let mut left = ALL;
        let mut out = Vec::new();
        for change in changes {
            let text = texts(change, bodies, &mut left)?;
            let text = text.map(|(old, new)| TextChange::new(old, new));
            let text = text.filter(|text| !text.hunks().is_empty());
            out.push(Self { change: change.clone(), text });
        }
        Ok(out)
    }
}

/// Both sides of a change of text.
fn texts(
    change: &Change,
    bodies: &dyn Bodies,
    left: &mut u64,
) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    if !matches!(change.kind, ChangeKind::Modified | ChangeKind::Added) {
        return Ok(None);
    }
    let size = |node: &Node| node.size();
    let old_size = match &change.old {
        Base::Absent => Some(0),
        Base::Known(node) => size(node),
        Base::Unknown => None,
    };
    let new_size = change.new.as_ref().and_then(size);
    let Some((old_size, new_size)) = old_size.zip(new_size) else { return Ok(None) };
    if old_size > TEXT || new_size > TEXT || old_size + new_size > *left {
        return Ok(None);
    }
    let what = || format!("can't read {}", change.path);
    let mut old = Vec::new();
    if change.old_node().is_some() {
        match bodies.old_bytes(change)? {
            None => return Ok(None),
            Some(OldBytes::Kept(bytes)) => old = bytes,
            Some(OldBytes::Real(file)) => {
                file.take(TEXT + 1).read_to_end(&mut old).context(what)?;
            }
        }
    }
    let mut new = Vec::new();
    bodies.new_bytes(change)?.take(TEXT + 1).read_to_end(&mut new).context(what)?;
    // It was written to meanwhile: then the landing will not find what was shown, and say so.
    let whole = old.len() as u64 == old_size && new.len() as u64 == new_size;
    if !whole || !is_text(&old) || !is_text(&new) {
        return Ok(None);
    }
    *left -= old_size + new_size;
    Ok(Some((old, new)))
}
