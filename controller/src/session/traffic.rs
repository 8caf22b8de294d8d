//! What the counted traffic means: which zone and which rule of the policy each destination met.

use super::egress::{Ledger, List, Seen};
use ipnet::IpNet;
use landbox_shared::network::class::{LINK_V4, ZoneName};
use landbox_shared::network::egress::{Destination, Totals};
use landbox_shared::network::verdict::{By, Verdict, Way, verdict_by};
use landbox_shared::network::{NetworkPolicy, Protocol, Rule, Traffic, Zone};
use serde::Serialize;
use std::net::IpAddr;

/// The `egress` part of the session document.
#[derive(Clone, Debug, Serialize)]
pub struct Face<'a> {
    reached: Vec<Line<'a>>,
    refused: Vec<Line<'a>>,
    totals: TotalsFace,
    /// Counted, but told of by no row.
    dropped_rows: u64,
}

/// One destination with what it met.
#[derive(Clone, Debug, Serialize)]
pub struct Line<'a> {
    /// The address in the packets.
    pub address: IpAddr,
    /// `tcp`, `udp`, `icmp`, `icmpv6`, or the protocol's number.
    pub protocol: String,
    /// Null for a protocol without ports.
    pub port: Option<u16>,
    /// The address's zone.
    pub zone: ZoneName,
    /// What decided.
    pub by: By,
    /// The rule of the zone that matched, from 0.
    pub rule: Option<usize>,
    /// How often.
    pub count: u64,
    /// To the helper's interval.
    pub first_at: &'a str,
    /// To the helper's interval.
    pub last_at: &'a str,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct TotalsFace {
    reached: Sums,
    refused: Sums,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Sums {
    all: u64,
    public: u64,
    private: u64,
    fixed: u64,
}

impl<'a> Face<'a> {
    /// Puts a session's policy and its ledger together.
    pub fn new(policy: &NetworkPolicy, ledger: &'a Ledger) -> Self {
        let lines = |list: &'a List| lines(policy, list);
        Self {
            reached: lines(&ledger.reached),
            refused: lines(&ledger.refused),
            totals: TotalsFace {
                reached: sums(ledger.reached.totals),
                refused: sums(ledger.refused.totals),
            },
            dropped_rows: ledger.unlisted(),
        }
    }
}

/// The rows of a list, the most frequent first.
pub fn lines<'a>(policy: &NetworkPolicy, list: &'a List) -> Vec<Line<'a>> {
    let mut rows: Vec<&Seen> = list.rows().collect();
    rows.sort_by_key(|seen| (std::cmp::Reverse(seen.count), seen.destination));
    let line = |seen: &'a Seen| {
        let Destination { address, protocol, port } = seen.destination;
        let flow = seen.destination.flow();
        // What the session sent to itself is not counted: every row left by the link.
        let Verdict { by, zone, rule, decision: _ } = verdict_by(policy, address, flow, Way::Link);
        Line {
            address,
            protocol: protocol_word(protocol),
            port: Protocol::from_number(protocol).map(|_| port),
            zone,
            by,
            rule,
            count: seen.count,
            first_at: &seen.first_at,
            last_at: &seen.last_at,
        }
    };
    rows.into_iter().map(line).collect()
}

fn sums(totals: Totals) -> Sums {
    let Totals { public, private, fixed } = totals;
    Sums { all: totals.sum(), public, private, fixed }
}

/// The word for an IP protocol.
pub fn protocol_word(number: u8) -> String {
    match number {
        1 => "icmp".into(),
        6 => "tcp".into(),
        17 => "udp".into(),
        58 => "icmpv6".into(),
        other => other.to_string(),
    }
}

/// A rule in a few words.
pub fn rule_words(rule: &Rule) -> String {
    match &rule.traffic {
        Traffic::Any => rule.cidr.to_string(),
        Traffic::Ports(protocol, ports) => {
            let protocol = protocol_word(protocol.number());
            let listed: Vec<String> = ports.iter().take(8).map(u16::to_string).collect();
            let more = if ports.len() > listed.len() { ",…" } else { "" };
            format!("{} {protocol} {}{more}", rule.cidr, listed.join(",")).trim_end().to_owned()
        }
    }
}

/// What decided on traffic to an address, as a clause.
pub fn because(
    policy: &NetworkPolicy,
    address: IpAddr,
    by: By,
    zone: ZoneName,
    rule: Option<usize>,
) -> String {
    match by {
        By::Loopback => {
            "loopback: the session's own always works, the host's is never reached".into()
        }
        By::Neighbour => "neighbour discovery: the link needs it".into(),
        By::Alias => "the link's own name for the host: refused in every policy".into(),
        By::Dns => "one of dnsServers, on port 53".into(),
        By::Zone => {
            let rules = policy.zone(zone).rules();
            let found = rule.and_then(|n| Some((n, rules.get(n)?)));
            let matched = match found {
                Some((n, rule)) => format!("rules[{n}] ({}) matches", rule_words(rule)),
                None => "no rule matches".into(),
            };
            let decided = match policy.zone(zone) {
                Zone::Allow => format!("{zone} allows everything"),
                Zone::Block => format!("{zone} blocks everything"),
                Zone::Allowlist(_) => format!("{zone} allowlist: {matched}"),
                Zone::Denylist(_) => format!("{zone} denylist: {matched}"),
            };
            match IpNet::V4(LINK_V4).contains(&address) {
                true => format!(
                    "{decided}; but {LINK_V4} is the session's own link, where nobody else is"
                ),
                false => decided,
            }
        }
    }
}

