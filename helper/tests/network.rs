//! A session with a network policy: what the kernel was told, the link, and the deaths.

#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

mod play;

use landbox_shared::event::{Event, Status};
use landbox_shared::network::{
    NETWORK_POLICY_VERSION, NetworkPolicy, Protocol, Rule, Traffic, Zone, egress::Egress,
    ruleset::compile::compile,
};
use landbox_shared::plan::{Op, Plan};
use landbox_shared::policy::{Backend, Network, SeccompProfile};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use play::{Launch, Stage, procs, users};
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::Command;

fn policy() -> NetworkPolicy {
    NetworkPolicy {
        version: NETWORK_POLICY_VERSION,
        public: Zone::Block,
        private: Zone::Allowlist(vec![Rule {
            cidr: "10.99.0.0/16".parse().unwrap(),
            traffic: Traffic::Ports(Protocol::Tcp, vec![443]),
        }]),
        dns_servers: vec![],
        proxy_mode: None,
    }
}

fn plan(stage: &Stage, policy: NetworkPolicy) -> Plan {
    let mut plan = stage.plan();
    plan.network = Network::Policy(policy);
    plan.seccomp = SeccompProfile::Restricted;
    plan
}

/// Runs to the end; gives the output, the last event, and what was counted before it.
fn end(launch: &mut Launch) -> (String, Event, Egress) {
    let output = launch.output();
    let mut egress = Egress::default();
    loop {
        let event = launch.next().0;
        let Event::Egress(new) = event else { return (output, event, egress) };
        egress.reached.rows.extend(new.reached.rows);
        egress.refused.rows.extend(new.refused.rows);
        egress.reached.totals = new.reached.totals;
        egress.refused.totals = new.refused.totals;
    }
}

#[test]
fn the_evidence_names_the_rules_and_the_link() {
    for uid in users() {
        let stage = Stage::new(uid);
        let mut launch = stage.start();
        launch.send(&stage, plan(&stage, policy()), &["cat", "/proc/net/dev"]);
        let (event, _beside) = launch.next();
        let Event::Ready(evidence) = event else { panic!("{event:?}") };
        let boundary = evidence.network_boundary.clone().unwrap();
        let table = compile(&policy());
        assert_eq!(boundary.rules, table.digest().unwrap());
        assert_eq!(boundary.elements as usize, table.elements());
        assert!(
            boundary.link.sandboxed && boundary.user_namespaces_closed && boundary.generation > 0
        );
        assert_eq!((boundary.link.mtu, boundary.link.addresses.len()), (65520, 2));
        launch.release();
        let (output, event, _) = end(&mut launch);
        assert_eq!(event, Event::Exited(Status::Code(0)));
        assert!(output.contains("tap0") && output.contains("lo"), "{output}");
    }
}

#[test]
fn what_is_refused_is_refused_at_once_and_counted() {
    let text = "for to in 10.99.0.1/80 10.98.0.1/443 9.9.9.9/53 10.0.2.2/22; do \
                bash -c \"exec 3<>/dev/tcp/$to\" 2>&1 | grep -o refused | head -1; done";
    for uid in users() {
        let stage = Stage::new(uid);
        let mut launch = stage.start();
        launch.send(&stage, plan(&stage, policy()), &["sh", "-c", text]);
        let (event, _beside) = launch.next();
        assert!(matches!(event, Event::Ready(_)), "{event:?}");
        launch.release();
        let (output, _, egress) = end(&mut launch);
        assert_eq!(output, "refused\n".repeat(4));
        let totals = egress.refused.totals;
        assert_eq!((totals.private, totals.public, totals.fixed), (2, 1, 1), "{egress:?}");
        let mut refused: Vec<String> = egress
            .refused
            .rows
            .iter()
            .map(|row| {
                format!("{} {} {}", row.destination.address, row.destination.port, row.count)
            })
            .collect();
        refused.sort();
        assert_eq!(refused, ["10.0.2.2 22 1", "10.98.0.1 443 1", "10.99.0.1 80 1", "9.9.9.9 53 1"]);
        assert_eq!(egress.reached, Default::default());
    }
}

/// A running session whose task says when it is up.
fn running(uid: u32, text: &str) -> (Stage, Launch) {
    let stage = Stage::new(uid);
    let mut launch = stage.start();
    launch.send(&stage, plan(&stage, policy()), &["sh", "-c", &format!("echo up; {text}")]);
    let (event, _beside) = launch.next();
    assert!(matches!(event, Event::Ready(_)), "{event:?}");
    launch.release();
    let mut up = [0; 3];
    launch.child.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
    (stage, launch)
}

