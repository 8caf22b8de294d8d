//! The event socket: what the controller is told, and the one word it answers.

use crate::failure::Context;
use crate::sys;
use landbox_shared::event::{Event, Failure, Stage};
use landbox_shared::wire;
use nix::sys::socket::{MsgFlags, SockType, getsockopt, sockopt};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The event socket, descriptor 4.
#[derive(Debug)]
pub(crate) struct Events(OwnedFd);

impl Events {
    /// Takes a socket that keeps packets apart. `None` if it is anything else.
    pub(crate) fn new(socket: OwnedFd) -> Option<Self> {
        let kind = getsockopt(&socket, sockopt::SockType).ok()?;
        (kind == SockType::SeqPacket).then_some(Self(socket))
    }

    /// Tells the controller, with descriptors beside the first packet.
    pub(crate) fn send(&self, event: &Event, beside: &[BorrowedFd<'_>]) -> Result<(), Failure> {
        send_event(self.0.as_fd(), event, beside, Stage::Watch)
    }

    /// Lets go of the socket, in a forked child. Without it the child could not be told from the monitor, so it ends.
    pub(crate) fn abandon(&mut self, null: &File) {
        match null.try_clone() {
            Ok(null) => self.0 = null.into(),
            Err(_) => sys::process::leave(1),
        }
    }

    /// Whether the controller's next packet is the word that lets the task start. Anything else, and a closed socket,
    /// is not.
    pub(crate) fn is_release(&self) -> bool {
        // One byte more than the word, so that a longer packet is seen to be longer.
        let mut buffer = [0; wire::RELEASE.len() + 1];
        match sys::socket::receive(self.0.as_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            Ok((length, beside)) => {
                beside.is_empty() && buffer.get(..length) == Some(wire::RELEASE)
            }
            Err(_) => false,
        }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sends an event as packets.
pub(crate) fn send_event(
    socket: BorrowedFd<'_>,
    event: &Event,
    beside: &[BorrowedFd<'_>],
    stage: Stage,
) -> Result<(), Failure> {
    let packets = wire::event_packets(event).map_err(|e| crate::failure::refused(stage, e))?;
    for (n, packet) in packets.iter().enumerate() {
        let beside = if n == 0 { beside } else { &[] };
        sys::socket::send(socket, packet, beside).stage(stage, "sending an event")?;
    }
    Ok(())
}
