//! The namespaces. N is a user namespace that owns all others; T, inside it, is the task's. `landbox_shared::idmap` says
//! which ids they map: never one that is not the caller's own.

use crate::channel::{Channel, Events, Message};
use crate::failure::{Context, Failure, Stage, failed, refused, why_no_namespace};
use crate::lock::Locked;
use crate::start::Caller;
use crate::sys::process::{self, Child};
use crate::verify::Verified;
use crate::{caps, init};
use landbox_shared::evidence::OwnerMap;
use landbox_shared::idmap::{IdMaps, Worlds};
use landbox_shared::policy::Network;
use nix::errno::Errno;
use nix::sched::CloneFlags;
use nix::sys::prctl;
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout};
use std::fs::{self, File};
use std::time::Duration;

const STAGE: Stage = Stage::Namespaces;

/// What the monitor holds of a session.
#[derive(Debug)]
pub(crate) struct Isolated {
    pub(crate) init: Child,
    pub(crate) channel: Channel,
    pub(crate) lock: File,
    /// How many children init will ask for: a daemon a fuse layer, and the link.
    pub(crate) children: usize,
}

/// Makes init in N, writes N's maps, waits for the controller, and then until init has made the task in T. Only the
/// monitor returns.
pub(crate) fn isolate(
    verified: Verified,
    locked: Locked,
    events: &mut Events,
) -> Result<Isolated, Failure> {
    let mode = verified.caller.mode;
    // The id maps of a process that can't be dumped are root's to write: init is to be a copy of one that can.
    prctl::set_dumpable(true).stage(STAGE, "opening the id maps")?;
    // Every process of ours but the task gets this in place of 0, 1 and 2: a pipe has ended when its last holder has.
    let null = File::options().read(true).write(true).open("/dev/null");
    let null = null.at(STAGE, "/dev/null", "opening it")?;
    for worlds in [Worlds::Two, Worlds::One] {
        let Caller { uid, gid, maps: own, .. } = &verified.caller;
        let maps = IdMaps::new(mode, [*uid, *gid], own, worlds)
            .ok_or_else(|| refused(STAGE, "your own id map is not readable"))?;
        let [ours, theirs] = Channel::pair(["init", "the monitor"], STAGE)?;
        let flags = flags(&verified.plan.network);
        let made = caps::raised(mode, || make(flags, worlds)).map_err(no_namespace)?;
        let Some(init) = made else {
            drop(ours);
            // The monitor's death must be seen as the end of the event socket.
            events.abandon(&null);
            init::run(verified, locked, maps, &null, &theirs)
        };
        drop(theirs);
        // The kernel asks for "deny" before an unprivileged gid_map: else a group that denies access could be dropped.
        let answer = write(init.pid, &maps.n, maps.owner == OwnerMap::Single)
            .and_then(|()| verified.pipe.end())
            .and_then(|()| ours.send(STAGE, &Message::Mapped, &[]))
            .and_then(|()| ours.hear(STAGE));
        if matches!(answer, Ok(Message::Isolated)) {
            caps::give_up(mode).stage(STAGE, "giving the file capability up")?;
            let_go_of_stdio(&null)?;
            let children = verified.plan.children();
            return Ok(Isolated { init, channel: ours, lock: locked.lock, children });
        }
        end(&init);
        if answer? != Message::OneOnly {
            break;
        }
    }
    Err(refused(STAGE, "the namespaces were refused"))
}

/// Forks init into new namespaces. The kernel frees the first attempt's namespace a moment after its last process: where
/// a limit allows just one, it is asked again.
fn make(flags: CloneFlags, worlds: Worlds) -> nix::Result<Option<Child>> {
    let patience = if worlds == Worlds::Two { 0 } else { 100 };
    for _ in 0..patience {
        match process::clone(flags) {
            Err(Errno::ENOSPC) => std::thread::sleep(Duration::from_millis(5)),
            result => return result,
        }
    }
    process::clone(flags)
}

/// What N owns.
fn flags(network: &Network) -> CloneFlags {
    let mounts_and_processes = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID;
    let talk = CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    let always = CloneFlags::CLONE_NEWUSER | mounts_and_processes | talk;
    if network.is_own() { always | CloneFlags::CLONE_NEWNET } else { always }
}

/// Writes the two maps of the namespace of process `pid`. From the parent's side: no capability over the caller's own
/// namespace is needed for a map of the caller's own id.
pub(crate) fn write(pid: Pid, maps: &[String; 2], deny_groups: bool) -> Result<(), Failure> {
    let put = |name: &str, text: &str| {
        let path = format!("/proc/{pid}/{name}");
        fs::write(&path, text).at(STAGE, &path, "writing an id map")
    };
    if deny_groups {
        put("setgroups", "deny")?;
    }
    let [users, groups] = maps;
    put("uid_map", users)?;
    put("gid_map", groups)
}

/// Puts `null` in place of 0, 1 and 2.
pub(crate) fn let_go_of_stdio(null: &File) -> Result<(), Failure> {
    let replaced = dup2_stdin(null).and(dup2_stdout(null)).and(dup2_stderr(null));
    replaced.stage(STAGE, "letting go of the task's descriptors")
}

/// Kills init and with it its whole pid namespace, and waits until both are gone.
pub(crate) fn end(init: &Child) {
    // Neither can fail in a way that could be helped: a signal to our own child, and waiting for it.
    let _ = process::signal(&init.pidfd, nix::sys::signal::Signal::SIGKILL);
    while nix::sys::wait::waitpid(init.pid, None) == Err(Errno::EINTR) {}
}

fn no_namespace(errno: Errno) -> Failure {
    let why = why_no_namespace(errno as i32);
    failed(STAGE, errno, "", &format!("making the namespaces{why}"))
}
