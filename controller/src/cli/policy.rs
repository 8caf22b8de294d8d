//! `landbox sandbox-network-policy`: a network policy without a session.

use super::Invocation;
use crate::config::network::{self, Normal};
use crate::error::{Failure, Kind, Result};
use crate::host;
use crate::policy::suggest::{Suggestion, suggest};
use crate::session::egress::{self, Ledger};
use crate::session::store::{Session, StateDir};
use crate::session::traffic::{because, protocol_word, rule_words, summary};
use crate::ui::text::visible;
use clap::{Args, Subcommand};
use landbox_shared::network::class::{ZoneName, canonical};
use landbox_shared::network::egress::Destination;
use landbox_shared::network::verdict::{By, DNS_PORT, Decision, Flow, Verdict, verdict};
use landbox_shared::network::{NetworkPolicy, Protocol, Traffic};
use landbox_shared::policy::Network;
use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct PolicyArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Check a policy and print its normal form
    Check {
        /// The policy
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Say what a policy does with traffic to an address: exit code 0 allowed, 1 denied
    Explain {
        /// The policy
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Where to
        #[arg(value_name = "ADDRESS")]
        address: String,
        /// By which protocol; without one, traffic that no rule's protocol narrows
        #[arg(value_name = "tcp|udp", requires = "port")]
        protocol: Option<String>,
        /// To which port
        #[arg(value_name = "PORT")]
        port: Option<String>,
    },
    /// Print the smallest change of a session's policy that would have allowed what was refused
    Suggest {
        /// Session; the newest of this directory when left out
        #[arg(value_name = "ID")]
        id: Option<String>,
    },
    /// Set an app's policy: refused, with what to do instead, until there is a daemon to take it
    #[command(hide = true)]
    Set {
        /// The app
        #[arg(value_name = "APP")]
        app: String,
        /// The policy
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Clear an app's policy: refused like `set`
    #[command(hide = true)]
    Clear {
        /// The app
        #[arg(value_name = "APP")]
        app: String,
    },
}

pub(super) fn policy(call: &Invocation, args: PolicyArgs) -> Result<u8> {
    match args.what {
        What::Check { file } => check(call, &file),
        What::Explain { file, address, protocol, port } => {
            let flow = flow(protocol.as_deref(), port.as_deref())?;
            explain(call, &file, &address, flow)
        }
        What::Suggest { id } => suggestion(call, id.as_deref()),
        What::Set { app, file } => {
            // What is wrong with the file is worth saying whatever becomes of it.
            network::load(&file)?;
            Err(no_daemon(
                &app,
                "\"sandboxNetworkPolicy\": { .. } in bots.json has the same effect",
            ))
        }
        What::Clear { app } => {
            Err(no_daemon(&app, "remove \"sandboxNetworkPolicy\" from the bot in bots.json"))
        }
    }
}

fn no_daemon(app: &str, hint: &str) -> Failure {
    let message = format!(
        "the policy of {} is changed through the daemon, and there is none yet",
        visible(app.as_bytes())
    );
    Failure::new(Kind::Refused, message).hint(format!("{hint}; it counts for the next new session"))
}

fn check(call: &Invocation, file: &std::path::Path) -> Result<u8> {
    let policy = network::load(file)?;
    let here = network::shadowed(&policy, host::routes::networks);
    for warning in network::warnings(&policy).into_iter().chain(here) {
        call.ui.warning(warning);
    }
    call.ui.document(&Normal(&policy))?;
    Ok(0)
}

fn flow(protocol: Option<&str>, port: Option<&str>) -> Result<Flow> {
    let usage = |message: String| Failure::new(Kind::Usage, message);
    let (Some(protocol), Some(port)) = (protocol, port) else { return Ok(Flow::Other) };
    let protocol = match protocol {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        other => {
            let shown = visible(other.as_bytes());
            return Err(usage(format!("the protocol must be tcp or udp, not \"{shown}\"")));
        }
    };
    let number = port.parse().ok().filter(|n| *n > 0 && port.bytes().all(|b| b.is_ascii_digit()));
    let port = number.ok_or_else(|| {
        let shown = visible(port.as_bytes());
        usage(format!("the port must be a number from 1 to 65535, not \"{shown}\""))
    })?;
    Ok(Flow::To(protocol, port))
}

#[derive(serde::Serialize)]
struct Explained {
    address: IpAddr,
    protocol: Option<Protocol>,
    port: Option<u16>,
    decision: Decision,
    by: By,
    zone: ZoneName,
    rule: Option<usize>,
    why: String,
    exceptions: Vec<String>,
}

fn explain(call: &Invocation, file: &std::path::Path, address: &str, flow: Flow) -> Result<u8> {
    let policy = network::load(file)?;
    let address: IpAddr = address.parse().map_err(|_| {
        let shown = visible(address.as_bytes());
        Failure::new(Kind::Usage, format!("the address must be one IP address, not \"{shown}\""))
            .hint("names are not looked up: a policy is about addresses")
    })?;
    let address = canonical(address);
    let Verdict { by, zone, decision, rule } = verdict(&policy, address, flow);
    let (protocol, port) = match flow {
        Flow::To(protocol, port) => (Some(protocol), Some(port)),
        Flow::Neighbour | Flow::Other => (None, None),
    };
    let explained = Explained {
        address,
        protocol,
        port,
        decision,
        by,
        zone,
        rule,
        why: because(&policy, address, by, zone, rule),
        exceptions: if flow == Flow::Other { exceptions(&policy, address) } else { Vec::new() },
    };
    if call.ui.json {
        call.ui.document(&explained)?;
    } else {
        call.ui.result(explained.text())?;
    }
    Ok(match decision {
        Decision::Allowed => 0,
        Decision::Denied => 1,
    })
}

impl Explained {
    fn text(&self) -> String {
        let word = decision_word(self.decision);
        let what = match (self.protocol, self.port) {
            (Some(protocol), Some(port)) => {
                format!(" {} {port}", protocol_word(protocol.number()))
            }
            (_, _) => String::new(),
        };
        let mut out = format!("{word}  {}{what}: {}\n", self.address, self.why);
        for exception in &self.exceptions {
            out.push_str(&format!("         but {exception}\n"));
        }
        out
    }
}

fn decision_word(decision: Decision) -> &'static str {
    match decision {
        Decision::Allowed => "allowed",
        Decision::Denied => "denied",
    }
}

