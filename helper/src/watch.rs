//! Watching the task's mounts. A mount over a path of the host falls off when the host replaces that path: a mask would
//! then show what it hid, a layer the real folder.

use crate::failure::{Context, Failure, Stage, refused};
use landbox_shared::evidence::MountRecord;
use landbox_shared::mountinfo;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const STAGE: Stage = Stage::Watch;

/// The open list of mounts and those that must stay.
#[derive(Debug)]
pub(crate) struct Watch {
    table: File,
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
        read.stage(STAGE, "reading the list of mounts")?;
        let lost = mountinfo::lost(&text, &self.ours)
            .ok_or_else(|| refused(STAGE, "the list of mounts is not readable"))?;
        Ok(lost.map(<[u8]>::to_vec))
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}
