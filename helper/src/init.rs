//! Init, pid 1 of the session: makes the task, mounts, reads back, waits to be released, and then only reaps.

use crate::channel::{Channel, Message};
use crate::evidence::{self, Proof};
use crate::failure::{Context, failed, refused, refused_at};
use crate::lock::{Held, Locked};
use crate::mount::{self, FuseRequest, Mounted as Mounts};
use crate::ns::{self, Worlds};
use crate::reap::{self, Signals};
use crate::stage::Verified;
use crate::sys::process::{self, Child};
use crate::{caps, network, task};
use landbox_shared::event::{Event, Failure, Stage};
use landbox_shared::evidence::OwnerMap;
use nix::errno::Errno;
use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::stat::stat;
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout};
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// What the monitor hands to init by forking it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) verified: Verified,
    pub(crate) locked: Locked,
    pub(crate) channel: Channel,
    pub(crate) worlds: Worlds,
    pub(crate) null: File,
}

/// Goes through the stages, then reports how the task ended. The end of init is the end of the pid namespace.
pub(crate) fn run(world: World) -> ! {
    let report = match world.channel.as_fd().try_clone_to_owned() {
        Ok(copy) => Channel::from(copy),
        Err(_) => process::leave(1),
    };
    let event = stages(world).unwrap_or_else(Event::Failed);
    // A monitor that can't be told is gone, and has taken this process with it.
    let _ = report.send_event(&event, &[]);
    process::leave(0)
}

fn stages(world: World) -> Result<Event, Failure> {
    let isolated = isolate(world)?;
    let mounted = isolated.mount()?;
    let networked = mounted.connect()?;
    let confined = networked.confine()?;
    let released = confined.release()?;
    released.keep()
}

/// N and T are there and mapped; the task waits in them; nothing is mounted.
struct Isolated {
    verified: Verified,
    locked: Locked,
    monitor: Channel,
    worlds: Worlds,
    task: Task,
    signals: Signals,
}

struct Task {
    pid: Pid,
    channel: Channel,
}

fn isolate(world: World) -> Result<Isolated, Failure> {
    const STAGE: Stage = Stage::Namespaces;
    let World { mut verified, locked, channel: monitor, worlds, null } = world;
    // The fast path; the end of the channel is the proof.
    prctl::set_pdeathsig(Signal::SIGKILL).stage(STAGE, "tying init to the monitor")?;
    monitor.expect(&Message::Mapped).stage(STAGE, "waiting for the id maps")?;
    // Before there is a child whose end could be missed.
    let signals = Signals::catch().stage(STAGE, "catching signals")?;

    let (ours, theirs) = Channel::pair().stage(STAGE, "making a channel")?;
    let flags = match worlds {
        Worlds::Two => CloneFlags::CLONE_NEWUSER,
        Worlds::One => CloneFlags::empty(),
    };
    let exec = std::mem::take(&mut verified.exec.argv);
    let exec =
        landbox_shared::exec::Exec { argv: exec, env: std::mem::take(&mut verified.exec.env) };
    let child = match process::clone(flags) {
        Ok(Some(child)) => child,
        Ok(None) => {
            drop((ours, monitor));
            task::run(&theirs, &verified.plan, exec, &verified.caller, worlds)
        }
        Err(Errno::EPERM | Errno::ENOSPC | Errno::EUSERS | Errno::EACCES)
            if worlds == Worlds::Two =>
        {
            monitor.send(&Message::OneOnly).stage(STAGE, "talking to the monitor")?;
            process::leave(0)
        }
        Err(errno) => return Err(failed(STAGE, errno, b"", "making the task's process")),
    };
    drop((theirs, exec));
    map(&child, &verified, worlds)?;
    let task = Task { pid: child.pid, channel: ours };
    for replaced in [dup2_stdin(&null), dup2_stdout(&null), dup2_stderr(&null)] {
        replaced.stage(STAGE, "letting go of the task's descriptors")?;
    }
    monitor.send(&Message::Isolated).stage(STAGE, "talking to the monitor")?;
    Ok(Isolated { verified, locked, monitor, worlds, task, signals })
}

/// Writes T's maps, through the host's `/proc`: ours is not mounted yet.
fn map(task: &Child, verified: &Verified, worlds: Worlds) -> Result<(), Failure> {
    let caller = &verified.caller;
    match (worlds, ns::owner_map(caller.mode)) {
        (Worlds::One, _) => Ok(()),
        (Worlds::Two, OwnerMap::Full) => ns::write(number(task)?, &ns::full(caller)?, false),
        (Worlds::Two, OwnerMap::Single) => {
            let maps = [caller.uid, caller.gid].map(|id| format!("{id} 0 1\n"));
            ns::write(number(task)?, &maps, false)
        }
    }
}

/// The task's number in the host's `/proc`, as that itself says of the descriptor: ours is in another namespace.
fn number(task: &Child) -> Result<Pid, Failure> {
    const STAGE: Stage = Stage::Namespaces;
    let path = format!("/proc/self/fdinfo/{}", task.pidfd.as_raw_fd());
    let text = fs::read_to_string(&path).at(STAGE, path.as_bytes(), "reading the task's number")?;
    let number = text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
    let number = number.filter(|number| *number > 0);
    number.map(Pid::from_raw).ok_or_else(|| refused_at(STAGE, path.as_bytes(), "no number there"))
}

impl Task {
    fn next(&self, stage: Stage) -> Result<Message, Failure> {
        let received = self.channel.receive().stage(stage, "hearing from the task")?;
        received.map(|(message, _)| message).ok_or_else(task::ended_early)
    }

