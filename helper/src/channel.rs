//! The channels between our own processes: monitor and init, init and task. Closing one is how death is noticed.

use crate::sys;
use landbox_shared::event::{Event, Failure, Stage};
use landbox_shared::id::LayerId;
use landbox_shared::limits;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, socketpair};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// One end.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

/// What is said. The comment names who says it to whom.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Monitor to init: the id maps are written.
    Mapped,
    /// Init to monitor: the task's namespace is made too.
    Isolated,
    /// Init to monitor: this host refuses a second user namespace inside the first.
    OneOnly,
    /// Init to monitor: start a daemon for this layer; beside it /dev/fuse, the lowers, upper and work folder.
    Fuse(LayerId),
    /// Monitor to init: it was executed, or this error number.
    FuseStarted(i32),
    /// Init to task: the root with this device and inode number stands.
    Mounted(u64, u64),
    /// Task to init: all rights are gone; the Landlock ABI that scopes me.
    Confined(u32),
    /// Init to monitor: the numbers of the mounts that the evidence lists, in its order.
    Mounts(Vec<u32>),
    /// Monitor to init, init to task: go.
    Release,
    /// Init to monitor, task to init: a packet of an event.
    Event(Vec<u8>),
}

impl Message {
    fn encode(&self) -> Vec<u8> {
        let tagged = |tag: u8, rest: &[u8]| [&[tag], rest].concat();
        match self {
            Self::Mapped => tagged(b'm', &[]),
            Self::Isolated => tagged(b'i', &[]),
            Self::OneOnly => tagged(b'1', &[]),
            Self::Fuse(id) => tagged(b'f', id.as_str().as_bytes()),
            Self::FuseStarted(errno) => tagged(b's', &errno.to_le_bytes()),
            Self::Mounted(device, inode) => {
                tagged(b'r', &[device.to_le_bytes(), inode.to_le_bytes()].concat())
            }
            Self::Confined(abi) => tagged(b'c', &abi.to_le_bytes()),
            Self::Mounts(ids) => {
                tagged(b'n', &ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>())
            }
            Self::Release => tagged(b'g', &[]),
            Self::Event(packet) => tagged(b'e', packet),
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        let number = || rest.try_into().ok();
        let empty = |message| rest.is_empty().then_some(message);
        match tag {
            b'm' => empty(Self::Mapped),
            b'i' => empty(Self::Isolated),
            b'1' => empty(Self::OneOnly),
            b'f' => LayerId::new(std::str::from_utf8(rest).ok()?).map(Self::Fuse),
            b's' => number().map(i32::from_le_bytes).map(Self::FuseStarted),
            b'r' => {
                let (device, inode) = rest.split_first_chunk()?;
                let inode = inode.try_into().ok()?;
                Some(Self::Mounted(u64::from_le_bytes(*device), u64::from_le_bytes(inode)))
            }
            b'c' => number().map(u32::from_le_bytes).map(Self::Confined),
            b'n' => {
                let (ids, rest) = rest.as_chunks();
                let ids = ids.iter().map(|id| u32::from_le_bytes(*id)).collect();
                rest.is_empty().then_some(Self::Mounts(ids))
            }
            b'g' => empty(Self::Release),
            b'e' => Some(Self::Event(rest.to_vec())),
            _ => None,
        }
    }
}

impl Channel {
    /// Makes two ends.
    pub(crate) fn pair() -> nix::Result<(Self, Self)> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (a, b) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        Ok((Self(a), Self(b)))
    }

    /// Says something.
    pub(crate) fn send(&self, message: &Message) -> nix::Result<()> {
        self.send_beside(message, &[])
    }

    /// Says something, with descriptors beside it.
    pub(crate) fn send_beside(
        &self,
        message: &Message,
        beside: &[BorrowedFd<'_>],
    ) -> nix::Result<()> {
        sys::socket::send(self.0.as_fd(), &message.encode(), beside)
    }

    /// Passes an event on, with descriptors beside its first packet.
    pub(crate) fn send_event(
        &self,
        event: &Event,
        beside: &[BorrowedFd<'_>],
    ) -> Result<(), Failure> {
        let packets = landbox_shared::wire::event_packets(event)
            .map_err(|e| crate::failure::refused(Stage::Evidence, e))?;
        for (n, packet) in packets.into_iter().enumerate() {
            let beside = if n == 0 { beside } else { &[] };
            self.send_beside(&Message::Event(packet), beside).map_err(|errno| {
                crate::failure::failed(Stage::Watch, errno, b"", "reporting to the monitor")
            })?;
        }
        Ok(())
    }

    /// Waits for the next message. `None`: the other side is gone.
    pub(crate) fn receive(&self) -> nix::Result<Option<(Message, Vec<OwnedFd>)>> {
        let mut buffer = vec![0; limits::PACKET_BYTES + 1];
        let received = sys::socket::receive(self.0.as_fd(), &mut buffer, MsgFlags::empty());
        let (length, beside) = match received {
            Ok((0, _)) | Err(Errno::ECONNRESET) => return Ok(None),
            other => other?,
        };
        let message = buffer.get(..length).and_then(Message::decode).ok_or(Errno::EBADMSG)?;
        Ok(Some((message, beside)))
    }

    /// Waits for exactly this message, with nothing beside it.
    pub(crate) fn expect(&self, expected: &Message) -> nix::Result<()> {
        match self.receive()? {
            Some((message, beside)) if message == *expected && beside.is_empty() => Ok(()),
            Some(_) => Err(Errno::EBADMSG),
            None => Err(Errno::EPIPE),
        }
    }
}

impl From<OwnedFd> for Channel {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_arrives_as_it_was_sent() {
        let (a, b) = Channel::pair().unwrap();
        for message in [
            Message::Mapped,
            Message::Isolated,
            Message::OneOnly,
            Message::Fuse(LayerId::new("mount-3").unwrap()),
            Message::FuseStarted(2),
            Message::Mounted(u64::MAX, 1),
            Message::Confined(6),
            Message::Mounts(vec![]),
            Message::Mounts(vec![7; limits::OPS]),
            Message::Release,
            Message::Event(vec![1; limits::PACKET_BYTES]),
        ] {
            a.send_beside(&message, &[a.as_fd()]).unwrap();
            let (received, beside) = b.receive().unwrap().unwrap();
            assert_eq!((received, beside.len()), (message, 1));
        }
        drop(a);
        assert!(b.receive().unwrap().is_none());
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [&b""[..], b"x", b"mm", b"s123", b"r12345678", b"fUPPER", b"gg", b"n12345"] {
            assert_eq!(Message::decode(bytes), None, "{bytes:?}");
        }
    }
}
