//! The destination policy of a session's own network: which IP addresses, protocols and ports it may reach. Version 1
//! of `sandboxNetworkPolicy`, as it is after every check; text forms are parsed elsewhere.

pub mod check;
pub mod class;
pub mod egress;
pub mod link;
pub mod route;
pub mod ruleset;
pub mod verdict;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Version of [`NetworkPolicy`].
pub const NETWORK_POLICY_VERSION: u8 = 1;

/// What a session on a network of its own may reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkPolicy {
    /// [`NETWORK_POLICY_VERSION`].
    pub version: u8,
    /// For addresses of the public Internet.
    pub public: Zone,
    /// For every other address.
    pub private: Zone,
    /// Name servers: reached on TCP and UDP port 53 before any zone is asked.
    pub dns_servers: Vec<IpAddr>,
    /// What becomes of proxy variables; `None` where the owner did not say.
    pub proxy_mode: Option<ProxyMode>,
}

/// What is let through inside one of the two zones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Zone {
    /// Everything.
    Allow,
    /// Nothing.
    Block,
    /// What a rule matches.
    Allowlist(Vec<Rule>),
    /// What no rule matches.
    Denylist(Vec<Rule>),
}

/// Matches destinations. A list of rules is a union: their order means nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The addresses: host bits cleared, IPv4-mapped IPv6 written as IPv4.
    pub cidr: IpNet,
    /// Which traffic to them.
    pub traffic: Traffic,
}

/// Which traffic a rule matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// Every protocol and port.
    Any,
    /// One protocol, on these ports (1 to 65535, each once, in the owner's order); none given: on every port.
    Ports(Protocol, Vec<u16>),
}

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP, IP protocol 6.
    Tcp,
    /// UDP, IP protocol 17.
    Udp,
}

/// What becomes of proxy variables in the task's environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyMode {
    /// They are refused, whatever the zones say.
    Reject,
    /// They name an exit the owner approved; the kernel still filters its address.
    TrustedEgress,
}
