//! What is made beside its place in a session's layer before it takes that place. It is noted first, so that whoever comes
//! after one that was killed takes it away; until then it is nobody's change.
//!
//! ```text
//! <session>/prepared    a line for each name that is about to be made, and one for what was made there
//! ```
//! A session may make such names, too. So what goes is what the note tells by its inode and its birth; and where the note
//! does not reach as far, only what holds nothing of anybody's.

use super::freeze::Frozen;
use super::merged::{self, is_closed};
use super::side::{Side, is_temporary};
use crate::error::{Context, Result};
use crate::land::kind::EntryType;
use crate::land::tree::{self, Meta, Time, Tree};
use crate::session::store::{Session, show};
use landbox_shared::bytes;
use landbox_shared::id::LayerId;
use landbox_shared::path::RelPath;
use landbox_shared::policy::{Backend, LayerPolicy};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const NOTED: &str = "prepared";

/// One name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    layer: LayerId,
    path: RelPath,
    /// Where the link leads that is to be made.
    link: Option<String>,
    /// What was made.
    made: Option<Made>,
}

/// Inode and birth of an object of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Made {
    ino: u64,
    born: Option<Time>,
}

impl Made {
    fn of(meta: &Meta) -> Self {
        Self { ino: meta.ino, born: meta.btime }
    }
}

/// What is noted of a session's layer.
#[derive(Debug, Default)]
pub(crate) struct Noted(BTreeMap<RelPath, Line>);

impl Noted {
    /// What a command has prepared in a layer, be it at it or be it gone.
    pub(crate) fn read(session: &Session, layer: &LayerId) -> Self {
        let lines = std::fs::read(path_of(session)).map(|text| parse(&text)).unwrap_or_default();
        Self(lines.into_iter().filter(|(_, line)| line.layer == *layer).collect())
    }

    /// Whether it is what lies at a name of a folder of the layer, which is at `folder` in it.
    pub(crate) fn is(
        &self,
        folder: Option<&RelPath>,
        place: impl AsFd,
        name: &[u8],
        meta: &Meta,
    ) -> bool {
        if self.0.is_empty() || !is_temporary(name) {
            return false;
        }
        let path = folder.map_or_else(|| RelPath::new(name), |folder| folder.join(name));
        path.ok().and_then(|path| self.0.get(&path)).is_some_and(|line| fits(line, place, meta))
    }
}

/// The last line of a path tells most of it. One that is torn was not written before anything was done.
fn parse(text: &[u8]) -> BTreeMap<RelPath, Line> {
    let lines = text.split(|b| *b == b'\n');
    let lines = lines.filter_map(|line| serde_json::from_slice::<Line>(line).ok());
    let ours = lines.filter(|line| is_temporary(line.path.file_name()));
    ours.map(|line| (line.path.clone(), line)).collect()
}

fn path_of(session: &Session) -> PathBuf {
    session.dir.join(NOTED)
}

/// Whether it is what was noted, which lies in the folder `place`.
fn fits(line: &Line, place: impl AsFd, meta: &Meta) -> bool {
    if let Some(made) = &line.made {
        return *made == Made::of(meta);
    }
    match (meta.kind, &line.link) {
        (EntryType::File, None) => meta.size == 0,
        // Only an empty one can be removed.
        (EntryType::Dir, None) => true,
        (EntryType::Socket, None) => true,
        (EntryType::Symlink, Some(link)) => tree::link_at(place, line.path.file_name())
            .is_ok_and(|found| bytes::escape(&found) == *link),
        (
            EntryType::File
            | EntryType::Dir
            | EntryType::Symlink
            | EntryType::Fifo
            | EntryType::Socket
            | EntryType::CharDevice
            | EntryType::BlockDevice,
            _,
        ) => false,
    }
}

/// The note of who prepares something. Dropped, it is empty again, if nothing is left of that.
#[derive(Debug)]
pub(super) struct Prepared<'a> {
    session: &'a Session,
    layer: &'a LayerPolicy,
    /// Held against others as long as this lives.
    file: Option<File>,
}

impl<'a> Prepared<'a> {
    pub(super) fn new(session: &'a Session, layer: &'a LayerPolicy) -> Self {
        Self { session, layer, file: None }
    }

    /// The layer itself, where it can be looked at.
    pub(super) fn upper(&self) -> Option<(Tree, Backend)> {
        let upper = Tree::open(&self.session.upper(&self.layer.id)).ok()?;
        Some((upper, self.layer.backend))
    }

