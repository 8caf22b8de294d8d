//! Challenge out, one envelope and one exec frame in, then the end of the pipe.

use crate::channel::Events;
use crate::failure::{Context, failed, refused, refused_at, require};
use crate::start::Caller;
use crate::sys;
use landbox_shared::event::{Event, Failure, Stage};
use landbox_shared::procfs;
use landbox_shared::wire::{self, Binding};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

const STAGE: Stage = Stage::Receive;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// How long the controller may take to answer. It is ready by then, or hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two frames of bounded length came in, and nothing after them. Nothing about them was believed or decoded.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) caller: Caller,
    pub(crate) binding: Binding,
    pub(crate) envelope: Vec<u8>,
    pub(crate) exec: Vec<u8>,
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

    let mut pipe = Pipe { file: File::from(inherited), until: Instant::now() + PATIENCE };
    let envelope = pipe.frame(wire::envelope_length)?;
    let exec = pipe.frame(wire::exec_length)?;
    require(pipe.read(&mut [0])? == 0, STAGE, "bytes follow the exec frame")?;
    Ok(Received { caller, binding, envelope, exec })
}

struct Pipe {
    file: File,
    until: Instant,
}

impl Pipe {
    /// A whole frame, whose head says how long it is. Lengths are bounded by `shared::limits`.
    fn frame<const HEAD: usize>(
        &mut self,
        length: fn(&[u8; HEAD]) -> Result<usize, wire::WireError>,
    ) -> Result<Vec<u8>, Failure> {
        let mut head = [0; HEAD];
        self.fill(&mut head)?;
        let length = length(&head).map_err(|e| refused(STAGE, e))?;
        let mut frame = head.to_vec();
        frame.resize(length, 0);
        self.fill(frame.get_mut(HEAD..).unwrap_or_default())?;
        Ok(frame)
    }

    fn fill(&mut self, mut bytes: &mut [u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            let count = self.read(bytes)?;
            require(count > 0, STAGE, "the pipe ended inside a frame")?;
            bytes = bytes.get_mut(count..).unwrap_or_default();
        }
        Ok(())
    }

    fn read(&mut self, into: &mut [u8]) -> Result<usize, Failure> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            match poll(&mut [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) => return Err(failed(STAGE, Errno::ETIMEDOUT, "", "no envelope came")),
                Ok(_) => return self.file.read(into).stage(STAGE, "reading the pipe"),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno).stage(STAGE, "waiting for the envelope"),
            }
        }
    }
}
