//! Which zone an address belongs to, and the addresses that no zone decides. Static: neither names nor routes matter.
//!
//! What is not public follows IANA's IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890), its IPv4 Multicast
//! Address Space (RFC 5771) and its IPv6 Address Space, where everything outside 2000::/3 is reserved or local.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One of the two zones of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ZoneName {
    /// Addresses of the public Internet.
    Public,
    /// Every other address.
    Private,
}

impl fmt::Display for ZoneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::Private => "private",
        })
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(a: u16, b: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), prefix)
}

/// IPv4 addresses of the private zone, in order; none overlaps another.
pub const PRIVATE_V4: [Ipv4Net; 14] = [
    // "This network", RFC 791.
    v4(0, 0, 0, 0, 8),
    // Private use, RFC 1918.
    v4(10, 0, 0, 0, 8),
    // Shared address space (carrier-grade NAT), RFC 6598.
    v4(100, 64, 0, 0, 10),
    // Loopback, RFC 1122.
    v4(127, 0, 0, 0, 8),
    // Link-local, RFC 3927.
    v4(169, 254, 0, 0, 16),
    // Private use, RFC 1918.
    v4(172, 16, 0, 0, 12),
    // IETF protocol assignments, RFC 6890.
    v4(192, 0, 0, 0, 24),
    // Documentation (TEST-NET-1), RFC 5737.
    v4(192, 0, 2, 0, 24),
    // 6to4 relay anycast, withdrawn by RFC 7526.
    v4(192, 88, 99, 0, 24),
    // Private use, RFC 1918.
    v4(192, 168, 0, 0, 16),
    // Benchmarking, RFC 2544.
    v4(198, 18, 0, 0, 15),
    // Documentation (TEST-NET-2), RFC 5737.
    v4(198, 51, 100, 0, 24),
    // Documentation (TEST-NET-3), RFC 5737.
    v4(203, 0, 113, 0, 24),
    // Multicast (RFC 5771), reserved and limited broadcast (RFC 1112, RFC 919).
    v4(224, 0, 0, 0, 3),
];

/// IPv6 addresses of the private zone; none overlaps another.
pub const PRIVATE_V6: [Ipv6Net; 7] = [
    // Below 2000::/3: loopback, unspecified, mapped, translated (RFC 4291, RFC 6052, RFC 8215) and unassigned.
    v6(0, 0, 3),
    // IETF protocol assignments with Teredo, RFC 2928.
    v6(0x2001, 0, 23),
    // Documentation, RFC 3849.
    v6(0x2001, 0xdb8, 32),
    // 6to4, RFC 3056.
    v6(0x2002, 0, 16),
    // Documentation, RFC 9637.
    v6(0x3fff, 0, 20),
    // Above 2000::/3: unassigned (RFC 4291).
    v6(0x4000, 0, 2),
    // Unassigned, unique local (RFC 4193), link-local, multicast (RFC 4291).
    v6(0x8000, 0, 1),
];

/// IPv4's loopback.
pub const LOOPBACK_V4: Ipv4Net = v4(127, 0, 0, 0, 8);
/// IPv6's loopback and unspecified address, and the withdrawn IPv4-compatible ones (RFC 4291) that a link may read as
/// the IPv4 address in them.
pub const LOOPBACK_V6: Ipv6Net = v6(0, 0, 96);
/// IPv4 addresses written as IPv6. No packet carries one; what is written so is the IPv4 address.
pub const MAPPED: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96);

/// The link's own IPv4 network. Real networks of that number can't be reached.
pub const LINK_V4: Ipv4Net = v4(10, 0, 2, 0, 24);
/// The link's own IPv6 network; all of it is the link's.
pub const LINK_V6: Ipv6Net = v6(0xfd00, 0, 64);
/// The session's IPv4 address on the link.
pub const OWN_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 100);
/// The session's IPv6 address on the link.
pub const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x100);
/// The link's names for the host: its gateway, which would be the host's loopback, and its name server.
pub const ALIASES_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 2, 2), Ipv4Addr::new(10, 0, 2, 3)];
/// The router on the link.
pub const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

