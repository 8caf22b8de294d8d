//! A policy written back: every default filled in, so that the same policy is always the same text.

use super::text::written;
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
pub(crate) fn mode(zone: &Zone) -> &'static str {
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
