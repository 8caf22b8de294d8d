//! The session's interface to its link: the requests that complete it, and judging what the kernel then says of it.

use super::class::{ALIASES_V4, LINK_V4, LINK_V6, OWN_V4, OWN_V6, ROUTER_V6};
use crate::netlink::{self, Attributes, Message};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Name of the interface.
pub const INTERFACE: &str = "tap0";
/// Its largest packet: what the link carries fastest.
pub const MTU: u32 = 65520;

const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
/// Lists the interfaces.
pub const LIST_LINKS: u16 = 18;
/// Lists the addresses.
pub const LIST_ADDRESSES: u16 = 22;
/// Lists the routes.
pub const LIST_ROUTES: u16 = 26;

const V4: u8 = 2;
const V6: u8 = 10;
/// Flag of an interface: it is up.
const UP: u32 = 1;
/// Flags of an address: without duplicate detection; for good; its detection failed; it is still being detected.
const NO_DETECTION: u32 = 0x02;
const PERMANENT: u32 = 0x80;
const UNUSABLE: u32 = 0x08 | 0x40;
/// The usual table; a route made by hand; to anywhere; to another host.
const ROUTE: [u8; 4] = [254, 4, 0, 1];

/// What the kernel says of the link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkRecord {
    /// Name of the interface.
    pub interface: String,
    /// Its largest packet.
    pub mtu: u32,
    /// Its addresses that can be used: IPv4's, then IPv6's.
    pub addresses: Vec<IpNet>,
    /// Where packets to anywhere go: IPv4's, then IPv6's.
    pub gateways: Vec<IpAddr>,
    /// Whether the program that is the link confined itself to a root of its own.
    pub sandboxed: bool,
}

/// A request for a list.
pub fn list(kind: u16, seq: u32) -> Vec<u8> {
    // As long as the header of any of the three.
    netlink::message(kind, netlink::REQUEST | netlink::DUMP, seq, &[0; 16])
}

/// The request that gives the interface its IPv6 address.
pub fn set_address(index: u32, seq: u32) -> Vec<u8> {
    let head = [V6, LINK_V6.prefix_len(), 0, 0];
    let address = netlink::attribute(1, &OWN_V6.octets());
    let local = netlink::attribute(2, &OWN_V6.octets());
    let flags = netlink::attribute(8, &(NO_DETECTION | PERMANENT).to_ne_bytes());
    let body = [&head[..], &index.to_ne_bytes(), &address, &local, &flags].concat();
    netlink::message(NEW_ADDRESS, netlink::REQUEST | netlink::ACK | netlink::CREATE, seq, &body)
}

/// The request that routes IPv6 to anywhere by the interface.
pub fn set_route(index: u32, seq: u32) -> Vec<u8> {
    let head = [&[V6, 0, 0, 0][..], &ROUTE, &[0; 4]].concat();
    let way = netlink::attribute(4, &index.to_ne_bytes());
    let router = netlink::attribute(5, &ROUTER_V6.octets());
    let body = [head, way, router].concat();
    netlink::message(NEW_ROUTE, netlink::REQUEST | netlink::ACK | netlink::CREATE, seq, &body)
}

#[derive(Debug)]
struct Interface {
    index: u32,
    name: String,
    mtu: u32,
    up: bool,
}

/// What was listed so far.
#[derive(Debug, Default)]
pub struct Reading {
    interfaces: Vec<Interface>,
    addresses: Vec<(u32, IpNet)>,
    gateways: Vec<(u32, IpAddr)>,
}

