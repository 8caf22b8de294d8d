//! `sandboxNetworkPolicy`, version 1, as it is written: read strictly, every problem named with its field, value and line.

mod normal;
mod text;
mod warnings;

pub use normal::{Normal, commented, mode, rule_value};
pub use warnings::warnings;

use super::document::{Problem, Source, failure};
use crate::error::Result;
use crate::ui::text::visible;
use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::common::Ranged;
use landbox_shared::network::check::{DNS_SERVERS, PORTS, RULES};
use landbox_shared::network::{
    NETWORK_POLICY_VERSION, NetworkPolicy, Protocol, ProxyMode, Rule, Traffic, Zone,
};
use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;

/// Reads a file that holds one policy.
pub fn load(file: &Path) -> Result<NetworkPolicy> {
    let source = Source::read(file, "network policy")?;
    let value = source.value("it must hold one network policy")?;
    policy(&source, "", &value).map_err(|problems| failure(&source, problems))
}

/// Reads the policy that `value`, called `name`, holds.
pub(super) fn policy(
    source: &Source,
    name: &str,
    value: &Value<'_>,
) -> Result<NetworkPolicy, Vec<Problem>> {
    let mut reader = Reader { source, problems: Vec::new() };
    match (reader.policy(name, value), reader.problems.is_empty()) {
        (Some(policy), true) => Ok(policy),
        (Some(_) | None, _) => Err(reader.problems),
    }
}

struct Reader<'s> {
    source: &'s Source,
    problems: Vec<Problem>,
}

/// The name of a field inside another.
fn inner(outer: &str, key: &str) -> String {
    if outer.is_empty() { key.to_owned() } else { format!("{outer}.{key}") }
}

