//! Init, pid 1 of the session: makes the task, mounts, reads back, waits to be released, and then only reaps.

use crate::channel::{Channel, Message};
use crate::confine;
use crate::evidence;
use crate::failure::{Context, Failure, Stage, failed, refused, refused_at};
use crate::lock::{self, Locked};
use crate::mount::{self, FuseRequest, Mounted as Mounts};
use crate::net::{self, Guard};
use crate::ns;
use crate::reap::{Crew, Signals};
use crate::start::Caller;
use crate::sys::process::{self, Child};
use crate::verify::Verified;
use crate::{caps, sys, task};
use landbox_shared::digest::Digest;
use landbox_shared::event::Event;
use landbox_shared::evidence::{Evidence, NetworkRecord};
use landbox_shared::idmap::{IdMaps, Worlds};
use landbox_shared::plan::Plan;
use landbox_shared::policy::Network;
use landbox_shared::procfs;
use nix::errno::Errno;
use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::stat::stat;
use nix::unistd::Pid;
use std::fs::{self, File};
use std::iter::once;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// What the boundary is made from, and what evidence is compared with.
#[derive(Debug)]
pub(crate) struct Meant {
    pub(crate) caller: Caller,
    pub(crate) plan: Plan,
    pub(crate) envelope_digest: Digest,
    pub(crate) maps: IdMaps,
}

/// Goes through the stages, then reports how the task ended. The end of init is the end of the pid namespace. All of it
/// comes from the monitor, by a fork.
pub(crate) fn run(
    verified: Verified,
    locked: Locked,
    maps: IdMaps,
    null: &File,
    monitor: &Channel,
) -> ! {
    let event = isolate(verified, locked, maps, null, monitor)
        .and_then(|isolated| isolated.guard(monitor))
        .and_then(|guarded| guarded.mount(monitor))
        .and_then(|mounted| mounted.connect(monitor))
        .and_then(Networked::confine)
        .and_then(|confined| confined.release(monitor))
        // Closed with this process: the word goes out first.
        .and_then(|Released(crew)| std::mem::ManuallyDrop::new(crew).keep(monitor))
        .unwrap_or_else(Event::Failed);
    // A monitor that can't be told is gone, and has taken this process with it.
    let _ = monitor.send(Stage::Watch, &Message::End(event), &[]);
    process::leave(0)
}

/// N and T are there and mapped; the task waits in them; nothing is mounted.
struct Isolated {
    meant: Meant,
    session: OwnedFd,
    crew: Crew,
}

fn isolate(
    verified: Verified,
    locked: Locked,
    maps: IdMaps,
    null: &File,
    monitor: &Channel,
) -> Result<Isolated, Failure> {
    const STAGE: Stage = Stage::Namespaces;
    let Verified { caller, plan, exec, envelope_digest, pipe: _ } = verified;
    let meant = Meant { caller, plan, envelope_digest, maps };
    let worlds = meant.maps.worlds;
    // The fast path; the end of the channel is the proof.
    prctl::set_pdeathsig(Signal::SIGKILL).stage(STAGE, "tying init to the monitor")?;
    // Before there is a child whose end could be missed.
    let signals = Signals::catch().stage(STAGE, "catching signals")?;
    let [channel, theirs] = Channel::pair(["the task", "init"], STAGE)?;
    monitor.expect(STAGE, &Message::Mapped)?;

    if matches!(meant.plan.network, Network::Policy(_)) {
        net::close_namespaces(worlds);
    }
    let flags = match worlds {
        Worlds::Two => CloneFlags::CLONE_NEWUSER,
        Worlds::One => CloneFlags::empty(),
    };
    let child = match process::clone(flags) {
        Ok(Some(child)) => child,
        Ok(None) => task::run(&theirs, &meant, exec),
        Err(Errno::EPERM | Errno::ENOSPC | Errno::EUSERS | Errno::EACCES)
            if worlds == Worlds::Two =>
        {
            monitor.send(STAGE, &Message::OneOnly, &[])?;
            process::leave(0)
        }
        Err(errno) => return Err(failed(STAGE, errno, "", "making the task's process")),
    };
    drop((theirs, exec));
    match worlds {
        // Through the host's `/proc`: ours is not mounted yet.
        Worlds::Two => ns::write(number(&child)?, &meant.maps.task, false)?,
        Worlds::One => {}
    }
    ns::let_go_of_stdio(null)?;
    monitor.send(STAGE, &Message::Isolated, &[])?;
    let Locked { folder: session, lock } = locked;
    let crew = Crew { lock, task: child.pid, channel, signals };
    Ok(Isolated { meant, session, crew })
}

/// The task's number in the host's `/proc`, as that itself says of the descriptor: ours is in another namespace.
fn number(task: &Child) -> Result<Pid, Failure> {
    const STAGE: Stage = Stage::Namespaces;
    let path = format!("/proc/self/fdinfo/{}", task.pidfd.as_raw_fd());
    let text = fs::read_to_string(&path).at(STAGE, &path, "reading the task's number")?;
    let number = procfs::number(&text).map(Pid::from_raw);
    number.ok_or_else(|| refused_at(STAGE, &path, "no number there"))
}