/// What of the traffic to `address` is decided otherwise because a rule, or a name server's place, names its protocol.
fn exceptions(policy: &NetworkPolicy, address: IpAddr) -> Vec<String> {
    let whole = verdict(policy, address, Flow::Other);
    let mut found = Vec::new();
    if whole.decision == Decision::Denied
        && verdict(policy, address, Flow::To(Protocol::Udp, DNS_PORT)).by == By::Dns
    {
        found.push("tcp and udp port 53 are allowed: one of dnsServers".to_owned());
    }
    if whole.by != By::Zone {
        return found;
    }
    for (n, rule) in policy.zone(whole.zone).rules().iter().enumerate() {
        let Traffic::Ports(protocol, ports) = &rule.traffic else { continue };
        let flow = Flow::To(*protocol, ports.first().copied().unwrap_or(1));
        let decided = verdict(policy, address, flow);
        if decided.by == By::Zone
            && decided.decision != whole.decision
            && rule.matches(address, flow)
        {
            let word = decision_word(decided.decision);
            found.push(format!("rules[{n}] ({}) is {word}", rule_words(rule)));
        }
    }
    found
}

fn suggestion(call: &Invocation, id: Option<&str>) -> Result<u8> {
    let state = StateDir::open(&StateDir::locate(&host::home()?))?;
    let here = std::env::current_dir().ok().and_then(|dir| dir.canonicalize().ok());
    let here = here.and_then(|dir| landbox_shared::path::AbsPath::from_path(&dir).ok());
    let session = state.find(id, here.as_ref())?;
    let name = &session.snapshot.id;
    let (policy, ledger) = match (&session.snapshot.policy.network, egress::of(&session)?) {
        (Network::Policy(policy), Some(ledger)) => (policy, ledger),
        (Network::Host | Network::None | Network::Policy(_), _) => {
            let message =
                format!("session {name} has no network policy, so nothing was refused by one");
            return Err(Failure::new(Kind::Nothing, message)
                .hint("landbox run --network FILE -- CMD runs a session with one"));
        }
    };
    let refused: Vec<(Destination, u64)> =
        ledger.refused.rows().map(|seen| (seen.destination, seen.count)).collect();
    let found = suggest(policy, &refused);
    if call.ui.json {
        call.ui.document(&document(&session, policy, &found))?;
        return Ok(0);
    }
    match summary(&ledger) {
        None => call.ui.status(format!("landbox: session {name}: nothing was refused")),
        Some(line) => call.ui.status(format!("landbox: session {name}: {line}")),
    }
    for zone in &found.opened {
        call.ui.status(format!("{zone}: \"mode\": \"block\" becomes \"allowlist\""));
    }
    for (zone, n) in &found.removed {
        let rule = policy.zone(*zone).rules().get(*n).map(rule_words).unwrap_or_default();
        call.ui.status(format!("{zone}.rules[{n}] ({rule}) goes, or makes room"));
    }
    for left in &found.left {
        call.ui.status(format!("no rule can allow {}", destination_words(left)));
    }
    if ledger.refused.unlisted() > 0 {
        call.ui.warning("more was refused than there was room to remember");
    }
    if !found.is_empty() {
        let note = |zone, n| {
            let added = found.added.iter().find(|(z, at, _)| (*z, *at) == (zone, n));
            added.map(|(_, _, count)| match count {
                0 => "new".to_owned(),
                1 => "new: refused once".to_owned(),
                count => format!("new: refused {count} times"),
            })
        };
        call.ui.result(network::commented(&found.policy, note))?;
    }
    Ok(0)
}

