//! Judging evidence by its plan: a task is released only where what the kernel says is what the plan asked for, and whoever
//! reads what a session left behind asks the same.

use crate::digest::Digest;
use crate::evidence::{Evidence, MountRecord, OwnerMap};
use crate::network::class::{ALIASES_V4, LINK_V4, LINK_V6, OWN_V4, OWN_V6, ROUTER_V6};
use crate::network::route::{INTERFACE, LinkRecord, MTU};
use crate::network::ruleset::compile::compile;
use crate::path::AbsPath;
use crate::plan::{Access, Loss, Op, Plan};
use crate::policy::{Backend, MaskKind, Network, SeccompProfile};
use std::net::IpAddr;

/// Namespaces every session has of its own; `net` joins them where the host's network is not shared.
const NAMESPACES: [&str; 5] = ["user", "mnt", "pid", "ipc", "uts"];

/// What the packet filter must hold for a plan: digest and size of the rules that its policy means. Only those who compile
/// them themselves can say. Nothing where the plan has no policy.
#[derive(Debug)]
pub struct Rules(Option<(Digest, usize)>);

impl Rules {
    /// Compiles them: while the helper does the same.
    pub fn of(plan: &Plan) -> Result<Self, String> {
        let Network::Policy(policy) = &plan.network else { return Ok(Self(None)) };
        let meant = compile(policy);
        let digest = meant.digest().map_err(|e| e.to_string())?;
        Ok(Self(Some((digest, meant.elements()))))
    }
}

/// Says what in `evidence` is not as `plan`, sealed as `envelope`, asked for.
pub fn check(plan: &Plan, envelope: &Digest, evidence: &Evidence) -> Result<(), String> {
    check_with(plan, &Rules::of(plan)?, envelope, evidence)
}

/// The same with the plan's rules compiled before.
pub fn check_with(
    plan: &Plan,
    rules: &Rules,
    envelope: &Digest,
    evidence: &Evidence,
) -> Result<(), String> {
    let expect = |truth: bool, what: &str| if truth { Ok(()) } else { Err(what.to_owned()) };
    expect(evidence.envelope_digest == *envelope, "it answers another envelope")?;
    expect(evidence.policy_digest == plan.policy_digest, "it answers another policy")?;
    evidence.flaw().map_or(Ok(()), |flaw| Err(flaw.to_owned()))?;
    expect(evidence.seccomp_profile == plan.seccomp, "the system-call filter is another one")?;
    expect(evidence.network == plan.network.kind(), "the network is another one")?;
    match evidence.owner_map {
        OwnerMap::Single => {}
        OwnerMap::Full => expect(plan.uid == 0, "ids of others are mapped")?,
    }
    namespaces(plan, evidence)?;
    network(rules, evidence)?;
    layers(plan, evidence)?;
    plan.ops.iter().try_for_each(|op| mount(op, &evidence.mounts))
}

fn namespaces(plan: &Plan, evidence: &Evidence) -> Result<(), String> {
    let own = |kind: &str| {
        let mut named = evidence.namespaces.iter().filter(|ns| ns.kind == kind);
        matches!((named.next(), named.next()), (Some(ns), None) if ns.own)
    };
    if let Some(shared) = NAMESPACES.into_iter().find(|kind| !own(kind)) {
        return Err(format!("the {shared} namespace is not the session's own"));
    }
    match &plan.network {
        Network::Host => Ok(()),
        Network::None | Network::Policy(_) if own("net") => Ok(()),
        Network::None | Network::Policy(_) => {
            Err("the net namespace is not the session's own".into())
        }
    }
}

/// The rules that were read back must be the ones the policy means.
fn network(Rules(meant): &Rules, evidence: &Evidence) -> Result<(), String> {
    let Some((digest, elements)) = meant else { return Ok(()) };
    let boundary = evidence.network_boundary.as_ref();
    let boundary = boundary.ok_or("the network is not held to its policy")?;
    if boundary.rules != *digest || usize::try_from(boundary.elements) != Ok(*elements) {
        return Err("the network rules are not the policy's".into());
    }
    if evidence.seccomp_profile != SeccompProfile::Restricted {
        return Err("the system-call filter leaves ways round the network rules".into());
    }
    link(&boundary.link, evidence.second_user_namespace).map_err(str::to_owned)
}

/// The link must be what the rules were made for: their fixed part names its addresses.
fn link(link: &LinkRecord, second_user_namespace: bool) -> Result<(), &'static str> {
    let LinkRecord { interface, mtu, addresses, gateways, sandboxed } = link;
    let meant = [
        (IpAddr::from(OWN_V4), LINK_V4.prefix_len()),
        (IpAddr::from(OWN_V6), LINK_V6.prefix_len()),
    ];
    if interface != INTERFACE || *mtu != MTU {
        return Err("the link is not the one that was meant");
    }
    if addresses.iter().map(|net| (net.addr(), net.prefix_len())).ne(meant) {
        return Err("the link has other addresses than were meant");
    }
    if *gateways != [IpAddr::from(ALIASES_V4[0]), IpAddr::from(ROUTER_V6)] {
        return Err("the link has other routes than were meant");
    }
    // Only where the host allows no second user namespace does the link go without a root of its own.
    if !sandboxed && second_user_namespace {
        return Err("the link is not confined");
    }
    Ok(())
}

