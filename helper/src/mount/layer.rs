//! Mounting one layer: real folder below, mask folders in the middle, what the session wrote on top.

use super::source::LayerSource;
use super::target::{Kind, World};
use super::{At, FuseRequest, StartFuse, failure, mask};
use crate::sys::mount::{Context, NODEV, NOSUID};
use landbox_shared::event::{Failure, Stage};
use landbox_shared::path::AbsPath;
use landbox_shared::plan::{LayerOp, Loss};
use nix::errno::Errno;
use nix::sys::stat::fstat;
use nix::unistd::{getegid, geteuid};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

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
    fuse: StartFuse<'_>,
) -> Result<OwnedFd, Failure> {
    let target = &layer.target;
    let mount = || {
        let masks = mask::of_layer(layer);
        let (middle, covers) = mask::middle(world, target, source.lower.as_fd(), &masks)?;
        let merged = match source.fuse {
            None => kernel(world, target, &source, &middle)?,
            Some(device) => {
                let folders = (source.lower, source.upper, source.work);
                with_fuse(world, layer, device, folders, middle, fuse)?
            }
        };
        mask::cover(world, merged.as_fd(), target, &covers, Loss::EndsSession)?;
        Ok(merged)
    };
    mount().map_err(|failure: Failure| Failure { stage: Stage::Layer, ..failure })
}

fn kernel(
    world: &mut World,
    target: &AbsPath,
    source: &LayerSource,
    middle: &[OwnedFd],
) -> Result<OwnedFd, Failure> {
    let lowers = [middle.iter().map(AsFd::as_fd).collect(), vec![source.lower.as_fd()]].concat();
    let upper_and_work = Some((source.upper.as_fd(), source.work.as_fd()));
    let merged = overlay(&lowers, upper_and_work, NOSUID | NODEV).map_err(|(errno, words)| {
        let detail = "the kernel mounts no overlay on this folder (other file systems are mounted below it, it is an \
                      overlay itself, or the kernel lacks an option)";
        failure(errno, Some(target), format!("{detail} {words}").trim_end())
    })?;
    world.attach(merged.as_fd(), target)?;
    Ok(merged)
}

/// Makes an overlay, not attached yet. Lowers are given top first; without an upper it is read-only. A refusal comes
/// with the kernel's own words, if it has any.
///
/// Linux takes descriptors here from 6.13 on. `/proc/self/fd/N` is a path that every kernel takes, and that needs no
/// quoting whatever the folder is called.
pub(super) fn overlay(
    lowers: &[BorrowedFd<'_>],
    upper_and_work: Option<(BorrowedFd<'_>, BorrowedFd<'_>)>,
    attributes: u64,
) -> Result<OwnedFd, (Errno, String)> {
    let context = Context::open(c"overlay").map_err(|errno| (errno, String::new()))?;
    let name = |fd: &BorrowedFd<'_>| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let configure = || {
        context.text(c"source", "landbox")?;
        context.text(c"lowerdir", lowers.iter().map(name).collect::<Vec<_>>().join(":"))?;
        if let Some((upper, work)) = upper_and_work {
            context.text(c"upperdir", name(&upper))?;
            context.text(c"workdir", name(&work))?;
            context.flag(c"userxattr")?;
            context.flag(c"volatile")?;
        }
        for (key, value) in OVERLAY {
            context.text(key, value)?;
        }
        context.mount(attributes)
    };
    configure().map_err(|errno| (errno, context.complaint()))
}

fn with_fuse(
    world: &mut World,
    layer: &LayerOp,
    device: OwnedFd,
    (lower, upper, work): (OwnedFd, OwnedFd, OwnedFd),
    mut lowers: Vec<OwnedFd>,
    start: StartFuse<'_>,
) -> Result<OwnedFd, Failure> {
    let target = &layer.target;
    lowers.push(lower);
    let merged = fuse_mount(device.as_fd()).at(target, "mounting a fuse file system")?;
    // Nothing may be asked of this mount yet, not even what it is.
    let place = world.enter(target, Kind::Folder)?;
    world.attach_at(merged.as_fd(), place.as_fd(), target, Loss::EndsSession)?;
    start(FuseRequest { fuse: device, lowers, upper, work, layer: layer.id.clone() })?;
    // The program opens its folders by path, which the old root must still lead to; the first answer says it has.
    fstat(&merged).at(target, "fuse-overlayfs ended before it served the layer")?;
    Ok(merged)
}

/// Mounts the near end. The options are those fuse-overlayfs gives when it mounts by itself; permissions are checked
/// by the kernel against the ids it reports.
fn fuse_mount(device: BorrowedFd<'_>) -> nix::Result<OwnedFd> {
    let context = Context::open(c"fuse")?;
    context.text(c"source", "fuse-overlayfs")?;
    context.text(c"subtype", "fuse-overlayfs")?;
    context.text(c"fd", device.as_raw_fd().to_string())?;
    context.text(c"rootmode", "40000")?;
    // Not always 0: on a host that allows one user namespace alone, this one maps the caller to itself.
    context.text(c"user_id", geteuid().to_string())?;
    context.text(c"group_id", getegid().to_string())?;
    // Where other ids exist inside, they may enter. Elsewhere the flag would shut the caller out: with it the kernel asks
    // who is asking to live in this user namespace, without it, to have the caller's ids.
    if maps_other_ids() {
        context.flag(c"allow_other")?;
    }
    context.flag(c"default_permissions")?;
    context.mount(NOSUID | NODEV)
}

/// Whether this user namespace maps more than one id.
fn maps_other_ids() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let mut counts = map.lines().filter_map(|line| line.split_whitespace().last());
    counts.next() != Some("1") || counts.next().is_some()
}
