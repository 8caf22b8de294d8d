//! What the network is to be, and whether a network policy can be had with everything else that was asked for.

use super::{Flags, environment};
use crate::config::{Config, NetworkChoice, names_mcp_socket};
use crate::error::{Failure, Kind, Result};
use crate::ui::text::visible;
use landbox_shared::network::{NetworkPolicy, ProxyMode, Zone};
use landbox_shared::policy::{Network, Policy, SeccompProfile};
use std::ffi::OsString;
use std::path::PathBuf;

/// Variables that name a proxy for everything; in lower case too.
const PROXIES: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];

/// What to do about a bot without a sandbox.
const SANDBOX: &str = "let it have its sandbox, or leave the network as it is";

/// What was asked for: the flag decides over the bot, and a policy over the boolean.
pub fn choice<'a>(config: &'a Config, flags: &'a Flags) -> &'a NetworkChoice {
    flags.network.as_ref().unwrap_or(&config.network)
}

/// Refuses what can't be had together with a boundary of the network, before anything is made.
pub fn supported(config: &Config, flags: &Flags) -> Result<()> {
    let refuse = |message: String| Err(Failure::new(Kind::Refused, message));
    let origin = match (choice(config, flags), &flags.network) {
        (NetworkChoice::Policy(_, origin), _) => origin.to_string(),
        (NetworkChoice::None, Some(_)) if !config.sandbox => {
            let message = "--network off needs the sandbox, and this bot has \"sandbox\": false";
            return refuse(message.into()).map_err(|failure| failure.hint(SANDBOX));
        }
        (NetworkChoice::Host | NetworkChoice::None, _) => return Ok(()),
    };
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return refuse(format!(
            "{origin}: a network policy is enforced on x86-64 and arm64 alone; this is {}",
            std::env::consts::ARCH
        ));
    }
    if !config.sandbox {
        return refuse(format!(
            "{origin}: a network policy needs the sandbox, and this bot has \"sandbox\": false"
        ))
        .map_err(|failure| failure.hint(SANDBOX));
    }
    let mut outside = config.outside.iter();
    match outside.next() {
        None => Ok(()),
        Some(first) => outside
            .fold(refuse(first.clone()), |failed, next| {
                failed.map_err(|failure| failure.hint(format!("also: {next}")))
            })
            .map_err(|failure| failure.hint("take that out of the bot, or the network policy")),
    }
}

/// The network and the system-call filter it needs.
pub(super) fn resolve(
    config: &Config,
    flags: &Flags,
    warnings: &mut Vec<String>,
) -> (Network, SeccompProfile) {
    if let (Some(NetworkChoice::Host), NetworkChoice::Policy(_, origin)) =
        (&flags.network, &config.network)
    {
        warnings.push(format!("{origin}: this network policy does not count: --network on"));
    }
    match choice(config, flags) {
        NetworkChoice::Host => (Network::Host, SeccompProfile::Base),
        NetworkChoice::None => (Network::None, SeccompProfile::Base),
        NetworkChoice::Policy(policy, origin) => {
            let told = crate::config::network::warnings(policy);
            warnings.extend(told.into_iter().map(|warning| format!("{origin}: {warning}")));
            (Network::Policy((**policy).clone()), SeccompProfile::Restricted)
        }
    }
}

