//! Mounting one layer: real folder below, mask folders in the middle, what the session wrote on top.

use super::source::LayerSource;
use super::target::{Kind, World};
use super::{At, FuseRequest, StartFuse, mask};
use crate::failure::{Failure, Stage};
use crate::sys::mount::{NODEV, NOSUID, Refusal, file_system};
use landbox_shared::plan::{LayerOp, Loss};
use nix::sys::stat::fstat;
use nix::unistd::{getegid, geteuid};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};

/// Options of every kernel overlay. `redirect_dir=off` would be refused where the kernel always follows redirects.
const OVERLAY: [(&CStr, &str); 5] = [
    (c"redirect_dir", "nofollow"),
    (c"metacopy", "off"),
    (c"index", "off"),
    (c"xino", "off"),
    (c"nfs_export", "off"),
];

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
        let masks = mask::of_layer(layer);
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
        mask::cover(world, &merged, target, &masks)?;
        Ok(merged)
    };
    mount().map_err(|failure: Failure| Failure { stage: Stage::Layer, ..failure })
}

/// Makes an overlay, not attached yet. Lowers are given top first; without an upper and a work folder it is read-only.
///
/// Linux takes descriptors here from 6.13 on. `/proc/self/fd/N` is a path that every kernel takes, and that needs no
/// quoting whatever the folder is called.
pub(super) fn overlay(
    lowers: &[OwnedFd],
    upper_and_work: Option<[&OwnedFd; 2]>,
    attributes: u64,
) -> Result<OwnedFd, Refusal> {
    let name = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let lowers = lowers.iter().map(name).collect::<Vec<_>>().join(":");
    let writable = upper_and_work.map(|folders| folders.map(name));
    let mut options = vec![(c"source", "landbox"), (c"lowerdir", &*lowers)];
    if let Some([upper, work]) = &writable {
        options.extend([(c"upperdir", &**upper), (c"workdir", &**work)]);
        options.extend([(c"userxattr", ""), (c"volatile", "")]);
    }
    options.extend(OVERLAY);
    file_system(c"overlay", &options, attributes)
}

/// Mounts the near end. The options are those fuse-overlayfs gives when it mounts by itself; permissions are checked
/// by the kernel against the ids it reports.
fn fuse_mount(device: &OwnedFd) -> Result<OwnedFd, Refusal> {
    // Not always 0: on a host that allows one user namespace alone, this one maps the caller to itself.
    let (user, group) = (geteuid().to_string(), getegid().to_string());
    let device = device.as_raw_fd().to_string();
    let mut options = vec![
        (c"source", "fuse-overlayfs"),
        (c"subtype", "fuse-overlayfs"),
        (c"fd", &*device),
        (c"rootmode", "40000"),
        (c"user_id", &*user),
        (c"group_id", &*group),
        (c"default_permissions", ""),
    ];
    // Where other ids exist inside, they may enter. Elsewhere the flag would shut the caller out: with it the kernel asks
    // who is asking to live in this user namespace, without it, to have the caller's ids.
    if maps_other_ids() {
        options.push((c"allow_other", ""));
    }
    file_system(c"fuse", &options, NOSUID | NODEV)
}

/// Whether this user namespace maps more than one id.
fn maps_other_ids() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let mut counts = map.lines().filter_map(|line| line.split_whitespace().last());
    counts.next() != Some("1") || counts.next().is_some()
}
