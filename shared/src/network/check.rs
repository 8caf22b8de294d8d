//! What must be true of a policy that came over a pipe: whoever sent it may have written anything.

use super::class::{self, MAPPED};
use super::{NETWORK_POLICY_VERSION, NetworkPolicy, Rule, Traffic, Zone};
use ipnet::IpNet;
use std::collections::HashSet;
use std::net::IpAddr;

/// Most rules of one zone.
pub const RULES: usize = 256;
/// Most ports of one rule.
pub const PORTS: usize = 256;
/// Most name servers.
pub const DNS_SERVERS: usize = 8;

impl NetworkPolicy {
    /// What is wrong with it; `None` for one that could have come from the parser.
    pub fn flaw(&self) -> Option<&'static str> {
        let Self { version, public, private, dns_servers, proxy_mode: _ } = self;
        if *version != NETWORK_POLICY_VERSION {
            return Some("the network policy is of another version");
        }
        if dns_servers.len() > DNS_SERVERS {
            return Some("the network policy has too many name servers");
        }
        let unique: HashSet<&IpAddr> = dns_servers.iter().collect();
        if unique.len() != dns_servers.len() {
            return Some("a name server is named twice");
        }
        dns_servers
            .iter()
            .find_map(|server| dns_flaw(*server))
            .or_else(|| [public, private].into_iter().find_map(Zone::flaw))
    }
}

impl Zone {
    fn flaw(&self) -> Option<&'static str> {
        let rules = self.rules();
        if rules.len() > RULES {
            return Some("a zone has too many rules");
        }
        rules.iter().find_map(Rule::flaw)
    }
}

impl Rule {
    fn flaw(&self) -> Option<&'static str> {
        if self.cidr.trunc() != self.cidr {
            return Some("a rule's address has bits beyond its prefix");
        }
        if cidr_flaw(&self.cidr) {
            return Some("a rule names IPv4 addresses as IPv6");
        }
        match &self.traffic {
            Traffic::Any => None,
            Traffic::Ports(_, ports) if ports.len() > PORTS => Some("a rule has too many ports"),
            Traffic::Ports(_, ports) => {
                // Of thousands in all: sorting a few is far cheaper than a set of them.
                let mut sorted = ports.clone();
                sorted.sort_unstable();
                let twice = sorted.windows(2).any(|two| two[0] == two[1]);
                (twice || sorted.first() == Some(&0)).then_some("a rule has port 0 or a port twice")
            }
        }
    }
}

/// Whether `cidr` means IPv4-mapped addresses and is not written as IPv4: it lies among them, or is one of the prefixes
/// that hold them all and yet begin like them. (`::/0` to `::/80` begin at the unspecified address: they mean IPv6, and
/// no packet to a mapped address is IPv6.)
pub fn cidr_flaw(cidr: &IpNet) -> bool {
    match cidr {
        IpNet::V4(_) => false,
        IpNet::V6(net) => {
            MAPPED.contains(net) || net.contains(&MAPPED) && !net.addr().is_unspecified()
        }
    }
}

/// Why `server` can't be a name server.
pub fn dns_flaw(server: IpAddr) -> Option<&'static str> {
    if server != class::canonical(server) {
        Some("a name server is an IPv4 address written as IPv6")
    } else if class::is_loopback(server) || server.is_unspecified() {
        Some("a name server is on loopback")
    } else if class::is_alias(server) {
        Some("a name server is the link's name for the host, whatever has that number outside")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Protocol;

    fn policy() -> NetworkPolicy {
        NetworkPolicy {
            version: NETWORK_POLICY_VERSION,
            public: Zone::Allowlist(vec![Rule {
                cidr: "93.184.216.0/24".parse().unwrap(),
                traffic: Traffic::Ports(Protocol::Tcp, vec![80, 443]),
            }]),
            private: Zone::Block,
            dns_servers: vec!["9.9.9.9".parse().unwrap()],
            proxy_mode: None,
        }
    }

    fn with_rule(cidr: &str, traffic: Traffic) -> NetworkPolicy {
        let rule = Rule { cidr: cidr.parse().unwrap(), traffic };
        NetworkPolicy { private: Zone::Denylist(vec![rule]), ..policy() }
    }

    #[test]
    fn what_the_parser_makes_has_no_flaw() {
        assert_eq!(policy().flaw(), None);
        for cidr in ["0.0.0.0/0", "::/0", "::/80", "::/96", "fc00::/7", "10.0.0.0/8"] {
            assert_eq!(with_rule(cidr, Traffic::Any).flaw(), None, "{cidr}");
        }
        let full: Vec<u16> = (1..=256).collect();
        assert_eq!(with_rule("::/0", Traffic::Ports(Protocol::Udp, full)).flaw(), None);
    }

    #[test]
    fn every_single_flaw_is_found() {
        let any = with_rule("10.0.0.0/8", Traffic::Any).private.rules()[0].clone();
        let too_many = Zone::Allowlist(vec![any; RULES + 1]);
        let dns = |list: &[&str]| NetworkPolicy {
            dns_servers: list.iter().map(|text| text.parse().unwrap()).collect(),
            ..policy()
        };
        let ports = |ports| with_rule("10.0.0.0/8", Traffic::Ports(Protocol::Tcp, ports));
        for (what, flawed) in [
            ("version", NetworkPolicy { version: 2, ..policy() }),
            ("rules", NetworkPolicy { public: too_many, ..policy() }),
            ("host bits", with_rule("10.0.0.1/8", Traffic::Any)),
            ("mapped", with_rule("::ffff:10.0.0.1/128", Traffic::Any)),
            ("all mapped", with_rule("::ffff:0:0/96", Traffic::Any)),
            ("straddling", with_rule("::fffe:0:0/95", Traffic::Any)),
            ("port 0", ports(vec![0])),
            ("port twice", ports(vec![1, 2, 1])),
            ("ports", ports((1..=257).collect())),
            (
                "nine servers",
                dns(&[
                    "1.0.0.1", "1.0.0.2", "1.0.0.3", "1.0.0.4", "1.0.0.5", "1.0.0.6", "1.0.0.7",
                    "1.0.0.8", "1.0.0.9",
                ]),
            ),
            ("server twice", dns(&["1.0.0.1", "1.0.0.1"])),
            ("loopback", dns(&["127.0.0.53"])),
            ("loopback", dns(&["::1"])),
            ("unspecified", dns(&["0.0.0.0"])),
            ("alias", dns(&["10.0.2.3"])),
            ("alias", dns(&["fd00::3"])),
            ("mapped server", dns(&["::ffff:9.9.9.9"])),
        ] {
            assert!(flawed.flaw().is_some(), "{what}");
        }
    }
}