fn layers(plan: &Plan, evidence: &Evidence) -> Result<(), String> {
    let mut found = evidence.layers.iter();
    for op in &plan.ops {
        let Op::Layer(layer) = op else { continue };
        match found.next() {
            Some(record) if record.id == layer.id && record.backend == layer.backend => {}
            Some(record) if record.id == layer.id => {
                return Err(format!("layer {} is written by another back end", layer.id));
            }
            Some(_) | None => return Err(format!("layer {} is missing", layer.id)),
        }
    }
    match found.next() {
        Some(extra) => Err(format!("layer {} was not asked for", extra.id)),
        None => Ok(()),
    }
}

fn mount(op: &Op, mounts: &[MountRecord]) -> Result<(), String> {
    let at = |target: &AbsPath, fits: &dyn Fn(&MountRecord) -> bool| {
        if mounts.iter().any(|m| m.mount_point == *target && fits(m)) {
            Ok(())
        } else {
            Err(format!("the mount on {target} is missing or not as asked for"))
        }
    };
    let option = |m: &MountRecord, name: &str| m.options.split(',').any(|o| o == name);
    let access = |m: &MountRecord, access: Access| match access {
        Access::ReadOnly => option(m, "ro"),
        Access::ReadWrite => true,
    };
    let fixed = |path: &str| AbsPath::new(path).map_err(|e| e.to_string());
    match op {
        Op::Root => at(&fixed("/")?, &|m| option(m, "ro") && option(m, "nosuid")),
        Op::Proc => at(&fixed("/proc")?, &|m| m.fs_type == "proc"),
        Op::Dev { .. } => at(&fixed("/dev")?, &|_| true),
        Op::Tmpfs { target, .. } => at(target, &|m| m.fs_type == "tmpfs"),
        // A copy over a file of the host's; not in the evidence, since the host may replace the file.
        Op::Private { access: Access::ReadOnly, .. } => Ok(()),
        Op::Private { target, access: wanted @ Access::ReadWrite, .. }
        | Op::Bind { target, access: wanted, .. } => at(target, &|m| access(m, *wanted)),
        Op::Layer(layer) => at(&layer.target, &|m| match layer.backend {
            Backend::Kernel => m.fs_type == "overlay",
            Backend::Fuse => m.fs_type.starts_with("fuse"),
        }),
        // Left out where the host removed the path meanwhile, and never in the evidence: the host may still do so.
        Op::Mask { loss: Loss::Tolerated, .. } => Ok(()),
        Op::Mask { target, kind, loss: Loss::EndsSession } => match kind {
            // On the path itself, or by a read-only overlay or copy of a folder above it. (Not of the root: that is
            // an overlay by itself in every container.)
            MaskKind::Dir | MaskKind::File => {
                let holds = |m: &MountRecord| {
                    let above = matches!(m.fs_type.as_str(), "overlay" | "tmpfs")
                        && target.is_within(&m.mount_point)
                        && !m.mount_point.is_root();
                    option(m, "ro") && (above || m.mount_point == *target)
                };
                if mounts.iter().any(holds) {
                    Ok(())
                } else {
                    Err(format!("the mask of {target} is missing"))
                }
            }
            // There is nothing to mount on: an overlay over the nearest existing folder holds the name hidden.
            MaskKind::Missing => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::{Namespace, NetworkRecord};
    use crate::fixtures::{self, abs, mounted};
    use crate::network::{NetworkPolicy, Zone};
    use crate::policy::NetworkKind;

    fn plan() -> Plan {
        let bind = Op::Bind { source: abs("/r"), target: abs("/r"), access: Access::ReadOnly };
        Plan { network: Network::None, ..fixtures::plan(vec![bind]) }
    }

    fn evidence() -> Evidence {
        let mut evidence = fixtures::evidence();
        evidence.network = NetworkKind::None;
        evidence.namespaces.push(Namespace { kind: "net".into(), inode: 7, own: true });
        evidence.mounts.push(mounted("/r", "ext4", "ro,nosuid"));
        evidence.mount_count += 1;
        evidence
    }

    fn judged(plan: &Plan, evidence: &Evidence) -> Result<(), String> {
        check(plan, &Digest([2; 32]), evidence)
    }

    #[test]
    fn evidence_that_fits_the_plan_is_accepted() {
        judged(&plan(), &evidence()).unwrap();
    }

    #[test]
    fn a_mask_is_made_on_its_path_or_by_a_folder_above_it() {
        let mut plan = plan();
        let mask = |loss| {
            let (target, kind) = (abs("/srv/a/secret"), MaskKind::Dir);
            Op::Mask { target, kind, loss }
        };
        plan.ops.push(mask(Loss::Tolerated));
        judged(&plan, &evidence()).unwrap();
        plan.ops.push(mask(Loss::EndsSession));
        let mounted = |point: &str, fs_type: &str, options: &str| {
            let mut evidence = evidence();
            evidence.mounts.push(MountRecord {
                mount_point: abs(point),
                fs_type: fs_type.into(),
                options: options.into(),
                device: "0:2".into(),
            });
            judged(&plan, &evidence).is_ok()
        };
        assert!(mounted("/srv/a/secret", "tmpfs", "ro,nosuid"));
        assert!(mounted("/srv/a", "overlay", "ro,nosuid"));
        assert!(mounted("/srv", "tmpfs", "ro"));
        assert!(!mounted("/srv/a", "overlay", "rw"));
        assert!(!mounted("/srv/a", "ext4", "ro"));
        assert!(!mounted("/srv/b", "overlay", "ro"));
        assert!(!mounted("/", "overlay", "ro,nosuid"));
    }

    #[test]
    fn every_single_deviation_is_refused() {
        type Deviation = (&'static str, fn(&mut Evidence));
        let deviations: [Deviation; 15] = [
            ("envelope", |e| e.envelope_digest = Digest([9; 32])),
            ("policy", |e| e.policy_digest = Digest([9; 32])),
            ("capability", |e| e.caps.bounding = 1),
            ("privileges", |e| e.no_new_privs = false),
            ("filter mode", |e| e.seccomp_mode = 0),
            ("filter count", |e| e.seccomp_filters = 0),
            ("propagation", |e| e.propagation_private = false),
            ("network", |e| e.network = NetworkKind::Host),
            ("owner map", |e| e.owner_map = OwnerMap::Full),
            ("shared pid", |e| e.namespaces[2].own = false),
            ("no net", |e| e.namespaces.truncate(5)),
            ("back end", |e| e.layers[0].backend = Backend::Fuse),
            ("no layer", |e| e.layers.clear()),
            ("writable root", |e| e.mounts[0].options = "rw,nosuid".into()),
            ("mount gone", |e| e.mounts.truncate(2)),
        ];
        for (what, change) in deviations {
            let mut evidence = evidence();
            change(&mut evidence);
            assert!(judged(&plan(), &evidence).is_err(), "{what}");
        }
    }

    /// A plan with a network policy, and the evidence that fits it.
    fn filtered() -> (Plan, Evidence) {
        let policy = NetworkPolicy {
            version: 1,
            public: Zone::Block,
            private: Zone::Block,
            dns_servers: vec!["9.9.9.9".parse().unwrap()],
            proxy_mode: None,
        };
        let meant = compile(&policy);
        let (mut plan, mut evidence) = (plan(), evidence());
        plan.network = Network::Policy(policy);
        plan.seccomp = SeccompProfile::Restricted;
        evidence.network = plan.network.kind();
        evidence.seccomp_profile = plan.seccomp;
        evidence.network_boundary = Some(NetworkRecord {
            rules: meant.digest().unwrap(),
            elements: u32::try_from(meant.elements()).unwrap(),
            generation: 1,
            link: LinkRecord {
                interface: INTERFACE.into(),
                mtu: MTU,
                addresses: ["10.0.2.100/24", "fd00::100/64"].map(|a| a.parse().unwrap()).into(),
                gateways: ["10.0.2.2", "fd00::2"].map(|a| a.parse().unwrap()).into(),
                sandboxed: true,
            },
            user_namespaces_closed: true,
        });
        (plan, evidence)
    }

    #[test]
    fn rules_and_a_link_that_are_as_meant_are_accepted_and_no_others() {
        let judge = |evidence: &Evidence| judged(&filtered().0, evidence);
        judge(&filtered().1).unwrap();
        type Deviation = (&'static str, fn(&mut NetworkRecord));
        let deviations: [Deviation; 7] = [
            ("rules", |r| r.rules = Digest([3; 32])),
            ("elements", |r| r.elements += 1),
            ("interface", |r| r.link.interface = "tap1".into()),
            ("mtu", |r| r.link.mtu = 1500),
            ("address", |r| r.link.addresses.truncate(1)),
            ("gateway", |r| r.link.gateways.reverse()),
            ("confined", |r| r.link.sandboxed = false),
        ];
        for (what, change) in deviations {
            let (_, mut evidence) = filtered();
            evidence.network_boundary.as_mut().map(change).unwrap();
            assert!(judge(&evidence).is_err(), "{what}");
        }
        let (_, mut evidence) = filtered();
        evidence.network_boundary = None;
        assert!(judge(&evidence).is_err());
        // Where the host allows one user namespace alone.
        let (_, mut evidence) = filtered();
        evidence.second_user_namespace = false;
        evidence.network_boundary.as_mut().unwrap().link.sandboxed = false;
        judge(&evidence).unwrap();
    }

    #[test]
    fn a_policy_without_the_filter_it_needs_is_refused() {
        let (mut plan, mut evidence) = filtered();
        plan.seccomp = SeccompProfile::Base;
        evidence.seccomp_profile = SeccompProfile::Base;
        assert!(judged(&plan, &evidence).is_err());
    }
}
