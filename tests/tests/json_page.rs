//! The manual's page of the documents, held to what the commands print: every key is listed there with its type, and every
//! key that is listed is printed by something.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::net::{Flow, Outer, PORT, address, policy};
use landbox_tests::world::World;
use landbox_tests::{Place, procs};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// What the page says of one key.
#[derive(Debug)]
struct Key {
    /// The types that its value may have.
    types: Vec<String>,
    /// Whether it may be missing.
    optional: bool,
    /// Whether another document of the page describes its value.
    elsewhere: bool,
}

impl Key {
    /// From `number or null`, `string or absent`, `array of objects, see Session`.
    fn parse(text: &str) -> Self {
        let (types, elsewhere) =
            text.split_once(", see ").map_or((text, false), |(t, _)| (t, true));
        let (absent, types): (Vec<_>, Vec<_>) =
            types.split(" or ").map(str::to_owned).partition(|word| word == "absent");
        Self { types, optional: !absent.is_empty(), elsewhere }
    }
}

/// Whether `value` is of one of the types as the page writes them.
fn fits(value: &Value, types: &[String]) -> bool {
    types.iter().any(|word| match value {
        Value::Null => word == "null",
        Value::Bool(_) => word == "boolean",
        Value::Number(_) => word == "number",
        Value::String(_) => word == "string",
        Value::Object(_) => word == "object",
        Value::Array(values) => word.strip_prefix("array of ").is_some_and(|of| {
            let of = [of.trim_end_matches('s').to_owned()];
            values.iter().all(|value| fits(value, &of))
        }),
    })
}

/// The documents of the page: their keys by path, and which of them were seen.
#[derive(Debug, Default)]
struct Page {
    keys: BTreeMap<String, BTreeMap<String, Key>>,
    seen: BTreeSet<(String, String)>,
}

impl Page {
    fn read() -> Self {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let text = std::fs::read_to_string(top.join("packaging/man/landbox-json.5")).unwrap();
        let (mut page, mut name) = (Self::default(), "");
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(heading) = line.strip_prefix(".SS ") {
                name = heading;
            } else if line == ".TP" || line == ".TQ" {
                let entry = lines.next().unwrap();
                let (path, types) =
                    entry.strip_prefix(".BR ").unwrap().split_once(" \" (").unwrap();
                let key = Key::parse(types.strip_suffix(")\"").unwrap());
                let twice = page.keys.entry(name.into()).or_default().insert(path.into(), key);
                assert!(twice.is_none(), "{name}: {path} is listed twice");
            }
        }
        page
    }

    /// Holds what was printed to what is listed of that document.
    fn check(&mut self, name: &str, document: &Value) {
        self.object(name, "", document);
    }

    fn object(&mut self, name: &str, prefix: &str, value: &Value) {
        let object = value.as_object().unwrap_or_else(|| panic!("{name}: {prefix}: {value}"));
        for (path, listed) in &self.keys[name] {
            let key = path.strip_prefix(prefix).filter(|rest| !rest.contains(['.', '[']));
            let there = key.is_none_or(|key| listed.optional || object.contains_key(key));
            assert!(there, "{name}: no {path} in {value:#}");
        }
        for (key, value) in object {
            if key.strip_suffix("_b64").is_some_and(|text| object.contains_key(text)) {
                continue;
            }
            let path = format!("{prefix}{key}");
            let listed = self.keys[name].get(&path);
            let listed = listed.unwrap_or_else(|| panic!("{name}: {path} is not listed: {value}"));
            assert!(fits(value, &listed.types), "{name}: {path} is {value}, not {listed:?}");
            let elsewhere = listed.elsewhere;
            self.seen.insert((name.into(), path.clone()));
            if elsewhere {
                continue;
            }
            if value.is_object() {
                self.object(name, &format!("{path}."), value);
            }
            for value in value.as_array().into_iter().flatten().filter(|value| value.is_object()) {
                self.object(name, &format!("{path}[]."), value);
            }
        }
    }

    /// Everything that is listed was printed.
    fn finish(self) {
        let all = |(name, keys): (&String, &BTreeMap<String, Key>)| -> Vec<(String, String)> {
            keys.keys().map(|path| (name.clone(), path.clone())).collect()
        };
        let unseen: Vec<_> =
            self.keys.iter().flat_map(all).filter(|key| !self.seen.contains(key)).collect();
        assert!(unseen.is_empty(), "listed, and nothing printed it: {unseen:?}");
    }
}