impl Reading {
    /// Takes one object of a list. `None`: it is not well formed.
    pub fn take(&mut self, Message { kind, body }: Message<'_>) -> Option<()> {
        match kind {
            NEW_LINK => {
                let attributes = Attributes::after(16, body)?;
                let mtu = netlink::u32_at(attributes.get(4)?, 0)?;
                let up = netlink::u32_at(body, 8)? & UP != 0;
                let (index, name) = (netlink::u32_at(body, 4)?, attributes.text(3)?.to_owned());
                self.interfaces.push(Interface { index, name, mtu, up });
            }
            NEW_ADDRESS => {
                let attributes = Attributes::after(8, body)?;
                let (family, length) = (*body.first()?, *body.get(1)?);
                let flags = match attributes.get(8) {
                    Some(flags) => netlink::u32_at(flags, 0)?,
                    None => u32::from(*body.get(2)?),
                };
                let address = address(family, attributes.get(2).or(attributes.get(1))?)?;
                if flags & UNUSABLE == 0 {
                    let net = IpNet::new(address, length).ok()?;
                    self.addresses.push((netlink::u32_at(body, 4)?, net));
                }
            }
            NEW_ROUTE => {
                let attributes = Attributes::after(12, body)?;
                let (family, to_length) = (*body.first()?, *body.get(1)?);
                let plain = to_length == 0 && body.get(7) == ROUTE.last();
                if let (true, Some(gateway)) = (plain, attributes.get(5)) {
                    let way = netlink::u32_at(attributes.get(4)?, 0)?;
                    self.gateways.push((way, address(family, gateway)?));
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Number of the interface to the link, if it is there.
    pub fn interface(&self) -> Option<u32> {
        self.interfaces.iter().find(|i| i.name == INTERFACE).map(|i| i.index)
    }

    /// Judges what was listed.
    pub fn judge(self, sandboxed: bool) -> Result<LinkRecord, &'static str> {
        let other = |i: &&Interface| i.up && i.name != INTERFACE && i.name != "lo";
        if self.interfaces.iter().any(|i| other(&i)) {
            return Err("there is an interface beside loopback and the link");
        }
        let Some(tap) = self.interfaces.into_iter().find(|i| i.name == INTERFACE && i.up) else {
            return Err("the link's interface is not up");
        };
        let own = |(index, _): &(u32, IpNet)| *index == tap.index;
        let mut addresses: Vec<IpNet> =
            self.addresses.into_iter().filter(own).map(|(_, net)| net).collect();
        // IPv6 has one more that is good on the link alone.
        addresses
            .retain(|net| !matches!(net, IpNet::V6(net) if net.addr().is_unicast_link_local()));
        addresses.sort();
        let mut gateways: Vec<IpAddr> =
            self.gateways.iter().filter(|g| g.0 == tap.index).map(|g| g.1).collect();
        gateways.sort();
        if gateways.len() != self.gateways.len() {
            return Err("there is a route beside the link's");
        }
        let v4 = Ipv4Net::new(OWN_V4, LINK_V4.prefix_len()).map(IpNet::V4);
        let v6 = Ipv6Net::new(OWN_V6, LINK_V6.prefix_len()).map(IpNet::V6);
        if [v4, v6].map(Result::ok).into_iter().ne(addresses.iter().copied().map(Some)) {
            return Err("the link's interface has not the addresses that were meant");
        }
        if gateways != [IpAddr::V4(ALIASES_V4[0]), IpAddr::V6(ROUTER_V6)] {
            return Err("the routes are not those that were meant");
        }
        let (interface, mtu) = (tap.name, tap.mtu);
        Ok(LinkRecord { interface, mtu, addresses, gateways, sandboxed })
    }
}

fn address(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        V4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        V6 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{attribute, text};

    fn interface(index: u32, name: &str, flags: u32) -> Vec<u8> {
        let mut body = vec![0; 16];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        body[8..12].copy_from_slice(&flags.to_ne_bytes());
        [body, text(3, name), attribute(4, &MTU.to_ne_bytes())].concat()
    }

    fn address(index: u32, address: IpAddr, length: u8, flags: u32) -> Vec<u8> {
        let (family, bytes) = match address {
            IpAddr::V4(a) => (V4, a.octets().to_vec()),
            IpAddr::V6(a) => (V6, a.octets().to_vec()),
        };
        let head = [&[family, length, 0, 0][..], &index.to_ne_bytes()].concat();
        [head, attribute(1, &bytes), attribute(8, &flags.to_ne_bytes())].concat()
    }

    fn route(index: u32, gateway: IpAddr) -> Vec<u8> {
        let (family, bytes) = match gateway {
            IpAddr::V4(a) => (V4, a.octets().to_vec()),
            IpAddr::V6(a) => (V6, a.octets().to_vec()),
        };
        let head = [&[family, 0, 0, 0][..], &ROUTE, &[0; 4]].concat();
        [head, attribute(5, &bytes), attribute(4, &index.to_ne_bytes())].concat()
    }

    fn usual() -> Vec<(u16, Vec<u8>)> {
        vec![
            (NEW_LINK, interface(1, "lo", UP)),
            (NEW_LINK, interface(2, "tunl0", 0)),
            (NEW_LINK, interface(3, INTERFACE, UP)),
            (NEW_ADDRESS, address(1, "127.0.0.1".parse().unwrap(), 8, PERMANENT)),
            (NEW_ADDRESS, address(3, OWN_V4.into(), 24, PERMANENT)),
            (NEW_ADDRESS, address(3, "fe80::1".parse().unwrap(), 64, PERMANENT)),
            (NEW_ADDRESS, address(3, OWN_V6.into(), 64, PERMANENT | NO_DETECTION)),
            (NEW_ROUTE, route(3, ALIASES_V4[0].into())),
            (NEW_ROUTE, route(3, ROUTER_V6.into())),
        ]
    }

    fn judge(objects: &[(u16, Vec<u8>)]) -> Result<LinkRecord, &'static str> {
        let mut reading = Reading::default();
        for (kind, body) in objects {
            assert_eq!(reading.take(Message { kind: *kind, body }), Some(()));
        }
        reading.judge(true)
    }

    #[test]
    fn the_link_as_it_should_be_is_recorded() {
        let record = judge(&usual()).unwrap();
        assert_eq!((record.mtu, record.addresses.len(), record.gateways.len()), (MTU, 2, 2));
    }

    #[test]
    fn a_link_that_lacks_anything_or_has_more_is_refused() {
        for left_out in [2, 4, 6, 7, 8] {
            let mut objects = usual();
            objects.remove(left_out);
            assert!(judge(&objects).is_err(), "{left_out}");
        }
        for more in [
            (NEW_LINK, interface(4, "eth0", UP)),
            (NEW_ADDRESS, address(3, "10.9.9.9".parse().unwrap(), 8, PERMANENT)),
            (NEW_ROUTE, route(1, "10.0.2.3".parse().unwrap())),
            (NEW_ROUTE, route(3, "10.0.2.3".parse().unwrap())),
        ] {
            assert!(judge(&[usual(), vec![more.clone()]].concat()).is_err(), "{more:?}");
        }
        let mut objects = usual();
        objects[6].1 = address(3, OWN_V6.into(), 64, 0x40);
        assert!(judge(&objects).is_err());
    }

    #[test]
    fn requests_are_read_as_what_they_set() {
        let mut reading = Reading::default();
        for request in [set_address(3, 1), set_route(3, 1)] {
            let kind = u16::from_ne_bytes([request[4], request[5]]);
            assert_eq!(reading.take(Message { kind, body: &request[16..] }), Some(()));
        }
        assert_eq!(reading.addresses, [(3, "fd00::100/64".parse().unwrap())]);
        assert_eq!(reading.gateways, [(3, IpAddr::V6(ROUTER_V6))]);
    }
}
