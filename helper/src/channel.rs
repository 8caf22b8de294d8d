//! The sockets between our processes (monitor and init, init and task) and the one to the controller. All keep packets
//! apart. Closing one is how death is noticed.

use crate::failure::{Context, Failure, Stage, refused};
use crate::sys::{process, socket};
use landbox_shared::event::Event;
pub(crate) use landbox_shared::inner::Message;
use landbox_shared::limits;
use landbox_shared::wire::{self, Assembler};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, getsockopt, socketpair, sockopt,
};
use serde::{Serialize, de::DeserializeOwned};
use std::fs::File;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// One end. `T` is what is said on it.
#[derive(Debug)]
pub(crate) struct Channel<T = Message> {
    fd: OwnedFd,
    peer: &'static str,
    says: PhantomData<T>,
}

/// The event socket, descriptor 4.
pub(crate) type Events = Channel<Event>;

impl<T: Serialize + DeserializeOwned> Channel<T> {
    /// Says something, with descriptors beside its first packet.
    pub(crate) fn send(
        &self,
        stage: Stage,
        value: &T,
        mut beside: &[BorrowedFd<'_>],
    ) -> Result<(), Failure> {
        for packet in wire::packets(value).map_err(|e| refused(stage, e))? {
            let sent = socket::send(self.as_fd(), &packet, beside);
            sent.stage(stage, &format!("talking to {}", self.peer))?;
            beside = &[];
        }
        Ok(())
    }

    /// Waits for the next thing said, and gives the descriptors beside it. `None`: the other side is gone.
    pub(crate) fn receive(&self, stage: Stage) -> Result<Option<(T, Vec<OwnedFd>)>, Failure> {
        let doing = format!("hearing from {}", self.peer);
        let (mut assembler, mut beside) = (Assembler::default(), Vec::new());
        loop {
            let (packet, fds) =
                match socket::receive(self.as_fd(), limits::PACKET_BYTES, MsgFlags::empty()) {
                    Ok((packet, _)) if packet.is_empty() => return Ok(None),
                    Err(Errno::ECONNRESET) => return Ok(None),
                    received => received.stage(stage, &doing)?,
                };
            beside.extend(fds);
            let value = assembler.push(&packet);
            if let Some(value) = value.map_err(|e| refused(stage, format!("{doing}: {e}")))? {
                return Ok(Some((value, beside)));
            }
        }
    }
}

impl Channel {
    /// Makes two ends, each with the name of who holds the other.
    pub(crate) fn pair(peers: [&'static str; 2], stage: Stage) -> Result<[Self; 2], Failure> {
        let kind = SockType::SeqPacket;
        let ends = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC);
        let (a, b) = ends.stage(stage, "making a channel")?;
        let [of_a, of_b] = peers;
        Ok([(a, of_a), (b, of_b)].map(|(fd, peer)| Self { fd, peer, says: PhantomData }))
    }

    /// Waits for the next message of somebody who must not end yet, and whose failure is ours.
    pub(crate) fn hear(&self, stage: Stage) -> Result<Message, Failure> {
        match self.receive(stage)? {
            Some((Message::End(Event::Failed(failure)), _)) => Err(failure),
            Some((message, beside)) if beside.is_empty() => Ok(message),
            Some(_) => Err(refused(stage, format!("{} sent what nobody asked for", self.peer))),
            None => Err(refused(stage, format!("{} ended early", self.peer))),
        }
    }

    /// Waits for exactly this message.
    pub(crate) fn expect(&self, stage: Stage, expected: &Message) -> Result<(), Failure> {
        if self.hear(stage)? == *expected {
            return Ok(());
        }
        Err(refused(stage, format!("{} spoke out of turn", self.peer)))
    }
}

impl Events {
    /// Takes a socket that keeps packets apart. `None` if it is anything else.
    pub(crate) fn new(fd: OwnedFd) -> Option<Self> {
        let kind = getsockopt(&fd, sockopt::SockType).ok()?;
        let events = Self { fd, peer: "the controller", says: PhantomData };
        (kind == SockType::SeqPacket).then_some(events)
    }

    /// Lets go of the socket, in a forked child. Without it the child could not be told from the monitor, so it ends.
    pub(crate) fn abandon(&mut self, null: &File) {
        match null.try_clone() {
            Ok(null) => self.fd = null.into(),
            Err(_) => process::leave(1),
        }
    }

    /// Says something that fits in one packet, unless that would mean to wait; says whether it did.
    pub(crate) fn offer(&self, stage: Stage, event: &Event) -> Result<bool, Failure> {
        let packets = wire::packets(event).map_err(|e| refused(stage, e))?;
        let [packet] = &*packets else { return Err(refused(stage, "this is too long to offer")) };
        socket::offer(self.as_fd(), packet).stage(stage, &format!("talking to {}", self.peer))
    }

    /// Whether the controller's next packet is the word that lets the task start. Anything else, and a closed socket,
    /// is not.
    pub(crate) fn is_release(&self) -> bool {
        socket::receive(self.as_fd(), wire::RELEASE.len(), MsgFlags::MSG_DONTWAIT)
            .is_ok_and(|(packet, beside)| beside.is_empty() && packet == wire::RELEASE)
    }
}

impl<T> AsFd for Channel<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landbox_shared::id::LayerId;

    const STAGE: Stage = Stage::Watch;

    fn pair() -> [Channel; 2] {
        Channel::pair(["b", "a"], STAGE).unwrap()
    }

    #[test]
    fn every_message_arrives_as_it_was_sent() {
        let [a, b] = pair();
        for message in [
            Message::Mapped,
            Message::Isolated,
            Message::OneOnly,
            Message::Fuse(LayerId::new("mount-3").unwrap()),
            Message::FuseStarted,
            Message::Link(true),
            Message::AwaitLink,
            Message::LinkReady,
            Message::Mounted(u64::MAX, 1),
            Message::Entered,
            Message::Confined(6),
            Message::Release,
            Message::End(Event::LinkLost),
            Message::End(Event::BoundaryLost { path: vec![1; 2 * limits::PACKET_BYTES] }),
        ] {
            a.send(STAGE, &message, &[a.as_fd()]).unwrap();
            let (received, beside) = b.receive(STAGE).unwrap().unwrap();
            assert_eq!((received, beside.len()), (message, 1));
        }
        drop(a);
        assert!(b.receive(STAGE).unwrap().is_none());
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let [a, b] = pair();
        for bytes in
            [&b"x"[..], b"\x01", b"\x01\xff", b"\x01\x00more", b"\x01\x03\x05UPPER", b"\x00"]
        {
            socket::send(a.as_fd(), bytes, &[]).unwrap();
            assert!(b.receive(STAGE).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_failure_of_the_other_side_is_ours_and_nothing_is_taken_for_what_was_expected() {
        let [a, b] = pair();
        let failure = refused(Stage::Layer, "broken");
        a.send(STAGE, &Message::End(Event::Failed(failure.clone())), &[]).unwrap();
        assert_eq!(b.expect(STAGE, &Message::Release).unwrap_err(), failure);
        a.send(STAGE, &Message::Mapped, &[]).unwrap();
        assert!(b.expect(STAGE, &Message::Release).is_err());
        a.send(STAGE, &Message::Release, &[a.as_fd()]).unwrap();
        assert!(b.expect(STAGE, &Message::Release).is_err());
        a.send(STAGE, &Message::Release, &[]).unwrap();
        assert!(b.expect(STAGE, &Message::Release).is_ok());
    }
}
