//! The namespaces. N is a user namespace that owns all others; T, inside it, is the task's.
//!
//! N maps the caller's id alone (`0 → caller`): a user namespace belongs to whoever made it, so any other id in the map
//! would be handed to every process of the caller. Called by root, who has every id already, the map is the caller's own.

use crate::channel::{Channel, Message};
use crate::events::Events;
use crate::failure::{Context, failed, refused};
use crate::lock::Locked;
use crate::stage::Verified;
use crate::start::Caller;
use crate::sys::process::{self, Child};
use crate::{caps, init};
use landbox_shared::event::{Failure, Stage};
use landbox_shared::evidence::{HelperMode, OwnerMap};
use landbox_shared::policy::Network;
use nix::errno::Errno;
use nix::sched::CloneFlags;
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout};
use std::fs::{self, File};
use std::os::fd::AsFd;
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

/// What the monitor holds of a session.
#[derive(Debug)]
pub(crate) struct Isolated {
    pub(crate) init: Child,
    pub(crate) channel: Channel,
    pub(crate) locked: Locked,
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
    let null = null.at(STAGE, b"/dev/null", "opening it")?;
    for worlds in [Worlds::Two, Worlds::One] {
        let (ours, theirs) = Channel::pair().stage(STAGE, "making a channel")?;
        let flags = flags(verified.plan.network);
        let made = caps::raised(mode, || make(flags, worlds)).map_err(no_namespace)?;
        let Some(init) = made else {
            drop(ours);
            // The monitor's death must be seen as the end of the event socket.
            events.abandon(&null);
            init::run(init::World { verified, locked, channel: theirs, worlds, null })
        };
        drop(theirs);
        let prepared =
            write_maps(init.pid, &verified.caller, worlds).and_then(|()| answer(&ours, &init));
        match prepared {
            Ok(true) => {
                caps::give_up(mode).stage(STAGE, "giving the file capability up")?;
                for replaced in [dup2_stdin(&null), dup2_stdout(&null), dup2_stderr(&null)] {
                    replaced.stage(STAGE, "letting go of the task's descriptors")?;
                }
                return Ok(Isolated { init, channel: ours, locked });
            }
            Ok(false) if worlds == Worlds::Two => end(&init),
            Ok(false) => {
                end(&init);
                return Err(refused(STAGE, "the namespaces were refused"));
            }
            Err(failure) => {
                end(&init);
                return Err(failure);
            }
        }
    }
    Err(refused(STAGE, "the namespaces were refused"))
}

