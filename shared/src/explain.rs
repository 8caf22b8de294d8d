//! A plan in plain words, for people who judge it. Lines may hold any text of whoever made the plan: print them through
//! [`crate::bytes::plain`].

use crate::bytes::escape;
use crate::exec::Exec;
use crate::network::{NetworkPolicy, Zone};
use crate::plan::{Access, LayerOp, Loss, Op, Plan, Stdio};
use crate::policy::{Backend, MaskKind, Network, SeccompProfile};

/// What the helper would do with a plan, a line a thing.
pub fn plan(plan: &Plan) -> Vec<String> {
    let Plan { session, policy_digest, session_dir, launch, uid, gid, stdio, cwd, .. } = plan;
    let mut lines = vec![
        format!("launch {launch} of session {session}, whose frozen policy is {policy_digest}"),
        format!("its folder, locked for as long as it runs: {session_dir}"),
        format!("it runs as uid {uid} and gid {gid}, starting in {cwd}"),
        format!("stdin, stdout and stderr: {}", stdio.map(stream).join(", ")),
    ];
    lines.extend(network(&plan.network));
    lines.push(filter(plan.seccomp).to_owned());
    lines.push(format!("then, in this order, {} operations:", plan.ops.len()));
    for (n, op) in (1..).zip(&plan.ops) {
        lines.push(format!("{n}. {}", operation(op)));
        if let Op::Layer(layer) = op {
            lines.extend(
                layer
                    .masks
                    .iter()
                    .map(|mask| format!("   in it, {} shows {}", mask.path, shown(mask.kind))),
            );
        }
    }
    lines
}

/// What the task would execute.
pub fn exec(exec: &Exec) -> Vec<String> {
    let word = |word: &Vec<u8>| format!("\"{}\"", escape(word));
    let names = exec.env.iter().map(|entry| entry.split(|b| *b == b'=').next().unwrap_or_default());
    let names: Vec<String> = names.map(escape).collect();
    vec![
        format!("the command: {}", exec.argv.iter().map(word).collect::<Vec<_>>().join(" ")),
        format!("variables of its environment (values not shown): {}", names.join(" ")),
    ]
}

fn stream(stdio: Stdio) -> &'static str {
    match stdio {
        Stdio::Pty => "the terminal of the session's own",
        Stdio::Pipe => "a pipe",
    }
}

fn network(network: &Network) -> Vec<String> {
    match network {
        Network::Host => vec!["the network is the caller's own".to_owned()],
        Network::None => vec!["the network is a namespace with loopback alone".to_owned()],
        Network::Policy(NetworkPolicy { public, private, dns_servers, .. }) => {
            let servers: Vec<String> = dns_servers.iter().map(ToString::to_string).collect();
            let mut lines = vec![
                "the network is a namespace of its own; rules first, then a link by slirp4netns; reachable:"
                    .to_owned(),
                format!("   public addresses: {}", zone(public)),
                format!("   private addresses: {}", zone(private)),
            ];
            lines.push(match servers.is_empty() {
                true => "   no name servers".to_owned(),
                false => format!("   name servers: {}", servers.join(", ")),
            });
            lines
        }
    }
}

fn zone(zone: &Zone) -> String {
    match (zone, zone.rules().len()) {
        (Zone::Allow, _) => "all".to_owned(),
        (Zone::Block, _) => "none".to_owned(),
        (Zone::Allowlist(_), n) => format!("none but {n} listed destinations"),
        (Zone::Denylist(_), n) => format!("all but {n} listed destinations"),
    }
}

fn filter(profile: SeccompProfile) -> &'static str {
    match profile {
        SeccompProfile::Base => {
            "system calls: all but terminal injection, kernel keyrings and foreign interfaces"
        }
        SeccompProfile::Restricted => {
            "system calls: as base, and no sockets but Internet ones, no namespaces, no rings"
        }
    }
}

fn access(access: Access) -> &'static str {
    match access {
        Access::ReadOnly => "read-only",
        Access::ReadWrite => "read-write",
    }
}

fn shown(kind: MaskKind) -> &'static str {
    match kind {
        MaskKind::Dir => "as an empty folder",
        MaskKind::File => "as an empty file",
        MaskKind::Missing => "as missing, also when it appears later",
    }
}

fn operation(op: &Op) -> String {
    match op {
        Op::Root => {
            "show the whole file system, read-only, without set-id programs and devices".into()
        }
        Op::Proc => "make a fresh /proc, its system switches read-only".into(),
        Op::Dev { console: None } => "make a minimal /dev".into(),
        Op::Dev { console: Some(slave) } => {
            format!("make a minimal /dev, with {slave} as the terminal")
        }
        Op::Tmpfs { target, mode, size } => {
            format!(
                "make an empty folder in memory at {target}, mode {mode:04o}, at most {size} bytes"
            )
        }
        Op::Private { source, target, access: way } => {
            format!("show {source} of the session's folder at {target}, {}", access(*way))
        }
        Op::Layer(LayerOp { id, target, backend, masks }) => {
            let by = match backend {
                Backend::Kernel => "the kernel's overlay",
                Backend::Fuse => "fuse-overlayfs",
            };
            let hidden = masks.len();
            format!(
                "keep writes to {target} in layer {id}, by {by}; {hidden} paths in it are hidden"
            )
        }
        Op::Bind { source, target, access: Access::ReadWrite } => {
            format!(
                "show the REAL {source} at {target}, read-write: what is written there stays written"
            )
        }
        Op::Bind { source, target, access: way @ Access::ReadOnly } => {
            format!("show {source} at {target}, {}", access(*way))
        }
        Op::Mask { target, kind, loss } => {
            let end = match loss {
                Loss::EndsSession => "the session ends if that is lost",
                Loss::Tolerated => "the session goes on if that is lost",
            };
            format!("show {target} {}; {end}", shown(*kind))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::plain;
    use crate::path::AbsPath;

    #[test]
    fn a_hostile_path_reaches_no_terminal() {
        let target = AbsPath::new("/a\x1b]0;x\x07\n\u{202e}b").unwrap();
        let mask = Op::Mask { target, kind: MaskKind::Dir, loss: Loss::Tolerated };
        let line = plain(&operation(&mask));
        assert!(line.bytes().all(|b| (b' '..=b'~').contains(&b)), "{line}");
        assert!(line.contains("/a\\x1b]0;x\\x07\\x0a\\xe2\\x80\\xaeb"), "{line}");
    }

    #[test]
    fn what_is_real_and_writable_stands_out() {
        let path = || AbsPath::new("/p").unwrap();
        let bind = |access| operation(&Op::Bind { source: path(), target: path(), access });
        assert!(bind(Access::ReadWrite).contains("REAL"));
        assert!(bind(Access::ReadOnly).ends_with("read-only"));
    }

    #[test]
    fn the_values_of_the_environment_are_not_shown() {
        let (argv, env) = (vec![b"sh".to_vec()], vec![b"TOKEN=secret=1".to_vec()]);
        let lines = exec(&Exec { argv, env }).join("\n");
        assert!(lines.contains("TOKEN") && !lines.contains("secret"), "{lines}");
    }
}