impl Reader<'_> {
    fn wrong(&mut self, name: &str, value: &Value<'_>, what: &str) {
        let found = self.source.quote(value);
        let name = if name.is_empty() { "the policy".into() } else { format!("\"{name}\"") };
        self.problems.push((value.range().start, format!("{name} must be {what}, not {found}")));
    }

    /// An object with no other keys than `keys`, each once. An unknown one is a problem beside the others, not instead.
    fn object<'a, 'v>(
        &mut self,
        name: &str,
        value: &'v Value<'a>,
        keys: &[&str],
    ) -> Option<&'v Object<'a>> {
        let Some(object) = value.as_object() else {
            self.wrong(name, value, "an object");
            return None;
        };
        for (at, prop) in object.properties.iter().enumerate() {
            let key = prop.name.as_str();
            let shown = inner(name, &visible(key.as_bytes()));
            if !keys.contains(&key) {
                let known = keys.join(", ");
                let what = format!("unknown key \"{shown}\"; there are {known}");
                self.problems.push((prop.range().start, what));
            } else if object.properties[..at].iter().any(|earlier| earlier.name.as_str() == key) {
                self.problems.push((prop.range().start, format!("\"{shown}\" is given twice")));
            }
        }
        Some(object)
    }

    fn required<'a, 'v>(
        &mut self,
        name: &str,
        object: &'v Object<'a>,
        key: &str,
    ) -> Option<&'v ObjectProp<'a>> {
        let found = object.properties.iter().find(|prop| prop.name.as_str() == key);
        if found.is_none() {
            let what = format!("\"{}\" is missing", inner(name, key));
            self.problems.push((object.range().start, what));
        }
        found
    }

    fn policy(&mut self, name: &str, value: &Value<'_>) -> Option<NetworkPolicy> {
        const KEYS: [&str; 5] = ["version", "public", "private", "dnsServers", "proxyMode"];
        let object = self.object(name, value, &KEYS)?;
        if let Some(version) = self.required(name, object, "version") {
            let number = version.value.as_number_lit().and_then(|number| number.value.parse().ok());
            if number != Some(NETWORK_POLICY_VERSION) {
                self.wrong(&inner(name, "version"), &version.value, "1");
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

    fn zone(&mut self, name: &str, object: &Object<'_>, key: &str) -> Option<Zone> {
        let prop = self.required(name, object, key)?;
        let name = inner(name, key);
        let object = self.object(&name, &prop.value, &["mode", "rules"])?;
        let mode = self.required(&name, object, "mode");
        let rules = object.properties.iter().find(|prop| prop.name.as_str() == "rules");
        // Read before the mode is judged, so that one look shows every problem.
        let list = rules.map(|prop| self.rules(&inner(&name, "rules"), &prop.value));
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
                self.wrong(&inner(&name, "mode"), &mode.value, wanted);
                None
            }
        }
    }

    /// The elements of a list of `least` to `most`.
    fn list<'a, 'v>(
        &mut self,
        name: &str,
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

    fn rules(&mut self, name: &str, value: &Value<'_>) -> Vec<Rule> {
        let elements = self.list(name, value, "rules", (0, RULES));
        let rules = elements.iter().enumerate();
        rules.filter_map(|(n, value)| self.rule(&format!("{name}[{n}]"), value)).collect()
    }

    fn rule(&mut self, name: &str, value: &Value<'_>) -> Option<Rule> {
        let object = self.object(name, value, &["cidr", "protocol", "ports"])?;
        let find = |key: &str| object.properties.iter().find(|prop| prop.name.as_str() == key);
        let protocol = find("protocol").map(|prop| self.protocol(&inner(name, "protocol"), prop));
        let ports =
            find("ports").map(|prop| (prop, self.ports(&inner(name, "ports"), &prop.value)));
        let cidr = self.required(name, object, "cidr");
        let cidr = cidr.and_then(|prop| {
            self.address(&inner(name, "cidr"), &prop.value, "an IP address or prefix", text::cidr)
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

    fn protocol(&mut self, name: &str, prop: &ObjectProp<'_>) -> Option<Protocol> {
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
    fn ports(&mut self, name: &str, value: &Value<'_>) -> Vec<u16> {
        let mut seen = HashSet::new();
        let mut ports = Vec::new();
        for (n, value) in self.list(name, value, "ports", (1, PORTS)).iter().enumerate() {
            let number = value.as_number_lit().and_then(|number| number.value.parse::<u16>().ok());
            match number.filter(|port| *port > 0) {
                Some(port) if seen.insert(port) => ports.push(port),
                Some(_) => {}
                None => {
                    let name = format!("{name}[{n}]");
                    self.wrong(&name, value, "a whole number from 1 to 65535");
                }
            }
        }
        ports
    }

    fn address<T>(
        &mut self,
        name: &str,
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
    fn dns_servers(&mut self, name: &str, object: &Object<'_>) -> Vec<IpAddr> {
        let Some(prop) = object.properties.iter().find(|p| p.name.as_str() == "dnsServers") else {
            return Vec::new();
        };
        let name = inner(name, "dnsServers");
        let mut servers = Vec::new();
        let elements = self.list(&name, &prop.value, "IP addresses", (0, DNS_SERVERS));
        for (n, value) in elements.iter().enumerate() {
            let name = format!("{name}[{n}]");
            let server = self.address(&name, value, "an IP address", text::server);
            servers.extend(server.filter(|server| !servers.contains(server)));
        }
        servers
    }

    fn proxy_mode(&mut self, name: &str, object: &Object<'_>) -> Option<ProxyMode> {
        let prop = object.properties.iter().find(|prop| prop.name.as_str() == "proxyMode")?;
        match prop.value.as_string_lit().map(|text| &*text.value) {
            Some("reject") => Some(ProxyMode::Reject),
            Some("trusted-egress") => Some(ProxyMode::TrustedEgress),
            Some(_) | None => {
                let wanted = "\"reject\" or \"trusted-egress\"";
                self.wrong(&inner(name, "proxyMode"), &prop.value, wanted);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
