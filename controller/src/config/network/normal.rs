//! A policy written back: every default filled in, so that the same policy is always the same text.

use super::text::written;
use landbox_shared::network::class::ZoneName;
use landbox_shared::network::{NetworkPolicy, Protocol, ProxyMode, Rule, Traffic, Zone};
use serde::{Serialize, Serializer};

/// The JSON form of a policy, which reads back as the same policy.
#[derive(Clone, Copy, Debug)]
pub struct Normal<'a>(pub &'a NetworkPolicy);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Face<'a> {
    version: u8,
    public: ZoneFace<'a>,
    private: ZoneFace<'a>,
    dns_servers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy_mode: Option<ProxyMode>,
}

#[derive(Serialize)]
struct ZoneFace<'a> {
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<Vec<RuleFace<'a>>>,
}

#[derive(Serialize)]
struct RuleFace<'a> {
    cidr: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<Protocol>,
    #[serde(skip_serializing_if = "<[u16]>::is_empty")]
    ports: &'a [u16],
}

impl Serialize for Normal<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let NetworkPolicy { version, public, private, dns_servers, proxy_mode } = self.0;
        let face = Face {
            version: *version,
            public: zone(public),
            private: zone(private),
            dns_servers: dns_servers.iter().copied().map(written).collect(),
            proxy_mode: *proxy_mode,
        };
        face.serialize(serializer)
    }
}

/// The word of the configuration for a zone's mode.
pub fn mode(zone: &Zone) -> &'static str {
    match zone {
        Zone::Allow => "allow",
        Zone::Block => "block",
        Zone::Allowlist(_) => "allowlist",
        Zone::Denylist(_) => "denylist",
    }
}

fn zone(zone: &Zone) -> ZoneFace<'_> {
    let rules = match zone {
        Zone::Allow | Zone::Block => None,
        Zone::Allowlist(rules) | Zone::Denylist(rules) => Some(rules.iter().map(rule).collect()),
    };
    ZoneFace { mode: mode(zone), rules }
}

fn rule(rule: &Rule) -> RuleFace<'_> {
    let cidr = format!("{}/{}", written(rule.cidr.addr()), rule.cidr.prefix_len());
    match &rule.traffic {
        Traffic::Any => RuleFace { cidr, protocol: None, ports: &[] },
        Traffic::Ports(protocol, ports) => RuleFace { cidr, protocol: Some(*protocol), ports },
    }
}

/// One rule in its normal form.
pub fn rule_value(written: &Rule) -> serde_json::Value {
    serde_json::json!(rule(written))
}

/// The normal form with a rule a line and what `note` says of it as a comment: still a policy that can be read.
pub fn commented(
    policy: &NetworkPolicy,
    note: impl Fn(ZoneName, usize) -> Option<String>,
) -> String {
    let mut out = format!("{{\n  \"version\": {},\n", policy.version);
    for name in [ZoneName::Public, ZoneName::Private] {
        let zone = policy.zone(name);
        out.push_str(&format!("  \"{name}\": {{\"mode\": \"{}\"", mode(zone)));
        let rules = zone.rules();
        if !rules.is_empty() {
            out.push_str(", \"rules\": [\n");
        }
        for (n, rule) in rules.iter().enumerate() {
            let comma = if n + 1 < rules.len() { "," } else { "" };
            let note = note(name, n).map(|note| format!("  // {note}")).unwrap_or_default();
            out.push_str(&format!("    {}{comma}{note}\n", rule_text(rule)));
        }
        out.push_str(if rules.is_empty() { "},\n" } else { "  ]},\n" });
    }
    let servers: Vec<String> =
        policy.dns_servers.iter().map(|server| format!("\"{}\"", written(*server))).collect();
    out.push_str(&format!("  \"dnsServers\": [{}]", servers.join(", ")));
    let proxy = match policy.proxy_mode {
        None => "",
        Some(ProxyMode::Reject) => ",\n  \"proxyMode\": \"reject\"",
        Some(ProxyMode::TrustedEgress) => ",\n  \"proxyMode\": \"trusted-egress\"",
    };
    out + proxy + "\n}\n"
}

fn rule_text(rule: &Rule) -> String {
    let RuleFace { cidr, protocol, ports } = self::rule(rule);
    let protocol = match protocol {
        None => "",
        Some(Protocol::Tcp) => ", \"protocol\": \"tcp\"",
        Some(Protocol::Udp) => ", \"protocol\": \"udp\"",
    };
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let ports = if ports.is_empty() {
        String::new()
    } else {
        format!(", \"ports\": [{}]", ports.join(", "))
    };
    format!("{{\"cidr\": \"{cidr}\"{protocol}{ports}}}")
}