    /// What the task reports instead of what was expected.
    fn failure(&self, message: Message) -> Failure {
        let mut assembler = landbox_shared::wire::EventAssembler::default();
        let mut next = Some(message);
        while let Some(Message::Event(packet)) = next {
            match assembler.push(&packet) {
                Ok(Some(Event::Failed(failure))) => return failure,
                Ok(None) => next = self.next(Stage::Confine).ok(),
                Ok(Some(_)) | Err(_) => break,
            }
        }
        task::ended_early()
    }
}

impl Isolated {
    fn mount(self) -> Result<Mounted, Failure> {
        const STAGE: Stage = Stage::Mount;
        let Self { verified, locked, monitor, worlds, task, signals } = self;
        // Before anything else: else mounts the host makes later would appear inside, writable.
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        nix::mount::mount(None::<&str>, "/", None::<&str>, private, None::<&str>).at(
            STAGE,
            b"/",
            "making the mounts private (where this is forbidden, see kernel.apparmor_restrict_unprivileged_userns)",
        )?;
        let session = locked.reopen(&verified.plan.session_dir)?;
        let mut fuse = |request: FuseRequest| ask_for_daemon(&monitor, request);
        let mounts = mount::build(&verified.plan, session.as_fd(), &mut fuse)?;
        Ok(Mounted { verified, _lock: locked.held(), monitor, worlds, task, signals, mounts })
    }
}

/// Has the monitor start the daemon that will serve a mount.
fn ask_for_daemon(monitor: &Channel, request: FuseRequest) -> Result<(), Failure> {
    const STAGE: Stage = Stage::Layer;
    let FuseRequest { fuse, lowers, upper, work, layer } = request;
    let mut fds: Vec<OwnedFd> = vec![fuse];
    fds.extend(lowers);
    fds.extend([upper, work]);
    let beside: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    monitor.send_beside(&Message::Fuse(layer), &beside).stage(STAGE, "talking to the monitor")?;
    match monitor.receive().stage(STAGE, "hearing from the monitor")? {
        Some((Message::FuseStarted(0), _)) => Ok(()),
        Some((Message::FuseStarted(errno), _)) => Err(failed(
            STAGE,
            Errno::from_raw(errno),
            b"/usr/bin/fuse-overlayfs",
            "starting the layer's daemon",
        )),
        Some(_) | None => Err(refused(STAGE, "the monitor is gone")),
    }
}

/// The new root stands, and this process is in it.
struct Mounted {
    verified: Verified,
    _lock: Held,
    monitor: Channel,
    worlds: Worlds,
    task: Task,
    signals: Signals,
    mounts: Mounts,
}

impl Mounted {
    fn connect(self) -> Result<Networked, Failure> {
        network::connect(self.verified.plan.network)?;
        Ok(Networked(self))
    }
}

/// The network is what the plan says.
struct Networked(Mounted);

impl Networked {
    /// Lets the task enter the new root and give up its rights, and reads back what it is then.
    fn confine(self) -> Result<Confined, Failure> {
        const STAGE: Stage = Stage::Confine;
        let Mounted { verified, _lock, monitor, worlds, task, signals, mounts } = self.0;
        let root = stat("/").at(STAGE, b"/", "reading the new root")?;
        let root = Message::Mounted(root.st_dev, root.st_ino);
        task.channel.send(&root).stage(STAGE, "talking to the task")?;
        let message = task.next(STAGE)?;
        let Message::Confined(abi) = message else { return Err(task.failure(message)) };
        let proof = evidence::read(task.pid, &verified, &mounts, worlds, abi)?;
        Ok(Confined { _lock, monitor, task, signals, roots: mounts.layer_roots, proof })
    }
}

/// The task has no rights left, and the kernel said so. The plan and all it held are gone from memory.
struct Confined {
    _lock: Held,
    monitor: Channel,
    task: Task,
    signals: Signals,
    roots: Vec<OwnedFd>,
    proof: Proof,
}

impl Confined {
    /// Shows the evidence, gives up what init could do, and waits for the word.
    fn release(self) -> Result<Released, Failure> {
        const STAGE: Stage = Stage::Release;
        let Self { _lock, monitor, task, signals, roots, proof } = self;
        let Proof { evidence, ids, table } = proof;
        let ready = Event::Ready(Box::new(evidence));
        let beside: Vec<_> =
            std::iter::once(table.as_fd()).chain(roots.iter().map(AsFd::as_fd)).collect();
        monitor.send(&Message::Mounts(ids)).stage(STAGE, "talking to the monitor")?;
        monitor.send_event(&ready, &beside)?;
        drop((ready, beside));
        drop((roots, table));
        // Else the task could write /proc/1/mem and forge the report of its own end.
        prctl::set_dumpable(false).stage(STAGE, "closing init's memory")?;
        caps::drop_all().stage(STAGE, "dropping init's capabilities")?;
        process::trim_memory();
        monitor.expect(&Message::Release).stage(STAGE, "waiting to be released")?;
        task.channel.send(&Message::Release).stage(STAGE, "releasing the task")?;
        Ok(Released { _lock, monitor, task, signals })
    }
}

/// The task runs.
struct Released {
    _lock: Held,
    monitor: Channel,
    task: Task,
    signals: Signals,
}

impl Released {
    /// Reaps and forwards until the task has ended.
    fn keep(self) -> Result<Event, Failure> {
        reap::keep(&self.signals, &self.monitor, &self.task.channel, self.task.pid)
    }
}