/// Forks init into new namespaces. The kernel frees the first attempt's namespace a moment after its last process: where
/// a limit allows just one, it is asked again.
fn make(flags: CloneFlags, worlds: Worlds) -> nix::Result<Option<Child>> {
    let mut left = match worlds {
        Worlds::Two => 0,
        Worlds::One => 100,
    };
    loop {
        match process::clone(flags) {
            Err(Errno::ENOSPC) if left > 0 => left -= 1,
            result => return result,
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn flags(network: Network) -> CloneFlags {
    let always = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    match network {
        Network::Host => always,
        Network::None => always | CloneFlags::CLONE_NEWNET,
    }
}

/// Which ids the maps of this caller's namespaces hold.
pub(crate) fn owner_map(mode: HelperMode) -> OwnerMap {
    match mode {
        HelperMode::Unprivileged | HelperMode::Capable => OwnerMap::Single,
        HelperMode::Root => OwnerMap::Full,
    }
}

/// The identity over everything `map` has on its inner side.
pub(crate) fn identity_over(map: &str) -> Option<String> {
    map.lines()
        .map(|line| {
            let mut fields = line.split_whitespace();
            let (inside, count) = (fields.next()?, fields.nth(1)?);
            fields.next().is_none().then(|| format!("{inside} {inside} {count}\n"))
        })
        .collect()
}

/// Writes the two maps of the namespace of process `pid`. From the parent's side: no capability over the caller's own
/// namespace is needed for a map of the caller's own id.
pub(crate) fn write(pid: Pid, maps: &[String; 2], deny_groups: bool) -> Result<(), Failure> {
    let put = |name: &str, text: &str| {
        let path = format!("/proc/{pid}/{name}");
        fs::write(&path, text).at(STAGE, path.as_bytes(), "writing an id map")
    };
    if deny_groups {
        // The kernel asks for it before an unprivileged gid_map: else a group that denies access could be dropped.
        put("setgroups", "deny")?;
    }
    let [users, groups] = maps;
    put("uid_map", users)?;
    put("gid_map", groups)
}

fn write_maps(pid: Pid, caller: &Caller, worlds: Worlds) -> Result<(), Failure> {
    match owner_map(caller.mode) {
        OwnerMap::Full => write(pid, &full(caller)?, false),
        OwnerMap::Single => {
            let inside = |id: u32| match worlds {
                Worlds::Two => 0,
                Worlds::One => id,
            };
            let map = |id: u32| format!("{} {id} 1\n", inside(id));
            write(pid, &[map(caller.uid), map(caller.gid)], true)
        }
    }
}

/// The maps for a caller who is root, for both namespaces.
pub(crate) fn full(caller: &Caller) -> Result<[String; 2], Failure> {
    let [users, groups] = &caller.maps;
    identity_over(users)
        .zip(identity_over(groups))
        .map(|(users, groups)| [users, groups])
        .ok_or_else(|| refused(STAGE, "the caller's own id map is not readable"))
}

/// Lets init go on and hears whether it could make the task's namespace.
fn answer(channel: &Channel, init: &Child) -> Result<bool, Failure> {
    channel.send(&Message::Mapped).stage(STAGE, "starting init")?;
    match channel.receive().stage(STAGE, "hearing from init")? {
        Some((Message::Isolated, _)) => Ok(true),
        Some((Message::OneOnly, _)) => Ok(false),
        Some((Message::Event(packet), _)) => Err(told(channel, &packet)),
        Some(_) | None => {
            end(init);
            Err(refused(STAGE, "init ended early"))
        }
    }
}

/// The failure that init reports in an event.
fn told(channel: &Channel, first: &[u8]) -> Failure {
    use landbox_shared::event::Event;
    use landbox_shared::wire::EventAssembler;
    let mut assembler = EventAssembler::default();
    let mut event = assembler.push(first);
    while let Ok(None) = event {
        event = match channel.receive() {
            Ok(Some((Message::Event(packet), _))) => assembler.push(&packet),
            Ok(_) | Err(_) => break,
        };
    }
    match event {
        Ok(Some(Event::Failed(failure))) => failure,
        Ok(_) | Err(_) => refused(STAGE, "init failed without a reason"),
    }
}

/// Kills init and with it its whole pid namespace, and waits until both are gone.
pub(crate) fn end(init: &Child) {
    use nix::sys::signal::Signal;
    // Neither can fail in a way that could be helped: a signal to our own child, and waiting for it.
    let _ = process::signal(init.pidfd.as_fd(), Signal::SIGKILL);
    reap(init);
}

/// Waits until a child is gone.
pub(crate) fn reap(child: &Child) {
    use nix::sys::wait::waitpid;
    while waitpid(child.pid, None) == Err(Errno::EINTR) {}
}

fn no_namespace(errno: Errno) -> Failure {
    let detail = if errno == Errno::ENOSPC {
        "making the namespaces: a limit of /proc/sys/user/max_*_namespaces is 0 or used up"
    } else if errno == Errno::EPERM || errno == Errno::EACCES {
        "making the namespaces: this host or container forbids user namespaces to you \
         (kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, a filter, or a chroot)"
    } else if errno == Errno::EINVAL {
        "making the namespaces: this kernel lacks one of them"
    } else {
        "making the namespaces"
    };
    failed(STAGE, errno, b"", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_map_is_the_identity_over_the_callers_own() {
        assert_eq!(identity_over("  0  0 4294967295\n").unwrap(), "0 0 4294967295\n");
        assert_eq!(identity_over("0 1000 1\n1 100000 65536\n").unwrap(), "0 0 1\n1 1 65536\n");
        assert_eq!(identity_over("0 1\n"), None);
        assert_eq!(identity_over("0 1 2 3\n"), None);
    }
}
