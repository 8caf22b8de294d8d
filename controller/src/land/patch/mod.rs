//! The changeset as a complete git patch: `git apply` of it on the base gives the same bytes, links and executable bits.
//! All of it is written here, so no git configuration, attribute, filter or hook has a say.

mod binary;
mod blob;
mod entry;
pub(super) mod lines;
mod name;
mod obstruct;
mod room;
#[cfg(test)]
mod tests;
mod text;

pub use name::git_accepts;
pub use obstruct::obstructed;
pub use room::beyond;

use super::changeset::{Base, Bodies, Change, Node, OldBytes};
use crate::error::{Context, Result};
use blob::Source;
use entry::Mode;
use landbox_shared::path::RelPath;
use std::io::{BufWriter, Write};

/// What a patch says of a change, and the figures of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// How much of the change a patch can carry.
    pub coverage: Coverage,
    /// Whether the content is not text.
    pub binary: bool,
    /// Added lines; none where the content is binary or not to be had.
    pub added: Option<u64>,
    /// Deleted lines; none where the content is binary or not to be had.
    pub deleted: Option<u64>,
}

impl Figures {
    /// Those of a change whose content nobody needs to read.
    pub fn uncounted(change: &Change) -> Self {
        Self { coverage: coverage(change), binary: false, added: None, deleted: None }
    }
}

/// How much of a change a patch can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// All of it.
    Whole,
    /// All but permission bits beyond the executable one.
    NotMode,
    /// What was there goes; the folder in its place comes with what is in it, if anything is.
    NotFolder,
    /// None of it: git refuses a name like this.
    NotName,
    /// None of it: folders and special files are not git's.
    NotType,
    /// None of it: the folder it replaces holds what a patch cannot take away.
    NotEmptied,
    /// None of it: a patch of everything would be longer than git reads.
    NotSize,
    /// None of it: what was there is not known, or what is there cannot be read.
    NotKnown,
}

impl Coverage {
    pub(crate) fn writes(self) -> bool {
        match self {
            Self::Whole | Self::NotMode | Self::NotFolder => true,
            Self::NotName | Self::NotType | Self::NotEmptied | Self::NotSize | Self::NotKnown => {
                false
            }
        }
    }
}

/// Writes changes as one patch, a file at a time.
#[derive(Debug)]
pub struct PatchWriter<W: Write> {
    out: BufWriter<W>,
}

impl<W: Write> PatchWriter<W> {
    /// Starts a patch.
    pub fn new(out: W) -> Self {
        Self { out: BufWriter::with_capacity(64 << 10, out) }
    }

    /// Adds `change` as far as a patch can say it.
    pub fn add(&mut self, change: &Change, bodies: &dyn Bodies) -> Result<Figures> {
        walk(change, bodies, Some(&mut self.out))
    }

    /// Ends the patch.
    pub fn finish(mut self) -> Result<()> {
        self.out.flush().context(entry::writing)
    }
}

/// The figures of `change`, without its text.
pub fn figures(change: &Change, bodies: &dyn Bodies) -> Result<Figures> {
    walk(change, bodies, None)
}

/// An object as a patch can or cannot name it.
enum Class {
    Nothing,
    Git(Mode),
    Folder,
    Special,
    Unreadable,
}

fn class(node: Option<&Node>) -> Class {
    match node {
        None => Class::Nothing,
        Some(Node::File { mode, .. }) => Class::Git(Mode::of(*mode)),
        Some(Node::Symlink { .. }) => Class::Git(Mode::Link),
        Some(Node::Dir { .. }) => Class::Folder,
        Some(Node::Special { .. }) => Class::Special,
        Some(Node::Unreadable { .. }) => Class::Unreadable,
    }
}

/// How much of `change` a patch can carry, judged without its content.
pub fn coverage(change: &Change) -> Coverage {
    if change.old == Base::Unknown {
        return Coverage::NotKnown;
    }
    let (old, new) = (change.old_node(), change.new.as_ref());
    let whole = match (class(old), class(new)) {
        (Class::Unreadable, _) | (_, Class::Unreadable) => return Coverage::NotKnown,
        (Class::Special, _)
        | (_, Class::Special)
        | (Class::Nothing | Class::Folder, Class::Nothing | Class::Folder) => {
            return Coverage::NotType;
        }
        (Class::Git(_), Class::Folder) => Coverage::NotFolder,
        (Class::Git(_), Class::Nothing) => Coverage::Whole,
        (_, Class::Git(_)) if loses_mode(old, new) => Coverage::NotMode,
        (_, Class::Git(_)) => Coverage::Whole,
    };
    let accepts = |path: &RelPath, node: Option<&Node>| {
        git_accepts(path.as_bytes(), matches!(node, Some(Node::Symlink { .. })))
    };
    let old_path = change.old_path.as_ref().unwrap_or(&change.path);
    let named = accepts(&change.path, new) && accepts(old_path, old);
    if named { whole } else { Coverage::NotName }
}

