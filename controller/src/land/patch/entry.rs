//! One `diff --git` of a patch.

use super::binary::write_literal;
use super::blob::{Measured, NO_ID, Peeked, Source, blob_id};
use super::lines::{self, Script};
use super::name::{push_label, push_quoted};
use super::text::write_hunks;
use crate::error::{Context, Result};
use std::io::{self, Write};

/// What git keeps of type and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// `100644`.
    File,
    /// `100755`.
    Executable,
    /// `120000`.
    Link,
}

impl Mode {
    /// The mode of a file with these permission bits.
    pub(super) fn of(bits: u32) -> Self {
        if bits & 0o100 == 0 { Self::File } else { Self::Executable }
    }

    fn text(self) -> &'static str {
        match self {
            Self::File => "100644",
            Self::Executable => "100755",
            Self::Link => "120000",
        }
    }
}

/// What is being done, for errors.
pub(super) fn writing() -> String {
    "can't write the patch".to_owned()
}

type Out<'a> = Option<&'a mut dyn Write>;

/// Writes the entry of a file whose content stays.
pub(super) fn write_mode_change(
    out: &mut dyn Write,
    path: &[u8],
    old: Mode,
    new: Mode,
) -> Result<()> {
    if old == new {
        return Ok(());
    }
    out.write_all(&header(path, Some(old), Some(new), None)).context(writing)
}

/// Writes the entry of a file or link that comes, goes or changes, and counts its added and deleted lines; `None` for
/// binary content.
pub(super) fn write(
    path: &[u8],
    old: Option<(Mode, Source<'_>)>,
    new: Option<(Mode, Source<'_>)>,
    out: Out<'_>,
) -> Result<Option<(u64, u64)>> {
    let modes = (old.as_ref().map(|s| s.0), new.as_ref().map(|s| s.0));
    let old = old.map(|s| Peeked::new(s.1)).transpose()?;
    let new = new.map(|s| Peeked::new(s.1)).transpose()?;
    if [&old, &new].into_iter().flatten().any(Peeked::is_binary) {
        if let Some(out) = out {
            write_binary(path, modes, old, new, out)?;
        }
        return Ok(None);
    }
    let old = old.map(Peeked::read).transpose()?;
    let new = new.map(Peeked::read).transpose()?;
    let script = lines::diff(old.as_deref().unwrap_or(&[]), new.as_deref().unwrap_or(&[]));
    if let Some(out) = out {
        let ids = (id(old.as_deref()), id(new.as_deref()));
        out.write_all(&header(path, modes.0, modes.1, Some(ids))).context(writing)?;
        write_text(path, modes, &script, out).context(writing)?;
    }
    Ok(Some(script.counts()))
}

fn id(content: Option<&[u8]>) -> [u8; 40] {
    content.map_or(NO_ID, blob_id)
}

fn write_text(
    path: &[u8],
    modes: (Option<Mode>, Option<Mode>),
    script: &Script<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    // Empty files come and go without a body.
    if script.hunks.is_empty() {
        return Ok(());
    }
    let mut labels = Vec::with_capacity(2 * path.len() + 24);
    push_label(&mut labels, b"--- ", b"a/", modes.0.map(|_| path));
    push_label(&mut labels, b"+++ ", b"b/", modes.1.map(|_| path));
    out.write_all(&labels)?;
    write_hunks(out, script)
}

fn write_binary(
    path: &[u8],
    modes: (Option<Mode>, Option<Mode>),
    old: Option<Peeked>,
    new: Option<Peeked>,
    out: &mut dyn Write,
) -> Result<()> {
    let old = old.map(Peeked::measure).transpose()?;
    let new = new.map(Peeked::measure).transpose()?;
    let id = |side: &Option<Measured>| side.as_ref().map_or(NO_ID, |m| m.id);
    out.write_all(&header(path, modes.0, modes.1, Some((id(&old), id(&new))))).context(writing)?;
    out.write_all(b"GIT binary patch\n").context(writing)?;
    // First the way there, then the way back, so that the patch can be reversed.
    for side in [new, old] {
        match side {
            Some(side) => {
                let size = side.size;
                side.stream(|content| write_literal(out, size, content))?;
            }
            None => write_literal(out, 0, &mut io::empty())?,
        }
    }
    Ok(())
}

/// The lines up to `---`. Without `ids` the content stays.
fn header(
    path: &[u8],
    old: Option<Mode>,
    new: Option<Mode>,
    ids: Option<([u8; 40], [u8; 40])>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 * path.len() + 192);
    out.extend_from_slice(b"diff --git ");
    push_quoted(&mut out, b"a/", path);
    out.push(b' ');
    push_quoted(&mut out, b"b/", path);
    out.push(b'\n');
    let mut line = |parts: &[&[u8]]| {
        parts.iter().for_each(|part| out.extend_from_slice(part));
        out.push(b'\n');
    };
    let mut same = None;
    match (old, new) {
        (Some(old), Some(new)) if old == new => same = Some(new),
        (Some(old), Some(new)) => {
            line(&[b"old mode ", old.text().as_bytes()]);
            line(&[b"new mode ", new.text().as_bytes()]);
        }
        (None, Some(new)) => line(&[b"new file mode ", new.text().as_bytes()]),
        (Some(old), None) => line(&[b"deleted file mode ", old.text().as_bytes()]),
        (None, None) => {}
    }
    match (ids, same) {
        (Some((old, new)), Some(mode)) => {
            line(&[b"index ", &old, b"..", &new, b" ", mode.text().as_bytes()]);
        }
        (Some((old, new)), None) => line(&[b"index ", &old, b"..", &new]),
        (None, _) => {}
    }
    out
}
