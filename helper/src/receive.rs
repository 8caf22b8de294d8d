//! Challenge out, one envelope and one exec frame in. The end of the pipe follows them when the controller is ready.

use crate::channel::Events;
use crate::failure::{Context, Failure, Stage, refused, refused_at, require};
use crate::start::Caller;
use crate::sys;
use landbox_shared::event::Event;
use landbox_shared::procfs;
use landbox_shared::wire::{self, Binding, WireError};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::read;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

const STAGE: Stage = Stage::Receive;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// How long the controller may take to answer. It is ready by then, or hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Room for an ordinary plan and environment.
const USUAL: usize = 16 << 10;

/// Two frames of bounded length came in. Nothing about them was believed or decoded.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) caller: Caller,
    pub(crate) binding: Binding,
    pub(crate) envelope: Vec<u8>,
    pub(crate) exec: Vec<u8>,
    /// Not at its end yet.
    pub(crate) pipe: Pipe,
}

/// Sends a fresh challenge and reads what answers it. Nothing is judged or decoded here but lengths.
pub(crate) fn receive(
    caller: Caller,
    inherited: OwnedFd,
    events: &Events,
) -> Result<Received, Failure> {
    let challenge = sys::process::random().stage(STAGE, "making the challenge")?;
    events.send(STAGE, &Event::Challenge(challenge), &[])?;
    let boot_id = fs::read_to_string(BOOT_ID).at(STAGE, BOOT_ID, "reading the boot id")?;
    let boot_id = procfs::boot_id(&boot_id);
    let boot_id = boot_id.ok_or_else(|| refused_at(STAGE, BOOT_ID, "no boot id there"))?;
    let binding = Binding { challenge, uid: caller.uid, boot_id };

    let pipe = Pipe { end: inherited, until: Instant::now() + PATIENCE };
    let mut bytes = Vec::with_capacity(USUAL);
    // Not one byte more than belongs to them. Where they are cut short, that is said.
    while let missing @ 1.. = wire::missing(&bytes).map_err(|e| refused(STAGE, e))?
        && let more @ [_, ..] = &*pipe.read(missing)?
    {
        bytes.extend(more);
    }
    let [envelope, exec] = wire::frames(&bytes).map_err(|e| refused(STAGE, e))?;
    Ok(Received { caller, binding, envelope: envelope.to_vec(), exec: exec.to_vec(), pipe })
}

/// What the frames come through.
#[derive(Debug)]
pub(crate) struct Pipe {
    end: OwnedFd,
    until: Instant,
}

impl Pipe {
    /// Reads some bytes, no more than so many; none at the end.
    fn read(&self, most: usize) -> Result<Vec<u8>, Failure> {
        let left = self.until.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let mut bytes = vec![0; most];
        let read = match poll(&mut [PollFd::new(self.end.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) => Err(Errno::ETIMEDOUT),
            ready => ready.and_then(|_| read(&self.end, &mut bytes)),
        };
        bytes.truncate(read.stage(STAGE, "reading the pipe")?);
        Ok(bytes)
    }

    /// Waits for the end, which says that the folders the plan names are made. Nothing may come before it.
    pub(crate) fn end(&self) -> Result<(), Failure> {
        require(self.read(1)?.is_empty(), STAGE, WireError::Length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_dalek::SigningKey;
    use landbox_shared::evidence::{HelperMode, NAMESPACES};
    use landbox_shared::exec::Exec;
    use landbox_shared::fixtures;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use nix::sys::stat::Mode;
    use nix::unistd::{pipe, write};
    use std::sync::mpsc;

    /// What `work` comes to, unless it waits for ever.
    fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || tell.send(work()));
        told.recv_timeout(Duration::from_secs(30)).expect("it waits for ever")
    }

    #[test]
    fn a_controller_that_falls_silent_is_not_waited_for_beyond_the_time_it_has() {
        for said in ["", "a part"] {
            let (end, theirs) = pipe().unwrap();
            write(&theirs, said.as_bytes()).unwrap();
            // What it says does not give it more time: none is left when it is asked again.
            let pipe = Pipe { end, until: Instant::now() + Duration::from_millis(50) };
            let failure = in_time(move || {
                loop {
                    match pipe.read(1) {
                        Ok(bytes) => assert!(!bytes.is_empty(), "the pipe is still open"),
                        Err(failure) => return failure,
                    }
                }
            });
            assert_eq!(failure.errno, libc::ETIMEDOUT, "{failure:?}");
            drop(theirs);
        }
    }

    #[test]
    fn a_controller_has_one_minute_for_everything_from_the_challenge_on() {
        let kind = SockType::SeqPacket;
        let (ours, _heard) =
            socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC).unwrap();
        let events = Events::new(ours).unwrap();
        let caller = Caller {
            uid: 1000,
            gid: 1000,
            mode: HelperMode::Unprivileged,
            maps: [String::new(), String::new()],
            trusted: Vec::new(),
            umask: Mode::empty(),
            core_limit: (0, 0),
            namespaces: [0; NAMESPACES.len()],
        };
        let plan = fixtures::plan(Vec::new());
        let binding = Binding { challenge: [0; 32], uid: 1000, boot_id: [0; 16] };
        let exec = Exec { argv: vec![b"true".to_vec()], env: Vec::new() };
        let envelope = wire::seal(&plan, &binding, &SigningKey::from_bytes(&[7; 32])).unwrap();
        let (frame, _) = wire::exec_frame(&exec).unwrap();
        let (end, theirs) = pipe().unwrap();
        write(&theirs, &[envelope.clone(), frame.clone()].concat()).unwrap();
        let before = Instant::now();
        let received = in_time(move || receive(caller, end, &events)).unwrap();
        let (soonest, latest) =
            (before + Duration::from_secs(60), Instant::now() + Duration::from_secs(60));
        assert!((soonest..=latest).contains(&received.pipe.until));
        assert_eq!((received.envelope, received.exec), (envelope, frame));
    }
}