/// An address as packets carry it: IPv4 where it is written as IPv6.
pub fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// The zone of an address.
pub fn zone_of(address: IpAddr) -> ZoneName {
    let private = match canonical(address) {
        IpAddr::V4(address) => PRIVATE_V4.iter().any(|net| net.contains(&address)),
        IpAddr::V6(address) => PRIVATE_V6.iter().any(|net| net.contains(&address)),
    };
    if private { ZoneName::Private } else { ZoneName::Public }
}

/// Whether some address of `cidr` lies in `zone`.
pub fn touches(cidr: &IpNet, zone: ZoneName) -> bool {
    let private: Vec<IpNet> = match cidr {
        IpNet::V4(_) => PRIVATE_V4.map(IpNet::V4).into(),
        IpNet::V6(_) => PRIVATE_V6.map(IpNet::V6).into(),
    };
    match zone {
        ZoneName::Private => private.iter().any(|net| net.contains(cidr) || cidr.contains(net)),
        // The private sets of one family have holes between them, and no two of them make up a prefix.
        ZoneName::Public => !private.iter().any(|net| net.contains(cidr)),
    }
}

/// Whether packets to this address are loopback's: they may leave by the session's own loopback alone.
pub fn is_loopback(address: IpAddr) -> bool {
    match canonical(address) {
        IpAddr::V4(address) => LOOPBACK_V4.contains(&address),
        IpAddr::V6(address) => LOOPBACK_V6.contains(&address),
    }
}

/// Whether this address is the link's name for the host, or for itself.
pub fn is_alias(address: IpAddr) -> bool {
    match canonical(address) {
        IpAddr::V4(address) => ALIASES_V4.contains(&address),
        IpAddr::V6(address) => LINK_V6.contains(&address),
    }
}

/// Whether the kernel sends packets to this address by the session's own loopback, unless a socket is bound elsewhere.
pub fn is_own(address: IpAddr) -> bool {
    match canonical(address) {
        IpAddr::V4(address) => {
            LOOPBACK_V4.contains(&address) || address == OWN_V4 || address.is_unspecified()
        }
        IpAddr::V6(address) => {
            address.is_loopback() || address == OWN_V6 || address.is_unspecified()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(text: &str) -> ZoneName {
        zone_of(text.parse().unwrap())
    }

    #[test]
    fn addresses_that_are_not_of_the_public_internet_are_private() {
        for text in [
            "10.0.0.1",
            "127.0.0.1",
            "169.254.0.1",
            "100.64.0.1",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "172.31.255.255",
            "192.0.0.9",
            "192.88.99.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "ff02::1",
            "2001:db8::1",
            "2002::1",
            "2001::1",
            "64:ff9b::a00:1",
            "::ffff:127.0.0.1",
            "3fff::1",
            "4000::",
            "1fff:ffff::",
            "8000::",
        ] {
            assert_eq!(zone(text), ZoneName::Private, "{text}");
        }
        for text in [
            "8.8.8.8",
            "1.1.1.1",
            "2606:4700:4700::1111",
            "::ffff:8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "172.32.0.0",
            "223.255.255.255",
            "2000::",
            "2001:200::",
            "2003::",
            "3fff:1000::",
        ] {
            assert_eq!(zone(text), ZoneName::Public, "{text}");
        }
    }

    #[test]
    fn the_private_sets_hold_no_host_bits_and_do_not_overlap() {
        let nets: Vec<IpNet> =
            PRIVATE_V4.map(IpNet::V4).into_iter().chain(PRIVATE_V6.map(IpNet::V6)).collect();
        for (n, net) in nets.iter().enumerate() {
            assert_eq!(net.trunc(), *net);
            assert!(!nets[n + 1..].iter().any(|o| o.contains(net) || net.contains(o)), "{net}");
        }
    }

    #[test]
    fn a_prefix_touches_every_zone_it_has_an_address_in() {
        for (cidr, public, private) in [
            ("0.0.0.0/0", true, true),
            ("::/0", true, true),
            ("10.2.0.0/16", false, true),
            ("192.0.0.0/8", true, true),
            ("8.8.8.8/32", true, false),
            ("224.0.0.0/3", false, true),
            ("2000::/3", true, true),
            ("2600::/12", true, false),
            ("fc00::/7", false, true),
        ] {
            let cidr = cidr.parse().unwrap();
            assert_eq!(touches(&cidr, ZoneName::Public), public, "{cidr}");
            assert_eq!(touches(&cidr, ZoneName::Private), private, "{cidr}");
        }
    }
}
