//! What the helper reports is what a process inside finds.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::probe::Facts;
use landbox_tests::world::{Overlay, Who, helper_rights};
use landbox_tests::{Place, World, world, worlds};
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};

fn session(world: World) -> (Place, Facts, Value) {
    let place = Place::new(world);
    let facts = place.prober(["facts"]).output().ok().json();
    let folder = place.sessions().remove(0);
    let stored = fs::read(folder.join("launches/1/evidence")).unwrap();
    let (evidence, _) = landbox_shared::wire::open_evidence(&stored).unwrap();
    (place, facts, serde_json::to_value(evidence).unwrap())
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn the_evidence_tells_the_truth(world) {
        let (_place, facts, evidence) = session(world);
        for namespace in evidence["namespaces"].as_array().unwrap() {
            let kind = namespace["kind"].as_str().unwrap();
            let name = format!("{kind}:[{}]", namespace["inode"]);
            assert_eq!(facts.namespaces[kind], name);
            let outside = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
            let own = outside.display().to_string() != name;
            assert_eq!(namespace["own"], Value::from(own), "{kind}");
            assert!(own || kind == "net", "{kind} is the host's");
        }
        assert_eq!(facts.status["NoNewPrivs"], "1");
        assert_eq!(evidence["no_new_privs"], Value::from(true));
        assert_eq!(facts.status["Seccomp"], evidence["seccomp_mode"].to_string());
        assert_eq!(facts.status["Seccomp_filters"], evidence["seccomp_filters"].to_string());
        assert!(evidence["caps"].as_object().unwrap().values().all(|v| *v == 0));
        assert_eq!(evidence["propagation_private"], Value::from(true));
        assert!(facts.mounts.iter().all(|m| m.optional.is_empty()), "{:#?}", facts.mounts);
        assert_eq!(evidence["mount_count"], Value::from(facts.mounts.len()));
        let mode = match world.who { Who::User => helper_rights(), Who::Root => "root" };
        assert_eq!(evidence["mode"], Value::from(mode));
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn each_layer_is_the_overlay_that_was_asked_for(world) {
        let (place, facts, evidence) = session(world);
        let layers = evidence["layers"].as_array().unwrap();
        let ids: Vec<_> = layers.iter().map(|l| l["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["home", "project"]);
        assert!(layers.iter().all(|l| l["backend"] == world.overlay_name()), "{layers:#?}");
        let kind = match world.overlay { Overlay::Kernel => "overlay", Overlay::Fuse => "fuse" };
        for folder in [&place.home, &place.project] {
            let at = facts.mounts.iter().rfind(|m| m.point == folder.to_str().unwrap()).unwrap();
            assert!(at.kind.starts_with(kind), "{at:?}");
            assert!(at.has("nosuid"), "{at:?}");
            if world.overlay == Overlay::Kernel {
                assert!(at.super_options.contains("userxattr"), "{at:?}");
            }
        }
    }

    [user_kernel, root_kernel]
    fn the_root_and_the_system_are_read_only_and_nosuid(world) {
        let (_place, facts, _) = session(world);
        let root = facts.mounts.iter().rfind(|m| m.point == "/").unwrap();
        assert!(root.has("ro") && root.has("nosuid"), "{root:?}");
        for point in ["/proc/sys", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sysrq-trigger"] {
            if let Some(mount) = facts.mounts.iter().rfind(|m| m.point == point) {
                assert!(mount.has("ro"), "{mount:?}");
            } else {
                assert!(!std::path::Path::new(point).exists(), "{point} is not a mount of its own");
            }
        }
    }

    [user_kernel, root_kernel]
    fn the_devices_are_the_harmless_ones(world) {
        let (_place, facts, _) = session(world);
        let known = ["console", "core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm",
            "stderr", "stdin", "stdout", "tty", "urandom", "zero"];
        let strange: Vec<_> = facts.dev.iter().filter(|d| !known.contains(&d.as_str())).collect();
        assert!(strange.is_empty(), "{strange:?}");
    }

    [user_kernel, root_kernel]
    fn show_names_the_boundary(world) {
        let (place, _, evidence) = session(world);
        let shown = place.json(["show"]);
        assert_eq!(shown["isolated"], Value::from(true));
        assert_eq!(shown["state"], Value::from("exited"));
        assert_eq!(shown["exit"], serde_json::json!({"code": 0}));
        let boundary = &shown["boundary"];
        assert_eq!(boundary["policy_digest"], evidence["policy_digest"]);
        assert_eq!(boundary["seccomp"], Value::from("base"));
        assert_eq!(boundary["network"], Value::from("host"));
        let namespaces = boundary["namespaces"].as_array().unwrap();
        for kind in ["user", "mnt", "pid", "ipc", "uts"] {
            assert!(namespaces.contains(&Value::from(kind)), "{boundary}");
        }
        let overlay = match world.who { Who::User => "kernel-user", Who::Root => "kernel-root" };
        for layer in shown["layers"].as_array().unwrap() {
            assert_eq!(layer["overlay"], Value::from(overlay));
        }
    }

    [user_kernel, root_kernel]
    fn without_network_only_loopback_is_left(world) {
        let place = Place::new(world);
        let text = place
            .session(["--network", "off"], ["sh", "-c", "tail -n +3 /proc/net/dev | cut -d: -f1"])
            .output()
            .ok()
            .text();
        assert_eq!(text.trim(), "lo");
        let python = "import socket; s=socket.create_server(('127.0.0.1',0)); \
                      socket.create_connection(s.getsockname()); print('up')";
        let out = place.session(["--network", "off"], ["python3", "-c", python]).output().ok();
        assert_eq!(out.text(), "up\n");
    }
}

#[test]
fn the_helper_takes_no_argument_but_the_one_for_its_version() {
    let run = |args: &[&str]| {
        let mut helper = Command::new(world::bin("landbox-helper"));
        let out = helper.args(args).stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (out.status.code(), text(out.stdout), text(out.stderr))
    };
    let (code, said, _) = run(&["--version"]);
    assert_eq!((code, said.split(' ').next()), (Some(0), Some("landbox-helper")));
    for args in [&["--help"][..], &["--version", "more"], &["explain"], &[""]] {
        let refused = "landbox-helper takes no argument but --version.\n".to_owned();
        assert_eq!(run(args), (Some(2), String::new(), refused), "{args:?}");
    }
    let (code, _, said) = run(&[]);
    assert!(code == Some(2) && said.contains("is started by landbox"), "{said}");
}
