//! With what rights we run, and giving them up.
//!
//! A helper with a file capability that got none looks exactly like an uncapped copy, so the file is compared with
//! what the process has; every way in which they can differ has its own message.

use crate::failure::{Context, refused};
use crate::sys::{fd, process};
use caps::{CapSet, Capability, CapsHashSet};
use landbox_shared::event::{Failure, Stage};
use landbox_shared::evidence::HelperMode;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{getresgid, getresuid};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

const STAGE: Stage = Stage::Start;
/// The one file capability the package sets.
const OURS: Capability = Capability::CAP_SYS_ADMIN;
const EXE: &str = "/proc/self/exe";

/// Finds out with what rights we run, or why we must not. `on_host`: not inside somebody's user namespace.
pub(crate) fn own_mode(on_host: bool) -> Result<HelperMode, Failure> {
    let uid = getresuid().stage(STAGE, "reading the user ids")?;
    let gid = getresgid().stage(STAGE, "reading the group ids")?;
    let exe = File::open(EXE).at(STAGE, EXE, "opening this program")?;
    let mode = exe.metadata().at(STAGE, EXE, "reading this program's mode")?.mode();
    let one_user = uid.real == uid.effective && uid.effective == uid.saved;
    let one_group = gid.real == gid.effective && gid.effective == gid.saved;
    let refuse = |why: &str| Err(refused(STAGE, why));
    if mode & (libc::S_ISUID | libc::S_ISGID) != 0 || !one_user || !one_group {
        return refuse(
            "was started set-user-id or set-group-id; remove those mode bits (chmod ug-s)",
        );
    }
    if uid.effective.is_root() {
        return Ok(HelperMode::Root);
    }
    let held = held(CapSet::Permitted).stage(STAGE, "reading the capability sets")?;
    let bits = held.iter().fold(0, |bits, capability| bits | capability.bitmask());
    match fd::file_capabilities(exe.as_fd()).stage(STAGE, "reading the file capabilities")? {
        None if held.is_empty() => Ok(HelperMode::Unprivileged),
        None => refuse(&format!(
            "landbox-helper was started with capabilities that its file does not give it ({bits:#x}); start it without \
             ambient capabilities"
        )),
        Some(stored) if !is_ours(&stored) => refuse(
            "landbox-helper's file must carry cap_sys_admin=p of the host and nothing else; set it again (setcap \
             cap_sys_admin=p) or remove it (setcap -r)",
        ),
        Some(_) if !on_host => refuse(
            "landbox-helper has file capabilities but runs inside a user namespace, where they count for nothing; start \
             landbox outside it, or use a copy without capabilities",
        ),
        Some(_) if held == CapsHashSet::from([OURS]) => Ok(HelperMode::Capable),
        Some(_) => {
            let why = why_not(&exe).stage(STAGE, "reading what restricts this process")?;
            let what = "landbox-helper got other capabilities";
            refuse(&format!("{what} ({bits:#x}) than its file gives it: {why}"))
        }
    }
}

/// Why a file capability was not given.
fn why_not(exe: &File) -> nix::Result<&'static str> {
    Ok(if prctl::get_no_new_privs()? {
        "this process tree has no_new_privs set; start landbox outside the other sandbox"
    } else if fstatvfs(exe)?.flags().contains(FsFlags::ST_NOSUID) {
        "its file system is mounted nosuid; install it elsewhere"
    } else if !caps::has_cap(None, CapSet::Bounding, OURS).map_err(|_| Errno::last())? {
        "cap_sys_admin is not in the bounding set; start landbox outside the service or container that removed it"
    } else {
        "the kernel refused them (is it being traced?)"
    })
}

/// Whether a file's `struct vfs_cap_data` says `cap_sys_admin=p`, not effective, nothing inheritable, and for the host:
/// revision 2, or revision 3 with user id 0.
fn is_ours(stored: &[u8]) -> bool {
    let words: Vec<u32> =
        stored.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let permitted = 1 << OURS.index();
    stored.len().is_multiple_of(4)
        && (words == [0x0200_0000, permitted, 0, 0, 0]
            || words == [0x0300_0000, permitted, 0, 0, 0, 0])
}