fn document(session: &Session, old: &NetworkPolicy, found: &Suggestion) -> serde_json::Value {
    let rule = |policy: &NetworkPolicy, zone: ZoneName, n: usize| {
        policy.zone(zone).rules().get(n).map(network::rule_value)
    };
    let added = found.added.iter().map(|(zone, n, count)| {
        let rule = rule(&found.policy, *zone, *n);
        serde_json::json!({"zone": zone, "index": n, "rule": rule, "count": count})
    });
    let removed = found.removed.iter().map(
        |(zone, n)| serde_json::json!({"zone": zone, "index": n, "rule": rule(old, *zone, *n)}),
    );
    let left = found.left.iter().map(|to| {
        serde_json::json!({
            "address": to.address,
            "protocol": protocol_word(to.protocol),
            "port": Protocol::from_number(to.protocol).map(|_| to.port),
        })
    });
    serde_json::json!({
        "session": session.snapshot.id,
        "added": added.collect::<Vec<_>>(),
        "removed": removed.collect::<Vec<_>>(),
        "opened": found.opened,
        "not_allowable": left.collect::<Vec<_>>(),
        "policy": Normal(&found.policy),
    })
}

fn destination_words(to: &Destination) -> String {
    let port = Protocol::from_number(to.protocol).map(|_| format!(" {}", to.port));
    format!("{} {}{}", to.address, protocol_word(to.protocol), port.unwrap_or_default())
}

/// What is known of where a session's traffic went; what can't be read is a warning.
pub(super) fn traffic(call: &Invocation, session: &Session) -> Option<Ledger> {
    egress::of(session).unwrap_or_else(|failure| {
        call.ui.warning(failure.message);
        None
    })
}

/// The line under a review about what a session was refused; nothing where that was nothing.
pub(super) fn refused_line(session: &Session) -> Option<String> {
    let ledger = egress::of(session).ok().flatten()?;
    let line = summary(&ledger)?;
    Some(format!("{line}: landbox show {}", session.snapshot.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use landbox_shared::network::{NETWORK_POLICY_VERSION, Rule, Zone};

    fn policy() -> NetworkPolicy {
        let rule = |cidr: &str, traffic| Rule { cidr: cidr.parse().unwrap(), traffic };
        let tcp = |ports: &[u16]| Traffic::Ports(Protocol::Tcp, ports.to_vec());
        NetworkPolicy {
            version: NETWORK_POLICY_VERSION,
            public: Zone::Allowlist(vec![
                rule("93.184.216.34/32", tcp(&[443, 80])),
                rule("8.8.0.0/16", Traffic::Any),
            ]),
            private: Zone::Denylist(vec![rule("10.1.0.0/16", tcp(&[]))]),
            dns_servers: vec!["1.1.1.1".parse().unwrap()],
            proxy_mode: None,
        }
    }

    #[test]
    fn without_a_protocol_the_exceptions_are_named() {
        let said = |address: &str| exceptions(&policy(), address.parse().unwrap());
        assert_eq!(said("93.184.216.34"), ["rules[0] (93.184.216.34/32 tcp 443,80) is allowed"]);
        assert_eq!(said("10.1.2.3"), ["rules[0] (10.1.0.0/16 tcp) is denied"]);
        assert_eq!(said("1.1.1.1"), ["tcp and udp port 53 are allowed: one of dnsServers"]);
        assert_eq!(said("8.8.8.8"), [""; 0]);
        assert_eq!(said("10.0.2.2"), [""; 0]);
    }

    #[test]
    fn a_flow_is_a_protocol_and_a_port() {
        assert_eq!(flow(None, None).unwrap(), Flow::Other);
        assert_eq!(flow(Some("udp"), Some("53")).unwrap(), Flow::To(Protocol::Udp, 53));
        for (protocol, port) in
            [("icmp", "1"), ("tcp", "0"), ("tcp", "65536"), ("tcp", "+80"), ("tcp", "https")]
        {
            assert!(flow(Some(protocol), Some(port)).is_err(), "{protocol} {port}");
        }
    }
}
