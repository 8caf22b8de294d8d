//! Reading the boundary back: what the kernel says about the task, which is confined but has not been executed.
//!
//! What can be judged here is judged here, too: a boundary that isn't whole ends the session before it starts.

use crate::failure::{Context, refused, refused_at};
use crate::mount::Mounted;
use crate::mountinfo::{self, Mount};
use crate::ns::{self, Worlds};
use crate::stage::Verified;
use crate::start::NAMESPACES;
use landbox_shared::digest::Hasher;
use landbox_shared::event::{Failure, Stage};
use landbox_shared::evidence::{
    CapSets, Evidence, HelperMode, LayerRecord, MountRecord, Namespace,
};
use landbox_shared::path::AbsPath;
use landbox_shared::plan::{Access, LayerOp, Op, Plan};
use landbox_shared::policy::{Backend, Network};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;

const STAGE: Stage = Stage::Evidence;
/// `Seccomp:` of a process with filters.
const FILTERED: u8 = 2;

/// What was read, and the open list of mounts, whose changes wake whoever polls it.
#[derive(Debug)]
pub(crate) struct Proof {
    pub(crate) evidence: Evidence,
    /// The numbers of the mounts in the evidence: one that is replaced at its place has another.
    pub(crate) ids: Vec<u32>,
    pub(crate) table: File,
}

/// Reads everything about process `task`.
pub(crate) fn read(
    task: Pid,
    verified: &Verified,
    mounted: &Mounted,
    worlds: Worlds,
    landlock_abi: u32,
) -> Result<Proof, Failure> {
    let Verified { caller, plan, exec: _, envelope_digest } = verified;
    // Opened before it is read, so that a change in between wakes the monitor.
    let path = format!("/proc/{task}/mountinfo");
    let mut table = File::open(&path).at(STAGE, path.as_bytes(), "opening the list of mounts")?;
    let mut text = Vec::with_capacity(mountinfo::USUAL);
    table.read_to_end(&mut text).at(STAGE, path.as_bytes(), "reading the list of mounts")?;
    let mounts = mountinfo::parse(&text)
        .ok_or_else(|| refused_at(STAGE, path.as_bytes(), "the list of mounts is not readable"))?;
    let status = Status::read(task)?;
    let owner_map = ns::owner_map(caller.mode);
    judge_map(task, verified, worlds)?;
    let (records, ids) = records(&mounts, mounted)?;
    judge_access(&mounts, mounted, plan)?;
    let evidence = Evidence {
        helper_version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: caller.mode,
        policy_digest: plan.policy_digest,
        envelope_digest: *envelope_digest,
        namespaces: namespaces(task, &caller.namespaces)?,
        owner_map,
        second_user_namespace: worlds == Worlds::Two,
        mounts: records,
        mount_table_digest: digest(&mounts),
        mount_count: u32::try_from(mounts.len()).unwrap_or(u32::MAX),
        propagation_private: !mounts.iter().any(|mount| mount.propagates),
        caps: status.caps,
        no_new_privs: status.no_new_privs,
        seccomp_mode: status.seccomp_mode,
        seccomp_filters: status.seccomp_filters,
        seccomp_profile: plan.seccomp,
        landlock_abi,
        network: plan.network,
        layers: layers(&mounts, plan)?,
    };
    judge(&evidence)?;
    Ok(Proof { evidence, ids, table })
}

/// Refuses a boundary that isn't whole.
fn judge(evidence: &Evidence) -> Result<(), Failure> {
    let own = |namespace: &Namespace| {
        let shared = namespace.kind == "net" && evidence.network == Network::Host;
        namespace.own != shared
    };
    for (whole, what) in [
        (evidence.caps.is_empty(), "the task still has capabilities"),
        (evidence.no_new_privs, "the task can still gain privileges"),
        (evidence.seccomp_mode == FILTERED, "the task has no filter"),
        (evidence.propagation_private, "mounts of the host would appear inside"),
        (evidence.namespaces.iter().all(own), "a namespace is not what the plan says"),
    ] {
        if !whole {
            return Err(refused(STAGE, what));
        }
    }
    Ok(())
}

