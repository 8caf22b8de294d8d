//! Challenge out, one envelope and one exec frame in, then the end of the pipe.

use crate::events::Events;
use crate::failure::{Context, failed, refused};
use crate::stage::Received;
use crate::start::{Caller, Inherited};
use crate::sys;
use landbox_shared::event::{Event, Failure, Stage};
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

/// Sends a fresh challenge and reads what answers it. Nothing is judged or decoded here but lengths.
pub(crate) fn receive(
    caller: Caller,
    inherited: OwnedFd,
    events: &Events,
) -> Result<Received, Failure> {
    let challenge = sys::process::random().stage(STAGE, "making the challenge")?;
    events.send(&Event::Challenge(challenge), &[])?;
    let binding = Binding { challenge, uid: caller.uid, boot_id: boot_id()? };

    let mut pipe = Pipe { file: File::from(inherited), until: Instant::now() + PATIENCE };
    let head = pipe.exactly::<{ wire::ENVELOPE_HEAD }>()?;
    let length = wire::envelope_length(&head).map_err(|e| refused(STAGE, e))?;
    let envelope = pipe.rest_of(&head, length)?;
    let head = pipe.exactly::<{ wire::EXEC_HEAD }>()?;
    let length = wire::exec_length(&head).map_err(|e| refused(STAGE, e))?;
    let exec = pipe.rest_of(&head, length)?;
    if pipe.read(&mut [0])? != 0 {
        return Err(refused(STAGE, "bytes follow the exec frame"));
    }
    Ok(Received { caller, binding, envelope, exec })
}

struct Pipe {
    file: File,
    until: Instant,
}

impl Pipe {
    fn exactly<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// The whole frame of `length` bytes that starts with `head`. Both lengths are bounded by `shared::limits`.
    fn rest_of(&mut self, head: &[u8], length: usize) -> Result<Vec<u8>, Failure> {
        let mut frame = vec![0; length];
        let (start, rest) = frame
            .split_at_mut_checked(head.len())
            .ok_or_else(|| refused(STAGE, "frame is shorter than its head"))?;
        start.copy_from_slice(head);
        self.fill(rest)?;
        Ok(frame)
    }

    fn fill(&mut self, mut bytes: &mut [u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            let count = self.read(bytes)?;
            match bytes.get_mut(count..) {
                Some(rest) if count > 0 => bytes = rest,
                Some(_) | None => return Err(refused(STAGE, "the pipe ended inside a frame")),
            }
        }
        Ok(())
    }

    fn read(&mut self, into: &mut [u8]) -> Result<usize, Failure> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            match poll(&mut [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) => return Err(failed(STAGE, Errno::ETIMEDOUT, b"", "no envelope came")),
                Ok(_) => return self.file.read(into).stage(STAGE, "reading the pipe"),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(failed(STAGE, errno, b"", "waiting for the envelope")),
            }
        }
    }
}

fn boot_id() -> Result<[u8; 16], Failure> {
    let text = fs::read_to_string(BOOT_ID).at(STAGE, BOOT_ID.as_bytes(), "reading the boot id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16)
        .ok()
        .filter(|_| digits.len() == 32)
        .map(u128::to_be_bytes)
        .ok_or_else(|| crate::failure::refused_at(STAGE, BOOT_ID.as_bytes(), "no boot id there"))
}

impl Inherited {
    /// The pipe and the event socket.
    pub(crate) fn into_parts(self) -> (OwnedFd, Events) {
        (self.envelope, self.events)
    }
}
