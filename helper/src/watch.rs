//! Watching the task's mounts. A mount over a path of the host falls off when the host replaces that path: a mask would
//! then show what it hid, a layer the real folder.

use crate::failure::{Context, refused};
use crate::mountinfo;
use landbox_shared::event::{Failure, Stage};
use landbox_shared::evidence::MountRecord;
use std::collections::HashSet;
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
    pub(crate) fn new(table: OwnedFd, ids: &[u32], mounts: &[MountRecord]) -> Option<Self> {
        let place = |record: &MountRecord| record.mount_point.as_bytes().into();
        let ours = ids.iter().copied().zip(mounts.iter().map(place)).collect();
        (ids.len() == mounts.len()).then(|| Self { table: table.into(), ours })
    }

    /// The place of a mount that is gone.
    pub(crate) fn lost(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let text = self.read()?;
        let there: HashSet<u32> = parse(&text)?.iter().map(|mount| mount.id).collect();
        let lost = self.ours.iter().find(|(id, _)| !there.contains(id));
        Ok(lost.map(|(_, path)| path.to_vec()))
    }

    fn read(&mut self) -> Result<Vec<u8>, Failure> {
        let mut text = Vec::with_capacity(mountinfo::USUAL);
        self.table
            .rewind()
            .and_then(|()| self.table.read_to_end(&mut text))
            .stage(STAGE, "reading the list of mounts")?;
        Ok(text)
    }
}

fn parse(text: &[u8]) -> Result<Vec<mountinfo::Mount<'_>>, Failure> {
    mountinfo::parse(text).ok_or_else(|| refused(STAGE, "the list of mounts is not readable"))
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}
