//! Mounting one layer: real folder below, mask folders in the middle, what the session wrote on top.

use super::source::LayerSource;
use super::target::{Kind, World};
use super::{At, FuseRequest, StartFuse, mask};
use crate::failure::{Failure, Stage};
use crate::sys::mount::{NODEV, NOSUID, Refusal, file_system};
use landbox_shared::overlay;
use landbox_shared::plan::{LayerOp, Loss};
use landbox_shared::tree;
use nix::sys::stat::fstat;
use nix::unistd::{getegid, geteuid};
use std::os::fd::{AsRawFd, OwnedFd};

/// Mounts a layer and returns its merged root.
pub(super) fn mount(
    world: &mut World,
    layer: &LayerOp,
    source: LayerSource,
    start: StartFuse<'_>,
) -> Result<OwnedFd, Failure> {
    let mount = || {
        let target = &layer.target;
        let LayerSource { lower, upper, work, fuse } = source;
        let masks = tree::of_layer(layer);
        let lowers = mask::lowers(world, target, lower, &masks)?;
        let merged = match &fuse {
            None => overlay(&lowers, Some([&upper, &work]), NOSUID | NODEV).at(
                target,
                "the kernel mounts no overlay on this folder (other file systems are mounted below it, it is an \
                 overlay itself, or the kernel lacks an option)",
            ),
            Some(device) => fuse_mount(device).at(target, "mounting a fuse file system"),
        }?;
        // Nothing may be asked of a fuse mount yet, not even what it is.
        let place = world.enter(target, Kind::Folder)?;
        world.attach_at(&merged, &place, target, Loss::EndsSession)?;
        if let Some(fuse) = fuse {
            start(FuseRequest { fuse, lowers, upper, work, layer: layer.id.clone() })?;
            // The program opens its folders by path, which the old root must still lead to; the first answer says it
            // has.
            fstat(&merged).at(target, "fuse-overlayfs ended before it served the layer")?;
        }
        mask::cover(world, &merged, target, &masks, true)?;
        Ok(merged)
    };
    mount().map_err(|failure: Failure| Failure { stage: Stage::Layer, ..failure })
}

/// Makes an overlay, not attached yet. Lowers are given top first; without an upper and a work folder it is read-only.
pub(super) fn overlay(
    lowers: &[OwnedFd],
    upper_and_work: Option<[&OwnedFd; 2]>,
    attributes: u64,
) -> Result<OwnedFd, Refusal> {
    let lowers: Vec<_> = lowers.iter().map(AsRawFd::as_raw_fd).collect();
    let upper_and_work = upper_and_work.map(|folders| folders.map(AsRawFd::as_raw_fd));
    file_system(c"overlay", &overlay::kernel(&lowers, upper_and_work), attributes)
}

/// Mounts the near end of a fuse layer.
fn fuse_mount(device: &OwnedFd) -> Result<OwnedFd, Refusal> {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    // Not always 0: on a host that allows one user namespace alone, this one maps the caller to itself.
    let ids = [geteuid().as_raw(), getegid().as_raw()];
    let options = overlay::fuse_mount(device.as_raw_fd(), ids, &map);
    file_system(c"fuse", &options, NOSUID | NODEV)
}
