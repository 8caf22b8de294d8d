//! The packet filter: loading the table, and reading back what the kernel then holds.

use super::netlink::{Netlink, ask};
use crate::failure::{Context, Failure, Stage, failed, refused, require, why_no_rules};
use crate::sys::nft;

use landbox_shared::network::ruleset::count::list_elements;
use landbox_shared::network::ruleset::dump::{self, Reading};
use landbox_shared::network::ruleset::{Ruleset, form};
use nix::errno::Errno;

const STAGE: Stage = Stage::Network;
/// What this process numbers its requests with; a batch numbers its messages from 1.
const SEQ: u32 = 1 << 30;

/// What the kernel holds, and its generation.
pub(super) type Held = (Ruleset, u32);

/// Loads `table` into an empty packet filter and reads it back. The first transaction has the chains that drop, so that
/// at no moment anything would pass that a rule still to come refuses.
pub(super) fn load<T: Netlink + ?Sized>(socket: &T, table: &Ruleset) -> Result<Held, Failure> {
    let transactions = form::transactions(table);
    for objects in transactions.ok_or_else(|| refused(STAGE, "a network rule is too long"))? {
        socket.send(&nft::transaction(&objects)).map_err(not_loaded)?;
        generation(socket).map_err(not_loaded)?;
    }
    let held = read_back(socket)?;
    require(held.0 == *table, STAGE, "the kernel holds other network rules than were loaded")?;
    Ok(held)
}

/// Reads everything in the packet filter of this network namespace.
pub(super) fn read_back<T: Netlink + ?Sized>(socket: &T) -> Result<Held, Failure> {
    const DOING: &str = "reading the network rules back";
    let mut reading = Reading::default();
    let before = generation(socket).stage(STAGE, DOING)?;
    for kind in [dump::LIST_TABLES, dump::LIST_CHAINS, dump::LIST_SETS, dump::LIST_RULES] {
        ask(socket, dump::list_all(kind, SEQ), SEQ, |m| reading.take(m)).stage(STAGE, DOING)?;
    }
    for set in reading.set_names() {
        let request = list_elements(&set, SEQ);
        ask(socket, request, SEQ, |m| reading.take(m)).stage(STAGE, DOING)?;
    }
    let generation = generation(socket).stage(STAGE, DOING)?;
    require(before == generation, STAGE, "the network rules changed while they were read back")?;
    Ok((reading.finish(), generation))
}

fn generation<T: Netlink + ?Sized>(socket: &T) -> nix::Result<u32> {
    let mut found = None;
    ask(socket, dump::ask_generation(SEQ), SEQ, |message| {
        found = dump::generation(message);
        found.map(drop)
    })?;
    found.ok_or(Errno::EBADMSG)
}

pub(super) fn not_loaded(errno: Errno) -> Failure {
    let why = why_no_rules(errno as i32);
    failed(STAGE, errno, "", &format!("loading the network rules{why}"))
}
