use super::*;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use landbox_shared::network::check;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

/// What reading `text` as a policy file gives: the policy, or the message and every hint.
fn read(text: &str) -> std::result::Result<NetworkPolicy, String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.json");
    std::fs::write(&file, text).unwrap();
    load(&file).map_err(|failure| {
        let lines = std::iter::once(failure.message).chain(failure.hints);
        lines.collect::<Vec<_>>().join("\n").replace(file.to_str().unwrap(), "p.json")
    })
}

fn normal(policy: &NetworkPolicy) -> String {
    serde_json::to_string_pretty(&Normal(policy)).unwrap()
}

const WHOLE: &str = r#"{
  // the model's endpoint
  "version": 1,
  "public": {"mode": "allowlist", "rules": [
    {"cidr": "93.184.216.34", "protocol": "tcp", "ports": [443, 80, 443]},
    {"cidr": "2606:4700::1/32", "protocol": "udp"},
    {"cidr": "::ffff:8.8.8.8/120"},
  ]},
  "private": {"mode": "denylist"},
  "dnsServers": ["::ffff:9.9.9.9", "9.9.9.9", "2606:4700::53"],
  "proxyMode": "trusted-egress",
}"#;

#[test]
fn a_whole_policy_is_normalised_and_reads_back_as_itself() {
    let policy = read(WHOLE).unwrap();
    let wanted = r#"{
  "version": 1,
  "public": {
    "mode": "allowlist",
    "rules": [
      {
        "cidr": "93.184.216.34/32",
        "protocol": "tcp",
        "ports": [
          443,
          80
        ]
      },
      {
        "cidr": "2606:4700:0:0:0:0:0:0/32",
        "protocol": "udp"
      },
      {
        "cidr": "8.8.8.0/24"
      }
    ]
  },
  "private": {
    "mode": "denylist",
    "rules": []
  },
  "dnsServers": [
    "9.9.9.9",
    "2606:4700:0:0:0:0:0:53"
  ],
  "proxyMode": "trusted-egress"
}"#;
    assert_eq!(normal(&policy), wanted);
    assert_eq!(read(wanted).unwrap(), policy);
    let commented = commented(&policy, |zone, n| (n == 0).then(|| format!("of {zone}")));
    assert!(commented.contains("\"ports\": [443, 80]},  // of public\n"), "{commented}");
    assert_eq!(read(&commented).unwrap(), policy);
    assert_eq!(policy.flaw(), None);
}

#[test]
fn the_sixteen_pairs_of_modes_are_valid_with_no_more_than_the_mode() {
    for public in ["allow", "block", "allowlist", "denylist"] {
        for private in ["allow", "block", "allowlist", "denylist"] {
            let text = format!(
                r#"{{"version": 1, "public": {{"mode": "{public}"}}, "private": {{"mode": "{private}"}}}}"#
            );
            let policy = read(&text).unwrap();
            assert_eq!(normal::mode(&policy.public), public);
            assert_eq!(normal::mode(&policy.private), private);
            assert_eq!(policy.proxy_mode, None);
        }
    }
}

#[test]
fn every_problem_is_named_with_its_field_value_and_line() {
    let text = read(
        r#"{"version": 2, "name": "x",
"public": {"mode": "nonee", "allow": [], "rules": [
{"cidr": "example.com"},
{"cidr": "1.2.3.4/33", "protocol": "icmp", "port": 1},
{"cidr": "1.2.3.4", "ports": [443]},
{"cidr": "1.2.3.4", "protocol": "tcp", "ports": ["1-1024", 0, 65536, 1.5, -1]},
{"protocol": "tcp", "ports": []},
"1.2.3.4", null, ["x"]]},
"private": {"mode": "block", "rules": []},
"dnsServers": ["127.0.0.53", "1.1.1.1:53", 9],
"proxyMode": "off", "version": 1}"#,
    )
    .unwrap_err();
    for wanted in [
        "p.json:1: \"version\" must be 1, not 2",
        "p.json:1: unknown key \"name\"; there are version, public, private, dnsServers, proxyMode",
        "p.json:2: \"public.mode\" must be \"allow\", \"block\", \"allowlist\" or \"denylist\", not \"nonee\"",
        "p.json:2: unknown key \"public.allow\"",
        "p.json:3: \"public.rules[0].cidr\" must be an IP address or prefix, not \"example.com\": names are not looked up",
        "p.json:4: \"public.rules[1].cidr\" must be an IP address or prefix, not \"1.2.3.4/33\": the prefix",
        "p.json:4: \"public.rules[1].protocol\" must be \"tcp\" or \"udp\", not \"icmp\"",
        "p.json:4: unknown key \"public.rules[1].port\"",
        "p.json:5: \"public.rules[2].ports\" needs a \"protocol\"",
        "p.json:6: \"public.rules[3].ports[0]\" must be a whole number from 1 to 65535, not \"1-1024\"",
        "p.json:6: \"public.rules[3].ports[4]\" must be a whole number from 1 to 65535, not -1",
        "p.json:7: \"public.rules[4].cidr\" is missing",
        "p.json:7: \"public.rules[4].ports\" must be 1 to 256 ports, not 0",
        "p.json:8: \"public.rules[5]\" must be an object, not \"1.2.3.4\"",
        "and ",
    ] {
        assert!(text.contains(wanted), "{wanted}\nis not in\n{text}");
    }
}

