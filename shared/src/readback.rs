//! Judging what the kernel says about a task that is confined but has not been executed, and making evidence of it. A
//! boundary that isn't whole ends the session before it starts.

use crate::digest::Digest;
use crate::evidence::{
    Evidence, HelperMode, LayerRecord, MountRecord, NAMESPACES, Namespace, NetworkRecord,
};
use crate::failure::{Failure, Stage, refused, refused_at, require, require_at};
use crate::idmap::{IdMaps, Worlds};
use crate::mountinfo::{self, Mount};
use crate::path::AbsPath;
use crate::plan::{LayerOp, Op, Plan};
use crate::policy::Network;
use crate::procfs;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

const STAGE: Stage = Stage::Evidence;

/// Inode numbers of namespaces, in the order of [`NAMESPACES`].
pub type Inodes = [u64; NAMESPACES.len()];

/// What was to be made true.
#[derive(Clone, Copy, Debug)]
pub struct Meant<'a> {
    /// Version of the helper.
    pub helper_version: &'a str,
    /// With what rights it runs.
    pub mode: HelperMode,
    /// The plan that was carried out.
    pub plan: &'a Plan,
    /// Digest of its envelope.
    pub envelope_digest: Digest,
    /// The id maps that were written.
    pub maps: &'a IdMaps,
    /// The caller's namespaces.
    pub callers: Inodes,
    /// The Landlock ABI whose scopes the task entered.
    pub landlock_abi: u32,
    /// What holds the network to its policy, as it was read back.
    pub network_boundary: Option<&'a NetworkRecord>,
}

/// What the kernel lists of the task.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// `status`.
    pub status: &'a str,
    /// `uid_map` and `gid_map`.
    pub maps: [&'a str; 2],
    /// Its namespaces.
    pub namespaces: Inodes,
}

/// What evidence says of the task's mounts.
#[derive(Debug)]
pub struct Mounts {
    records: Vec<MountRecord>,
    ids: Vec<u32>,
    digest: Digest,
    count: u32,
    private: bool,
    layers: Vec<LayerRecord>,
}

/// Judges `mountinfo` of the task, in which `points` are the places of the mounts that must stay.
pub fn mounts(mountinfo: &[u8], points: &[AbsPath], plan: &Plan) -> Result<Mounts, Failure> {
    let mounts = mountinfo::parse(mountinfo)
        .ok_or_else(|| refused(STAGE, "the list of mounts is not readable"))?;
    judge_access(&mounts, points, plan)?;
    let (records, ids) = records(&mounts, points)?;
    Ok(Mounts {
        records,
        ids,
        digest: mountinfo::digest(&mounts),
        count: u32::try_from(mounts.len()).unwrap_or(u32::MAX),
        private: !mounts.iter().any(|mount| mount.propagates),
        layers: layers(&mounts, plan)?,
    })
}

