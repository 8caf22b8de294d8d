//! `sandboxNetworkPolicy`, version 1, as it is written: read strictly, every problem named with its field, value and line.

mod normal;
mod text;
mod warnings;

pub use normal::{Normal, commented, mode, rule_value};
pub use warnings::{shadowed, warnings};

use super::document::{Problem, Source, failure};
use crate::error::{Failure, Result};
use crate::ui::text::visible;
use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::common::Ranged;
use landbox_shared::network::check::{DNS_SERVERS, PORTS, RULES};
use landbox_shared::network::{
    NETWORK_POLICY_VERSION, NetworkPolicy, Protocol, ProxyMode, Rule, Traffic, Zone,
};
use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;

/// Reads a file that holds one policy.
pub fn load(file: &Path) -> Result<NetworkPolicy> {
    let read = || {
        let source = Source::read(file, "network policy")?;
        let value = source.value("it must hold one network policy")?;
        policy(&source, "", &value).map_err(|problems| failure(&source, problems))
    };
    read().map_err(|found: Failure| found.hint("man sandbox-network-policy has an example (in the sources: man -l packaging/man/sandbox-network-policy.5)"))
}

/// Reads the policy that `value`, called `name`, holds.
pub(super) fn policy(
    source: &Source,
    name: &str,
    value: &Value<'_>,
) -> Result<NetworkPolicy, Vec<Problem>> {
    let mut reader = Reader { source, problems: Vec::new() };
    match (reader.policy(&Whole(name), value), reader.problems.is_empty()) {
        (Some(policy), true) => Ok(policy),
        (Some(_) | None, _) => Err(reader.problems),
    }
}

struct Reader<'s> {
    source: &'s Source,
    problems: Vec<Problem>,
}

/// Up to how many ports a list is looked through.
const SHORT: usize = 32;

/// The name of a field, put together only where it is said: there are hundreds of rules, and few problems.
#[derive(Clone, Copy)]
enum Name<'a> {
    /// The policy, by the name of what holds it; empty where it is all there is.
    Whole(&'a str),
    /// A key of an object.
    Key(&'a Name<'a>, &'a str),
    /// An element of a list.
    Item(&'a Name<'a>, usize),
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(name) => f.write_str(name),
            Self::Key(Self::Whole(""), key) => f.write_str(key),
            Self::Key(outer, key) => write!(f, "{outer}.{key}"),
            Self::Item(list, n) => write!(f, "{list}[{n}]"),
        }
    }
}

use Name::{Item, Key, Whole};

