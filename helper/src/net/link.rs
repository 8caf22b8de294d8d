//! The session's end of the link, seen by init: completing it, and reading it back. That the program says it is ready is
//! not taken for granted.

use super::netlink::{ask, open};
use crate::failure::{Context, Failure, Stage, refused, refused_at};
use landbox_shared::network::link::PROGRAM;
use landbox_shared::network::route::{self, LinkRecord, Reading};
use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

const STAGE: Stage = Stage::Network;
const SEQ: u32 = 1;
/// How often the lists are asked for until they hold still: an interface that has just come up is still given addresses.
const TRIES: u8 = 100;

/// Gives the interface its IPv6 address and route, and judges the whole. The program configures IPv4 alone, and the
/// announcements IPv6 would wait for are refused by the rules.
pub(super) fn connect(sandboxed: bool) -> Result<LinkRecord, Failure> {
    let socket = open(SockProtocol::NetlinkRoute).stage(STAGE, "opening a netlink socket")?;
    let there = read().stage(STAGE, "reading the interfaces")?;
    let index = there.interface();
    // Also what is seen of a link that was ready and has ended since, where that is noticed here first.
    let index = index.ok_or_else(|| refused_at(STAGE, PROGRAM, "the link has no interface"))?;
    for request in [route::set_address(index, SEQ), route::set_route(index, SEQ)] {
        ask(&socket, request, SEQ, |_| None)
            .stage(STAGE, "giving the link its IPv6 address and route (is IPv6 switched off?)")?;
    }
    let there = read().stage(STAGE, "reading the link back")?;
    there.judge(sandboxed).map_err(|flaw| refused(STAGE, flaw))
}

fn read() -> Result<Reading, Errno> {
    let mut read = (0..TRIES).map(|_| read_once());
    read.find(|read| !matches!(read, Err(Errno::EINTR))).unwrap_or(Err(Errno::EINTR))
}

fn read_once() -> Result<Reading, Errno> {
    // The rest of a list that changed stays in its socket.
    let (socket, mut reading) = (open(SockProtocol::NetlinkRoute)?, Reading::default());
    for kind in [route::LIST_LINKS, route::LIST_ADDRESSES, route::LIST_ROUTES] {
        ask(&socket, route::list(kind, SEQ), SEQ, |message| reading.take(message))?;
    }
    Ok(reading)
}