/// The descendants of the monitor with this name.
fn named(launch: &Launch, name: &str) -> Vec<i32> {
    let monitor = i32::try_from(launch.child.id()).unwrap();
    procs::descendants(monitor).into_iter().filter(|pid| procs::name(*pid) == name).collect()
}

#[test]
fn the_end_of_the_link_ends_the_session() {
    for uid in users() {
        let (_stage, mut launch) = running(uid, "exec sleep 1000");
        let link = named(&launch, "slirp4netns");
        let all = procs::descendants(launch.child.id().try_into().unwrap());
        assert_eq!(link.len(), 1);
        kill(Pid::from_raw(link[0]), Signal::SIGKILL).unwrap();
        assert_eq!(end(&mut launch).1, Event::LinkLost);
        launch.child.wait().unwrap();
        procs::gone(&all, 20);
    }
}

#[test]
fn the_death_of_the_monitor_or_the_controller_ends_the_link_and_the_task() {
    for uid in users() {
        for kills_monitor in [true, false] {
            let (_stage, mut launch) = running(uid, "exec sleep 1000");
            let all = procs::descendants(launch.child.id().try_into().unwrap());
            assert!(all.len() >= 3, "{all:?}");
            if kills_monitor {
                launch.child.kill().unwrap();
            } else {
                drop(launch.events);
            }
            launch.child.wait().unwrap();
            procs::gone(&all, 20);
        }
    }
}

#[test]
fn the_link_ends_with_the_task() {
    for uid in users() {
        let (_stage, mut launch) = running(uid, "exit 3");
        assert_eq!(end(&mut launch).1, Event::Exited(Status::Code(3)));
        launch.child.wait().unwrap();
        assert_eq!(named(&launch, "slirp4netns"), []);
    }
}

#[test]
fn the_daemons_hold_nothing_but_their_own_descriptors_and_no_environment() {
    for uid in users() {
        let stage = Stage::new(uid);
        let mut launch = stage.start();
        let mut plan = plan(&stage, policy());
        for op in &mut plan.ops {
            if let Op::Layer(layer) = op {
                layer.backend = Backend::Fuse;
            }
        }
        launch.send(&stage, plan, &["cat"]);
        assert!(matches!(launch.next().0, Event::Ready(_)));
        let [link, fuse] = ["slirp4netns", "fuse-overlayfs"].map(|name| named(&launch, name)[0]);
        // What can't be dumped is root's to look into.
        if !nix::unistd::geteuid().is_root() {
            continue;
        }
        let monitor = open_in(i32::try_from(launch.child.id()).unwrap());
        for daemon in [link, fuse] {
            assert_eq!(fs::read(format!("/proc/{daemon}/environ")).unwrap(), b"");
            let open = open_in(daemon);
            // A daemon of a layer that outlives the monitor keeps the session locked until it ends.
            let locks = open.iter().any(|name| name.ends_with("/session/lock"));
            assert_eq!(locks, daemon == fuse, "{open:?}");
            let both = open.iter().filter(|name| monitor.contains(name));
            let shared: Vec<_> = both.filter(|name| name.starts_with("socket:")).collect();
            assert_eq!(shared, [] as [&String; 0]);
        }
        let limits = fs::read_to_string(format!("/proc/{link}/limits")).unwrap();
        let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        assert_eq!(files.split_whitespace().nth(3), Some("4096"), "{files}");
        launch.release();
    }
}

/// What the descriptors of a process lead to.
fn open_in(pid: i32) -> Vec<String> {
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let name =
        |fd: fs::DirEntry| fs::read_link(fd.path()).unwrap_or_default().display().to_string();
    fds.map(|fd| name(fd.unwrap())).collect()
}

#[test]
fn a_third_user_namespace_is_refused_by_the_kernel_and_the_filter() {
    for uid in users() {
        let (_stage, mut launch) = running(uid, "unshare -U true; echo in; exec cat");
        launch.child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
        // From outside no filter is in the way: there the kernel refuses it to the caller, too.
        let task = ["sh", "cat"].into_iter().find_map(|name| named(&launch, name).first().copied());
        let task = task.unwrap();
        let mut enter = Command::new("nsenter");
        enter.args([
            "-t",
            &task.to_string(),
            "-U",
            "--preserve-credentials",
            "unshare",
            "-U",
            "true",
        ]);
        let refused = enter.uid(uid).gid(uid).current_dir("/").output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("No space left on device"), "{said}");
        let (output, _, _) = end(&mut launch);
        assert!(output.contains("Operation not permitted"), "{output}");
    }
}
