//! Paths as typed: from where the owner stands, or from the project.

use crate::error::{Failure, Kind, Result};
use crate::ui::text::visible_name;
use landbox_shared::id::SessionId;
use landbox_shared::path::{AbsPath, RelPath};
use std::path::Path;

/// A path that was asked for. What it means depends on the folder that is landed into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    typed: Vec<u8>,
    from: Option<AbsPath>,
}

impl Wanted {
    /// A path as it was typed in the folder `from`.
    pub fn new(typed: impl Into<Vec<u8>>, from: Option<AbsPath>) -> Self {
        Self { typed: typed.into(), from }
    }

    /// What it may mean below `target`, the likelier first; `None` is the target itself.
    pub(in crate::land) fn readings(&self, target: &AbsPath) -> Result<Vec<Option<RelPath>>> {
        let mut bases = vec![target.clone()];
        let standing = self.from.as_ref().filter(|from| from.is_within(target));
        bases.splice(0..0, standing.cloned());
        let absolute = self.typed.first() == Some(&b'/');
        let mut found = Vec::new();
        for base in bases {
            let path = if absolute { resolve(&[], &self.typed) } else { join(&base, &self.typed) };
            let path = path.filter(|path| path.is_within(target)).or_else(|| self.real(target));
            let reading = path.map(|path| path.relative_to(target));
            found.extend(reading.filter(|reading| !found.contains(reading)));
        }
        if self.typed.is_empty() || found.is_empty() {
            let what = format!("{} is no path inside {target}", visible_name(&self.typed));
            return Err(Failure::new(Kind::Usage, what)
                .hint("give paths relative to the project, or to the folder you are in"));
        }
        Ok(found)
    }

    /// Of an absolute path whose folder has another name (a link on the way): where it really is.
    fn real(&self, target: &AbsPath) -> Option<AbsPath> {
        let path = resolve(&[], &self.typed).filter(|_| self.typed.first() == Some(&b'/'))?;
        let real = Path::canonicalize(path.parent()?.as_path()).ok()?;
        let real = AbsPath::from_path(&real).ok()?.join(path.file_name()?).ok()?;
        real.is_within(target).then_some(real)
    }

    /// It is a path, but nothing changed there.
    pub(in crate::land) fn unmatched(&self, id: &SessionId) -> Failure {
        let name = visible_name(&self.typed);
        Failure::new(Kind::Usage, format!("nothing changed at {name}")).hint(format!(
            "landbox diff {id} --stat lists what did; folders stand for all they hold"
        ))
    }
}

fn join(base: &AbsPath, typed: &[u8]) -> Option<AbsPath> {
    resolve(base.as_bytes(), typed)
}

/// `typed` from `base`, by its letters alone: the project of the session is not asked, it may be another one by now.
fn resolve(base: &[u8], typed: &[u8]) -> Option<AbsPath> {
    let mut parts: Vec<&[u8]> = base.split(|b| *b == b'/').filter(|p| !p.is_empty()).collect();
    for part in typed.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    AbsPath::new([b"/", parts.join(&b'/').as_slice()].concat()).ok()
}
