//! Asking git about objects, one after the other, without a process for each.

use super::layer::{OBJECT, refused};
use super::object::Kind;
use crate::error::{Context, Failure, Kind as FailureKind, Result};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Most bytes that are read by one. A few objects can stand in a great many places, and are read for each.
const ALL: u64 = 16 << 30;

/// A `git cat-file` that answers. It ends with this.
pub(super) struct Batch {
    left: u64,
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

fn what() -> String {
    "can't ask git about objects".to_owned()
}

impl Batch {
    /// Starts one: `--batch` gives content, `--batch-check` does not.
    pub(super) fn start(mut command: Command, mode: &str) -> Result<Self> {
        command.args(["cat-file", mode]).stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context(what)?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(to), Some(from)) => Ok(Self { left: ALL, child, to, from: BufReader::new(from) }),
            _ => Err(Failure::new(FailureKind::Failed, what())),
        }
    }

    /// What git says of an object before its content.
    fn ask(&mut self, id: &str) -> Result<String> {
        self.to
            .write_all(format!("{id}\n").as_bytes())
            .and_then(|()| self.to.flush())
            .context(what)?;
        let mut line = String::new();
        if self.from.read_line(&mut line).context(what)? == 0 {
            return Err(Failure::new(FailureKind::Failed, what()));
        }
        Ok(line.trim_end().to_owned())
    }

    /// Kind and size of an object; `None` where there is none.
    pub(super) fn check(&mut self, id: &str) -> Result<Option<(Kind, u64)>> {
        let line = self.ask(id)?;
        let mut words = line.split(' ').skip(1);
        let kind = match words.next() {
            Some("commit") => Kind::Commit,
            Some("tree") => Kind::Tree,
            Some("blob") => Kind::Blob,
            Some("missing") => return Ok(None),
            Some(_) | None => return Err(Failure::new(FailureKind::Failed, what())),
        };
        let size = words.next().and_then(|size| size.parse().ok());
        size.map(|size| Some((kind, size))).ok_or_else(|| Failure::new(FailureKind::Failed, what()))
    }

    /// An object's content, where content is given.
    pub(super) fn content(&mut self, id: &str) -> Result<Option<(Kind, Vec<u8>)>> {
        let Some((kind, size)) = self.check(id)? else { return Ok(None) };
        if size > OBJECT {
            return Err(refused(&format!("its object {id} is too large")));
        }
        self.spend(size)?;
        let mut bytes = Vec::new();
        (&mut self.from).take(size).read_to_end(&mut bytes).context(what)?;
        self.from.read_exact(&mut [0]).context(what)?;
        Ok(Some((kind, bytes)))
    }
}

impl Batch {
    /// Whether there is an object of that name, of whatever kind.
    pub(super) fn has(&mut self, id: &str) -> Result<bool> {
        Ok(!self.ask(id)?.ends_with(" missing"))
    }

    /// The first `most` bytes of an object, with its size, where content is given.
    pub(super) fn start_of(&mut self, id: &str, most: u64) -> Result<Option<(u64, Vec<u8>)>> {
        let Some((_, size)) = self.check(id)? else { return Ok(None) };
        self.spend(size)?;
        let mut bytes = Vec::new();
        (&mut self.from).take(size.min(most)).read_to_end(&mut bytes).context(what)?;
        let rest = size.saturating_sub(most);
        std::io::copy(&mut (&mut self.from).take(rest), &mut std::io::sink()).context(what)?;
        self.from.read_exact(&mut [0]).context(what)?;
        Ok(Some((size, bytes)))
    }

    fn spend(&mut self, size: u64) -> Result<()> {
        self.left = self.left.checked_sub(size).ok_or_else(|| refused("they hold too much"))?;
        Ok(())
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
