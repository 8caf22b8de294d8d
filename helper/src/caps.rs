//! With what rights we run, and giving them up.
//!
//! A helper with a file capability that got none looks exactly like an uncapped copy, so the file is compared with
//! what the process has; every way in which they can differ has its own message.

use crate::failure::{Context, refused, refused_at};
use crate::start::is_initial;
use crate::sys::{fd, rights};
use landbox_shared::event::{Failure, Stage};
use landbox_shared::evidence::{CapSets, HelperMode};
use nix::sys::prctl;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{getresgid, getresuid};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

const SYS_ADMIN: u32 = 21;
/// The one file capability the package sets.
const EXPECTED: u64 = 1 << SYS_ADMIN;
const EXE: &str = "/proc/self/exe";

/// Finds out with what rights we run, or why we must not.
pub(crate) fn own_mode() -> Result<HelperMode, Failure> {
    const STAGE: Stage = Stage::Start;
    let (uid, gid) = (getresuid(), getresgid());
    let uid = uid.stage(STAGE, "reading the user ids")?;
    let gid = gid.stage(STAGE, "reading the group ids")?;
    let exe = File::open(EXE).at(STAGE, EXE.as_bytes(), "opening this program")?;
    let mode = exe.metadata().at(STAGE, EXE.as_bytes(), "reading this program's mode")?.mode();
    let one_id = uid.real == uid.effective
        && uid.effective == uid.saved
        && gid.real == gid.effective
        && gid.effective == gid.saved;
    if mode & (libc::S_ISUID | libc::S_ISGID) != 0 || !one_id {
        return Err(refused(
            STAGE,
            "landbox-helper was started set-user-id or set-group-id; remove those mode bits (chmod ug-s)",
        ));
    }
    if uid.effective.is_root() {
        return Ok(HelperMode::Root);
    }
    let held = rights::get().stage(STAGE, "reading the capability sets")?;
    match fd::file_capabilities(exe.as_fd()).stage(STAGE, "reading the file capabilities")? {
        None if held.permitted == 0 => Ok(HelperMode::Unprivileged),
        None => Err(refused(
            STAGE,
            format!(
                "landbox-helper was started with capabilities that its file does not give it \
                 ({:#x}); start it without ambient capabilities",
                held.permitted
            ),
        )),
        Some(stored) => capable(&stored, &held, &exe),
    }
}

/// The case of a file with capabilities, started by somebody who is not root.
fn capable(stored: &[u8], held: &CapSets, exe: &File) -> Result<HelperMode, Failure> {
    const STAGE: Stage = Stage::Start;
    let file = FileCaps::parse(stored).ok_or_else(|| {
        refused_at(STAGE, EXE.as_bytes(), "the file capabilities are not readable")
    })?;
    if file != (FileCaps { permitted: EXPECTED, inheritable: 0, effective: false, root: 0 }) {
        return Err(refused(
            STAGE,
            "landbox-helper's file must carry cap_sys_admin=p of the host and nothing else; \
             set it again (setcap cap_sys_admin=p) or remove it (setcap -r)",
        ));
    }
    let map = fs::read_to_string("/proc/self/uid_map").stage(STAGE, "reading the user map")?;
    if !is_initial(&map) {
        return Err(refused(
            STAGE,
            "landbox-helper has file capabilities but runs inside a user namespace, where they count for \
             nothing; start landbox outside it, or use a copy without capabilities",
        ));
    }
    if held.permitted == EXPECTED {
        return Ok(HelperMode::Capable);
    }
    let why = if prctl::get_no_new_privs().stage(STAGE, "reading no_new_privs")? {
        "this process tree has no_new_privs set; start landbox outside the other sandbox"
    } else if fstatvfs(exe)
        .stage(STAGE, "reading the mount flags")?
        .flags()
        .contains(FsFlags::ST_NOSUID)
    {
        "its file system is mounted nosuid; install it elsewhere"
    } else if !rights::bounding_has(SYS_ADMIN).stage(STAGE, "reading the bounding set")? {
        "cap_sys_admin is not in the bounding set; start landbox outside the service or container that removed it"
    } else {
        "the kernel refused them (is it being traced?)"
    };
    Err(refused(
        STAGE,
        format!(
            "landbox-helper got other capabilities ({:#x}) than its file gives it: {why}",
            held.permitted
        ),
    ))
}