    /// Notes names that are about to be made, each with the target of the link it is to be, so that it outlives even a
    /// power cut.
    pub(super) fn announce(
        &mut self,
        names: impl Iterator<Item = (RelPath, Option<Vec<u8>>)>,
    ) -> io::Result<()> {
        let lines: Vec<Line> = names.map(|(path, link)| self.line(path, link)).collect();
        if lines.is_empty() {
            return Ok(());
        }
        self.write(&lines)?;
        self.sync()
    }

    /// Notes the name of a socket that is about to be made, and goes at once: of a power cut there is no session left
    /// that could see it, nor could it ever land.
    pub(super) fn mention(&mut self, path: RelPath) -> io::Result<()> {
        let line = self.line(path, None);
        self.write(&[line])
    }

    fn line(&self, path: RelPath, link: Option<Vec<u8>>) -> Line {
        let link = link.map(|link| bytes::escape(&link));
        Line { layer: self.layer.id.clone(), path, link, made: None }
    }

    /// Notes what was made under a name.
    pub(super) fn made(&mut self, path: &RelPath) -> io::Result<()> {
        let upper = Tree::open(&self.session.upper(&self.layer.id))?;
        let meta = upper.meta(path)?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let (layer, path) = (self.layer.id.clone(), path.clone());
        self.write(&[Line { layer, path, link: None, made: Some(Made::of(&meta)) }])
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), File::sync_data)
    }

    fn write(&mut self, lines: &[Line]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = open(&path_of(self.session))?;
                flock(&file, FlockOperation::LockExclusive)?;
                // What one that was killed has left stays noted.
                self.file.insert(file)
            }
        };
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
        }
        file.write_all(&text)
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        let Some(file) = &self.file else { return };
        let text = std::fs::read(path_of(self.session)).unwrap_or_default();
        let left = parse(&text).into_values().any(|line| is_left(self.session, &line));
        if !left {
            let _ = file.set_len(0);
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).read(true).mode(0o600).open(path)
}

/// Whether what was noted is there still. Who can't tell says that it is.
fn is_left(session: &Session, line: &Line) -> bool {
    let look = || -> io::Result<bool> {
        let upper = Tree::open(&session.upper(&line.layer))?;
        let place = upper.place(line.path.parent().as_ref())?;
        let meta = tree::meta_at(&place, line.path.file_name())?;
        Ok(meta.is_some_and(|meta| fits(line, &place, &meta)))
    };
    look().unwrap_or_else(|e| !tree::is_absence(&e))
}

/// Whether anything is noted.
fn is_noted(session: &Session) -> bool {
    std::fs::symlink_metadata(path_of(session)).is_ok_and(|meta| meta.len() > 0)
}

/// Takes away what a command that was killed has left prepared in a session's layers. What can't be reached now goes the
/// next time. Gives a sentence.
pub fn clear(session: &Session) -> Result<Option<String>> {
    if !is_noted(session) {
        return Ok(None);
    }
    let running = session.is_running()?;
    if running && is_closed(session) {
        super::catch_up::clear_by_another(session)?;
    } else {
        clear_here(session, running)?;
    }
    let id = &session.snapshot.id;
    Ok((!is_noted(session)).then(|| {
        format!("a command was cut short; what it had made ready in session {id} is taken away")
    }))
}

/// The same where what the session sees can be reached.
pub(super) fn clear_here(session: &Session, running: bool) -> Result<()> {
    let noted = path_of(session);
    let what = || format!("can't use {}", show(&noted));
    let file = open(&noted).context(what)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        // Somebody is at it.
        return Ok(());
    }
    let lines = parse(&std::fs::read(&noted).context(what)?);
    // Held stopped, or held still: nobody puts something else there meanwhile.
    let stopped = if running { None } else { session.try_lock()? };
    let frozen = if running { Frozen::hold(session) } else { None };
    if stopped.is_none() && frozen.is_none() {
        return Ok(());
    }
    for line in lines.values() {
        let mut layers = session.snapshot.policy.layers.iter();
        if let Some(layer) = layers.find(|layer| layer.id == line.layer)
            && is_left(session, line)
        {
            let (tree, backend) = if running {
                (merged::open(session, layer)?, None)
            } else {
                let path = session.upper(&layer.id);
                let tree = Tree::open(&path).context(|| format!("can't open {}", show(&path)))?;
                (tree, Some(layer.backend))
            };
            let _ = Side { tree: &tree, layer: backend }.remove(&line.path);
        }
    }
    // What is left and holds something is none of ours.
    let stays = |line: &Line| line.made.is_some() && is_left(session, line);
    if !lines.values().any(stays) {
        file.set_len(0).context(what)?;
    }
    Ok(())
}
