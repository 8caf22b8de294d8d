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
    let (fd, iov, flags) = (socket.as_raw_fd(), [IoSlice::new(packet)], MsgFlags::MSG_NOSIGNAL);
    again(|| sendmsg::<()>(fd, &iov, control, flags, None)).map(drop)
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

/// Receives one packet of at most `limit` bytes (empty: the other side is gone) and the descriptors beside it. A packet or
/// a list of descriptors that does not fit is an error. The length is asked first: most packets are short, and room for
/// the longest would have to be cleared each time.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    limit: usize,
    flags: MsgFlags,
) -> nix::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut space = cmsg_space!([RawFd; DESCRIPTORS]);
    let (fd, flags) = (socket.as_raw_fd(), flags | MsgFlags::MSG_CMSG_CLOEXEC);
    let ask = flags | MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC;
    let length = again(|| recvmsg::<()>(fd, &mut [], None, ask).map(|asked| asked.bytes))?;
    let mut packet = vec![0; length.min(limit)];
    let (received, beside) = again(|| {
        let mut iov = [IoSliceMut::new(&mut packet)];
        let message = recvmsg::<()>(fd, &mut iov, Some(&mut space), flags)?;
        let mut beside = Vec::new();
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(raw) = control {
                // SAFETY: the kernel just installed these descriptors for us.
                beside.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
            }
        }
        let whole = !message.flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC);
        if whole { Ok((message.bytes, beside)) } else { Err(Errno::EMSGSIZE) }
    })?;
    packet.truncate(received);
    Ok((packet, beside))
}

/// Calls until no signal is in the way.
fn again<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            result => return result,
        }
    }
}