/// `struct vfs_cap_data`, revisions 2 and 3.
#[derive(Debug, PartialEq, Eq)]
struct FileCaps {
    permitted: u64,
    inheritable: u64,
    effective: bool,
    /// The user id that is root in the namespace they are meant for.
    root: u32,
}

impl FileCaps {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes.chunks_exact(4).map(|w| w.try_into().map(u32::from_le_bytes));
        let mut next = || words.next()?.ok();
        let magic = next()?;
        let (low_permitted, low_inheritable) = (next()?, next()?);
        let (high_permitted, high_inheritable) = (next()?, next()?);
        let root = match (magic & 0xff00_0000, bytes.len()) {
            (0x0200_0000, 20) => 0,
            (0x0300_0000, 24) => next()?,
            _ => return None,
        };
        Some(Self {
            permitted: u64::from(high_permitted) << 32 | u64::from(low_permitted),
            inheritable: u64::from(high_inheritable) << 32 | u64::from(low_inheritable),
            effective: magic & 1 != 0,
            root,
        })
    }
}

/// Runs `work` with the one file capability raised, where we have it.
pub(crate) fn raised<T>(mode: HelperMode, work: impl FnOnce() -> nix::Result<T>) -> nix::Result<T> {
    match mode {
        HelperMode::Unprivileged | HelperMode::Root => work(),
        HelperMode::Capable => {
            rights::set(EXPECTED, EXPECTED)?;
            // A program with file capabilities starts non-dumpable, and the child's id maps could not be written.
            prctl::set_dumpable(true)?;
            let result = work();
            // In the child too: there it gives up what the new namespace gave, which the child takes again itself.
            if rights::get()?.permitted == EXPECTED {
                rights::set(0, EXPECTED)?;
            }
            result
        }
    }
}

/// Gives the one file capability up for good.
pub(crate) fn give_up(mode: HelperMode) -> nix::Result<()> {
    match mode {
        HelperMode::Unprivileged | HelperMode::Root => Ok(()),
        HelperMode::Capable => rights::set(0, 0),
    }
}

/// Empties every capability set of this thread and locks the ways back. `no_new_privs` closes the last one.
pub(crate) fn drop_all() -> nix::Result<()> {
    // NOROOT: executing a file as uid 0 gives nothing. NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE: neither does changing
    // ids or asking. KEEP_CAPS stays off. The odd bits lock each.
    const BITS: u32 = 0b1110_1111;
    if rights::get()?.effective != 0 {
        rights::empty_bounding_and_ambient()?;
        rights::set_secure_bits(BITS)?;
    }
    rights::set(0, 0)?;
    prctl::set_no_new_privs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn stored_capabilities_are_read_in_both_revisions() {
        let two = FileCaps::parse(&words(&[0x0200_0000, 1 << 21, 0, 0, 0])).unwrap();
        assert_eq!(
            two,
            FileCaps { permitted: EXPECTED, inheritable: 0, effective: false, root: 0 }
        );
        let three = FileCaps::parse(&words(&[0x0300_0001, 1 << 21, 2, 1, 0, 1000])).unwrap();
        assert_eq!((three.root, three.effective, three.inheritable), (1000, true, 2));
        assert_eq!(three.permitted, 1 << 32 | 1 << 21);
    }

    #[test]
    fn anything_else_is_not_read() {
        for bad in [
            words(&[]),
            words(&[0x0200_0000, 1, 0, 0, 0, 0]),
            words(&[0x0300_0000, 1, 0, 0, 0]),
            words(&[0x0100_0000, 1, 0]),
            vec![0; 19],
        ] {
            assert_eq!(FileCaps::parse(&bad), None, "{bad:?}");
        }
    }
}