/// What a session prints from its start to the end of what it leaves.
fn reviews(page: &mut Page, place: &Place) {
    let report = place.outside.join("report.json");
    let task = "echo x > ~/elsewhere; echo '#!/bin/sh' > tool; chmod +x tool; ln -sfn tool link; \
                rm README.md; echo y > 'a\\b'";
    let options = ["--name", "s", "--report", report.to_str().unwrap()];
    place.session(options, ["sh", "-c", task]).output().ok();
    page.check("Session", &serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap());
    page.check("Checkpoint", &place.json(["checkpoint", "s", "-m", "first"]));
    page.check("Checkpoint", &place.json(["rewind", "s", "1", "--yes"]));
    page.check("Card", &place.json(["diff", "s"]));
    let card = place.json(["land", "s"]);
    assert_eq!(card["applied"], false);
    page.check("Card", &card);
    let patch = place.outside.join("x.patch");
    page.check("Card", &place.json(["land", "s", "--patch", patch.to_str().unwrap()]));
    let land = ["land", "s", "--apply", "--yes"];
    let landed: Value = place.landbox(land).risks_accepted().args(["--json"]).output().ok().json();
    assert_eq!(landed["applied"], true);
    page.check("Card", &landed);
    receipts(page, place, landed["receipt"].as_str().unwrap());
    let list = place.json(["ls"]);
    page.check("Sessions", &list);
    page.check("Session", &list["sessions"][0]);
    page.check("Session", &place.json(["show", "s"]));
    page.check("Undo", &place.json(["undo", "s"]));
    place.landbox(land).risks_accepted().output().ok();
}

fn receipts(page: &mut Page, place: &Place, file: &str) {
    let verified = place.json(["receipt", "verify", file]);
    page.check("Receipt", &verified);
    let text = std::fs::read_to_string(file).unwrap();
    let signed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(verified["receipt"], signed["receipt"]);
    let damaged = place.outside.join("damaged.json");
    place.write(&damaged, text.replace("landed", "merged"));
    let verify = ["receipt", "verify", damaged.to_str().unwrap(), "--json"];
    page.check("Receipt", &place.landbox(verify).output().expect(1).json());
}

/// Sessions that end as nobody wishes, and what removes them.
fn ends(page: &mut Page, place: &Place) {
    place.sh("kill -9 $$").output().expect(137);
    let killed = place.json(["show"]);
    page.check("Session", &killed);
    page.check("Session", &place.json(["discard", killed["id"].as_str().unwrap(), "--yes"]));
    // A turn that begins without a checkpoint.
    place.session(["--name", "u"], ["sh", "-c", "echo x > x"]).output().ok();
    place.landbox(["checkpoint", "u"]).output().ok();
    place.landbox(["resume", "u", "--", "sh", "-c", "echo y > y"]).output().ok();
    let objects =
        place.state().join("sessions").join(place.json(["show", "u"])["id"].as_str().unwrap());
    let objects = objects.join("checkpoints/objects");
    std::fs::set_permissions(&objects, std::os::unix::fs::PermissionsExt::from_mode(0o500))
        .unwrap();
    place.landbox(["resume", "u", "--", "true"]).output().ok();
    page.check("Session", &place.json(["show", "u"]));
    std::fs::set_permissions(&objects, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    let mut live = place.session(["--name", "t"], ["sh", "-c", "echo up; read x"]);
    let mut live = live.stdin_open().start();
    live.expect("up");
    page.check("Session", &place.json(["show", "t"]));
    let tree = procs::descendants(live.pid());
    procs::kill(live.pid(), rustix::process::Signal::KILL);
    live.wait();
    procs::gone(&tree, 20);
    let failed = place.json(["show", "t"]);
    assert!(failed["failure"].is_object(), "{failed:#}");
    page.check("Session", &failed);
    let bots = r#"[{"name": "b", "command": ["true"], "sandbox": false}]"#;
    place.write(place.home.join(".config/landbox/bots.json"), bots);
    place.landbox(["run", "--bot", "b"]).output().ok();
    page.check("Session", &place.json(["show"]));
    age(&place.state().join("undo"));
    let gone = place.json(["gc", "--dry-run"]);
    assert!(gone["removed"][0].is_object() && gone["undo"][0].is_object(), "{gone:#}");
    page.check("Collection", &gone);
    page.check("Collection", &place.json(["gc"]));
    let id = failed["id"].as_str().unwrap();
    std::fs::write(place.state().join("sessions").join(id).join("state.json"), "{").unwrap();
    page.check("Removed", &place.json(["discard", id, "--yes"]));
}

/// Makes what lies there older than anything that is kept for undoing.
fn age(dir: &Path) {
    let then = SystemTime::now() - Duration::from_secs(31 * 24 * 60 * 60);
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            age(&path);
        } else if !path.is_symlink() {
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(then).unwrap();
        }
    }
}

