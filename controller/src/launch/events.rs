//! The event socket, read from the controller's end.

use crate::error::{Context, Failure, Kind, Result};
use landbox_shared::event::Event;
use landbox_shared::limits;
use landbox_shared::wire::{self, EventAssembler};
use rustix::io::Errno;
use rustix::net::{
    self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most descriptors beside one event: a pidfd and one per layer.
const DESCRIPTORS: usize = 1 + limits::LAYERS;

/// The controller's end of the event socket.
#[derive(Debug)]
pub struct EventSocket {
    fd: OwnedFd,
    assembler: EventAssembler,
    descriptors: Vec<OwnedFd>,
    packet: Vec<u8>,
}

/// What one look at the socket gave.
#[derive(Debug)]
pub enum Received {
    /// A whole event and the descriptors that came with it.
    Event(Event, Vec<OwnedFd>),
    /// Nothing whole yet.
    Pending,
    /// Every process of the helper closed its end.
    Closed,
}

impl EventSocket {
    /// Wraps the controller's end.
    pub fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            assembler: EventAssembler::default(),
            descriptors: Vec::new(),
            packet: Vec::new(),
        }
    }

    /// Takes what has arrived, without waiting, until one event is whole.
    pub fn receive(&mut self) -> Result<Received> {
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            // No larger than it is: memory that is touched for nothing costs a start more than asking.
            let peek = RecvFlags::DONTWAIT | RecvFlags::PEEK | RecvFlags::TRUNC;
            let message = net::recv(&self.fd, &mut [0; 1], peek).and_then(|(_, size)| {
                self.packet.resize(size.min(limits::PACKET_BYTES), 0);
                let mut packet = [IoSliceMut::new(&mut self.packet)];
                net::recvmsg(&self.fd, &mut packet, &mut control, flags)
            });
            let message = match message {
                Ok(message) => message,
                Err(Errno::AGAIN) => return Ok(Received::Pending),
                // A helper that ended before it read our last word resets the connection, once; what it said before is
                // still there to read.
                Err(Errno::INTR | Errno::CONNRESET) => continue,
                Err(e) => return Err(e).context(|| "can't listen to the helper".into()),
            };
            for part in control.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = part {
                    self.descriptors.extend(fds);
                }
            }
            if message.bytes == 0 {
                return Ok(Received::Closed);
            }
            if self.descriptors.len() > DESCRIPTORS {
                return Err(Failure::new(Kind::Failed, "the helper sent too many descriptors"));
            }
            let packet = self.packet.get(..message.bytes).unwrap_or_default();
            let event = self
                .assembler
                .push(packet)
                .context(|| "the helper says something that can't be understood".into())?;
            if let Some(event) = event {
                return Ok(Received::Event(event, std::mem::take(&mut self.descriptors)));
            }
        }
    }

    /// Lets the task start. The evidence must have been checked before.
    pub fn release(&self) -> Result<()> {
        match net::send(&self.fd, wire::RELEASE, SendFlags::NOSIGNAL) {
            // A helper that has ended meanwhile has said why, and that is still to be heard.
            Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(e) => Err(e).context(|| "can't release the task".into()),
        }
    }
}

impl EventSocket {
    /// Sends descriptors to a helper that hears no more: they are closed when it ends. One that has ended leaves them to
    /// us, as does a socket that is full.
    pub fn hand_over(&self, descriptors: &[OwnedFd]) {
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let _ = net::sendmsg(&self.fd, &[IoSlice::new(b"0")], &mut control, flags);
        }
    }
}

impl AsFd for EventSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landbox_shared::limits::PACKET_BYTES;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn pair() -> (EventSocket, OwnedFd) {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        (EventSocket::new(ours), theirs)
    }

    /// What comes next. A test beside this one that is just starting a process holds a copy of every descriptor until it
    /// executes, so an end may take a moment to arrive.
    fn next(ours: &mut EventSocket) -> Received {
        loop {
            let mut fds = [rustix::event::PollFd::new(&*ours, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, None).unwrap();
            match ours.receive().unwrap() {
                Received::Pending => {}
                other @ (Received::Event(..) | Received::Closed) => return other,
            }
        }
    }

    #[test]
    fn an_event_is_whole_only_when_its_last_packet_came() {
        let (mut ours, theirs) = pair();
        assert!(matches!(ours.receive().unwrap(), Received::Pending));
        let long = Event::BoundaryLost { path: vec![b'x'; PACKET_BYTES] };
        let packets = wire::event_packets(&long).unwrap();
        let (last, others) = packets.split_last().unwrap();
        assert!(!others.is_empty());
        for packet in others {
            net::send(&theirs, packet, SendFlags::empty()).unwrap();
            assert!(matches!(ours.receive().unwrap(), Received::Pending));
        }
        net::send(&theirs, last, SendFlags::empty()).unwrap();
        let Received::Event(event, _) = ours.receive().unwrap() else { panic!("no event") };
        assert_eq!(event, long);
        drop(theirs);
        assert!(matches!(next(&mut ours), Received::Closed));
    }

    #[test]
    fn what_a_helper_said_last_is_heard_though_it_never_read_our_last_word() {
        let (mut ours, theirs) = pair();
        for packet in wire::event_packets(&Event::LinkLost).unwrap() {
            net::send(&theirs, &packet, SendFlags::empty()).unwrap();
        }
        ours.release().unwrap();
        drop(theirs);
        ours.release().unwrap();
        assert!(matches!(next(&mut ours), Received::Event(Event::LinkLost, _)));
        assert!(matches!(next(&mut ours), Received::Closed));
    }

    #[test]
    fn nonsense_on_the_event_socket_is_an_error() {
        let (mut ours, theirs) = pair();
        net::send(&theirs, &[1, 250, 3, 4], SendFlags::empty()).unwrap();
        assert!(ours.receive().is_err());
    }
}
