//! Packets with descriptors.

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Most descriptors one packet carries: a descriptor a layer, and two more.
const DESCRIPTORS: usize = landbox_shared::limits::LAYERS + 2;

/// Sends one packet with descriptors beside it.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    packet: &[u8],
    beside: &[BorrowedFd<'_>],
) -> nix::Result<()> {
    let raw: Vec<RawFd> = beside.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    loop {
        let iov = [IoSlice::new(packet)];
        match sendmsg::<()>(socket.as_raw_fd(), &iov, control, MsgFlags::MSG_NOSIGNAL, None) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Sends one packet if there is room for it now; says whether there was.
pub(crate) fn offer(socket: BorrowedFd<'_>, packet: &[u8]) -> nix::Result<bool> {
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    let iov = [IoSlice::new(packet)];
    match sendmsg::<()>(socket.as_raw_fd(), &iov, &[], flags, None) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Receives one packet into `buffer` and gives its length (0: the other side is gone) and the descriptors beside it. A
/// packet or a list of descriptors that does not fit is an error.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: MsgFlags,
) -> nix::Result<(usize, Vec<OwnedFd>)> {
    let mut space = cmsg_space!([RawFd; DESCRIPTORS]);
    loop {
        let mut iov = [IoSliceMut::new(buffer)];
        let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
        let message = match recvmsg::<()>(socket.as_raw_fd(), &mut iov, Some(&mut space), flags) {
            Ok(message) => message,
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno),
        };
        let mut beside = Vec::new();
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(raw) = control {
                for fd in raw {
                    // SAFETY: the kernel just installed this descriptor for us.
                    beside.push(unsafe { OwnedFd::from_raw_fd(fd) });
                }
            }
        }
        if message.flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC) {
            return Err(Errno::EMSGSIZE);
        }
        return Ok((message.bytes, beside));
    }
}
