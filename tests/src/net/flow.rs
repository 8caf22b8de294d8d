//! What the prober tries on the network, and how it went: the documents of `prober net`, `flood` and `serve`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// One destination to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Flow {
    /// By which protocol.
    pub transport: Transport,
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// Through an IPv6 socket, an IPv4 address written as IPv6.
    pub mapped: bool,
    /// From a socket bound to the link (`SO_BINDTODEVICE`), so that it leaves there whatever its address.
    pub bound: bool,
}

impl Flow {
    /// To this address and port, as an ordinary program would.
    pub fn new(transport: Transport, address: &str, port: u16) -> Self {
        let address = address.parse().unwrap_or_else(|e| panic!("{address}: {e}"));
        Self { transport, address, port, mapped: false, bound: false }
    }

    /// By TCP.
    pub fn tcp(address: &str, port: u16) -> Self {
        Self::new(Transport::Tcp, address, port)
    }

    /// By UDP.
    pub fn udp(address: &str, port: u16) -> Self {
        Self::new(Transport::Udp, address, port)
    }

    /// The same through an IPv6 socket.
    pub fn mapped(self) -> Self {
        Self { mapped: true, ..self }
    }

    /// The same from a socket bound to the link.
    pub fn bound(self) -> Self {
        Self { bound: true, ..self }
    }

    /// How a listener names it in its counts.
    pub fn name(&self) -> String {
        format!("{} {} {}", self.transport, self.address, self.port)
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mapped = if self.mapped { " mapped" } else { "" };
        let bound = if self.bound { " bound to the link" } else { "" };
        write!(f, "{}{mapped}{bound}", self.name())
    }
}

/// How one try ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// 0 where a listener answered; `ETIMEDOUT` where nobody did; else the error number.
    pub errno: i32,
    /// What the listener said: its name and the destination it saw.
    pub said: String,
    /// How long it took, in microseconds.
    pub micros: u64,
}

impl Answer {
    /// Whether a listener answered.
    pub fn reached(&self) -> bool {
        self.errno == 0
    }
}