impl Isolated {
    /// Closes the network before anything could use it, and has the link started, which takes as long as mounting.
    fn guard(self, monitor: &Channel) -> Result<Guarded, Failure> {
        const STAGE: Stage = Stage::Network;
        let Meant { plan, maps, .. } = &self.meant;
        let up = || sys::net::loopback_up().stage(STAGE, "setting loopback up");
        let guard = match &plan.network {
            // The caller's own namespace: nothing to do, and no right to do it.
            Network::Host => None,
            Network::None => up().map(|()| None)?,
            Network::Policy(policy) => {
                up()?;
                let guard = net::guard(policy, maps)?;
                let link = Message::Link(guard.sandboxed);
                monitor.send(STAGE, &link, &[guard.socket.as_fd()])?;
                Some(guard)
            }
        };
        Ok(Guarded { isolated: self, guard })
    }
}

/// Nothing passes that the plan doesn't allow; with a policy, nothing at all yet but loopback.
struct Guarded {
    isolated: Isolated,
    guard: Option<Guard>,
}

impl Guarded {
    fn mount(self, monitor: &Channel) -> Result<Mounted, Failure> {
        const STAGE: Stage = Stage::Mount;
        let Self { isolated: Isolated { meant, session, crew }, guard } = self;
        // Before anything else: else mounts the host makes later would appear inside, writable.
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        let doing = "making the mounts private (kernel.apparmor_restrict_unprivileged_userns may forbid it)";
        let made = nix::mount::mount(None::<&str>, "/", None::<&str>, private, None::<&str>);
        made.at(STAGE, "/", doing)?;
        let session = lock::reopen(&session, &meant.plan.session_dir)?;
        let mut fuse = |request: FuseRequest| ask_for_daemon(monitor, &crew.lock, request);
        let mounts = mount::build(&meant.plan, session.as_fd(), &mut fuse)?;
        Ok(Mounted { meant, mounts, crew, guard })
    }
}

/// Has the monitor start the daemon that will serve a mount.
fn ask_for_daemon(monitor: &Channel, lock: &File, request: FuseRequest) -> Result<(), Failure> {
    let FuseRequest { fuse, lowers, upper, work, layer } = request;
    let fds = once(&fuse).chain(&lowers).chain([&upper, &work]);
    let beside: Vec<_> = fds.map(AsFd::as_fd).chain([lock.as_fd()]).collect();
    monitor.send(Stage::Layer, &Message::Fuse(layer), &beside)?;
    monitor.expect(Stage::Layer, &Message::FuseStarted)
}

/// The new root stands, and this process is in it.
struct Mounted {
    meant: Meant,
    mounts: Mounts,
    crew: Crew,
    guard: Option<Guard>,
}

impl Mounted {
    /// Waits for the link, and looks at it.
    fn connect(self, monitor: &Channel) -> Result<Networked, Failure> {
        const STAGE: Stage = Stage::Network;
        let Self { meant, mounts, crew, guard } = self;
        let network = match guard {
            None => None,
            Some(guard) => {
                monitor.send(STAGE, &Message::AwaitLink, &[])?;
                monitor.expect(STAGE, &Message::LinkReady)?;
                Some(guard.connect()?)
            }
        };
        Ok(Networked { meant, mounts, crew, network })
    }
}

/// The network is what the plan says.
struct Networked {
    meant: Meant,
    mounts: Mounts,
    crew: Crew,
    network: Option<NetworkRecord>,
}

impl Networked {
    /// Lets the task enter the new root and give up its rights, and reads back what it is then.
    fn confine(self) -> Result<Confined, Failure> {
        const STAGE: Stage = Stage::Confine;
        let Self { meant, mounts, crew, network } = self;
        let root = stat("/").at(STAGE, "/", "reading the new root")?;
        crew.channel.send(STAGE, &Message::Mounted(root.st_dev, root.st_ino), &[])?;
        crew.channel.expect(STAGE, &Message::Entered)?;
        // Its mounts are its own from here on, and nobody may change them: read while it gives its rights up.
        let listed = evidence::mounts(crew.task, &meant.plan, &mounts);
        let Message::Confined(abi) = crew.channel.hear(STAGE)? else {
            return Err(refused(STAGE, "the task spoke out of turn"));
        };
        // After the task's own words, which say why where it is gone.
        let (listed, table) = listed?;
        let (evidence, ids) = evidence::read(crew.task, &meant, listed, network.as_ref(), abi)?;
        Ok(Confined { evidence, ids, table, roots: mounts.layer_roots, crew })
    }
}

/// The task has no rights left, and the kernel said so. The plan and all it held are gone from memory.
struct Confined {
    evidence: Evidence,
    ids: Vec<u32>,
    table: File,
    roots: Vec<OwnedFd>,
    crew: Crew,
}

impl Confined {
    /// Shows the evidence, gives up what init could do, and waits for the word.
    fn release(self, monitor: &Channel) -> Result<Released, Failure> {
        const STAGE: Stage = Stage::Release;
        let Self { evidence, ids, table, roots, crew } = self;
        let beside: Vec<_> = once(table.as_fd()).chain(roots.iter().map(AsFd::as_fd)).collect();
        monitor.send(STAGE, &Message::Ready(Box::new(evidence), ids), &beside)?;
        drop(beside);
        drop((roots, table));
        // Else the task could write /proc/1/mem and forge the report of its own end.
        prctl::set_dumpable(false).stage(STAGE, "closing init's memory")?;
        caps::drop_all().stage(STAGE, "dropping init's capabilities")?;
        confine::install(&confine::filters(landbox_seccomp::init)?)?;
        monitor.expect(STAGE, &Message::Release)?;
        crew.channel.send(STAGE, &Message::Release, &[])?;
        Ok(Released(crew))
    }
}

/// The task runs.
struct Released(Crew);
