//! The networks that this machine knows a way to.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::fs::File;
use std::io::Read;
use std::net::{Ipv4Addr, Ipv6Addr};

/// More is not read of either list: some routers have millions.
const MAX_BYTES: u64 = 1 << 20;
/// What the kernel calls loopback.
const LOOPBACK: &str = "lo";

/// A network, and the interface that leads to it.
pub type Route = (IpNet, String);

/// The networks, without loopback's and the way to everywhere else. What can't be read is none.
pub fn networks() -> Vec<Route> {
    let lists =
        [("/proc/net/route", v4 as fn(&str) -> Option<Route>), ("/proc/net/ipv6_route", v6)];
    let mut found: Vec<Route> =
        lists.iter().flat_map(|(path, line)| parse(&read(path), line)).collect();
    found.sort();
    found.dedup();
    found
}

fn read(path: &str) -> String {
    let mut text = Vec::new();
    // For a warning alone: without the file there is none.
    let _ = File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

fn parse(text: &str, line: &fn(&str) -> Option<Route>) -> Vec<Route> {
    let routes = text.lines().filter_map(line);
    routes.filter(|(net, by)| net.prefix_len() > 0 && by != LOOPBACK).collect()
}

/// `eth0 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0`: interface, destination, gateway, .., mask. The words are the
/// machine's own, of bytes in the network's order.
fn v4(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let address = |n: usize| {
        let bytes = u32::from_str_radix(words.get(n)?, 16).ok()?.to_ne_bytes();
        Some(Ipv4Addr::from(bytes))
    };
    let net = Ipv4Net::with_netmask(address(1)?, address(7)?).ok()?;
    Some((net.trunc().into(), (*words.first()?).to_owned()))
}

/// Flags of a route that is an address of this machine: its own, or one of several machines'.
const ADDRESS: u32 = 0x8010_0000;

/// `fd00..00 40 00..00 00 00..00 00000100 00000001 00000000 00000001 eth0`: destination, its length, .., flags, interface.
fn v6(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let address = Ipv6Addr::from(u128::from_str_radix(words.first()?, 16).ok()?);
    let length = u8::from_str_radix(words.get(1)?, 16).ok()?;
    let flags = u32::from_str_radix(words.get(8)?, 16).ok()?;
    let net = Ipv6Net::new(address, length).ok()?;
    let route = (net.trunc().into(), (*words.get(9)?).to_owned());
    (flags & ADDRESS == 0).then_some(route)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(routes: Vec<Route>) -> Vec<String> {
        routes.into_iter().map(|(net, by)| format!("{net} {by}")).collect()
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn networks_are_told_from_the_way_to_everywhere_and_from_loopback() {
        let text = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
            eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            eth0\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
            tun0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n\
            lo\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\nbad\tline\n";
        assert_eq!(
            shown(parse(text, &(v4 as fn(&str) -> Option<Route>))),
            ["10.0.2.0/24 eth0", "10.0.0.0/8 tun0"]
        );
        let none = "00000000000000000000000000000000";
        let line = |net: &str, length: &str, by: &str| {
            let flags = if length == "80" { "80200001" } else { "00000001" };
            format!("{net} {length} {none} 00 {none} 00000100 00000001 00000000 {flags}     {by}\n")
        };
        let text = [
            line("fd000000000000000000000000000000", "40", "eth0"),
            line(none, "00", "eth0"),
            line("fd000000000000000000000000000002", "80", "eth0"),
            line("00000000000000000000000000000001", "80", "lo"),
            "x\n".to_owned(),
        ];
        assert_eq!(
            shown(parse(&text.concat(), &(v6 as fn(&str) -> Option<Route>))),
            ["fd00::/64 eth0"]
        );
    }
}