fn namespaces(task: Pid, callers: &[u64; NAMESPACES.len()]) -> Result<Vec<Namespace>, Failure> {
    NAMESPACES
        .iter()
        .zip(callers)
        .map(|(kind, callers)| {
            let path = format!("/proc/{task}/ns/{kind}");
            let meta = fs::metadata(&path).at(STAGE, path.as_bytes(), "reading a namespace")?;
            Ok(Namespace {
                kind: (*kind).to_owned(),
                inode: meta.ino(),
                own: meta.ino() != *callers,
            })
        })
        .collect()
}

/// Compares the task's id maps with the ones that were meant.
fn judge_map(task: Pid, verified: &Verified, worlds: Worlds) -> Result<(), Failure> {
    let caller = &verified.caller;
    let outside = |id: u32| match worlds {
        Worlds::Two => 0,
        Worlds::One => id,
    };
    let meant = match caller.mode {
        HelperMode::Root => ns::full(caller)?,
        HelperMode::Unprivileged | HelperMode::Capable => {
            [caller.uid, caller.gid].map(|id| format!("{id} {} 1\n", outside(id)))
        }
    };
    for (name, meant) in ["uid_map", "gid_map"].into_iter().zip(&meant) {
        let path = format!("/proc/{task}/{name}");
        let found = fs::read_to_string(&path).at(STAGE, path.as_bytes(), "reading an id map")?;
        if !found.split_whitespace().eq(meant.split_whitespace()) {
            return Err(refused_at(
                STAGE,
                path.as_bytes(),
                "the id map is not the one that was meant",
            ));
        }
    }
    Ok(())
}

