//! The beginning of a session, which is checkpoint 0 of each and needs no file: layers in which nothing was written.

use super::model::{Body, Entry, Layers, Manifest, Picture, Reason};
use crate::error::{Context, Result};
use crate::land::tree::{self, Tree};
use crate::overlay::prepare;
use crate::session::store::{Session, show};
use rustix::fs;
use std::os::unix::ffi::OsStrExt;

/// What the session's layers held before its first command.
pub(super) fn beginning(session: &Session) -> Result<Manifest> {
    let mut pictures = Vec::new();
    for layer in &session.snapshot.policy.layers {
        let upper = session.upper(&layer.id);
        let what = || format!("can't read {}", show(&upper));
        // It never started.
        let ours = tree::meta_at(fs::CWD, upper.as_os_str().as_bytes()).context(what)?;
        let Some(ours) = ours else { continue };
        // It began as the real one; where that is gone, as it is now.
        let like = Tree::open(layer.target.as_path()).or_else(|_| Tree::open(&upper));
        let like = like.context(what)?;
        let meta = tree::meta_of(like.root()).context(what)?;
        let mut attributes = tree::list_attributes(like.root()).context(what)?;
        // What the back end noted, the session brought about.
        attributes.retain(|(name, _)| prepare::is_copied(name));
        let root = Entry {
            path: None,
            body: Body::Dir,
            mode: meta.mode,
            owner: (ours.uid, ours.gid),
            modified: meta.mtime,
            attributes,
            stamp: None,
        };
        pictures.push(Picture { layer: layer.id.clone(), entries: vec![root] });
    }
    let layers = Layers { looked: (0, 0), pictures };
    Ok(Manifest::new(session.snapshot.created_at.clone(), Reason::Asked(None), layers))
}