/// One line about what was refused; `None` where nothing was.
pub fn summary(ledger: &Ledger) -> Option<String> {
    let refused = ledger.refused.totals.sum();
    if refused == 0 {
        return None;
    }
    let destinations = ledger.refused.rows().count();
    let connections = if refused == 1 { "connection" } else { "connections" };
    // What has no row may be more of the same destinations or of others.
    let destinations = match (destinations, ledger.refused.unlisted()) {
        (1, 0) => "1 destination".to_owned(),
        (rows, 0) => format!("{rows} destinations"),
        (rows, _) => format!("{rows} or more destinations"),
    };
    Some(format!("{refused} refused {connections}, {destinations}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use landbox_shared::network::NETWORK_POLICY_VERSION;

    fn policy() -> NetworkPolicy {
        let rule = |cidr: &str| Rule {
            cidr: cidr.parse().unwrap(),
            traffic: Traffic::Ports(Protocol::Tcp, vec![443]),
        };
        NetworkPolicy {
            version: NETWORK_POLICY_VERSION,
            public: Zone::Allowlist(vec![rule("1.0.0.0/8"), rule("93.184.216.34/32")]),
            private: Zone::Block,
            dns_servers: vec!["10.9.9.9".parse().unwrap()],
            proxy_mode: None,
        }
    }

    fn ledger() -> Ledger {
        let row = |address: &str, protocol: u8, port: u16, count: u64| {
            serde_json::json!({
                "destination": {"address": address, "protocol": protocol, "port": port},
                "count": count, "first_at": "t1", "last_at": "t2",
            })
        };
        let reached = [row("10.9.9.9", 17, 53, 2), row("93.184.216.34", 6, 443, 5)];
        let refused = [row("10.0.0.1", 6, 22, 1), row("93.184.216.34", 1, 0, 11)];
        serde_json::from_value(serde_json::json!({
            "version": 1,
            "reached": {"rows": reached, "totals": {"public": 5, "private": 0, "fixed": 2}},
            "refused": {"rows": refused, "totals": {"public": 11, "private": 1, "fixed": 0}},
        }))
        .unwrap()
    }

    #[test]
    fn every_row_says_which_zone_and_rule_it_met() {
        let face = serde_json::to_value(Face::new(&policy(), &ledger())).unwrap();
        assert_eq!(
            face["reached"][0],
            serde_json::json!({
                "address": "93.184.216.34", "protocol": "tcp", "port": 443, "zone": "public",
                "by": "zone", "rule": 1, "count": 5, "first_at": "t1", "last_at": "t2",
            })
        );
        assert_eq!(face["reached"][1]["by"], "dns");
        assert!(face["reached"][1]["rule"].is_null());
        assert_eq!(face["refused"][0]["protocol"], "icmp");
        assert!(face["refused"][0]["port"].is_null());
        assert_eq!(face["refused"][1]["zone"], "private");
        assert_eq!(face["totals"]["reached"]["all"], 7);
        assert_eq!(face["totals"]["refused"]["public"], 11);
        assert_eq!(face["dropped_rows"], 0);
    }

    #[test]
    fn one_line_says_how_much_was_refused() {
        assert_eq!(summary(&ledger()).unwrap(), "12 refused connections, 2 destinations");
        assert_eq!(summary(&Ledger::default()), None);
        // What was reached without a row says nothing of what was refused.
        let mut one = ledger();
        one.refused.totals = Totals { public: 12, ..Totals::default() };
        one.reached.totals.public += 1;
        assert_eq!(summary(&one).unwrap(), "12 refused connections, 2 destinations");
        one.refused.totals.public += 1;
        assert_eq!(summary(&one).unwrap(), "13 refused connections, 2 or more destinations");
    }

    #[test]
    fn what_decided_is_said_in_words() {
        let said = |address: &str, port| {
            let found = landbox_shared::network::verdict::verdict(
                &policy(),
                address.parse().unwrap(),
                landbox_shared::network::verdict::Flow::To(Protocol::Tcp, port),
            );
            because(&policy(), address.parse().unwrap(), found.by, found.zone, found.rule)
        };
        let matched = "public allowlist: rules[1] (93.184.216.34/32 tcp 443) matches";
        assert_eq!(said("93.184.216.34", 443), matched);
        assert_eq!(said("93.184.216.34", 80), "public allowlist: no rule matches");
        assert_eq!(said("10.0.0.1", 80), "private blocks everything");
        assert!(said("10.0.2.2", 80).contains("every policy"));
        assert!(said("10.0.2.9", 80).starts_with("private blocks everything; but 10.0.2.0/24 is"));
        assert!(said("127.0.0.1", 80).starts_with("loopback"));
        assert!(said("10.9.9.9", 53).contains("dnsServers"));
    }
}
