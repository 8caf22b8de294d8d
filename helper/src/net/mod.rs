//! The network boundary: rules first, then the link.

mod filter;
mod link;
mod netlink;
mod recorder;
mod slirp;

pub(crate) use recorder::Recorder;
pub(crate) use slirp::{Link, probe};

use crate::failure::{Context, Failure, Stage, refused};
use filter::Held;
use landbox_shared::evidence::{NetworkRecord, OwnerMap};
use landbox_shared::idmap::{IdMaps, Worlds};
use landbox_shared::network::NetworkPolicy;
use landbox_shared::network::ruleset::compile::compile;
use nix::sys::socket::SockProtocol;
use std::fs;
use std::os::fd::OwnedFd;

const STAGE: Stage = Stage::Network;
const LIMIT: &str = "/proc/sys/user/max_user_namespaces";

/// The rules stand; there is no link yet.
pub(crate) struct Guard {
    /// To the packet filter.
    pub(crate) socket: OwnedFd,
    /// Whether the link can shut itself in: for that it must be uid 0 in N.
    pub(crate) sandboxed: bool,
    held: Held,
}

/// Loads the rules of `policy` into the packet filter of this process's network namespace.
pub(crate) fn guard(policy: &NetworkPolicy, maps: &IdMaps) -> Result<Guard, Failure> {
    let socket = netlink::open(SockProtocol::NetlinkNetFilter).map_err(filter::not_loaded)?;
    let held = filter::load(&socket, &compile(policy))?;
    let sandboxed = maps.worlds == Worlds::Two || maps.owner == OwnerMap::Full;
    Ok(Guard { socket, sandboxed, held })
}

impl Guard {
    /// Completes the session's end of the link, and says what the kernel says of it.
    pub(crate) fn connect(self) -> Result<NetworkRecord, Failure> {
        let Self { socket: _socket, sandboxed, held: (table, generation) } = self;
        let limit = fs::read_to_string(LIMIT).at(STAGE, LIMIT, "reading it")?;
        let record = NetworkRecord::new(&table, generation, link::connect(sandboxed)?, &limit);
        record.map_err(|e| refused(STAGE, e))
    }
}

/// Has the kernel refuse the task a user namespace of its own: in N there may be T and no other. Where `/proc/sys` can't
/// be written the task's filter holds it alone, and the evidence says so.
pub(crate) fn close_namespaces(worlds: Worlds) {
    let _ = fs::write(LIMIT, if worlds == Worlds::Two { "1" } else { "0" });
}

#[cfg(test)]
mod tests;
