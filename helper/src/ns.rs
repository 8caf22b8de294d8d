//! The namespaces. N is a user namespace that owns all others; T, inside it, is the task's.
//!
//! N maps the caller's id alone (`0 → caller`): a user namespace belongs to whoever made it, so any other id in the map
//! would be handed to every process of the caller. Called by root, who has every id already, the map is the caller's own.

use crate::channel::{Channel, Events, Message};
use crate::failure::{Context, failed, refused};
use crate::lock::{Held, Locked};
use crate::start::Caller;
use crate::sys::process::{self, Child};
use crate::verify::Verified;
use crate::{caps, init};
use landbox_shared::event::{Failure, Stage};
use landbox_shared::evidence::{HelperMode, OwnerMap};
use landbox_shared::policy::Network;
use landbox_shared::procfs::identity_over;
use nix::errno::Errno;
use nix::sched::CloneFlags;
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout};
use std::fs::{self, File};
use std::time::Duration;

const STAGE: Stage = Stage::Namespaces;

/// How many user namespaces lie between the caller and the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worlds {
    /// N and T.
    Two,
    /// N alone: the host refuses one made without its own privilege.
    One,
}

/// The id maps of both namespaces, each the users' and the groups'.
#[derive(Debug)]
pub(crate) struct Maps {
    pub(crate) worlds: Worlds,
    /// Which ids they hold.
    pub(crate) owner: OwnerMap,
    /// N's.
    pub(crate) n: [String; 2],
    /// The task's: T's, or N's where there is no T.
    pub(crate) task: [String; 2],
}

/// What the monitor holds of a session.
#[derive(Debug)]
pub(crate) struct Isolated {
    pub(crate) init: Child,
    pub(crate) channel: Channel,
    pub(crate) held: Held,
}

/// Makes init in N, writes N's maps, and waits until init has made the task in T. Only the monitor returns.
pub(crate) fn isolate(
    verified: Verified,
    locked: Locked,
    events: &mut Events,
) -> Result<Isolated, Failure> {
    let mode = verified.caller.mode;
    // Every process of ours but the task gets this in place of 0, 1 and 2: a pipe has ended when its last holder has.
    let null = File::options().read(true).write(true).open("/dev/null");
    let null = null.at(STAGE, "/dev/null", "opening it")?;
    for worlds in [Worlds::Two, Worlds::One] {
        let maps = Maps::new(&verified.caller, worlds)?;
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
            .and_then(|()| ours.send(STAGE, &Message::Mapped, &[]))
            .and_then(|()| ours.hear(STAGE));
        if matches!(answer, Ok(Message::Isolated)) {
            caps::give_up(mode).stage(STAGE, "giving the file capability up")?;
            let_go_of_stdio(&null)?;
            return Ok(Isolated { init, channel: ours, held: locked.held });
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
    let patience = match worlds {
        Worlds::Two => 0,
        Worlds::One => 100,
    };
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
    match network {
        Network::Host => always,
        Network::None | Network::Policy(_) => always | CloneFlags::CLONE_NEWNET,
    }
}

impl Maps {
    /// The maps for this caller.
    fn new(caller: &Caller, worlds: Worlds) -> Result<Self, Failure> {
        match caller.mode {
            HelperMode::Root => {
                let [users, groups] = caller.maps.each_ref().map(|map| identity_over(map));
                let same = users.zip(groups).map(|(users, groups)| [users, groups]);
                let same = same.ok_or_else(|| refused(STAGE, "your own id map is not readable"))?;
                Ok(Self { worlds, owner: OwnerMap::Full, n: same.clone(), task: same })
            }
            HelperMode::Unprivileged | HelperMode::Capable => {
                let ids = [caller.uid, caller.gid];
                let middle = |id: u32| match worlds {
                    Worlds::Two => 0,
                    Worlds::One => id,
                };
                let n = ids.map(|id| format!("{} {id} 1\n", middle(id)));
                let task = ids.map(|id| format!("{id} {} 1\n", middle(id)));
                Ok(Self { worlds, owner: OwnerMap::Single, n, task })
            }
        }
    }
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
    let replaced =
        dup2_stdin(null).and_then(|()| dup2_stdout(null)).and_then(|()| dup2_stderr(null));
    replaced.stage(STAGE, "letting go of the task's descriptors")
}

/// Kills init and with it its whole pid namespace, and waits until both are gone.
pub(crate) fn end(init: &Child) {
    // Neither can fail in a way that could be helped: a signal to our own child, and waiting for it.
    let _ = process::signal(&init.pidfd, nix::sys::signal::Signal::SIGKILL);
    reap(init);
}

/// Waits until a child is gone.
pub(crate) fn reap(child: &Child) {
    while nix::sys::wait::waitpid(child.pid, None) == Err(Errno::EINTR) {}
}

fn no_namespace(errno: Errno) -> Failure {
    let why = if errno == Errno::ENOSPC {
        ": a limit of /proc/sys/user/max_*_namespaces is 0 or used up"
    } else if errno == Errno::EPERM || errno == Errno::EACCES {
        ": this host or container forbids user namespaces to you (kernel.unprivileged_userns_clone, \
         kernel.apparmor_restrict_unprivileged_userns, a filter, or a chroot)"
    } else if errno == Errno::EINVAL {
        ": this kernel lacks one of them"
    } else {
        ""
    };
    failed(STAGE, errno, "", &format!("making the namespaces{why}"))
}
