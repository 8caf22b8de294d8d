//! Redirects and proxies: whoever names a destination, its address decides.

use landbox_tests::net::{Outer, closed, open, policy};
use landbox_tests::{Place, seats, worlds};
use serde_json::{Value, json};

/// A policy with one more key.
pub(crate) fn with(mut rules: Value, key: &str, value: Value) -> Value {
    rules[key] = value;
    rules
}

/// Everything public, nothing private.
pub(crate) fn public_alone() -> Value {
    policy(json!({"mode": "allow"}), json!({"mode": "block"}))
}

/// Fetches each URL with Python's client, and prints what came, or the kind of failure.
pub(crate) const FETCH: &str = "
import sys, urllib.request
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url, timeout=20).read().decode().strip())
    except Exception as e:
        print('failed', getattr(e, 'code', None) or getattr(e, 'reason', e))
";

/// Posts, and goes where the answer leads.
const FOLLOW: &str = "
import http.client, urllib.parse
first = http.client.HTTPConnection('93.184.216.34', 8080, timeout=20)
first.request('POST', '/', b'body'); reply = first.getresponse(); print(reply.status)
to = urllib.parse.urlsplit(reply.headers['Location'])
try:
    second = http.client.HTTPConnection(to.hostname, to.port, timeout=20); second.request('POST', '/', b'body')
    print('reached')
except OSError as e:
    print(e.strerror)";

seats! {
    fn a_redirect_to_a_private_address_is_not_followed_by_the_kernel(seat) {
        let outer = Outer::new();
        let place = Place::new(seat.world);
        let services = outer.services(
            &place,
            &["redirect:93.184.216.34:8080=http://10.77.0.1:8080/", "http:10.77.0.1:8080"],
        );
        let words = ["python3", "-c", FOLLOW];
        let said = seat.output(&mut outer.session(&place, &public_alone(), words)).expect(0);
        assert_eq!(said.text, "307\nConnection refused\n");
        assert_eq!(services.asked(), ["redirect POST /"]);
    }

    fn an_inherited_proxy_variable_is_refused_by_name_under_reject(seat) {
        let outer = Outer::new();
        let place = Place::new(seat.world);
        let rules = with(open(), "proxyMode", json!("reject"));
        for name in ["HTTPS_PROXY", "https_proxy", "all_proxy"] {
            let mut run = outer.session(&place, &rules, ["echo", "ran"]);
            let said = seat.output(run.env(name, "http://10.77.0.1:18090")).expect(125);
            assert!(said.errors.contains(name), "{}", said.errors);
            assert!(said.errors.contains("upstream proxy"), "{}", said.errors);
            assert!(!said.text.contains("ran"), "{}", said.text);
        }
        assert!(place.sessions().is_empty());
    }

    fn an_approved_proxy_is_the_way_out_and_direct_connections_stay_closed(seat) {
        let outer = Outer::new();
        let place = Place::new(seat.world);
        let services = outer
            .services(&place, &["proxy:93.184.216.34:18090", "http:10.77.0.1:8080"]);
        let proxy = "http://93.184.216.34:18090";
        let rule = json!({"cidr": "93.184.216.34/32", "protocol": "tcp", "ports": [18090]});
        let public = json!({"mode": "allowlist", "rules": [rule]});
        let trusted = |rules| with(rules, "proxyMode", json!("trusted-egress"));
        let script =
            "printenv http_proxy; python3 -c \"$0\" http://10.77.0.1:8080/; \
             unset http_proxy; python3 -c \"$0\" http://10.77.0.1:8080/";
        let run = |rules: &Value| {
            let mut run = outer.session(&place, rules, ["sh", "-c", script, FETCH]);
            let said = seat.output(run.env("http_proxy", proxy)).expect(0);
            said.text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let lines = run(&trusted(policy(public, json!({"mode": "block"}))));
        assert_eq!(lines[..2], [proxy, "hello from 10.77.0.1"], "{lines:?}");
        assert!(lines[2].contains("refused"), "{lines:?}");
        assert_eq!(services.asked_of("proxy").len(), 1);
        // Without the zone's permission the proxy is an address like any other.
        let lines = run(&trusted(closed()));
        assert!(lines[1].contains("refused") && lines[2].contains("refused"), "{lines:?}");
        assert_eq!(services.asked_of("proxy").len(), 1);
    }
}

worlds! {
    [user_kernel]
    fn without_a_proxy_mode_proxies_are_refused_unless_both_zones_allow(world) {
        let outer = Outer::new();
        let place = Place::new(world);
        let run = |rules: &Value, name: &str| {
            outer
                .session(&place, rules, ["printenv", name])
                .env(name, "http://10.77.0.1:18090")
                .output()
        };
        assert_eq!(run(&open(), "HTTP_PROXY").ok().text(), "http://10.77.0.1:18090\n");
        run(&public_alone(), "HTTP_PROXY").expect(125);
        // What names no proxy is no proxy.
        assert_eq!(run(&public_alone(), "NO_PROXY").ok().text(), "http://10.77.0.1:18090\n");
    }
}