impl Reader<'_> {
    fn wrong(&mut self, name: &Name<'_>, value: &Value<'_>, what: &str) {
        let found = self.source.quote(value);
        let name = match name {
            Whole("") => "the policy".into(),
            Whole(_) | Key(..) | Item(..) => format!("\"{name}\""),
        };
        self.problems.push((value.range().start, format!("{name} must be {what}, not {found}")));
    }

    /// An object with no other keys than `keys`, each once. An unknown one is a problem beside the others, not instead.
    fn object<'a, 'v>(
        &mut self,
        name: &Name<'_>,
        value: &'v Value<'a>,
        keys: &[&str],
    ) -> Option<&'v Object<'a>> {
        let Some(object) = value.as_object() else {
            self.wrong(name, value, "an object");
            return None;
        };
        for (at, prop) in object.properties.iter().enumerate() {
            let key = prop.name.as_str();
            let shown = || Key(name, &visible(key.as_bytes())).to_string();
            if !keys.contains(&key) {
                let what = format!("unknown key \"{}\"; there are {}", shown(), keys.join(", "));
                self.problems.push((prop.range().start, what));
            } else if object.properties[..at].iter().any(|earlier| earlier.name.as_str() == key) {
                let what = format!("\"{}\" is given twice", shown());
                self.problems.push((prop.range().start, what));
            }
        }
        Some(object)
    }

    fn required<'a, 'v>(
        &mut self,
        name: &Name<'_>,
        object: &'v Object<'a>,
        key: &str,
    ) -> Option<&'v ObjectProp<'a>> {
        let found = object.properties.iter().find(|prop| prop.name.as_str() == key);
        if found.is_none() {
            let what = format!("\"{}\" is missing", Key(name, key));
            self.problems.push((object.range().start, what));
        }
        found
    }

    fn policy(&mut self, name: &Name<'_>, value: &Value<'_>) -> Option<NetworkPolicy> {
        const KEYS: [&str; 5] = ["version", "public", "private", "dnsServers", "proxyMode"];
        let object = self.object(name, value, &KEYS)?;
        if let Some(version) = self.required(name, object, "version") {
            let number = version.value.as_number_lit().and_then(|number| number.value.parse().ok());
            if number != Some(NETWORK_POLICY_VERSION) {
                self.wrong(&Key(name, "version"), &version.value, "1");
            }
        }
        let public = self.zone(name, object, "public");
        let private = self.zone(name, object, "private");
        let dns_servers = self.dns_servers(name, object);
        let proxy_mode = self.proxy_mode(name, object);
        Some(NetworkPolicy {
            version: NETWORK_POLICY_VERSION,
            public: public?,
            private: private?,
            dns_servers,
            proxy_mode,
        })
    }

    fn zone(&mut self, name: &Name<'_>, object: &Object<'_>, key: &str) -> Option<Zone> {
        let prop = self.required(name, object, key)?;
        let name = &Key(name, key);
        let object = self.object(name, &prop.value, &["mode", "rules"])?;
        let mode = self.required(name, object, "mode");
        let rules = object.properties.iter().find(|prop| prop.name.as_str() == "rules");
        // Read before the mode is judged, so that one look shows every problem.
        let list = rules.map(|prop| self.rules(&Key(name, "rules"), &prop.value));
        let mode = mode?;
        let word = mode.value.as_string_lit().map(|text| &*text.value);
        match word {
            Some(word @ ("allow" | "block")) => {
                if let Some(rules) = rules {
                    let what = format!(
                        "\"{name}.rules\" can't be given with \"mode\": \"{word}\", not even empty"
                    );
                    self.problems.push((rules.range().start, what));
                }
                Some(if word == "allow" { Zone::Allow } else { Zone::Block })
            }
            Some("allowlist") => Some(Zone::Allowlist(list.unwrap_or_default())),
            Some("denylist") => Some(Zone::Denylist(list.unwrap_or_default())),
            Some(_) | None => {
                let wanted = "\"allow\", \"block\", \"allowlist\" or \"denylist\"";
                self.wrong(&Key(name, "mode"), &mode.value, wanted);
                None
            }
        }
    }

    /// The elements of a list of `least` to `most`.
    fn list<'a, 'v>(
        &mut self,
        name: &Name<'_>,
        value: &'v Value<'a>,
        what: &str,
        (least, most): (usize, usize),
    ) -> &'v [Value<'a>] {
        let Some(array) = value.as_array() else {
            self.wrong(name, value, &format!("a list of {what}"));
            return &[];
        };
        let count = array.elements.len();
        if count < least || count > most {
            let what = format!("\"{name}\" must be {least} to {most} {what}, not {count}");
            self.problems.push((value.range().start, what));
            return &[];
        }
        &array.elements
    }

    fn rules(&mut self, name: &Name<'_>, value: &Value<'_>) -> Vec<Rule> {
        let elements = self.list(name, value, "rules", (0, RULES));
        let rules = elements.iter().enumerate();
        rules.filter_map(|(n, value)| self.rule(&Item(name, n), value)).collect()
    }

    fn rule(&mut self, name: &Name<'_>, value: &Value<'_>) -> Option<Rule> {
        let object = self.object(name, value, &["cidr", "protocol", "ports"])?;
        let find = |key: &str| object.properties.iter().find(|prop| prop.name.as_str() == key);
        let protocol = find("protocol").map(|prop| self.protocol(&Key(name, "protocol"), prop));
        let ports = find("ports").map(|prop| (prop, self.ports(&Key(name, "ports"), &prop.value)));
        let cidr = self.required(name, object, "cidr");
        let cidr = cidr.and_then(|prop| {
            self.address(&Key(name, "cidr"), &prop.value, "an IP address or prefix", text::cidr)
        });
        let traffic = match (protocol, ports) {
            (None, None) => Traffic::Any,
            (Some(protocol), ports) => {
                Traffic::Ports(protocol?, ports.map(|(_, ports)| ports).unwrap_or_default())
            }
            (None, Some((prop, _))) => {
                let what = format!("\"{name}.ports\" needs a \"protocol\" beside it");
                self.problems.push((prop.range().start, what));
                return None;
            }
        };
        Some(Rule { cidr: cidr?, traffic })
    }

    fn protocol(&mut self, name: &Name<'_>, prop: &ObjectProp<'_>) -> Option<Protocol> {
        match prop.value.as_string_lit().map(|text| &*text.value) {
            Some("tcp") => Some(Protocol::Tcp),
            Some("udp") => Some(Protocol::Udp),
            Some(_) | None => {
                self.wrong(name, &prop.value, "\"tcp\" or \"udp\"");
                None
            }
        }
    }

    /// Each port once, in the order given.
    fn ports(&mut self, name: &Name<'_>, value: &Value<'_>) -> Vec<u16> {
        let mut ports: Vec<u16> = Vec::new();
        // Most lists are short: a set of their own for each of hundreds would cost more than looking.
        let mut seen = HashSet::new();
        let mut is_new = |ports: &[u16], port: u16| {
            if ports.len() < SHORT {
                return !ports.contains(&port);
            }
            if seen.is_empty() {
                seen.extend(ports);
            }
            seen.insert(port)
        };
        for (n, value) in self.list(name, value, "ports", (1, PORTS)).iter().enumerate() {
            let number = value.as_number_lit().and_then(|number| number.value.parse::<u16>().ok());
            match number.filter(|port| *port > 0) {
                Some(port) if is_new(&ports, port) => ports.push(port),
                Some(_) => {}
                None => {
                    let name = Item(name, n);
                    self.wrong(&name, value, "a whole number from 1 to 65535");
                }
            }
        }
        ports
    }

    fn address<T>(
        &mut self,
        name: &Name<'_>,
        value: &Value<'_>,
        wanted: &str,
        read: fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let Some(text) = value.as_string_lit() else {
            self.wrong(name, value, wanted);
            return None;
        };
        match read(&text.value) {
            Ok(read) => Some(read),
            Err(why) => {
                self.wrong(name, value, wanted);
                if let Some((_, what)) = self.problems.last_mut() {
                    what.push_str(&format!(": {why}"));
                }
                None
            }
        }
    }

    /// Each server once, in the order given.
    fn dns_servers(&mut self, name: &Name<'_>, object: &Object<'_>) -> Vec<IpAddr> {
        let Some(prop) = object.properties.iter().find(|p| p.name.as_str() == "dnsServers") else {
            return Vec::new();
        };
        let name = &Key(name, "dnsServers");
        let mut servers = Vec::new();
        let elements = self.list(name, &prop.value, "IP addresses", (0, DNS_SERVERS));
        for (n, value) in elements.iter().enumerate() {
            let name = Item(name, n);
            let server = self.address(&name, value, "the address of a name server", text::server);
            servers.extend(server.filter(|server| !servers.contains(server)));
        }
        servers
    }

    fn proxy_mode(&mut self, name: &Name<'_>, object: &Object<'_>) -> Option<ProxyMode> {
        let prop = object.properties.iter().find(|prop| prop.name.as_str() == "proxyMode")?;
        match prop.value.as_string_lit().map(|text| &*text.value) {
            Some("reject") => Some(ProxyMode::Reject),
            Some("trusted-egress") => Some(ProxyMode::TrustedEgress),
            Some(_) | None => {
                let wanted = "\"reject\" or \"trusted-egress\"";
                self.wrong(&Key(name, "proxyMode"), &prop.value, wanted);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
