//! Challenge out, one envelope and one exec frame in, then the end of the pipe.

use crate::channel::Events;
use crate::failure::{Context, Failure, Stage, refused, refused_at};
use crate::start::Caller;
use crate::sys;
use landbox_shared::event::Event;
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

/// Room for an ordinary plan and environment.
const USUAL: usize = 16 << 10;

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

    let mut bytes = Vec::with_capacity(USUAL);
    let pipe = Pipe { file: File::from(inherited), until: Instant::now() + PATIENCE };
    // One byte more than there may be, so that more is seen to be more.
    pipe.take(wire::PIPE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .stage(STAGE, "reading the pipe")?;
    let [envelope, exec] = wire::frames(&bytes).map_err(|e| refused(STAGE, e))?;
    Ok(Received { caller, binding, envelope: envelope.to_vec(), exec: exec.to_vec() })
}

struct Pipe {
    file: File,
    until: Instant,
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)], timeout)? {
            0 => Err(Errno::ETIMEDOUT.into()),
            _ => self.file.read(into),
        }
    }
}
