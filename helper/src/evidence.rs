//! Reading the boundary back: what the kernel says about the task, which is confined but has not been executed.
//!
//! What can be judged here is judged here, too: a boundary that isn't whole ends the session before it starts.

use crate::failure::{Context, refused, refused_at, require, require_at};
use crate::init::Meant;
use crate::mount::Mounted;
use crate::ns::Worlds;
use crate::start::{Inodes, NAMESPACES, namespaces};
use landbox_shared::event::{Failure, Stage};
use landbox_shared::evidence::{Evidence, LayerRecord, MountRecord, Namespace};
use landbox_shared::mountinfo::{self, Mount};
use landbox_shared::path::AbsPath;
use landbox_shared::plan::{LayerOp, Op, Plan};
use landbox_shared::policy::Network;
use landbox_shared::procfs;
use nix::unistd::Pid;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

const STAGE: Stage = Stage::Evidence;

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
    meant: &Meant,
    mounted: &Mounted,
    landlock_abi: u32,
) -> Result<Proof, Failure> {
    let Meant { caller, plan, envelope_digest, maps } = meant;
    // Opened before it is read, so that a change in between wakes the monitor.
    let path = format!("/proc/{task}/mountinfo");
    let mut table = File::open(&path).at(STAGE, &path, "opening the list of mounts")?;
    let mut text = Vec::with_capacity(mountinfo::USUAL);
    table.read_to_end(&mut text).at(STAGE, &path, "reading the list of mounts")?;
    let mounts = mountinfo::parse(&text)
        .ok_or_else(|| refused_at(STAGE, &path, "the list of mounts is not readable"))?;
    let path = format!("/proc/{task}/status");
    let text = fs::read_to_string(&path).at(STAGE, &path, "reading the status")?;
    let status = procfs::status(&text)
        .ok_or_else(|| refused_at(STAGE, &path, "the status is not readable"))?;
    judge_maps(task, &maps.task)?;
    judge_access(&mounts, mounted, plan)?;
    let (records, ids) = records(&mounts, mounted)?;
    let found = namespaces(&task.to_string(), STAGE)?;
    let evidence = Evidence {
        helper_version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: caller.mode,
        policy_digest: plan.policy_digest,
        envelope_digest: *envelope_digest,
        namespaces: judge_namespaces(found, caller.namespaces, &plan.network)?,
        owner_map: maps.owner,
        second_user_namespace: maps.worlds == Worlds::Two,
        mounts: records,
        mount_table_digest: mountinfo::digest(&mounts),
        mount_count: u32::try_from(mounts.len()).unwrap_or(u32::MAX),
        propagation_private: !mounts.iter().any(|mount| mount.propagates),
        caps: status.caps,
        no_new_privs: status.no_new_privs,
        seccomp_mode: status.seccomp_mode,
        seccomp_filters: status.seccomp_filters,
        seccomp_profile: plan.seccomp,
        landlock_abi,
        network: plan.network.clone(),
        layers: layers(&mounts, plan)?,
    };
    evidence.flaw().map_or(Ok(Proof { evidence, ids, table }), |flaw| Err(refused(STAGE, flaw)))
}

/// Each of the task's namespaces must differ from the caller's but the network's, where the plan says so.
fn judge_namespaces(
    found: Inodes,
    callers: Inodes,
    network: &Network,
) -> Result<Vec<Namespace>, Failure> {
    let judge = |((kind, inode), callers): ((&str, u64), u64)| {
        let (own, shared) = (inode != callers, kind == "net" && *network == Network::Host);
        let why = format!("the {kind} namespace is not what the plan says");
        require(own != shared, STAGE, why)?;
        Ok(Namespace { kind: kind.to_owned(), inode, own })
    };
    NAMESPACES.into_iter().zip(found).zip(callers).map(judge).collect()
}

/// Compares the task's id maps with the ones that were meant.
fn judge_maps(task: Pid, meant: &[String; 2]) -> Result<(), Failure> {
    for (name, meant) in ["uid_map", "gid_map"].into_iter().zip(meant) {
        let path = format!("/proc/{task}/{name}");
        let found = fs::read_to_string(&path).at(STAGE, &path, "reading an id map")?;
        let same = found.split_whitespace().eq(meant.split_whitespace());
        require_at(same, STAGE, &path, "the id map is not the one that was meant")?;
    }
    Ok(())
}

fn records(
    mounts: &[Mount<'_>],
    mounted: &Mounted,
) -> Result<(Vec<MountRecord>, Vec<u32>), Failure> {
    // Thousands of both, where thousands of paths are hidden. Of several at one place the last one listed is on top.
    let on_top: HashMap<Vec<u8>, &Mount<'_>> = mounts.iter().map(|m| (m.point(), m)).collect();
    let record = |point: &AbsPath| {
        let mount = on_top
            .get(point.as_bytes())
            .ok_or_else(|| refused_at(STAGE, point, "this mount is missing"))?;
        Ok((mount.record(point), mount.id))
    };
    mounted.points.iter().map(record).collect()
}

/// Nothing that is writable came along from the host: only mounts of the plan are, and what the host has mounted below a
/// path that the plan shows as the real thing.
fn judge_access(mounts: &[Mount<'_>], mounted: &Mounted, plan: &Plan) -> Result<(), Failure> {
    let ours: HashSet<&[u8]> = mounted.points.iter().map(AbsPath::as_bytes).collect();
    for mount in mounts.iter().filter(|mount| mount.is_writable()) {
        let point = mount.point();
        let real = |target: &AbsPath| AbsPath::new(&*point).is_ok_and(|p| p.is_within(target));
        let real = plan.ops.iter().filter_map(Op::shown_writable).any(real);
        let meant = real || ours.contains(&*point);
        let point = OsStr::from_bytes(&point);
        require_at(meant, STAGE, point, "a mount of the host is writable inside")?;
    }
    Ok(())
}

/// Every layer must be mounted by its back end.
fn layers(mounts: &[Mount<'_>], plan: &Plan) -> Result<Vec<LayerRecord>, Failure> {
    let judge = |layer: &LayerOp| {
        let mount = mountinfo::at(mounts, layer.target.as_bytes());
        // Told as a failure of the layer, for which the controller may have another back end.
        require_at(
            mount.and_then(Mount::backend) == Some(layer.backend),
            Stage::Layer,
            &layer.target,
            "the layer is not mounted as was meant, with its marks in user attributes",
        )?;
        Ok(LayerRecord { id: layer.id.clone(), backend: layer.backend })
    };
    plan.layers().map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use landbox_shared::plan::Access;

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
}
