//! What a running session sees, reached from outside by the root of one of its processes.

use super::procs;
use crate::error::{Context, Failure, Kind, Result};
use crate::land::tree::{self, Tree};
use crate::session::store::Session;
use landbox_shared::evidence::Evidence;
use landbox_shared::policy::{Backend, LayerPolicy};
use rustix::fs::{self, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Opens the merged root of a layer of a running session.
pub(crate) fn open(session: &Session, layer: &LayerPolicy) -> Result<Tree> {
    let id = &session.snapshot.id;
    let gone = || {
        Failure::new(Kind::Refused, format!("what session {id} sees can't be reached from here"))
            .hint("end the session first")
    };
    let root = procs::root_of(session).ok_or_else(gone)?;
    let what = || format!("can't reach what session {id} sees of {}", layer.target);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = fs::open(&root, flags, Mode::empty()).context(what)?;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let path = layer.target.as_bytes().strip_prefix(b"/").unwrap_or_default();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match fs::openat2(&root, path, flags, Mode::empty(), beneath) {
        Ok(dir) => dir,
        Err(Errno::ACCESS) => return Err(gone()),
        Err(e) => return Err(e).context(what),
    };
    // The task may have moved a folder above its project and put another in its place: only the layer's own mount will
    // do.
    let (major, minor) = tree::meta_of(&dir).context(what)?.dev;
    if device(session, layer).as_deref() != Some(&format!("{major}:{minor}")) {
        return Err(gone());
    }
    Ok(Tree::of(dir))
}

/// The device of a layer's mount, as the helper read it back.
fn device(session: &Session, layer: &LayerPolicy) -> Option<String> {
    let evidence: Evidence = procs::evidence(session)?;
    let mounts = evidence.mounts.into_iter();
    mounts.filter(|m| m.mount_point == layer.target).map(|m| m.device).next()
}

/// Whether what a session sees is closed to whoever is outside its user namespace: a fuse-overlayfs of root's is, to root,
/// too (`allow_other` ends at the namespace's edge).
pub(crate) fn is_closed(session: &Session) -> bool {
    let mut layers = session.snapshot.policy.layers.iter();
    layers.any(|layer| layer.backend == Backend::Fuse) && rustix::process::geteuid().is_root()
}

/// Goes in where it is closed. Done before this process has a second thread, which the kernel demands.
pub fn go_in(session: &Session) -> Result<()> {
    if !is_closed(session) {
        return Ok(());
    }
    let Some(root) = procs::root_of(session) else { return Ok(()) };
    let what = || "can't enter the session's user namespace".to_owned();
    let path = root.with_file_name("ns").join("user");
    let fd = fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).context(what)?;
    match move_into_link_name_space(std::os::fd::AsFd::as_fd(&fd), Some(LinkNameSpaceType::User)) {
        // The same one: there is only one.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(e) => Err(e).context(what),
    }
}
