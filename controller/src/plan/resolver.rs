//! Name servers. With a network policy, `/etc/resolv.conf` lists exactly the policy's: a file of the session's own, shown
//! where the host's file is looked for.

use super::{Compiled, PrivateFile};
use crate::error::{Failure, Kind, Result};
use crate::host::{Kind as FileKind, LaunchView, is_private};
use landbox_shared::path::{AbsPath, PathError, RelPath};
use landbox_shared::plan::{Access, Loss, Op};
use landbox_shared::policy::{MaskKind, Network, Policy};
use std::net::IpAddr;

/// How many name servers the C library asks.
const ASKED: usize = 3;

/// The session's own file and where it is shown.
#[derive(Clone, Debug)]
pub(super) struct Resolver {
    servers: Vec<IpAddr>,
    target: Option<AbsPath>,
    /// The host has no such file: a mask makes the place.
    absent: bool,
    hosts: AbsPath,
}

/// Decides it; `None` where the host's file is the right one.
pub(super) fn decide(policy: &Policy, view: &LaunchView) -> Result<Option<Resolver>> {
    let servers = match &policy.network {
        Network::Host | Network::None => return Ok(None),
        Network::Policy(network) => network.dns_servers.clone(),
    };
    let Some(resolv) = &view.resolv else {
        return unplaced(servers, "/etc/resolv.conf leads nowhere");
    };
    // A session's private folders have none of the host's links: there, the path as it reads before the first of them
    // is the one that is looked for.
    let inner = resolv.hops.iter().find(|hop| is_private(&hop.link));
    let target = match inner {
        Some(hop) => hop.walked.clone(),
        None => Some(resolv.path.clone()),
    };
    let Some(target) = target else {
        return unplaced(servers, "/etc/resolv.conf leads through \"..\" behind a link");
    };
    let absent = resolv.kind == FileKind::Missing && !is_private(&target);
    let shown = match resolv.kind {
        FileKind::File => true,
        // Made in a folder of the session's own; else in `/etc`, which is there.
        FileKind::Missing => !absent || target.parent().is_some_and(|at| at.as_bytes() == b"/etc"),
        FileKind::Dir
        | FileKind::Socket
        | FileKind::Special
        | FileKind::Link
        | FileKind::Denied => false,
    };
    let hosts = resolv.path.clone();
    // Without a file the C library asks the session's own loopback, where nobody answers: at once, as it should be.
    if absent && servers.is_empty() {
        return Ok(Some(Resolver { servers, target: None, absent, hosts }));
    }
    if shown {
        return Ok(Some(Resolver { servers, target: Some(target), absent, hosts }));
    }
    match resolv.kind {
        FileKind::Missing => unplaced(servers, &format!("{target} is missing")),
        FileKind::File
        | FileKind::Dir
        | FileKind::Socket
        | FileKind::Special
        | FileKind::Link
        | FileKind::Denied => unplaced(servers, &format!("{target} is no file that can be read")),
    }
}

fn unplaced(servers: Vec<IpAddr>, why: &str) -> Result<Option<Resolver>> {
    let listed: Vec<String> = servers.iter().map(IpAddr::to_string).collect();
    let listed = if listed.is_empty() { "no name server".into() } else { listed.join(", ") };
    Err(Failure::new(
        Kind::Unavailable,
        format!("the policy's name servers ({listed}) can't be shown to the session: {why}"),
    )
    .hint("make it an ordinary file: sudo touch /etc/resolv.conf"))
}

impl Resolver {
    /// Whether the host's name servers would show at a place that binds `source`.
    pub(super) fn replaces(&self, source: &AbsPath) -> bool {
        *source == self.hosts
    }

    /// Adds it to the plan, if this is the time: in a private folder before the layers, which may lie there too; in `/etc`,
    /// if that has to be covered for it, before anything else is shown there.
    pub(super) fn show(
        &self,
        plan: &mut Compiled,
        policy: &Policy,
        before_layers: bool,
    ) -> Result<(), PathError> {
        let early = |target: &&AbsPath| is_private(target) || self.absent;
        let Some(target) = self.target.as_ref().filter(|t| early(t) == before_layers) else {
            return Ok(());
        };
        if policy.masks.iter().any(|mask| target.is_within(&mask.path)) {
            plan.warnings.push(format!("{target} is needed inside, but it is hidden"));
            return Ok(());
        }
        if self.servers.len() > ASKED {
            plan.warnings.push(format!(
                "programs ask the first {ASKED} of {} name servers, as a rule",
                self.servers.len()
            ));
        }
        let folder = RelPath::new("files")?;
        let path = folder.join(b"resolv.conf")?;
        plan.private_dirs.push((folder, 0o700));
        let text: String = self.servers.iter().map(|s| format!("nameserver {s}\n")).collect();
        plan.private_files.push(PrivateFile {
            path: path.clone(),
            bytes: text.into_bytes(),
            mode: 0o644,
        });
        let target = target.clone();
        if self.absent {
            // It is hidden, should the host make it later, by an empty file that ours is mounted on.
            let (kind, loss) = (MaskKind::File, Loss::EndsSession);
            plan.ops.push(Op::Mask { target: target.clone(), kind, loss });
        }
        plan.ops.push(Op::Private { source: path, target, access: Access::ReadOnly });
        Ok(())
    }
}
