//! Making layers durable. They are mounted volatile, so nothing that a task wrote is on disk until somebody says so.

use super::kind::EntryType;
use super::many;
use super::tree::{self, Tree};
use crate::error::{Context, Result};
use crate::session::store::{Session, StateDir, show};
use landbox_shared::id::SessionId;
use landbox_shared::path::RelPath;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Writes a stopped session's layers and records to disk, file by file: `syncfs` would wait for other people's data.
/// Does nothing where that was done already; a running session stays unsynced. Gives whether it is noted as done.
pub fn session(state: &StateDir, id: &SessionId) -> Result<bool> {
    let mut session = state.load(id)?;
    if session.state.landing.synced {
        return Ok(true);
    }
    let Some(_stopped) = super::apply::try_stop(&session)? else { return Ok(false) };
    for layer in &session.snapshot.policy.layers {
        let upper = session.upper(&layer.id);
        sync_tree(&upper)?;
    }
    let base = session.dir.join("base");
    sync_tree(&base)?;
    session = state.load(id)?;
    session.state.landing.synced = true;
    // On a full disk all of it may be there but for this note, without which it is done again.
    Ok(session.save_state().is_ok() && sync_file(&session).is_ok())
}

fn sync_file(session: &Session) -> Result<()> {
    let path = session.dir.join("state.json");
    File::open(&path)
        .and_then(|f| f.sync_all())
        .and_then(|()| File::open(&session.dir)?.sync_all())
        .context(|| format!("can't write {} to disk", show(&path)))
}

/// Writes files to disk, many at once: each alone would wait for a commit of the journal of its own.
pub(super) fn files<T: Sync>(
    all: &[T],
    open: impl Fn(&T) -> io::Result<File> + Sync,
    what: impl Fn() -> String + Sync,
) -> Result<()> {
    const THREADS: usize = 16;
    const FEW: usize = 20;
    const STACK: usize = 128 << 10;
    let next = AtomicUsize::new(0);
    let threads = if all.len() <= FEW { 1 } else { THREADS };
    many::crew(threads, STACK, || {
        while let Some(item) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            match open(item) {
                Ok(file) => file.sync_all().context(&what)?,
                // What its owner may not read is not read by a landing either.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
                Err(e) => return Err(e).context(&what),
            }
        }
        Ok(())
    })
}

/// Writes the names in a folder to disk; gives whether that worked.
pub(super) fn folder(path: &std::path::Path) -> bool {
    File::open(path).and_then(|dir| dir.sync_all()).is_ok()
}

fn sync_tree(path: &std::path::Path) -> Result<()> {
    let what = || format!("can't write {} to disk", show(path));
    let Some(Listed { tree, found, folders }) = list(path).context(what)? else { return Ok(()) };
    let file = |path: &RelPath| {
        let place = tree.place(path.parent().as_ref())?;
        tree::file_at(place, path.file_name())
    };
    files(&found, file, what)?;
    files(&folders, |path| tree.dir(path.as_ref()).map(File::from), what)
}

/// A tree with its files and folders.
struct Listed {
    tree: Tree,
    found: Vec<RelPath>,
    folders: Vec<Option<RelPath>>,
}

/// Lists a tree, if it is there.
fn list(path: &std::path::Path) -> io::Result<Option<Listed>> {
    let tree = match Tree::open(path) {
        Ok(tree) => tree,
        Err(e) if tree::is_absence(&e) => return Ok(None),
        Err(e) => return Err(e),
    };
    let (mut found, mut folders) = (Vec::new(), vec![None]);
    let mut at = 0;
    while let Some(path) = folders.get(at).cloned() {
        at += 1;
        let dir = match tree.dir(path.as_ref()) {
            Ok(dir) => dir,
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => continue,
            Err(e) => return Err(e),
        };
        for name in tree::names(&dir)? {
            let Some(meta) = tree::meta_at(&dir, &name)? else { continue };
            let child = match &path {
                None => RelPath::new(name),
                Some(parent) => RelPath::join(parent, &name),
            };
            // What is too deep for a path cannot land either.
            let Ok(child) = child else { continue };
            match meta.kind {
                EntryType::Dir => folders.push(Some(child)),
                EntryType::File => found.push(child),
                // These are nothing but their name, which goes with the folder.
                EntryType::Symlink
                | EntryType::Fifo
                | EntryType::Socket
                | EntryType::CharDevice
                | EntryType::BlockDevice => {}
            }
        }
    }
    Ok(Some(Listed { tree, found, folders }))
}
