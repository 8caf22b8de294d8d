//! A network around the sessions under test, in which every address is this machine's: a namespace with nothing but
//! loopback, on which every IPv4 and IPv6 address is local. What a session's link lets out arrives at listeners that
//! count, and no packet leaves the machine.

pub mod flow;
mod listeners;
mod services;

pub use flow::{Answer, Flow, Transport};
pub use listeners::Listeners;
pub use services::Services;

use crate::place::Place;
use crate::world;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Addresses that the tests use by name, beside loopback's and the link's own.
pub mod address {
    /// A public IPv4 address.
    pub const PUBLIC_V4: &str = "93.184.216.34";
    /// A private IPv4 address.
    pub const PRIVATE_V4: &str = "10.77.0.1";
    /// A public IPv6 address.
    pub const PUBLIC_V6: &str = "2606:4700::100";
    /// A private IPv6 address.
    pub const PRIVATE_V6: &str = "fd55::1";
    /// The link's name for the host's loopback.
    pub const GATEWAY: &str = "10.0.2.2";
    /// The link's name for the host's name server.
    pub const FORWARDER: &str = "10.0.2.3";
    /// The link's router.
    pub const ROUTER_V6: &str = "fd00::2";
}

/// The port most tests listen on.
pub const PORT: u16 = 18087;

/// Every address is local: what is sent to any of them arrives at a listener on the wildcard address.
const MAKE: &str = "
set -e
ip link set lo up
for a in 93.184.216.34/32 10.77.0.1/32 10.0.2.2/32 10.0.2.3/32; do ip addr add $a dev lo; done
for a in 2606:4700::100/128 fd55::1/128 fd00::2/128; do ip -6 addr add $a dev lo nodad; done
ip route add local 0.0.0.0/0 dev lo
ip -6 route add local ::/0 dev lo
echo made
exec cat
";

/// The network; gone with this value.
#[derive(Debug)]
pub struct Outer {
    holder: Child,
}

impl Outer {
    /// Makes it: as root a plain network namespace, else one in a user namespace that keeps the user's id.
    #[allow(clippy::new_without_default)] // it makes something in the kernel
    pub fn new() -> Self {
        let mut unshare = Command::new("unshare");
        unshare.arg("--net");
        if !world::is_root() {
            unshare.args(["--user", "--map-current-user", "--keep-caps"]);
        }
        let mut holder = unshare
            .args(["sh", "-c", MAKE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("can't start unshare: {e}"));
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "made\n", "the network for the test could not be made");
        Self { holder }
    }

    /// The words that, put before a command (whatever its search path is), run it in this network, with the caller's own ids.
    pub fn enter(&self) -> Vec<String> {
        let pid = self.holder.id();
        let words: Vec<String> = if world::is_root() {
            vec!["/usr/bin/nsenter".into(), format!("--net=/proc/{pid}/ns/net")]
        } else {
            let target = format!("--target={pid}");
            ["/usr/bin/nsenter", &target, "--user", "--net", "--preserve-credentials"]
                .map(Into::into)
                .into()
        };
        words.into_iter().chain(["--".into()]).collect()
    }

    /// The same, with the ids of a session's user. Before it takes them on, root's `through` is run, which runs what
    /// follows it.
    pub(crate) fn enter_as(&self, ids: Option<(u32, u32)>, through: &[&str]) -> Vec<String> {
        assert!(
            through.is_empty() || world::is_root(),
            "this is root's: start tests/run.sh as root"
        );
        let mut words = self.enter();
        words.extend(through.iter().map(|word| (*word).to_owned()));
        if let Some((uid, gid)) = ids {
            let (uid, gid) = (format!("--reuid={uid}"), format!("--regid={gid}"));
            words.extend(["/usr/bin/setpriv", &uid, &gid, "--clear-groups", "--"].map(Into::into));
        }
        words
    }

    /// A command in this network, outside every session.
    pub fn command<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        let enter = self.enter();
        let mut command = Command::new(&enter[0]);
        command.args(&enter[1..]).args(words);
        command
    }

    /// Listens on every address of this network, on these ports, by TCP and UDP.
    pub fn listen(&self, ports: &[u16]) -> Listeners {
        let mut command = self.command([world::bin("prober")]);
        command.arg("serve").args(ports.iter().map(u16::to_string));
        Listeners::start(command)
    }

    /// Services for programs that know no prober: see `tests/fixtures/net_services.py`.
    pub fn services(&self, place: &Place, words: &[&str]) -> Services {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/net_services.py");
        let log = place.root().join("services.log");
        let mut command = self.command(["python3", "-B", script]);
        command.arg(&log).args(words);
        Services::start(command, log)
    }

    /// Starts a session under `policy` that tries every flow; how each went, in order.
    pub fn probe(&self, place: &Place, policy: &serde_json::Value, flows: &[Flow]) -> Vec<Answer> {
        self.probe_with(place, policy, flows, |_| {})
    }

    /// The same with a last change to how the session is started.
    pub fn probe_with(
        &self,
        place: &Place,
        policy: &serde_json::Value,
        flows: &[Flow],
        change: impl FnOnce(&mut crate::run::Run),
    ) -> Vec<Answer> {
        let list = place.flows(flows);
        let prober = world::bin("prober");
        let mut run =
            self.session(place, policy, [prober.as_os_str(), "net".as_ref(), list.as_os_str()]);
        change(&mut run);
        let answers: Vec<Answer> = run.output().ok().json();
        assert_eq!(answers.len(), flows.len());
        answers
    }

    /// `landbox run --network POLICY -- CMD..` in this network, not started yet.
    pub fn session<C: AsRef<OsStr>>(
        &self,
        place: &Place,
        policy: &serde_json::Value,
        command: impl IntoIterator<Item = C>,
    ) -> crate::run::Run {
        let file = place.policy(policy);
        let mut run = place.session([OsStr::new("--network"), file.as_os_str()], command);
        run.within(self);
        run
    }
}

impl Place {
    /// Writes a network policy to a file of the owner's.
    pub fn policy(&self, policy: &serde_json::Value) -> std::path::PathBuf {
        let path = self.outside.join("policy.json");
        self.write(&path, policy.to_string());
        path
    }

    /// Writes a list of flows to a file that the session can read.
    pub fn flows(&self, flows: &[Flow]) -> std::path::PathBuf {
        let path = self.outside.join("flows.json");
        self.write(&path, serde_json::to_vec(flows).unwrap());
        path
    }
}

impl Drop for Outer {
    fn drop(&mut self) {
        // `cat` ends with its input.
        self.holder.stdin = None;
        let _ = self.holder.wait();
    }
}

/// A policy of two zones.
pub fn policy(public: serde_json::Value, private: serde_json::Value) -> serde_json::Value {
    serde_json::json!({"version": 1, "public": public, "private": private})
}

/// The policy that allows everything.
pub fn open() -> serde_json::Value {
    policy(serde_json::json!({"mode": "allow"}), serde_json::json!({"mode": "allow"}))
}

/// The policy that allows nothing.
pub fn closed() -> serde_json::Value {
    policy(serde_json::json!({"mode": "block"}), serde_json::json!({"mode": "block"}))
}

/// Whether the link's device can be used by sessions; the tests need it.
pub fn link_device() -> bool {
    fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_ok()
}