fn records(
    mounts: &[Mount<'_>],
    mounted: &Mounted,
) -> Result<(Vec<MountRecord>, Vec<u32>), Failure> {
    mounted
        .points
        .iter()
        .map(|point| {
            let mount = mountinfo::at(mounts, point.as_bytes())
                .ok_or_else(|| refused_at(STAGE, point.as_bytes(), "this mount is missing"))?;
            let record = MountRecord {
                mount_point: point.clone(),
                fs_type: text(mount.fs_type),
                options: text(mount.options),
                device: text(mount.device),
            };
            Ok((record, mount.id))
        })
        .collect()
}

/// Nothing that is writable came along from the host: only mounts of the plan are, and what the host has mounted below a
/// path that the plan shows as the real thing.
fn judge_access(mounts: &[Mount<'_>], mounted: &Mounted, plan: &Plan) -> Result<(), Failure> {
    let ours: HashSet<&[u8]> = mounted.points.iter().map(AbsPath::as_bytes).collect();
    let writable = |mount: &&Mount<'_>| mount.options.split(|b| *b == b',').any(|o| o == b"rw");
    for mount in mounts.iter().filter(writable) {
        let point = mount.point();
        let real = |target: &AbsPath| AbsPath::new(&*point).is_ok_and(|p| p.is_within(target));
        if !ours.contains(&*point) && !plan.ops.iter().filter_map(shown_writable).any(real) {
            return Err(refused_at(STAGE, &point, "a mount of the host is writable inside"));
        }
    }
    Ok(())
}

fn shown_writable(op: &Op) -> Option<&AbsPath> {
    match op {
        Op::Bind { source: _, target, access: Access::ReadWrite } => Some(target),
        Op::Bind { source: _, target: _, access: Access::ReadOnly }
        | Op::Root
        | Op::Proc
        | Op::Dev { .. }
        | Op::Tmpfs { .. }
        | Op::Private { .. }
        | Op::Layer(_)
        | Op::Mask { .. } => None,
    }
}

fn layers(mounts: &[Mount<'_>], plan: &Plan) -> Result<Vec<LayerRecord>, Failure> {
    plan.ops.iter().filter_map(layer).map(|layer| judge_layer(mounts, layer)).collect()
}

fn layer(op: &Op) -> Option<&LayerOp> {
    match op {
        Op::Layer(layer) => Some(layer),
        Op::Root
        | Op::Proc
        | Op::Dev { .. }
        | Op::Tmpfs { .. }
        | Op::Private { .. }
        | Op::Bind { .. }
        | Op::Mask { .. } => None,
    }
}

fn judge_layer(mounts: &[Mount<'_>], layer: &LayerOp) -> Result<LayerRecord, Failure> {
    let mount = mountinfo::at(mounts, layer.target.as_bytes());
    let backend = mount.and_then(|mount| match mount.fs_type {
        b"overlay" => Some(Backend::Kernel),
        b"fuse" | b"fuse.fuse-overlayfs" => Some(Backend::Fuse),
        _ => None,
    });
    // Without it an unprivileged overlay works, and then gives EIO on replaced folders.
    let marked =
        |mount: &Mount<'_>| mount.super_options.split(|b| *b == b',').any(|o| o == b"userxattr");
    let as_meant = backend == Some(layer.backend)
        && (layer.backend == Backend::Fuse || mount.is_some_and(marked));
    if !as_meant {
        // Told as a failure of the layer, for which the controller may have another back end.
        let detail = "the layer is not mounted as was meant, with its marks in user attributes";
        return Err(refused_at(Stage::Layer, layer.target.as_bytes(), detail));
    }
    Ok(LayerRecord { id: layer.id.clone(), backend: layer.backend })
}

fn digest(mounts: &[Mount<'_>]) -> landbox_shared::digest::Digest {
    let mut hasher = Hasher::new("mounts");
    for mount in mounts {
        for field in [mount.escaped_point, mount.root, mount.fs_type, mount.options, mount.device] {
            hasher.update(field);
            // None of the fields can hold one: the kernel escapes it.
            hasher.update(b" ");
        }
        hasher.update(b"\n");
    }
    hasher.finish()
}

fn text(bytes: &[u8]) -> String {
    landbox_shared::bytes::escape(bytes)
}

/// Fields of `/proc/PID/status`.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    caps: CapSets,
    no_new_privs: bool,
    seccomp_mode: u8,
    seccomp_filters: u32,
}

impl Status {
    fn read(task: Pid) -> Result<Self, Failure> {
        let path = format!("/proc/{task}/status");
        let text = fs::read_to_string(&path).at(STAGE, path.as_bytes(), "reading the status")?;
        Self::parse(&text)
            .ok_or_else(|| refused_at(STAGE, path.as_bytes(), "the status is not readable"))
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let set = |name: &str| u64::from_str_radix(field(name)?, 16).ok();
        Some(Self {
            caps: CapSets {
                effective: set("CapEff")?,
                permitted: set("CapPrm")?,
                inheritable: set("CapInh")?,
                bounding: set("CapBnd")?,
                ambient: set("CapAmb")?,
            },
            no_new_privs: field("NoNewPrivs")? == "1",
            seccomp_mode: field("Seccomp")?.parse().ok()?,
            // Kernels before 5.10 do not list it.
            seccomp_filters: field("Seccomp_filters").map_or(Some(0), |n| n.parse().ok())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writable_mount_that_is_none_of_the_plans_is_refused() {
        let abs = |text: &str| AbsPath::new(text).unwrap();
        let mounted = Mounted { layer_roots: vec![], points: vec![abs("/"), abs("/tmp")] };
        let mut plan: Plan = crate::verify::tests::plan(vec![]);
        plan.ops.push(Op::Bind {
            source: abs("/auth"),
            target: abs("/auth"),
            access: Access::ReadWrite,
        });
        let judge = |line: &str| {
            let table = format!("1 0 0:1 / / ro - ext4 a b\n2 1 0:2 / {line} - tmpfs a b\n");
            judge_access(&mountinfo::parse(table.as_bytes()).unwrap(), &mounted, &plan)
        };
        for good in ["/tmp rw", "/etc ro,nosuid", "/auth/sub rw", "/auth rw"] {
            assert!(judge(good).is_ok(), "{good}");
        }
        for bad in ["/etc rw", "/tmp/x rw,nosuid", "/authority rw"] {
            assert!(judge(bad).is_err(), "{bad}");
        }
    }

    const STATUS: &str = "Name:\tx\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000001\n\
        CapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\n\
        NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";

    #[test]
    fn the_status_is_read_field_by_field() {
        let status = Status::parse(STATUS).unwrap();
        assert_eq!((status.caps.permitted, status.caps.bounding), (1, 0x1ff_ffff_ffff));
        assert!(status.no_new_privs && !status.caps.is_empty());
        assert_eq!((status.seccomp_mode, status.seccomp_filters), (2, 3));
    }

    #[test]
    fn a_missing_field_is_no_status() {
        for gone in ["CapEff", "NoNewPrivs", "Seccomp:"] {
            let text = STATUS.replace(gone, "Other");
            assert_eq!(Status::parse(&text), None, "{gone}");
        }
    }
}
