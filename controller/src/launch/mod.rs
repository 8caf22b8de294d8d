//! One launch: start the helper, seal the plan for it, judge its evidence, let the task go.

mod events;
mod spawn;

pub use events::{EventSocket, Received};
pub use spawn::{Helper, Process, start};

use crate::error::{Context, Failure, Kind, Result};
use crate::pty::signals::{Caught, Signals};
use crate::seal::{self, Key};
use crate::session::store::show;
use crate::ui::text::visible;
use landbox_shared::digest::Digest;
use landbox_shared::event::{self, Event, Stage};
use landbox_shared::evidence::Evidence;
use landbox_shared::exec::Exec;
use landbox_shared::holds;
use landbox_shared::id::LayerId;
use landbox_shared::plan::{Op, Plan};
use landbox_shared::wire;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::Signal;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the helper may take to set a boundary up: a hundred starts at once on a slow machine stay far below it.
const PATIENCE: Duration = Duration::from_secs(60);

/// How the helper's word begins where the kernel gives a session no `/proc` of its own.
const FRESH_PROC: &str = "making a fresh /proc";

/// What takes away what container managers cover `/proc` with.
pub const UNMASK_PROC: &str = "start the container with: docker run --security-opt systempaths=unconfined (podman: \
     --security-opt unmask=ALL; Kubernetes: procMount: Unmasked; LXC: lxc.include = \
     /usr/share/lxc/config/nesting.conf; Incus: security.nesting=true)";

/// A boundary that stands, with a task that has not started yet.
#[derive(Debug)]
pub struct Launched {
    /// The monitor.
    pub child: Process,
    /// Where events come from.
    pub events: EventSocket,
    /// A pidfd of the session's init.
    pub init: OwnedFd,
    /// The merged root of each layer.
    pub merged: Vec<(LayerId, OwnedFd)>,
    /// What the helper read back.
    pub evidence: Evidence,
    /// Its digest.
    pub evidence_digest: Digest,
}

/// Why a launch did not come about. The helper and all it made are gone.
#[derive(Debug)]
pub enum Refusal {
    /// The helper says which step failed.
    Helper(event::Failure),
    /// A signal of this number arrived meanwhile.
    Interrupted(i32),
    /// Anything else.
    Other(Failure),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

/// What goes to the helper.
#[derive(Debug)]
pub struct Order {
    /// What it is to do.
    pub plan: Plan,
    /// For whom: [`exec_frame`].
    pub exec_frame: Vec<u8>,
}

/// Sets a boundary up. `folders` makes what the plan mounts while the helper judges the plan, which goes on when they are
/// there. `folder` (`launches/<n>`) receives the envelope and the evidence.
pub fn launch(
    mut helper: Helper,
    order: &Order,
    folders: impl FnOnce() -> Result<()>,
    key: &Key,
    folder: &Path,
    signals: &Signals,
) -> Result<Launched, Refusal> {
    match handshake(&mut helper, order, folders, key, folder, signals) {
        Ok((evidence, evidence_digest, init, merged)) => {
            let Helper { child, frames: _, events } = helper;
            Ok(Launched { child, events, init, merged, evidence, evidence_digest })
        }
        Err(refusal) => {
            helper.abandon();
            Err(refusal)
        }
    }
}

/// The helper on its way out.
#[derive(Debug)]
pub struct Leaving {
    child: Process,
    events: Option<EventSocket>,
}

impl Leaving {
    /// Of a helper that has said its last word.
    pub fn new(child: Process, events: EventSocket) -> Self {
        Self { child, events: Some(events) }
    }

    /// Waits until it is gone. The end of the channel ends whatever of it remains.
    pub fn wait(&mut self) {
        self.events = None;
        if !self.child.has_ended() {
            reap(&mut self.child);
        }
    }

    /// Leaves the closing of descriptors to it, where it is still there: the kernel lets whoever closes a watch wait.
    pub fn hand_over(&self, descriptors: &[OwnedFd]) {
        if let Some(events) = self.events.as_ref().filter(|_| !descriptors.is_empty()) {
            events.hand_over(descriptors);
        }
    }
}

/// Waits for the helper's end, and kills it where it does not come.
pub fn reap(child: &mut Process) {
    let deadline = Instant::now() + Duration::from_secs(5);
    if let Some(pidfd) = child.pidfd() {
        while let Some(limit) = remaining(deadline) {
            let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
            match rustix::event::poll(&mut fds, Some(&limit)) {
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => break,
            }
        }
    }
    if !child.has_ended() {
        child.kill();
    }
}

fn remaining(deadline: Instant) -> Option<Timespec> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { None } else { Timespec::try_from(left).ok() }
}