/// Whether permission bits change in a way that a patch cannot say. Write permission for others than the owner is the
/// umask's business, not a change's.
fn loses_mode(old: Option<&Node>, new: Option<&Node>) -> bool {
    let Some(Node::File { mode: new, .. }) = new else { return false };
    let usual = matches!(new & !0o022, 0o644 | 0o755);
    match old {
        Some(Node::File { mode: old, .. }) => {
            old != new && (!usual || Mode::of(*old) == Mode::of(*new))
        }
        Some(_) | None => !usual,
    }
}

fn walk(change: &Change, bodies: &dyn Bodies, out: Option<&mut dyn Write>) -> Result<Figures> {
    let coverage = coverage(change);
    let plain = |coverage, lines| Figures { coverage, binary: false, added: lines, deleted: lines };
    match coverage {
        Coverage::NotKnown => return Ok(plain(coverage, None)),
        Coverage::NotType => return Ok(plain(coverage, Some(0))),
        Coverage::Whole
        | Coverage::NotMode
        | Coverage::NotFolder
        | Coverage::NotName
        | Coverage::NotEmptied
        | Coverage::NotSize => {}
    }
    // Names that git refuses have figures but no place in the patch.
    let mut out = out.filter(|_| coverage.writes());
    let path = change.path.as_bytes();
    if let (None, Some(old), Some(new)) = (&change.old_path, change.old_node(), &change.new)
        && let (Some(before), Some(after)) = (same_file(old, new), same_file(new, old))
    {
        if let Some(out) = out {
            entry::write_mode_change(out, path, before, after)?;
        }
        return Ok(plain(coverage, Some(0)));
    }
    let old = match (change.old_node(), class(change.old_node())) {
        (Some(Node::Symlink { target }), _) => Some((Mode::Link, Source::Bytes(target))),
        (_, Class::Git(mode)) => match bodies.old_bytes(change)? {
            Some(OldBytes::Kept(bytes)) => Some((mode, Source::Kept(bytes))),
            Some(OldBytes::Real(file)) => Some((mode, Source::File(file))),
            None => return Ok(plain(Coverage::NotKnown, None)),
        },
        (_, Class::Nothing | Class::Folder | Class::Special | Class::Unreadable) => None,
    };
    let new = match (&change.new, class(change.new.as_ref())) {
        (Some(Node::Symlink { target }), _) => Some((Mode::Link, Source::Bytes(target))),
        (_, Class::Git(mode)) => Some((mode, Source::File(bodies.new_bytes(change)?))),
        (_, Class::Nothing | Class::Folder | Class::Special | Class::Unreadable) => None,
    };
    let is_link = |side: &Option<(Mode, Source<'_>)>| side.as_ref().map(|s| s.0 == Mode::Link);
    let lines = match (&change.old_path, is_link(&old), is_link(&new)) {
        (None, Some(a), Some(b)) if a != b => {
            // Git has no word for a file that becomes a link: the one goes, the other comes.
            let gone = entry::write(path, old, None, again(&mut out))?;
            let come = entry::write(path, None, new, out)?;
            gone.zip(come).map(|(gone, come)| (come.0, gone.1))
        }
        (Some(old_path), ..) => {
            let gone = entry::write(old_path.as_bytes(), old, None, again(&mut out))?;
            let come = entry::write(path, None, new, out)?;
            // Nothing in the content changed, so a rename has no lines of its own.
            gone.and(come).map(|_| (0, 0))
        }
        _ => entry::write(path, old, new, out)?,
    };
    Ok(Figures {
        coverage,
        binary: lines.is_none(),
        added: lines.map(|l| l.0),
        deleted: lines.map(|l| l.1),
    })
}

/// Lends `out` for one more call.
fn again<'a>(out: &'a mut Option<&mut dyn Write>) -> Option<&'a mut dyn Write> {
    match out {
        Some(out) => Some(&mut **out),
        None => None,
    }
}

/// The mode of `node` if it and `other` are files of the same content.
fn same_file(node: &Node, other: &Node) -> Option<Mode> {
    match (node, other) {
        (Node::File { mode, digest, .. }, Node::File { digest: same, .. }) if digest == same => {
            Some(Mode::of(*mode))
        }
        _ => None,
    }
}
