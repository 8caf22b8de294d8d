//! Mounting one layer: real folder below, mask folders in the middle, what the session wrote on top.

use super::source::LayerSource;
use super::target::{Kind, World};
use super::{At, FuseRequest, StartFuse, mask};
use crate::failure::{Failure, Stage};
use crate::sys::mount::{NODEV, NOEXEC, NOSUID, Refusal, file_system};
use landbox_shared::overlay::{self, Setting};
use landbox_shared::plan::{LayerOp, Loss};
use landbox_shared::procfs;
use landbox_shared::tree;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::stat::fstat;
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{Pid, getegid, geteuid};
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread::{Builder, JoinHandle};

const REFUSED: &str = "the kernel mounts no overlay on this folder (other file systems are mounted below it, it is an overlay itself, or the kernel lacks an option)";
/// The controller, the monitor, init and the task.
const OF_A_START: usize = 4;
/// Of a thread that panicked, which ends the whole program.
const CUT_SHORT: Refusal = (Errno::ECANCELED, String::new());

/// A layer on its way.
#[derive(Debug)]
pub(super) enum Begun {
    /// A thread has the kernel make the overlay.
    Kernel(JoinHandle<Result<OwnedFd, Refusal>>),
    /// No processor was free for one.
    Made(Result<OwnedFd, Refusal>),
    /// What the daemon will be asked.
    Fuse(FuseRequest),
}

/// Builds the masks of a layer and begins to make it, which takes a quarter of a millisecond: the kernel makes ten files
/// for an overlay. It is attached in its turn. No rights are given up before that, which a thread would keep.
pub(super) fn begin(world: &mut World, src: LayerSource<'_>, busy: bool) -> Result<Begun, Failure> {
    let (layer, [lower, upper, work], fuse) = src;
    let target = &layer.target;
    let lowers = mask::lowers(world, target, lower, &tree::of_layer(layer)).map_err(of_layer)?;
    if let Some(fuse) = fuse {
        return Ok(Begun::Fuse(FuseRequest { fuse, lowers, upper, work, layer: layer.id.clone() }));
    }
    let make = move || overlay(&lowers, Some([&upper, &work]), NOSUID | NODEV | noexec(&lowers));
    if busy {
        return Ok(Begun::Made(make()));
    }
    let thread = Builder::new().spawn(make).map_err(|_| Errno::EAGAIN);
    thread.map(Begun::Kernel).at(target, "starting a thread").map_err(of_layer)
}

/// Whether more want the processors than a start by itself ever makes: where a hundred start at once, a thread costs time
/// and gains none. (The standard library's number of processors reads the limits of control groups, too: eight files.)
pub(super) fn is_busy() -> bool {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let ours = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let processors = (0..CpuSet::count()).filter(|n| ours.is_set(*n) == Ok(true)).count();
    procfs::runnable(&load).is_some_and(|runnable| runnable > OF_A_START * processors)
}

/// A failure of a layer, which another back end may carry.
pub(super) fn of_layer(failure: Failure) -> Failure {
    Failure { stage: Stage::Layer, ..failure }
}

/// Mounts a layer and returns its merged root.
pub(super) fn mount(
    world: &mut World,
    layer: &LayerOp,
    begun: Begun,
    start: StartFuse<'_>,
) -> Result<OwnedFd, Failure> {
    let mount = || {
        let target = &layer.target;
        let (made, request) = match begun {
            Begun::Kernel(thread) => (thread.join().unwrap_or(Err(CUT_SHORT)), None),
            Begun::Made(made) => (made, None),
            Begun::Fuse(request) => (fuse_mount(&request), Some(request)),
        };
        let merged = made.at(target, if request.is_none() { REFUSED } else { "a fuse mount" })?;
        if let Some(request) = request {
            // Nothing may be asked of a fuse mount yet, not even what it is.
            start(request)?;
            // The program opens its folders by path, which the old root must still lead to; the first answer says it
            // has. It has also made its own copy of the list of mounts by then, which must not hold this one: a mount
            // that its daemon holds never goes.
            fstat(&merged).at(target, "fuse-overlayfs ended before it served the layer")?;
        }
        let place = world.enter(target, Kind::Folder)?;
        world.attach_at(&merged, &place, target, Loss::EndsSession)?;
        mask::cover(world, &merged, target, &tree::of_layer(layer), true)?;
        Ok(merged)
    };
    mount().map_err(of_layer)
}

/// Makes an overlay, not attached yet. Lowers are given top first; without an upper and a work folder it is read-only.
pub(super) fn overlay(
    lowers: &[OwnedFd],
    upper_and_work: Option<[&OwnedFd; 2]>,
    attributes: u64,
) -> Result<OwnedFd, Refusal> {
    let lowers: Vec<_> = lowers.iter().map(AsRawFd::as_raw_fd).collect();
    let upper_and_work = upper_and_work.map(|folders| folders.map(AsRawFd::as_raw_fd));
    let make = |options: Vec<Setting>| file_system(c"overlay", &options, attributes);
    match make(overlay::kernel(&lowers, upper_and_work)) {
        // Before Linux 6.13, and before 6.5; or the folders are not good for one, which is then said again.
        Err((Errno::EINVAL | Errno::EOPNOTSUPP, _)) => {
            make(overlay::kernel_by_name(&lowers, upper_and_work))
        }
        made => made,
    }
}

/// Mounts the near end of a fuse layer.
fn fuse_mount(request: &FuseRequest) -> Result<OwnedFd, Refusal> {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    // Not always 0: on a host that allows one user namespace alone, this one maps the caller to itself.
    let ids = [geteuid().as_raw(), getegid().as_raw()];
    let options = overlay::fuse_mount(request.fuse.as_raw_fd(), ids, &map);
    file_system(c"fuse", &options, NOSUID | NODEV | noexec(&request.lowers))
}

/// Where the owner's own mount lets no program be executed, none is inside. An overlay does not ask the mounts below it:
/// the real folder is the last of its lowers. One that can't be asked is taken to forbid it.
pub(super) fn noexec(lowers: &[OwnedFd]) -> u64 {
    lowers.last().and_then(|fd| fstatvfs(fd).ok()).map_or(NOEXEC, |fs| fs.flags().bits() & NOEXEC)
}
