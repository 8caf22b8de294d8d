//! Reading the boundary back: what the kernel says about the task, which is confined but has not been executed.
//! `landbox_shared::readback` judges it.
//!
//! And watching the task's mounts from then on. A mount over a path of the host falls off when the host replaces that
//! path: a mask would then show what it hid, a layer the real folder.

use crate::failure::{Context, Failure, Stage, refused};
use crate::init::Meant;
use crate::mount::Mounted;
use crate::start::namespaces;
use landbox_shared::evidence::{Evidence, MountRecord, NetworkRecord};
use landbox_shared::mountinfo;
use landbox_shared::plan::Plan;
use landbox_shared::readback::{self, Mounts};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;

const STAGE: Stage = Stage::Evidence;
const WATCH: Stage = Stage::Watch;

/// Reads the mounts of process `task`, and gives the open list of them, too: its changes wake whoever polls it.
pub(crate) fn mounts(task: Pid, plan: &Plan, mounted: &Mounted) -> Result<(Mounts, File), Failure> {
    // Opened before it is read, so that a change in between wakes the monitor.
    let path = format!("/proc/{task}/mountinfo");
    let mut table = File::open(&path).at(STAGE, &path, "opening the list of mounts")?;
    let mut text = Vec::with_capacity(mountinfo::USUAL);
    table.read_to_end(&mut text).at(STAGE, &path, "reading the list of mounts")?;
    Ok((readback::mounts(&text, &mounted.points, plan)?, table))
}

/// Reads everything else about process `task`. Gives the evidence, and the numbers of the mounts in it: one that is replaced
/// at its place has another.
pub(crate) fn read(
    task: Pid,
    meant: &Meant,
    mounts: Mounts,
    network_boundary: Option<&NetworkRecord>,
    landlock_abi: u32,
) -> Result<(Evidence, Vec<u32>), Failure> {
    let read = |name: &str| {
        let path = format!("/proc/{task}/{name}");
        fs::read_to_string(&path).at(STAGE, &path, "reading the boundary back")
    };
    let (users, groups) = (read("uid_map")?, read("gid_map")?);
    let found = readback::Found {
        status: &read("status")?,
        maps: [&users, &groups],
        namespaces: namespaces(&task.to_string(), STAGE)?,
    };
    let meant = readback::Meant {
        helper_version: env!("CARGO_PKG_VERSION"),
        mode: meant.caller.mode,
        plan: &meant.plan,
        envelope_digest: meant.envelope_digest,
        maps: &meant.maps,
        callers: meant.caller.namespaces,
        landlock_abi,
        network_boundary,
    };
    readback::judge(&meant, &found, mounts)
}

/// The open list of mounts and those that must stay.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) table: File,
    ours: Vec<(u32, Box<[u8]>)>,
}

impl Watch {
    /// Notes the number and place of every mount in `mounts`.
    pub(crate) fn new(table: OwnedFd, ids: &[u32], mounts: &[MountRecord]) -> Self {
        let places = mounts.iter().map(|record| record.mount_point.as_bytes().into());
        Self { table: table.into(), ours: ids.iter().copied().zip(places).collect() }
    }

    /// The place of a mount that is gone from there.
    pub(crate) fn lost(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let mut text = Vec::with_capacity(mountinfo::USUAL);
        let read = self.table.rewind().and_then(|()| self.table.read_to_end(&mut text));
        read.stage(WATCH, "reading the list of mounts")?;
        mountinfo::lost(&text, &self.ours)
            .ok_or_else(|| refused(WATCH, "the list of mounts is not readable"))
    }
}
