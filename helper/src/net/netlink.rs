//! Talking to the kernel by netlink: what is sent, and every answer to it.

use landbox_shared::netlink::{Message, gather};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg, send, sendmsg, socket,
};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Room for one packet of answers: the kernel makes none longer.
const PACKET: usize = 64 << 10;

/// A netlink socket, or what stands for one in a test.
pub(super) trait Netlink {
    /// Sends pages as one packet.
    fn send(&self, pages: &[Vec<u8>]) -> nix::Result<()>;
    /// Receives one packet; an error where it doesn't fit or one was lost.
    fn receive(&self, buffer: &mut [u8]) -> nix::Result<usize>;
}

impl<T: AsFd> Netlink for T {
    fn send(&self, pages: &[Vec<u8>]) -> nix::Result<()> {
        // The one form in which the monitor's filter lets it ask.
        if let [page] = pages {
            return send(self.as_fd().as_raw_fd(), page, MsgFlags::empty()).map(drop);
        }
        let iov: Vec<IoSlice<'_>> = pages.iter().map(|page| IoSlice::new(page)).collect();
        let length: usize = pages.iter().map(Vec::len).sum();
        let fd = self.as_fd().as_raw_fd();
        let sent = sendmsg::<()>(fd, &iov, &[], MsgFlags::empty(), None)?;
        if sent == length { Ok(()) } else { Err(Errno::EMSGSIZE) }
    }

    fn receive(&self, buffer: &mut [u8]) -> nix::Result<usize> {
        let mut iov = [IoSliceMut::new(buffer)];
        let fd = self.as_fd().as_raw_fd();
        // recvmsg(2), which the monitor's filter lets through for its channels, too.
        let message = recvmsg::<()>(fd, &mut iov, None, MsgFlags::empty())?;
        let whole = !message.flags.contains(MsgFlags::MSG_TRUNC);
        if whole { Ok(message.bytes) } else { Err(Errno::EMSGSIZE) }
    }
}

/// Opens a socket to a part of the kernel, in this process's network namespace.
pub(super) fn open(protocol: SockProtocol) -> nix::Result<OwnedFd> {
    socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)
}

/// Sends a request and takes every object of the answer. The kernel answers while it is sent to, so there is nothing to
/// wait for.
pub(super) fn ask<T: Netlink + ?Sized>(
    socket: &T,
    request: Vec<u8>,
    seq: u32,
    mut take: impl FnMut(Message<'_>) -> Option<()>,
) -> nix::Result<()> {
    socket.send(&[request])?;
    let mut buffer = vec![0; PACKET];
    loop {
        let length = socket.receive(&mut buffer)?;
        let packet = buffer.get(..length).unwrap_or_default();
        if gather(packet, seq, &mut take).map_err(Errno::from_raw)? {
            return Ok(());
        }
    }
}