#[test]
fn each_wrong_value_is_refused() {
    let zone = |text: &str| {
        format!(r#"{{"version": 1, "public": {text}, "private": {{"mode": "allow"}}}}"#)
    };
    let field = |text: &str| {
        format!(
            r#"{{"version": 1, "public": {{"mode": "block"}}, "private": {{"mode": "block"}}, {text}}}"#
        )
    };
    let many = |count: usize, text: &str| vec![text; count].join(",");
    let rules = |count| many(count, r#"{"cidr": "1.2.3.4"}"#);
    let servers: Vec<String> = (1..=9).map(|n| format!("\"1.0.0.{n}\"")).collect();
    for (text, wanted) in [
        ("".into(), "empty"),
        ("[]".into(), "the policy must be an object, not []"),
        ("null".into(), "the policy must be an object, not null"),
        ("{}".into(), "\"version\" is missing"),
        (r#"{"version": 1}"#.into(), "\"public\" is missing"),
        (r#"{"version": "1"}"#.into(), "\"version\" must be 1, not \"1\""),
        (zone("null"), "\"public\" must be an object, not null"),
        (zone("\"allow\""), "\"public\" must be an object, not \"allow\""),
        (zone("{}"), "\"public.mode\" is missing"),
        (zone(r#"{"mode": "Allow"}"#), "\"public.mode\" must be"),
        (zone(r#"{"mode": "allow", "rules": []}"#), "\"public.rules\" can't be given with"),
        (zone(r#"{"mode": "block", "rules": [{"cidr": "1.2.3.4"}]}"#), "\"public.rules\" can't"),
        (zone(r#"{"mode": "allowlist", "rules": {}}"#), "\"public.rules\" must be a list of rules"),
        (
            zone(r#"{"mode": "allowlist", "rules": null}"#),
            "\"public.rules\" must be a list of rules",
        ),
        (zone(r#"{"mode": "allowlist", "mode": "allow"}"#), "\"public.mode\" is given twice"),
        (
            zone(&format!(r#"{{"mode": "allowlist", "rules": [{}]}}"#, rules(257))),
            "0 to 256 rules, not 257",
        ),
        (
            zone(&format!(
                r#"{{"mode": "allowlist", "rules": [{{"cidr": "::/0", "protocol": "tcp", "ports": [{}]}}]}}"#,
                many(257, "1")
            )),
            "1 to 256 ports, not 257",
        ),
        (field(&format!("\"dnsServers\": [{}]", servers.join(","))), "0 to 8 IP addresses, not 9"),
        (field(r#""dnsServers": "1.1.1.1""#), "\"dnsServers\" must be a list"),
        (
            field(r#""dnsServers": ["10.0.2.3"]"#),
            "\"dnsServers[0]\" must be the address of a name server, not \"10.0.2.3\": ",
        ),
        (
            field(r#""proxyMode": null"#),
            "\"proxyMode\" must be \"reject\" or \"trusted-egress\", not null",
        ),
        (field(r#""dnsservers": []"#), "unknown key \"dnsservers\""),
        (field(r#""a\u001b[2Jb": 1"#), "unknown key \"a\\u{1b}[2Jb\""),
    ] {
        let found = read(&text).unwrap_err();
        assert!(found.contains(wanted), "{text}: {found}");
    }
    let full = format!(r#"{{"mode": "denylist", "rules": [{}]}}"#, rules(256));
    assert_eq!(read(&zone(&full)).unwrap().public.rules().len(), 256);
}

#[test]
fn rules_that_cannot_do_what_they_say_are_warned_of() {
    let policy = read(
        r#"{"version": 1,
        "public": {"mode": "allowlist", "rules": [{"cidr": "10.0.0.0/8"}, {"cidr": "0.0.0.0/0"}]},
        "private": {"mode": "allowlist", "rules": [
            {"cidr": "10.0.2.7"}, {"cidr": "10.0.0.0/16"}, {"cidr": "fd00::5"}, {"cidr": "127.0.0.1"},
            {"cidr": "8.8.8.8"}, {"cidr": "::/0"}, {"cidr": "192.168.0.0/16"}, {"cidr": "fd12::/16"}]},
        "dnsServers": ["10.0.2.53", "10.0.3.53"]}"#,
    )
    .unwrap();
    let found = warnings(&policy);
    let starts: Vec<&str> = found.iter().map(|line| line.split_once(')').unwrap().0).collect();
    assert_eq!(
        starts,
        [
            "public.rules[0] (10.0.0.0/8",
            "private.rules[0] (10.0.2.7/32",
            "private.rules[1] (10.0.0.0/16",
            "private.rules[2] (fd00::5/128",
            "private.rules[3] (127.0.0.1/32",
            "private.rules[4] (8.8.8.8/32",
            "dnsServers[0] (10.0.2.53",
        ]
    );
}

#[test]
fn a_network_of_this_machine_with_the_links_number_is_named_where_the_policy_would_let_it_through()
{
    let named = |private: &str| {
        let text =
            format!(r#"{{"version": 1, "public": {{"mode": "allow"}}, "private": {private}}}"#);
        let networks = [
            "192.168.1.0/24",
            "10.0.2.0/24",
            "10.0.0.0/8",
            "fd00::/64",
            "fc00::/7",
            "fd00:0:0:1::/64",
        ];
        let networks = networks.map(|net| (net.parse().unwrap(), "eth0".to_owned()));
        let found = shadowed(&read(&text).unwrap(), || networks.into());
        found.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = ["10.0.2.0/24", "10.0.0.0/8", "fd00::/64"];
    assert_eq!(named(r#"{"mode": "allow"}"#), all);
    assert_eq!(named(r#"{"mode": "denylist", "rules": [{"cidr": "192.168.0.0/16"}]}"#), all);
    assert_eq!(named(r#"{"mode": "allowlist", "rules": [{"cidr": "::/0"}]}"#), ["fd00::/64"]);
    assert_eq!(named(r#"{"mode": "allowlist", "rules": [{"cidr": "10.0.2.7"}]}"#), all[..2]);
    assert!(named(r#"{"mode": "allowlist", "rules": [{"cidr": "192.168.0.0/16"}]}"#).is_empty());
    assert!(named(r#"{"mode": "block"}"#).is_empty());
}

fn cidrs() -> impl Strategy<Value = IpNet> {
    let v4 = (any::<u32>(), 0..=32u8).prop_map(|(bits, len)| {
        IpNet::V4(Ipv4Net::new(Ipv4Addr::from(bits), len).unwrap().trunc())
    });
    let v6 = (any::<u128>(), 0..=128u8)
        .prop_map(|(bits, len)| IpNet::V6(Ipv6Net::new(Ipv6Addr::from(bits), len).unwrap().trunc()))
        .prop_filter("IPv4 is written as IPv4", |net| !check::cidr_flaw(net));
    prop_oneof![v4, v6]
}

fn zones() -> impl Strategy<Value = Zone> {
    let protocol = prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp)];
    let ports = proptest::collection::hash_set(1..=u16::MAX, 0..8);
    let traffic = prop_oneof![
        Just(Traffic::Any),
        (protocol, ports).prop_map(|(p, ports)| Traffic::Ports(p, ports.into_iter().collect())),
    ];
    let rule = (cidrs(), traffic).prop_map(|(cidr, traffic)| Rule { cidr, traffic });
    let rules = proptest::collection::vec(rule, 0..6);
    (0..4, rules).prop_map(|(mode, rules)| match mode {
        0 => Zone::Allow,
        1 => Zone::Block,
        2 => Zone::Allowlist(rules),
        _ => Zone::Denylist(rules),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_valid_policy_survives_being_written_and_read(
        public in zones(),
        private in zones(),
        proxy in prop_oneof![Just(None), Just(Some(ProxyMode::Reject)), Just(Some(ProxyMode::TrustedEgress))],
    ) {
        let policy = NetworkPolicy {
            version: NETWORK_POLICY_VERSION, public, private, dns_servers: Vec::new(), proxy_mode: proxy,
        };
        prop_assert_eq!(policy.flaw(), None);
        prop_assert_eq!(&read(&normal(&policy)).unwrap(), &policy);
        prop_assert_eq!(read(&commented(&policy, |_, _| None)).unwrap(), policy);
    }

    #[test]
    fn no_text_of_an_address_breaks_the_reader(text in "[0-9a-f:./%* -]{0,24}") {
        let json = serde_json::to_string(&text).unwrap();
        let policy = format!(
            r#"{{"version": 1, "public": {{"mode": "block"}}, "private": {{"mode": "allowlist", "rules": [{{"cidr": {json}}}]}}}}"#
        );
        if let Ok(policy) = read(&policy) {
            prop_assert_eq!(policy.flaw(), None);
        }
    }
}

#[test]
fn the_manual_page_names_every_key_and_its_example_is_a_valid_policy() {
    let page = include_str!("../../../../packaging/man/sandbox-network-policy.5");
    let unknown = r#"{"x": 0, "version": 1, "private": {"mode": "block"},
                      "public": {"x": 0, "mode": "allowlist", "rules": [{"x": 0}]}}"#;
    // Each level names the keys that it knows when it meets another.
    let said = read(unknown).unwrap_err();
    let lists: Vec<&str> =
        said.lines().filter_map(|l| l.split_once("; there are ")).map(|(_, l)| l).collect();
    assert_eq!(lists.len(), 3, "{said}");
    for key in lists.iter().flat_map(|list| list.split(", ")) {
        assert!(page.contains(&format!("\n.BR {key} \" (")), "{key} is not in the page");
    }
    let example = page.split("\n.nf\n").nth(1).unwrap().split("\n.fi").next().unwrap();
    read(example).unwrap();
}
