//! Plans that must be refused. Each starts from one that is accepted and changes one thing.

use super::*;
use crate::fixtures::{self, abs};
use crate::id::LayerId;
use crate::network::{NETWORK_POLICY_VERSION, NetworkPolicy, Rule, Traffic, Zone};
use crate::path::RelPath;
use crate::plan::{LayerMask, Loss};
use crate::policy::{Backend, MaskKind};

fn rel(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

fn layer(id: &str, target: &str, masks: &[&str]) -> Op {
    let mask = |path: &&str| LayerMask { path: rel(path), kind: MaskKind::Dir };
    Op::Layer(LayerOp {
        id: LayerId::new(id).unwrap(),
        target: abs(target),
        backend: Backend::Kernel,
        masks: masks.iter().map(mask).collect(),
    })
}

fn bind(source: &str, target: &str) -> Op {
    Op::Bind { source: abs(source), target: abs(target), access: Access::ReadWrite }
}

fn private(source: &str, target: &str) -> Op {
    Op::Private { source: rel(source), target: abs(target), access: Access::ReadWrite }
}

fn mask(target: &str) -> Op {
    Op::Mask { target: abs(target), kind: MaskKind::Dir, loss: Loss::EndsSession }
}

fn tmpfs(target: &str) -> Op {
    Op::Tmpfs { target: abs(target), mode: 0o755, size: 1 << 20 }
}

/// A plan that is accepted, with more operations.
fn plan(more: Vec<Op>) -> Plan {
    let mut ops = vec![Op::Root, Op::Proc, Op::Dev { console: Some(abs("/dev/pts/3")) }];
    ops.extend(more);
    let (uid, gid, cwd) = (0, 0, abs("/"));
    Plan { uid, gid, cwd, stdio: [Stdio::Pty; 3], ops, ..fixtures::plan(Vec::new()) }
}

fn accepts(ops: Vec<Op>) {
    judge(&plan(ops)).unwrap();
}

fn refuses(ops: Vec<Op>) {
    let plan = plan(ops);
    assert!(judge(&plan).is_err(), "{:?}", plan.ops);
}

#[test]
fn the_usual_order_is_accepted() {
    accepts(vec![
        tmpfs("/run"),
        tmpfs("/dev/shm"),
        private("tmp/tmp", "/tmp"),
        layer("home", "/home/u", &["a", "b/c", "b/d"]),
        layer("project", "/home/u/p", &[]),
        bind("/home/u/.auth", "/home/u/.auth"),
        mask("/etc/secret"),
        mask("/var/secret/deep"),
        private("outbox", "/run/landbox/outbox"),
    ]);
}

#[test]
fn the_sessions_own_file_may_stand_in_the_very_place_of_a_mask_and_nothing_else() {
    let list = "/etc/resolv.conf";
    let own = |target: &str| Op::Private {
        source: rel("files/resolv.conf"),
        target: abs(target),
        access: Access::ReadOnly,
    };
    accepts(vec![mask(list), own(list)]);
    refuses(vec![mask(list), private("files/resolv.conf", list)]);
    refuses(vec![mask(list), bind("/home/u/resolv.conf", list)]);
    refuses(vec![mask(list), own("/etc")]);
    refuses(vec![mask("/etc"), mask(list), own(list)]);
    refuses(vec![mask(list), mask("/etc/resolv.conf/x"), own(list)]);
}

#[test]
fn root_comes_first_and_each_system_part_once() {
    for double in [Op::Root, Op::Proc, Op::Dev { console: None }] {
        refuses(vec![double]);
    }
    let mut late = plan(vec![]);
    late.ops.swap(0, 1);
    assert!(judge(&late).is_err());
    for missing in 0..3 {
        let mut plan = plan(vec![]);
        plan.ops.remove(missing);
        assert!(judge(&plan).is_err(), "{missing}");
    }
}

#[test]
fn the_restricted_filter_goes_with_any_network() {
    for network in [Network::Host, Network::None] {
        let restricted = SeccompProfile::Restricted;
        judge(&Plan { network, seccomp: restricted, ..plan(vec![]) }).unwrap();
    }
}

#[test]
fn a_network_policy_without_the_restricted_filter_is_refused() {
    let (public, private) = (Zone::Allow, Zone::Block);
    let (version, dns_servers) = (NETWORK_POLICY_VERSION, vec![]);
    let policy = NetworkPolicy { version, public, private, dns_servers, proxy_mode: None };
    let plan = Plan { network: Network::Policy(policy), ..plan(vec![]) };
    assert!(judge(&plan).is_err());
}

#[test]
fn a_policy_that_no_parser_makes_is_refused() {
    let rule = Rule { cidr: "10.1.0.0/16".parse().unwrap(), traffic: Traffic::Any };
    let judge = |private: Zone| {
        let (version, dns_servers) = (NETWORK_POLICY_VERSION, vec![]);
        let public = Zone::Block;
        let policy = NetworkPolicy { version, public, private, dns_servers, proxy_mode: None };
        let seccomp = SeccompProfile::Restricted;
        judge(&Plan { network: Network::Policy(policy), seccomp, ..plan(vec![]) })
    };
    judge(Zone::Allowlist(vec![rule.clone()])).unwrap();
    assert!(judge(Zone::Allowlist(vec![rule; 257])).is_err());
}

#[test]
fn a_launch_has_a_number_and_a_folder() {
    assert!(judge(&Plan { launch: 0, ..plan(vec![]) }).is_err());
    assert!(judge(&Plan { session_dir: abs("/"), ..plan(vec![]) }).is_err());
}

#[test]
fn the_terminal_is_a_slave_and_there_where_it_is_wanted() {
    for console in
        [None, Some(abs("/etc/shadow")), Some(abs("/dev/pts/ptmx")), Some(abs("/dev/pts/1/2"))]
    {
        let mut plan = plan(vec![]);
        plan.ops[2] = Op::Dev { console };
        assert!(judge(&plan).is_err(), "{:?}", plan.ops[2]);
    }
}

#[test]
fn nothing_is_shown_over_the_boundary_itself() {
    for target in
        ["/", "/proc", "/proc/sys", "/dev", "/dev/console", "/dev/pts", "/dev/pts/0", "/dev/tty"]
    {
        refuses(vec![tmpfs(target)]);
        refuses(vec![bind("/etc", target)]);
        refuses(vec![private("tmp", target)]);
        refuses(vec![layer("project", target, &[])]);
        refuses(vec![mask(target)]);
    }
    refuses(vec![layer("project", "/sys/kernel", &[])]);
}

#[test]
fn the_root_and_the_hosts_proc_are_not_shown_a_second_time() {
    refuses(vec![bind("/", "/mnt")]);
    refuses(vec![bind("/proc", "/mnt")]);
    refuses(vec![bind("/proc/sys/kernel", "/mnt")]);
    accepts(vec![bind("/process", "/mnt")]);
}

#[test]
fn what_a_landing_relies_on_is_never_shown() {
    for source in
        ["lock", "snapshot.json", "state.json", "layers/home/upper", "launches", "base/x", "log"]
    {
        refuses(vec![private(source, "/mnt")]);
    }
    accepts(vec![private("logs", "/mnt")]);
}

#[test]
fn nothing_opens_a_mask_again() {
    for later in ["/a/b", "/a/b/c", "/a"] {
        refuses(vec![mask("/a/b"), bind("/x", later)]);
        refuses(vec![mask("/a/b"), tmpfs(later)]);
        refuses(vec![mask("/a/b"), private("tmp", later)]);
        refuses(vec![mask("/a/b"), layer("home", later, &[])]);
    }
    // Bytes that sort between a folder and what lies below it do not hide the mask.
    refuses(vec![mask("/a-b"), mask("/a/b"), bind("/x", "/a")]);
    accepts(vec![mask("/a/b"), bind("/x", "/a/bc"), bind("/x", "/a/c"), mask("/a/b/c")]);
}

#[test]
fn layers_and_their_masks_are_not_made_twice() {
    refuses(vec![layer("home", "/a", &[]), layer("home", "/b", &[])]);
    refuses(vec![layer("home", "/a", &[]), layer("project", "/a", &[])]);
    refuses(vec![layer("home", "/a", &["x", "x"])]);
    refuses(vec![layer("home", "/a", &["x", "x/y/z"])]);
    accepts(vec![layer("home", "/a", &["x", "x-y", "xy/z"])]);
    let many = (0..=limits::LAYERS).map(|n| layer(&format!("mount-{n}"), &format!("/m/{n}"), &[]));
    refuses(many.collect());
}

#[test]
fn a_tmpfs_has_a_size_and_plain_permissions() {
    for (mode, size) in [(0o4755, 1), (0o2755, 1), (0o10755, 1), (0o755, 0)] {
        refuses(vec![Op::Tmpfs { target: abs("/run"), mode, size }]);
    }
    accepts(vec![Op::Tmpfs { target: abs("/run"), mode: 0o1777, size: 1 }]);
}

#[test]
fn too_many_operations_or_masks_are_refused() {
    refuses(vec![tmpfs("/run"); limits::OPS]);
    let many: Vec<String> = (0..=limits::LAYER_MASKS).map(|n| n.to_string()).collect();
    let mut many: Vec<&str> = many.iter().map(|name| &**name).collect();
    refuses(vec![layer("home", "/home/u", &many)]);
    many.pop();
    accepts(vec![layer("home", "/home/u", &many)]);
}
