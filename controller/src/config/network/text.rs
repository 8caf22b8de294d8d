//! The text forms of addresses and prefixes in a policy.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use landbox_shared::network::{check, class};
use std::net::{IpAddr, Ipv6Addr};

/// Bits of an IPv6 address before the IPv4 address that is written in it.
const MAPPED_BITS: u8 = 96;

/// Reads an address or a prefix: host bits cleared, IPv4 written as IPv6 taken for IPv4. Else says what it is not.
pub(super) fn cidr(text: &str) -> Result<IpNet, String> {
    let (address, bits) = match text.rsplit_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address = parse(address).ok_or_else(|| no_address(text).to_owned())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        None => most,
        Some(bits) => decimal(bits)
            .filter(|bits| *bits <= most)
            .ok_or_else(|| format!("the prefix must be a number from 0 to {most}"))?,
    };
    let net = match (address, class::canonical(address)) {
        (IpAddr::V6(_), IpAddr::V4(inner)) => {
            let bits = bits.checked_sub(MAPPED_BITS).ok_or_else(|| {
                "an IPv4 address written as IPv6 needs a prefix of 96 or more".to_owned()
            })?;
            Ipv4Net::new(inner, bits).map(IpNet::V4)
        }
        (IpAddr::V4(address), _) => Ipv4Net::new(address, bits).map(IpNet::V4),
        (IpAddr::V6(address), _) => Ipv6Net::new(address, bits).map(IpNet::V6),
    };
    let net = net.map_err(|e| e.to_string())?.trunc();
    if check::cidr_flaw(&net) {
        return Err(
            "it holds the IPv4 addresses written as IPv6 and others; write IPv4 as IPv4".into()
        );
    }
    Ok(net)
}

/// Reads the address of a name server.
pub(super) fn server(text: &str) -> Result<IpAddr, String> {
    if text.contains('/') {
        return Err("a name server is one address, without a prefix".into());
    }
    let address = parse(text).map(class::canonical).ok_or_else(|| no_address(text).to_owned())?;
    match check::dns_flaw(address) {
        Some(flaw) => Err(flaw.into()),
        None => Ok(address),
    }
}

/// An address as it is in the normalised form: eight words for IPv6, nothing left out.
pub(super) fn written(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => words(address),
    }
}

fn words(address: Ipv6Addr) -> String {
    address.segments().map(|word| format!("{word:x}")).join(":")
}

fn parse(text: &str) -> Option<IpAddr> {
    // The standard library takes neither blanks nor zone ids, nor numbers that could be octal.
    text.parse().ok()
}

fn decimal(text: &str) -> Option<u8> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

/// What `text` is instead of an address, where that can be told.
fn no_address(text: &str) -> &'static str {
    let has_letters =
        |text: &str| text.chars().any(|c| c.is_alphabetic() && !c.is_ascii_hexdigit());
    if text.trim() != text {
        "there are blanks around it"
    } else if text.contains("://") {
        "it is a URL; only IP addresses are filtered"
    } else if text.contains('%') {
        "an address in a policy has no zone id"
    } else if text.contains('*') {
        "there are no wildcards; 0.0.0.0/0 and ::/0 match every address"
    } else if text.matches('/').count() > 1 {
        "it has more than one prefix"
    } else if text.starts_with('[') || text.matches(':').count() == 1 {
        "ports belong in \"ports\""
    } else if text.contains('-') && !has_letters(text) {
        "there are no ranges; write prefixes"
    } else if has_letters(text) || text.contains('.') && text.chars().any(char::is_alphabetic) {
        "names are not looked up; only IP addresses are filtered"
    } else {
        "it is not an IP address"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_bits_are_cleared_and_mapped_addresses_are_ipv4() {
        for (text, wanted) in [
            ("10.1.2.3", "10.1.2.3/32"),
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
            ("FD12::5", "fd12::5/128"),
            ("2606:4700::1/32", "2606:4700::/32"),
            ("::ffff:10.1.2.3", "10.1.2.3/32"),
            ("::ffff:a01:203/104", "10.0.0.0/8"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::1", "::1/128"),
            ("1.2.3.4/08", "1.0.0.0/8"),
        ] {
            assert_eq!(cidr(text).map(|net| net.to_string()), Ok(wanted.into()), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_told_by_what_it_is() {
        for (text, wanted) in [
            ("", "not an IP address"),
            ("example.com", "names"),
            ("abc.de", "names"),
            ("localhost", "names"),
            ("https://1.2.3.4/", "URL"),
            ("*.example.com", "wildcards"),
            ("10.*", "wildcards"),
            ("fe80::1%eth0", "zone id"),
            (" 10.0.0.1", "blanks"),
            ("10.0.0.1\n", "blanks"),
            ("10.0.0.1 /8", "not an IP address"),
            ("10.0.0.0/8/8", "more than one"),
            ("10.0.0.1:443", "ports"),
            ("[::1]:443", "ports"),
            ("10.0.0.1-10.0.0.9", "ranges"),
            ("010.0.0.1", "not an IP address"),
            ("10.0.1", "not an IP address"),
            ("167772161", "not an IP address"),
            ("10.0.0.0/33", "0 to 32"),
            ("10.0.0.0/-1", "0 to 32"),
            ("10.0.0.0/+8", "0 to 32"),
            ("10.0.0.0/", "0 to 32"),
            ("10.0.0.0/255.0.0.0", "0 to 32"),
            ("10.0.0.0/256", "0 to 32"),
            ("::/129", "0 to 128"),
            ("::ffff:10.0.0.1/95", "96 or more"),
            ("::ffff:0:0/0", "96 or more"),
            ("::fffe:0:0/95", "IPv4 as IPv4"),
        ] {
            let found = cidr(text).unwrap_err();
            assert!(found.contains(wanted), "{text}: {found}");
        }
    }

    #[test]
    fn name_servers_are_plain_addresses_that_are_not_the_hosts() {
        assert_eq!(server("::ffff:9.9.9.9"), Ok("9.9.9.9".parse().unwrap()));
        for (text, wanted) in [
            ("9.9.9.9/32", "without a prefix"),
            ("1.1.1.1:53", "ports"),
            ("not-an-ip", "names"),
            ("127.0.0.53", "loopback"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "loopback"),
            ("0.0.0.0", "loopback"),
            ("10.0.2.3", "link's name"),
            ("fd00::3", "link's name"),
        ] {
            let found = server(text).unwrap_err();
            assert!(found.contains(wanted), "{text}: {found}");
        }
    }

    #[test]
    fn ipv6_is_written_as_eight_words() {
        assert_eq!(written("2606:4700::1".parse().unwrap()), "2606:4700:0:0:0:0:0:1");
        assert_eq!(written("10.0.0.1".parse().unwrap()), "10.0.0.1");
    }
}