/// What is said of network policies and of the traffic under one.
fn networks(page: &mut Page) {
    const VERB: &str = "sandbox-network-policy";
    let (outer, place) = (Outer::new(), Place::new(World::USUAL));
    let _listeners = outer.listen(&[PORT]);
    let rule = json!({"cidr": address::PUBLIC_V4, "protocol": "tcp", "ports": [PORT]});
    let mut rules = policy(
        json!({"mode": "denylist", "rules": [rule]}),
        json!({"mode": "allowlist", "rules": [{"cidr": "10.9.0.0/16", "protocol": "udp", "ports": [1]}]}),
    );
    rules["proxyMode"] = json!("reject");
    let flows = [
        Flow::tcp(address::PUBLIC_V4, PORT),
        Flow::udp(address::PUBLIC_V4, PORT),
        Flow::tcp(address::PRIVATE_V4, PORT),
        Flow::tcp(address::GATEWAY, PORT),
    ];
    outer.probe(&place, &rules, &flows);
    let session = place.json(["show"]);
    page.check("Session", &session);
    let suggestion = place.json([VERB, "suggest"]);
    page.check("Suggestion", &suggestion);
    page.check("Policy", &suggestion["policy"]);
    for rule in [&suggestion["added"][0]["rule"], &suggestion["removed"][0]["rule"]] {
        assert!(rule["cidr"].is_string(), "{suggestion:#}");
    }
    let file = place.policy(&rules).display().to_string();
    page.check("Policy", &place.json([VERB, "check", &file]));
    for words in [&["8.8.8.8", "tcp", "1"][..], &["8.8.8.8"]] {
        let ask = [&[VERB, "explain", &file], words].concat();
        page.check("Explanation", &place.json(ask));
    }
}

#[test]
fn every_key_that_is_printed_is_on_the_page_and_every_key_of_the_page_is_printed() {
    let (mut page, place) = (Page::read(), Place::new(World::USUAL));
    reviews(&mut page, &place);
    ends(&mut page, &place);
    networks(&mut page);
    page.check("Doctor", &place.json(["doctor"]));
    let failed = place.landbox(["show", "nothing", "--json"]).output().expect(2);
    page.check("Error", &serde_json::from_slice(&failed.stderr).unwrap());
    page.finish();
}

/// The words that a document lists are those that the command takes.
#[test]
fn the_page_lists_every_kind_of_risk() {
    let place = Place::new(World::USUAL);
    let said = place.landbox(["land", "--accept-risk", "nonsense"]).output().expect(2).errors();
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = std::fs::read_to_string(top.join("packaging/man/landbox-json.5")).unwrap();
    let page = page.replace('\\', "");
    let kinds = said.split("the kinds are ").nth(1).unwrap_or_else(|| panic!("{said}"));
    let kinds: Vec<_> = kinds.trim().split(", ").collect();
    assert!(kinds.len() >= 15, "{said}");
    for kind in kinds {
        assert!(page.contains(kind), "{kind}");
    }
}