type Stands = (Evidence, Digest, OwnedFd, Vec<(LayerId, OwnedFd)>);

fn handshake(
    helper: &mut Helper,
    order: &Order,
    folders: impl FnOnce() -> Result<()>,
    key: &Key,
    folder: &Path,
    signals: &Signals,
) -> Result<Stands, Refusal> {
    let deadline = Instant::now() + PATIENCE;
    let (event, _) = wait(&mut helper.events, signals, deadline)?;
    let challenge = match event {
        Event::Challenge(challenge) => challenge,
        Event::Failed(failure) => return Err(Refusal::Helper(failure)),
        Event::Ready(_)
        | Event::ExecFailed { .. }
        | Event::Exited(_)
        | Event::BoundaryLost { .. }
        | Event::LinkLost
        | Event::Egress(_) => return Err(unexpected(&event)),
    };
    let Order { plan, exec_frame } = order;
    let sealed = seal::seal(plan, challenge, key)?;
    // A helper that refuses the envelope stops reading: what it says counts, not the broken pipe.
    let sent = helper.frames.as_mut().map_or(Ok(()), |frames| {
        frames.write_all(&sealed.envelope).and_then(|()| frames.write_all(exec_frame))
    });
    folders()?;
    // Closed, which tells the helper that nothing follows, and that it may go on.
    helper.frames = None;
    // While the helper works.
    make_folder(folder)?;
    let path = folder.join("envelope");
    std::fs::write(&path, &sealed.envelope).context(|| format!("can't write {}", show(&path)))?;
    let rules = holds::Rules::of(plan)
        .map_err(|why| Failure::new(Kind::Failed, format!("can't compile the policy: {why}")))?;
    let (event, descriptors) = match wait(&mut helper.events, signals, deadline) {
        Ok(heard) => heard,
        Err(Refusal::Other(_)) if sent.is_err() => {
            return Err(sent
                .context(|| "can't hand the helper its plan".into())
                .map_or_else(Refusal::Other, |()| {
                    Refusal::Other(Failure::new(Kind::Failed, "the helper is gone"))
                }));
        }
        Err(refusal) => return Err(refusal),
    };
    let evidence = match event {
        Event::Ready(evidence) => *evidence,
        Event::Failed(failure) => return Err(Refusal::Helper(failure)),
        Event::Challenge(_)
        | Event::ExecFailed { .. }
        | Event::Exited(_)
        | Event::BoundaryLost { .. }
        | Event::LinkLost
        | Event::Egress(_) => return Err(unexpected(&event)),
    };
    let (frame, evidence_digest) =
        wire::evidence_frame(&evidence).context(|| "can't digest the evidence".into())?;
    let path = folder.join("evidence");
    std::fs::write(&path, frame).context(|| format!("can't write {}", show(&path)))?;
    holds::check_with(plan, &rules, &sealed.digest, &evidence).map_err(|why| {
        Refusal::Helper(event::Failure {
            stage: Stage::Evidence,
            errno: 0,
            path: Vec::new(),
            detail: format!("the boundary is not as asked for: {why}"),
        })
    })?;
    let layers: Vec<LayerId> = plan
        .ops
        .iter()
        .filter_map(|op| if let Op::Layer(layer) = op { Some(layer.id.clone()) } else { None })
        .collect();
    if descriptors.len() != layers.len() + 1 {
        return Err(Refusal::Other(Failure::new(
            Kind::Failed,
            format!(
                "the helper sent {} descriptors where {} were due",
                descriptors.len(),
                layers.len() + 1
            ),
        )));
    }
    let mut descriptors = descriptors.into_iter();
    let init = descriptors
        .next()
        .ok_or_else(|| Failure::new(Kind::Failed, "the helper sent no descriptor of init"))?;
    Ok((evidence, evidence_digest, init, layers.into_iter().zip(descriptors).collect()))
}

fn make_folder(folder: &Path) -> Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .context(|| format!("can't make {}", show(folder)))
}

fn unexpected(event: &Event) -> Refusal {
    let name = match event {
        Event::Challenge(_) => "challenge",
        Event::Ready(_) => "ready",
        Event::ExecFailed { .. } => "exec failed",
        Event::Exited(_) => "exited",
        Event::Failed(_) => "failed",
        Event::BoundaryLost { .. } => "boundary lost",
        Event::LinkLost => "link lost",
        Event::Egress(_) => "egress",
    };
    Refusal::Other(Failure::new(Kind::Failed, format!("the helper said \"{name}\" out of order")))
}

