//! Making layers durable. They are mounted volatile, so nothing that a task wrote is on disk until somebody says so.

use super::tree::{self, Tree};
use crate::error::{Context, Result};
use crate::session::store::{Session, StateDir, show};
use landbox_shared::id::SessionId;
use landbox_shared::path::RelPath;
use std::fs::File;
use std::io;

/// Writes a stopped session's layers and records to disk, file by file: `syncfs` would wait for other people's data.
/// Does nothing where that was done already; a running session stays unsynced.
pub fn session(state: &StateDir, id: &SessionId) -> Result<bool> {
    let mut session = state.load(id)?;
    if session.state.landing.synced {
        return Ok(true);
    }
    let Some(_stopped) = super::apply::try_stop(&session)? else { return Ok(false) };
    for layer in &session.snapshot.policy.layers {
        let upper = session.upper(&layer.id);
        sync_tree(&upper).context(|| format!("can't write {} to disk", show(&upper)))?;
    }
    let base = session.dir.join("base");
    sync_tree(&base).context(|| format!("can't write {} to disk", show(&base)))?;
    session = state.load(id)?;
    session.state.landing.synced = true;
    session.save_state()?;
    sync_file(&session)?;
    Ok(true)
}

fn sync_file(session: &Session) -> Result<()> {
    let path = session.dir.join("state.json");
    File::open(&path)
        .and_then(|f| f.sync_all())
        .and_then(|()| File::open(&session.dir)?.sync_all())
        .context(|| format!("can't write {} to disk", show(&path)))
}

fn sync_tree(path: &std::path::Path) -> io::Result<()> {
    let tree = match Tree::open(path) {
        Ok(tree) => tree,
        Err(e) if tree::is_absence(&e) => return Ok(()),
        Err(e) => return Err(e),
    };
    let mut todo: Vec<Option<RelPath>> = vec![None];
    while let Some(path) = todo.pop() {
        let dir = match tree.dir(path.as_ref()) {
            Ok(dir) => dir,
            // What its owner may not open is not read by a landing either.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => continue,
            Err(e) => return Err(e),
        };
        for name in tree::names(&dir)? {
            let Some(meta) = tree::meta_at(&dir, &name)? else { continue };
            match meta.kind {
                super::kind::EntryType::Dir => {
                    let child = match &path {
                        None => RelPath::new(name),
                        Some(parent) => parent.join(&name),
                    };
                    todo.extend(child.ok().map(Some));
                }
                super::kind::EntryType::File => match tree::file_at(&dir, &name) {
                    Ok(file) => file.sync_all()?,
                    Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
                    Err(e) => return Err(e),
                },
                super::kind::EntryType::Symlink
                | super::kind::EntryType::Fifo
                | super::kind::EntryType::Socket
                | super::kind::EntryType::CharDevice
                | super::kind::EntryType::BlockDevice => {}
            }
        }
        rustix::fs::fsync(&dir)?;
    }
    Ok(())
}
