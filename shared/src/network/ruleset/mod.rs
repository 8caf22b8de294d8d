//! What a network policy becomes in the kernel: one table of the packet filter, as a model of its own. [`compile`] makes
//! it from a policy, the helper translates it to netlink by way of [`form`], and [`dump`] makes it again from what the kernel
//! lists, so that the two can be compared.

pub mod compile;
pub mod count;
pub mod dump;
pub mod form;
mod lists;

use crate::digest::Digest;
use crate::wire::{self, WireError};
use serde::Serialize;

/// Name of the table, of the family `inet`.
pub const TABLE: &str = "landbox";

/// The whole table, in canonical order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ruleset {
    /// By name.
    pub sets: Vec<Set>,
    /// By name.
    pub chains: Vec<Chain>,
}

impl Ruleset {
    /// Puts everything that has no order of its own into one.
    fn sorted(mut self) -> Self {
        for set in &mut self.sets {
            set.elements.sort();
        }
        self.sets.sort_by(|a, b| a.name.cmp(&b.name));
        self.chains.sort_by(|a, b| a.name.cmp(&b.name));
        self
    }

    /// Digest of the canonical form.
    pub fn digest(&self) -> Result<Digest, WireError> {
        wire::ruleset_digest(self)
    }

    /// Number of elements in all sets.
    pub fn elements(&self) -> usize {
        self.sets.iter().map(|set| set.elements.len()).sum()
    }
}

/// A set of keys, or a map from keys to data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub kind: SetKind,
    /// Bytes of a key.
    pub key: u32,
    /// Bytes of the data; 0 for a set.
    pub data: u32,
    /// How many elements it may hold; 0: no bound. For one that is filled once, a hint that saves growing.
    pub size: u32,
    /// What it holds at the beginning.
    pub elements: Vec<Element>,
}

/// What a set is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum SetKind {
    /// Its keys are looked up. Constant once a rule uses it.
    Exact,
    /// Its keys are the beginnings and ends of ranges. Constant, too.
    Ranges,
    /// Exact and constant; each element counts how often it was found.
    Counters,
    /// Rules add to it; each element counts how often it was met.
    Recorder,
    /// Rules add to it and look in it. An element goes by itself when it was not met for [`IDLE`].
    Flows,
}

/// How long an element of a set of flows stays without being met, in milliseconds: as long as connection tracking would
/// wait for an answer at most.
pub const IDLE: u64 = 180_000;

/// One element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Element {
    /// The key, each part padded to four bytes.
    pub key: Vec<u8>,
    /// Whether it is the first key after a range.
    pub end: bool,
    /// What a map says of it; empty in a set.
    pub data: Vec<u8>,
}

/// A list of rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// Where packets enter it; `None` where rules lead to it.
    pub hook: Option<Hook>,
    /// In order.
    pub rules: Vec<Rule>,
}

/// A rule: expressions in order, the first that does not hold ends it.
pub type Rule = Vec<Expr>;

/// Where packets enter a chain, and what becomes of those that no rule decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Hook {
    /// Number of the hook.
    pub number: u32,
    /// Lower ones are asked first.
    pub priority: i32,
    /// Whether an undecided packet is dropped.
    pub drops: bool,
}

/// One expression. Registers are numbered in words of four bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Expr {
    /// Loads a fact about the packet.
    Meta {
        /// Which.
        key: Meta,
        /// Where to.
        to: u32,
    },
    /// Loads a part of the packet.
    Payload {
        /// Which header.
        base: Base,
        /// Its bytes from here.
        offset: u32,
        /// How many.
        length: u32,
        /// Where to.
        to: u32,
    },
    /// Loads a constant.
    Put {
        /// The constant.
        bytes: Vec<u8>,
        /// Where to.
        to: u32,
    },
    /// Clears the bits that are not in the mask.
    Mask {
        /// The mask.
        mask: Vec<u8>,
        /// Of which register.
        at: u32,
    },
    /// Holds where the bytes are these.
    Equal {
        /// The bytes.
        bytes: Vec<u8>,
        /// In which register.
        at: u32,
    },
    /// Holds where the key is in the set; loads what the map says of it.
    Lookup {
        /// Name of the set.
        set: String,
        /// The key.
        at: u32,
        /// Where to, for a map.
        to: Option<u32>,
    },
    /// Adds the key to a recorder or to flows, counts it there, or lets it stay. Holds unless the set is full.
    Record {
        /// Name of the set.
        set: String,
        /// The key.
        at: u32,
    },
    /// Answers the sender, and drops the packet.
    Reject(Reject),
    /// Decides.
    Verdict(Verdict),
}

/// A fact about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Meta {
    /// Name of the interface it came by, 16 bytes.
    In = 6,
    /// Name of the interface it leaves by, 16 bytes.
    Out = 7,
    /// IPv4 or IPv6: one byte.
    Family = 15,
    /// The protocol above IP: one byte.
    Protocol = 16,
}

/// A header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Base {
    /// IP's.
    Network = 1,
    /// The next one's.
    Transport = 2,
}

/// How a packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Reject {
    /// As a closed TCP port.
    Reset,
    /// ICMP or ICMPv6: administratively prohibited.
    Prohibited,
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// It passes.
    Accept,
    /// It is dropped without a word.
    Drop,
    /// The named chain decides, without a way back.
    Goto(String),
}
