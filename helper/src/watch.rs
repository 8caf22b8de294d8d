//! Watching the task's mounts. A mount over a path of the host falls off when the host replaces that path: a mask would
//! then show what it hid, a layer the real folder.

use crate::failure::{Context, refused, refused_at};
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
    /// Notes the number of every mount in `mounts`: one that is replaced at its place has another.
    pub(crate) fn new(table: OwnedFd, mounts: &[MountRecord]) -> Result<Self, Failure> {
        let mut this = Self { table: table.into(), ours: Vec::new() };
        let text = this.read()?;
        let listed = parse(&text)?;
        this.ours = mounts
            .iter()
            .map(|record| {
                let point = record.mount_point.as_bytes();
                let mount = mountinfo::at(&listed, point)
                    .ok_or_else(|| refused_at(STAGE, point, "this mount is missing"))?;
                Ok((mount.id, point.into()))
            })
            .collect::<Result<_, Failure>>()?;
        Ok(this)
    }

    /// The place of a mount that is gone.
    pub(crate) fn lost(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let text = self.read()?;
        let there: HashSet<u32> = parse(&text)?.iter().map(|mount| mount.id).collect();
        let lost = self.ours.iter().find(|(id, _)| !there.contains(id));
        Ok(lost.map(|(_, path)| path.to_vec()))
    }

    fn read(&mut self) -> Result<Vec<u8>, Failure> {
        let mut text = Vec::new();
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