fn held(set: CapSet) -> nix::Result<CapsHashSet> {
    caps::read(None, set).map_err(|_| Errno::last())
}

fn clear(set: CapSet) -> nix::Result<()> {
    caps::clear(None, set).map_err(|_| Errno::last())
}

/// Runs `work` with the one file capability raised, where we have it.
pub(crate) fn raised<T>(mode: HelperMode, work: impl FnOnce() -> nix::Result<T>) -> nix::Result<T> {
    match mode {
        HelperMode::Unprivileged | HelperMode::Root => work(),
        HelperMode::Capable => {
            caps::raise(None, CapSet::Effective, OURS).map_err(|_| Errno::last())?;
            // A program with file capabilities starts non-dumpable, and the child's id maps could not be written.
            prctl::set_dumpable(true)?;
            let result = work();
            // Not in the child, which has all of them over its new namespace.
            if held(CapSet::Permitted)? == CapsHashSet::from([OURS]) {
                clear(CapSet::Effective)?;
            }
            result
        }
    }
}

/// Gives the one file capability up for good.
pub(crate) fn give_up(mode: HelperMode) -> nix::Result<()> {
    match mode {
        HelperMode::Unprivileged | HelperMode::Root => Ok(()),
        HelperMode::Capable => clear(CapSet::Permitted),
    }
}

/// Empties every capability set of this thread and locks the ways back. `no_new_privs` closes the last one.
pub(crate) fn drop_all() -> nix::Result<()> {
    // NOROOT: executing a file as uid 0 gives nothing. NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE: neither does changing
    // ids or asking. KEEP_CAPS stays off. The odd bits lock each.
    const BITS: u64 = 0b1110_1111;
    if !held(CapSet::Effective)?.is_empty() {
        // By number: the kernel may know more than the crate. EINVAL is its answer to the first it doesn't know.
        let mut numbers = 0..64;
        let dropped = numbers.try_for_each(|n| process::prctl(libc::PR_CAPBSET_DROP, n));
        dropped.or_else(|errno| if errno == Errno::EINVAL { Ok(()) } else { Err(errno) })?;
        clear(CapSet::Ambient)?;
        process::prctl(libc::PR_SET_SECUREBITS, BITS)?;
    }
    clear(CapSet::Inheritable)?;
    // And with it the effective set.
    clear(CapSet::Permitted)?;
    prctl::set_no_new_privs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn the_packages_file_capability_is_known_in_both_revisions() {
        assert!(is_ours(&stored(&[0x0200_0000, 1 << 21, 0, 0, 0])));
        assert!(is_ours(&stored(&[0x0300_0000, 1 << 21, 0, 0, 0, 0])));
    }

    #[test]
    fn any_other_file_capability_is_not_ours() {
        for other in [
            stored(&[]),
            // Effective, more permitted, inheritable, in the upper half, none.
            stored(&[0x0200_0001, 1 << 21, 0, 0, 0]),
            stored(&[0x0200_0000, 1 << 21 | 1, 0, 0, 0]),
            stored(&[0x0200_0000, 1 << 21, 1, 0, 0]),
            stored(&[0x0200_0000, 1 << 21, 0, 1, 0]),
            stored(&[0x0200_0000, 1 << 21, 0, 0, 1]),
            stored(&[0x0200_0000, 0, 0, 0, 0]),
            // For the root of a namespace; of a wrong length or revision.
            stored(&[0x0300_0000, 1 << 21, 0, 0, 0, 1000]),
            stored(&[0x0200_0000, 1 << 21, 0, 0, 0, 0]),
            stored(&[0x0300_0000, 1 << 21, 0, 0, 0]),
            stored(&[0x0100_0000, 1 << 21, 0]),
            [stored(&[0x0200_0000, 1 << 21, 0, 0, 0]), vec![0]].concat(),
        ] {
            assert!(!is_ours(&other), "{other:?}");
        }
    }
}
