//! Everything that mounts: from the plan's operations to a new root.
//!
//! Order: **open** every source by its canonical path, before the first mount can come between; **build** the new
//! tree beside the old root, each target entered by descriptor; **pivot** into it and let the old root go.
//!
//! A fuse layer is mounted here, with a `/dev/fuse` that was opened by a process of the session's user namespace; the
//! closure hands it to the monitor. The monitor's child enters init's user **and mount** namespace (the mask folders
//! exist only there), takes a mount namespace of its own from it (so that the pivot does not move it away from the
//! host's `/proc`), and runs
//! `fuse-overlayfs -f -o lowerdir=/proc/self/fd/L1:/proc/self/fd/L2,upperdir=/proc/self/fd/U,workdir=/proc/self/fd/W /dev/fd/F`
//! in the monitor's pid namespace. The program resolves those names to paths at its start and opens the paths, hence
//! the same tree; libfuse takes `/dev/fd/F` as "already mounted", hence no fusermount. `build` waits until the layer
//! answers. Init keeps no copy of the descriptor: when that process dies, the layer answers ENOTCONN.

mod layer;
mod mask;
mod outside;
mod source;
mod system;
mod target;

use crate::failure::{Failure, Stage, failed};
use crate::sys::mount::{NODEV, NOSUID, RDONLY, Refusal, restrict};
use landbox_shared::id::LayerId;
use landbox_shared::path::AbsPath;
use landbox_shared::plan::{Access, Loss, Plan};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{chdir, fchdir, pivot_root};
use source::Ready;
use std::os::fd::{BorrowedFd, OwnedFd};
use target::World;

/// What a fuse-overlayfs process needs. All folders are O_PATH descriptors.
#[derive(Debug)]
pub(crate) struct FuseRequest {
    /// `/dev/fuse`, already the far end of the mount.
    pub fuse: OwnedFd,
    /// The lower folders, top first.
    pub lowers: Vec<OwnedFd>,
    /// The upper folder.
    pub upper: OwnedFd,
    /// The work folder.
    pub work: OwnedFd,
    /// The layer.
    pub layer: LayerId,
}

/// The finished file boundary.
#[derive(Debug)]
pub(crate) struct Mounted {
    /// O_PATH descriptor of the merged root of each layer, in plan order.
    pub layer_roots: Vec<OwnedFd>,
    /// Every mount point of ours whose loss ends the session, in the order they were made.
    pub points: Vec<AbsPath>,
}

/// Starts a fuse-overlayfs process and returns when it was started.
pub(crate) type StartFuse<'a> = &'a mut dyn FnMut(FuseRequest) -> Result<(), Failure>;

/// Builds the session's tree and moves the calling process into it.
///
/// The caller is pid 1 of the session's pid namespace, has every capability in the user namespace that owns the
/// calling mount namespace, and has made that namespace private. Afterwards `/` is the new root, which is also the
/// working folder, and the old root is gone.
pub(crate) fn build(
    plan: &Plan,
    session: BorrowedFd<'_>,
    fuse: StartFuse<'_>,
) -> Result<Mounted, Failure> {
    // The task has its own of both already. A plan holds up to thousands of sources, each a descriptor until it is mounted.
    umask(Mode::from_bits_truncate(0o022));
    getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard))
        .map_err(|errno| failed(STAGE, errno, "", "raising the limit of open files"))?;
    let (ops, layers) = source::open_all(plan, session)?;
    let mut ops = ops.into_iter().peekable();
    let Some(Ready::Root(tree)) = ops.next() else {
        return Err(misplaced("the first operation is not the root"));
    };
    let mut world = system::root(tree)?;
    let busy = layer::is_busy();
    let begun = layers.into_iter().map(|layer| layer::begin(&mut world, layer, busy));
    let mut begun = begun.collect::<Result<Vec<_>, _>>()?.into_iter();
    let mut layer_roots = Vec::new();
    while let Some(op) = ops.next() {
        match op {
            Ready::Root(_) => return Err(misplaced("the root is made twice")),
            Ready::Proc => system::proc(&mut world)?,
            Ready::Dev(devices) => system::dev(&mut world, devices)?,
            Ready::Tree { tree, target, kind, access, own } => {
                let read_only = if access == Access::ReadOnly { RDONLY } else { 0 };
                // Never set-user-id, never devices.
                let attributes = NOSUID | NODEV | read_only;
                restrict(&tree, attributes, true).at(target, "restricting a mount")?;
                world.attach(&tree, target, kind)?;
                if let Some(point) = world.points.last_mut().filter(|_| own) {
                    point.own = true;
                    // A copy over a file that the host replaces by renaming falls off, and the host's shows: still
                    // read-only.
                    if access == Access::ReadOnly {
                        point.loss = Loss::Tolerated;
                    }
                }
            }
            Ready::Layer(layer) => {
                let begun = begun.next().ok_or_else(|| misplaced("a layer was not begun"))?;
                layer_roots.push(layer::mount(&mut world, layer, begun, &mut *fuse)?);
            }
            Ready::Mask(mask) => {
                // Masks that follow each other are mounted together: one overlay a folder, however many it hides.
                let mut masks = vec![mask];
                while let Some(Ready::Mask(mask)) = ops.peek() {
                    masks.push(*mask);
                    ops.next();
                }
                outside::hide(&mut world, &masks)?;
            }
        }
    }
    enter(&world)?;
    Ok(Mounted { layer_roots, points: world.points.into_vital() })
}

/// The old root ends up on top of the new one, where it can be let go without a folder to put it in.
fn enter(world: &World) -> Result<(), Failure> {
    fchdir(&world.root)
        .and_then(|()| pivot_root(".", "."))
        .and_then(|()| umount2(".", MntFlags::MNT_DETACH))
        .and_then(|()| chdir("/"))
        .map_err(|errno| failed(STAGE, errno, "", "moving into the new root"))
}

const STAGE: Stage = Stage::Mount;

fn misplaced(detail: &str) -> Failure {
    failed(STAGE, Errno::EINVAL, "", detail)
}

fn failure(errno: Errno, path: &AbsPath, detail: &str) -> Failure {
    failed(STAGE, errno, path, detail)
}

/// Names the path and the step where a system call failed.
trait At<T> {
    fn at(self, path: &AbsPath, detail: &str) -> Result<T, Failure>;
}

impl<T> At<T> for nix::Result<T> {
    fn at(self, path: &AbsPath, detail: &str) -> Result<T, Failure> {
        self.map_err(|errno| failure(errno, path, detail))
    }
}

impl<T> At<T> for Result<T, Refusal> {
    fn at(self, path: &AbsPath, detail: &str) -> Result<T, Failure> {
        self.map_err(|(errno, words)| failure(errno, path, format!("{detail} {words}").trim_end()))
    }
}

#[cfg(test)]
mod tests;
