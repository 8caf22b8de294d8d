//! What the kernel counted: where a session's traffic went and where it was refused. Numbers alone; what they mean under
//! a policy is computed when they are shown.

use super::{Protocol, verdict::Flow};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Most rows of one family in one list: what the kernel's sets are bounded to.
pub const ROWS: usize = 1024;

/// One reading of the kernel's counters. Counts are those since the launch began; a row that did not grow since the last
/// reading may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Egress {
    /// What was let through: new connections, and the first packet of what has none.
    pub reached: Counted,
    /// What was refused: every packet.
    pub refused: Counted,
}

/// One of the two lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// At most [`ROWS`] of each family, in any order.
    pub rows: Vec<Row>,
    /// Everything counted, whether or not there was room for a row.
    pub totals: Totals,
}

/// Exact counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Decided by the public zone.
    pub public: u64,
    /// Decided by the private zone.
    pub private: u64,
    /// Decided before any zone: name servers (reached); loopback by the link and the link's names (refused).
    pub fixed: u64,
}

impl Totals {
    /// All of them.
    pub fn sum(&self) -> u64 {
        let Self { public, private, fixed } = *self;
        public.saturating_add(private).saturating_add(fixed)
    }
}

/// How often one destination was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Where to.
    pub destination: Destination,
    /// How often, since the launch began.
    pub count: u64,
}

/// Where traffic went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Destination {
    /// The address in the packet.
    pub address: IpAddr,
    /// IP protocol number (6 TCP, 17 UDP, 58 ICMPv6).
    pub protocol: u8,
    /// Destination port; 0 for a protocol without ports.
    pub port: u16,
}

impl Destination {
    /// What the evaluator is asked about.
    pub fn flow(&self) -> Flow {
        match Protocol::from_number(self.protocol) {
            Some(protocol) => Flow::To(protocol, self.port),
            None => Flow::Other,
        }
    }
}

impl Protocol {
    /// Its number in an IP header.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }

    /// The protocol of that number, if it is one a rule can name.
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::Tcp, Self::Udp].into_iter().find(|protocol| protocol.number() == number)
    }
}
