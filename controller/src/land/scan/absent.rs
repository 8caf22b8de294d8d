//! Whether nothing was at a path where nothing is now.
//!
//! What the session made anew at a path says nothing of what it took the place of: no back end notes that. So where the
//! owner may have deleted it meanwhile, what the session made is an addition only if the real folder proves that no name
//! has left it since, or what has left it was told by the watch; otherwise nobody knows the base, and the owner is asked.

use super::Scan;
use crate::land::kind::EntryType;
use crate::land::tree::{self, Meta, Time};
use landbox_shared::path::RelPath;
use std::io;
use std::os::fd::OwnedFd;

impl Scan<'_> {
    /// Whether the real folder `real`, which is the one the session was started over, shows that nothing was at `name`
    /// when the session put there what the layer's folder `upper` holds. There is nothing now.
    pub(super) fn was_absent(
        &self,
        path: &RelPath,
        name: &[u8],
        upper: &OwnedFd,
        real: Option<&OwnedFd>,
    ) -> io::Result<bool> {
        let Some(real) = real else { return Ok(false) };
        let folder = tree::meta_of(real)?;
        if folder.kind != EntryType::Dir {
            return Ok(false);
        }
        // Making and removing a name sets both times, and no program can set the one back that counts.
        let is_old = |time: Time| self.facts.epoch.is_some_and(|epoch| time < epoch);
        if is_old(folder.ctime) {
            return Ok(true);
        }
        let changed = self.store.changed_by_others(path.parent().as_ref(), folder.ctime);
        if is_old(changed) {
            return Ok(true);
        }
        // The session may have gone on seeing what left the folder before anybody watched it.
        let launch = self.facts.launch;
        if !self.store.is_sure(launch, path.parent().as_ref(), &folder, changed) {
            return Ok(false);
        }
        // A copy had an original. Anything else came to be when the folder was last changed before: then the session
        // made it where nothing was.
        Ok(!self.may_be_copied(path, upper, name)?
            && match tree::meta_at(upper, name)? {
                Some(made) => {
                    self.came(&made).is_some_and(|came| changed < came)
                        && tree::has_kernel_time(real)
                        && tree::has_kernel_time(upper)
                }
                None => false,
            })
    }

    /// A time before which the layer's object was surely not at its path.
    fn came(&self, made: &Meta) -> Option<Time> {
        // Moving it there sets the one time and not the other. Later changes of its mode do, too: that is told apart
        // only by whoever looks at once.
        match self.glance && made.ctime > made.mtime {
            true => Some(made.ctime),
            false => made.btime,
        }
    }
}