/// The evidence, and the numbers of the mounts in it: one that is replaced at its place has another.
pub fn judge(
    meant: &Meant<'_>,
    found: &Found<'_>,
    mounts: Mounts,
) -> Result<(Evidence, Vec<u32>), Failure> {
    let Meant { plan, maps, .. } = *meant;
    let status = procfs::status(found.status)
        .ok_or_else(|| refused(STAGE, "the task's status is not readable"))?;
    let fits = maps.task.iter().zip(found.maps).all(|(meant, found)| IdMaps::fits(meant, found));
    require(fits, STAGE, "the task's id maps are not the ones that were meant")?;
    let evidence = Evidence {
        helper_version: meant.helper_version.to_owned(),
        mode: meant.mode,
        policy_digest: plan.policy_digest,
        envelope_digest: meant.envelope_digest,
        namespaces: judge_namespaces(found.namespaces, meant.callers, &plan.network)?,
        owner_map: maps.owner,
        second_user_namespace: maps.worlds == Worlds::Two,
        mounts: mounts.records,
        mount_table_digest: mounts.digest,
        mount_count: mounts.count,
        propagation_private: mounts.private,
        caps: status.caps,
        no_new_privs: status.no_new_privs,
        seccomp_mode: status.seccomp_mode,
        seccomp_filters: status.seccomp_filters,
        seccomp_profile: plan.seccomp,
        landlock_abi: meant.landlock_abi,
        network: plan.network.kind(),
        network_boundary: meant.network_boundary.cloned(),
        layers: mounts.layers,
    };
    evidence.flaw().map_or(Ok((evidence, mounts.ids)), |flaw| Err(refused(STAGE, flaw)))
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

fn records(
    mounts: &[Mount<'_>],
    points: &[AbsPath],
) -> Result<(Vec<MountRecord>, Vec<u32>), Failure> {
    // Thousands of both, where thousands of paths are hidden. Of several at one place the last one listed is on top.
    let on_top: HashMap<Vec<u8>, &Mount<'_>> = mounts.iter().map(|m| (m.point(), m)).collect();
    let record = |point: &AbsPath| {
        let mount = on_top
            .get(point.as_bytes())
            .ok_or_else(|| refused_at(STAGE, point, "this mount is missing"))?;
        Ok((mount.record(point), mount.id))
    };
    points.iter().map(record).collect()
}

/// Nothing that is writable came along from the host: only mounts of the plan are, and what the host has mounted below a
/// path that the plan shows as the real thing.
fn judge_access(mounts: &[Mount<'_>], points: &[AbsPath], plan: &Plan) -> Result<(), Failure> {
    let ours: HashSet<&[u8]> = points.iter().map(AbsPath::as_bytes).collect();
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
    use crate::evidence::OwnerMap;
    use crate::fixtures::{self, abs};
    use crate::plan::Access;

    fn plan() -> Plan {
        let (source, target) = (abs("/auth"), abs("/auth"));
        fixtures::plan(vec![Op::Bind { source, target, access: Access::ReadWrite }])
    }

    const TABLE: &str =
        "1 0 0:1 / / ro,nosuid - ext4 a b\n2 1 0:2 / /p rw - overlay a rw,userxattr\n";
    const STATUS: &str = "CapInh:\t0\nCapPrm:\t0\nCapEff:\t0\nCapBnd:\t0\nCapAmb:\t0\nNoNewPrivs:\t1\n\
        Seccomp:\t2\nSeccomp_filters:\t2\n";

    /// The judgement of a whole boundary, changed by `change`.
    fn judged(change: impl FnOnce(&mut Found<'_>, &mut Plan)) -> Result<Evidence, Failure> {
        judged_with(TABLE, change)
    }

    fn judged_with(
        table: &str,
        change: impl FnOnce(&mut Found<'_>, &mut Plan),
    ) -> Result<Evidence, Failure> {
        let (mut plan, ids) = (plan(), [1000, 1000]);
        let own = [String::new(), String::new()];
        let maps = IdMaps::new(HelperMode::Unprivileged, ids, &own, Worlds::Two).unwrap();
        let (points, mut namespaces) = ([abs("/"), abs("/p")], [2; 6]);
        namespaces[5] = 1;
        let id_maps = ["      1000          0          1\n"; 2];
        let mut found = Found { status: STATUS, maps: id_maps, namespaces };
        change(&mut found, &mut plan);
        let meant = Meant {
            helper_version: "0",
            mode: HelperMode::Unprivileged,
            plan: &plan,
            envelope_digest: Digest([2; 32]),
            maps: &maps,
            callers: [1; 6],
            landlock_abi: 6,
            network_boundary: None,
        };
        judge(&meant, &found, mounts(table.as_bytes(), &points, &plan)?).map(|(evidence, ids)| {
            assert_eq!(ids, [1, 2]);
            evidence
        })
    }

    #[test]
    fn a_whole_boundary_becomes_evidence() {
        let evidence = judged(|_, _| {}).unwrap();
        assert_eq!((evidence.mount_count, evidence.owner_map), (2, OwnerMap::Single));
        assert!(evidence.second_user_namespace && evidence.propagation_private);
        assert!(evidence.namespaces.iter().all(|space| space.own == (space.kind != "net")));
    }

    #[test]
    fn a_boundary_that_is_not_whole_is_refused() {
        let broken = |change: fn(&mut Found<'_>, &mut Plan)| judged(change).unwrap_err().detail;
        assert!(broken(|found, _| found.maps[1] = "0 0 1\n").contains("id maps"));
        assert!(broken(|found, _| found.namespaces[2] = 1).contains("pid namespace"));
        assert!(broken(|found, _| found.namespaces[5] = 2).contains("net namespace"));
        assert!(broken(|_, plan| plan.network = Network::None).contains("net namespace"));
        assert!(broken(|found, _| found.status = "Seccomp:\t2\n").contains("status"));
        let listed = |table: &str| judged_with(table, |_, _| {}).unwrap_err();
        assert!(listed("x").detail.contains("list of mounts"));
        assert!(listed(&TABLE[..33]).detail.contains("missing"));
        assert!(listed(&TABLE.replace("nosuid", "nosuid shared:1")).detail.contains("appear"));
        assert_eq!(listed(&TABLE.replace("userxattr", "")).stage, Stage::Layer);
    }

    #[test]
    fn a_writable_mount_that_is_none_of_the_plans_is_refused() {
        let judge = |line: &str| {
            let table = format!("1 0 0:1 / / ro - ext4 a b\n2 1 0:2 / {line} - tmpfs a b\n");
            let mounts = mountinfo::parse(table.as_bytes()).unwrap();
            judge_access(&mounts, &[abs("/"), abs("/tmp")], &plan())
        };
        for good in ["/tmp rw", "/etc ro,nosuid", "/auth/sub rw", "/auth rw"] {
            assert!(judge(good).is_ok(), "{good}");
        }
        for bad in ["/etc rw", "/tmp/x rw,nosuid", "/authority rw"] {
            assert!(judge(bad).is_err(), "{bad}");
        }
    }
}