/// Judges the environment that the task will get: with a network policy, nothing in it may point at a way round the
/// policy. Nothing is ever rewritten.
pub fn admit(
    policy: &Policy,
    caller: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<()> {
    let Network::Policy(network) = &policy.network else { return Ok(()) };
    let env = environment::of_task(caller, policy);
    for (name, value) in &env {
        if names_mcp_socket(name, value) {
            return Err(Failure::new(
                Kind::Refused,
                format!(
                    "{} names a Unix socket of the host for MCP tools, and a session with a network policy reaches no host MCP and no Unix socket",
                    visible(name)
                ),
            )
            .hint(remedy(policy, name))
            .hint("or run the bot without a network policy"));
        }
    }
    if tolerates_proxies(network) {
        return Ok(());
    }
    let is_proxy = |name: &[u8]| PROXIES.iter().any(|p| name.eq_ignore_ascii_case(p.as_bytes()));
    match env.iter().find(|(name, value)| is_proxy(name) && !value.is_empty()) {
        None => Ok(()),
        Some((name, _)) => Err(Failure::new(
            Kind::Refused,
            format!(
                "the network policy refuses an upstream proxy, and {} names one",
                visible(name)
            ),
        )
        .hint(remedy(policy, name))
        .hint("where that proxy is the approved way out: \"proxyMode\": \"trusted-egress\", and a rule for its address")),
    }
}

fn remedy(policy: &Policy, name: &[u8]) -> String {
    let shown = visible(name);
    let by_bot = policy.env.iter().any(|(set, _)| set.as_bytes() == name);
    if by_bot { format!("take {shown} out of the bot's \"env\"") } else { format!("unset {shown}") }
}

/// What the owner should know of proxies that files name: `named` are such files.
pub fn proxy_warnings(policy: &Policy, named: impl FnOnce() -> Vec<PathBuf>) -> Vec<String> {
    match &policy.network {
        Network::Policy(network) if !tolerates_proxies(network) => {}
        Network::Host | Network::None | Network::Policy(_) => return Vec::new(),
    }
    let warning = |path: PathBuf| {
        format!(
            "{} names a proxy, which the network policy does not approve: it is reached only if a rule allows its address",
            crate::session::store::show(&path)
        )
    };
    named().into_iter().map(warning).collect()
}

/// Whether proxy variables may stay: the owner said so, or nothing is restricted.
fn tolerates_proxies(policy: &NetworkPolicy) -> bool {
    match policy.proxy_mode {
        Some(ProxyMode::TrustedEgress) => true,
        Some(ProxyMode::Reject) => false,
        None => matches!((&policy.public, &policy.private), (Zone::Allow, Zone::Allow)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Origin;
    use landbox_shared::network::NETWORK_POLICY_VERSION;

    fn network(public: Zone, private: Zone, proxy_mode: Option<ProxyMode>) -> NetworkPolicy {
        let dns_servers = Vec::new();
        NetworkPolicy { version: NETWORK_POLICY_VERSION, public, private, dns_servers, proxy_mode }
    }

    fn policy(network: NetworkPolicy, env: &[(&str, &str)]) -> Policy {
        let mut policy = crate::session::testing::snapshot("aaaaaaaaaa", None).policy;
        policy.network = Network::Policy(network);
        policy.env = env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        policy.env_removed = vec!["GONE*".into()];
        policy
    }

    fn judged(policy: &Policy, caller: &[(&str, &str)]) -> Option<String> {
        let caller = caller.iter().map(|(n, v)| (n.into(), v.into()));
        let failure = admit(policy, caller).err()?;
        Some(std::iter::once(failure.message).chain(failure.hints).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn proxy_variables_are_refused_unless_the_owner_said_so_or_nothing_is_restricted() {
        let reject = Some(ProxyMode::Reject);
        let trusted = Some(ProxyMode::TrustedEgress);
        for (public, private, mode, passes) in [
            (Zone::Allow, Zone::Allow, None, true),
            (Zone::Allow, Zone::Allow, reject, false),
            (Zone::Allow, Zone::Allow, trusted, true),
            (Zone::Allow, Zone::Block, None, false),
            (Zone::Block, Zone::Allow, None, false),
            (Zone::Denylist(vec![]), Zone::Allow, None, false),
            (Zone::Block, Zone::Block, trusted, true),
            (Zone::Block, Zone::Block, reject, false),
        ] {
            let policy = policy(network(public, private, mode), &[]);
            for name in ["HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "Http_Proxy"] {
                let found = judged(&policy, &[("PATH", "/bin"), (name, "http://p:1")]);
                assert_eq!(found.is_none(), passes, "{name} {:?}", policy.network);
                if let Some(text) = found {
                    assert!(text.contains("upstream proxy") && text.contains(name), "{text}");
                    assert!(!text.contains("http://p:1"), "{text}");
                }
            }
            let harmless = [("NO_PROXY", "x"), ("HTTP_PROXY", ""), ("FTP_PROXY", "x")];
            assert_eq!(judged(&policy, &harmless), None);
        }
    }

    #[test]
    fn what_counts_is_the_environment_the_task_gets() {
        let blocked = || network(Zone::Block, Zone::Block, None);
        // Set by the bot, taken away by it, or removed on the way.
        let found = judged(&policy(blocked(), &[("https_proxy", "x")]), &[]).unwrap();
        assert!(found.contains("take https_proxy out of the bot's \"env\""), "{found}");
        assert_eq!(judged(&policy(blocked(), &[("HTTP_PROXY", "")]), &[("HTTP_PROXY", "x")]), None);
        let mut removed = policy(blocked(), &[]);
        removed.env_removed = vec!["HTTP_*".into()];
        assert_eq!(judged(&removed, &[("HTTP_PROXY", "x")]), None);
        let mut host = policy(blocked(), &[("HTTP_PROXY", "x")]);
        host.network = Network::None;
        assert_eq!(judged(&host, &[]), None);
    }

    #[test]
    fn files_that_name_a_proxy_are_warned_of_where_none_is_approved() {
        let warned = |network| {
            let named = || vec![PathBuf::from("/home/u/.npmrc")];
            proxy_warnings(&policy(network, &[]), named).len()
        };
        assert_eq!(warned(network(Zone::Block, Zone::Block, None)), 1);
        assert_eq!(warned(network(Zone::Block, Zone::Block, Some(ProxyMode::TrustedEgress))), 0);
        assert_eq!(warned(network(Zone::Allow, Zone::Allow, None)), 0);
    }

    #[test]
    fn a_socket_of_the_hosts_mcp_gateway_is_refused_by_name() {
        let open = || network(Zone::Allow, Zone::Allow, None);
        for (name, value) in [
            ("BOTMUX_MCP_GATEWAY_SOCKET", "/run/botmux-mcp/s/gateway.sock"),
            ("MY_MCP_URL", "unix:///run/x"),
        ] {
            let found = judged(&policy(open(), &[]), &[(name, value)]).unwrap();
            assert!(found.contains(name) && found.contains("host MCP"), "{found}");
            assert!(judged(&policy(open(), &[(name, value)]), &[]).is_some());
        }
        for (name, value) in [("MCP_TIMEOUT", "30000"), ("MCP_URL", "https://x"), ("A", "/x.sock")]
        {
            assert_eq!(judged(&policy(open(), &[]), &[(name, value)]), None, "{name}");
        }
    }

    #[test]
    fn what_needs_the_outside_is_refused_with_a_policy_alone() {
        let boxed = Box::new(network(Zone::Block, Zone::Block, None));
        let chosen = NetworkChoice::Policy(boxed, Origin::Flag("--network"));
        let flags = Flags { network: Some(chosen), ..Flags::default() };
        let usual = Config { sandbox: true, ..Config::default() };
        assert!(supported(&usual, &flags).is_ok());
        let bare = Config { sandbox: false, ..usual.clone() };
        assert!(supported(&bare, &flags).unwrap_err().message.contains("needs the sandbox"));
        assert!(supported(&bare, &Flags::default()).is_ok());
        let off = Flags { network: Some(NetworkChoice::None), ..Flags::default() };
        assert!(supported(&bare, &off).is_err());
        let outside = Config { outside: vec!["bots.json:3: x".into(), "y".into()], ..usual };
        let failure = supported(&outside, &flags).unwrap_err();
        assert_eq!((failure.message.as_str(), failure.kind), ("bots.json:3: x", Kind::Refused));
        assert!(supported(&outside, &Flags::default()).is_ok());
    }
}