/// The next event, or why there is none.
fn wait(
    events: &mut EventSocket,
    signals: &Signals,
    deadline: Instant,
) -> Result<(Event, Vec<OwnedFd>), Refusal> {
    loop {
        match events.receive()? {
            Received::Event(event, descriptors) => return Ok((event, descriptors)),
            Received::Closed => {
                return Err(Refusal::Other(
                    Failure::new(Kind::Failed, "the helper ended without a word")
                        .hint("landbox doctor says what this machine lacks"),
                ));
            }
            Received::Pending => {}
        }
        let Some(limit) = remaining(deadline) else {
            return Err(Refusal::Other(Failure::new(
                Kind::Failed,
                format!("the helper did not answer within {} seconds", PATIENCE.as_secs()),
            )));
        };
        let mut fds = [
            PollFd::new(events, PollFlags::IN),
            PollFd::from_borrowed_fd(std::os::fd::AsFd::as_fd(signals), PollFlags::IN),
        ];
        match rustix::event::poll(&mut fds, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => {
                return Err(Refusal::Other(Failure::new(
                    Kind::Failed,
                    format!("can't wait for the helper: {e}"),
                )));
            }
        }
        if let Some(signal) = signals.take().into_iter().find_map(ends_a_launch) {
            return Err(Refusal::Interrupted(signal));
        }
    }
}

/// The number of a signal that is no business of a launch's.
fn ends_a_launch(caught: Caught) -> Option<i32> {
    match caught {
        Caught::End(number) => Some(number),
        // Meant for a task that can't hear it yet.
        Caught::Task(Signal::USR1 | Signal::USR2) | Caught::Terminal(_) => None,
        Caught::Task(signal) => Some(signal.as_raw()),
    }
}

/// The exec frame of `exec` and the digest the plan must name.
pub fn exec_frame(exec: &Exec) -> Result<(Vec<u8>, Digest)> {
    wire::exec_frame(exec).map_err(|e| {
        Failure::new(Kind::Usage, format!("the command line and the environment are too long: {e}"))
            .hint("start it with a smaller environment")
    })
}

/// What fuse-overlayfs says of a folder whose path leads elsewhere inside.
const UNPLACED: &str = "cannot retrieve path";

/// What an error number means that says that a limit of this process is met, and what to do.
pub fn limit_met(errno: i32) -> Option<&'static str> {
    let files = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    files.contains(&errno).then_some(
        "too few files may be open at once here: ulimit -n 1024 raises that, as far as ulimit -Hn lets it",
    )
}

/// The same of starting a process.
pub(super) fn no_process(errno: i32) -> Option<&'static str> {
    (errno == Errno::AGAIN.raw_os_error()).then_some(
        "you may have no more processes: ulimit -u says how many, ps -u \"$USER\" lists them",
    )
}

/// What a failure of the helper means for the person at the terminal.
pub fn explain(failure: &event::Failure) -> Failure {
    let kind = match failure.stage {
        Stage::Namespaces | Stage::Mount | Stage::Layer | Stage::Network | Stage::Start => {
            Kind::Unavailable
        }
        Stage::Receive
        | Stage::Verify
        | Stage::Lock
        | Stage::Confine
        | Stage::Evidence
        | Stage::Release
        | Stage::Watch => Kind::Failed,
    };
    let mut text = format!(
        "the boundary can't be made (stage {}): {}",
        failure.stage,
        visible(failure.detail.as_bytes())
    );
    if !failure.path.is_empty() {
        text.push_str(": ");
        text.push_str(&visible(&failure.path));
    }
    if failure.errno != 0 {
        let error = std::io::Error::from_raw_os_error(failure.errno);
        text.push_str(&format!(": {error}"));
    }
    let limit = limit_met(failure.errno).or_else(|| no_process(failure.errno));
    let hint = match failure.stage {
        Stage::Lock => "another launch holds the session; landbox ls shows it",
        Stage::Layer if failure.detail.contains(UNPLACED) => {
            "the state folder lies where the session has a folder of its own, as in /dev/shm, and fuse-overlayfs does \
             not find it: LANDBOX_STATE_DIR names another place, and --overlay kernel needs none"
        }
        Stage::Layer => {
            "landbox doctor says what this machine lacks; --overlay kernel or fuse chooses one back end"
        }
        Stage::Verify => {
            "landbox doctor says which keys the helper trusts, and the command that enrols yours"
        }
        Stage::Mount if failure.detail.starts_with(FRESH_PROC) => UNMASK_PROC,
        Stage::Start
        | Stage::Receive
        | Stage::Namespaces
        | Stage::Mount
        | Stage::Network
        | Stage::Confine
        | Stage::Evidence
        | Stage::Release
        | Stage::Watch => "landbox doctor says what this machine lacks",
    };
    Failure::new(kind, text).hint(limit.unwrap_or(hint))
}

#[cfg(test)]
mod tests;
