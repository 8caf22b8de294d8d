//! With what rights we run, and giving them up.

use crate::failure::{Context, Failure, Stage, refused};
use crate::sys::{fd, process};
use caps::{CapSet, Capability, CapsHashSet};
use landbox_shared::evidence::HelperMode;
use landbox_shared::rights;
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
pub(crate) const EXE: &str = "/proc/self/exe";

/// Finds out with what rights we run, or why we must not. `on_host`: not inside somebody's user namespace.
pub(crate) fn own_mode(on_host: bool) -> Result<HelperMode, Failure> {
    let exe = File::open(EXE).at(STAGE, EXE, "opening this program")?;
    let start = facts(&exe, on_host).at(STAGE, EXE, "reading with what rights this runs")?;
    start.judge().map_err(|why| refused(STAGE, why))
}

/// What is known of this process and its file.
pub(crate) fn facts(exe: &File, on_host: bool) -> std::io::Result<rights::Start> {
    let (uid, gid) = (getresuid()?, getresgid()?);
    let permitted = held(CapSet::Permitted)?;
    Ok(rights::Start {
        uids: [uid.real, uid.effective, uid.saved].map(|id| id.as_raw()),
        gids: [gid.real, gid.effective, gid.saved].map(|id| id.as_raw()),
        set_id_bits: exe.metadata()?.mode() & (libc::S_ISUID | libc::S_ISGID) != 0,
        permitted: permitted.iter().fold(0, |bits, capability| bits | capability.bitmask()),
        stored: fd::file_capabilities(exe.as_fd())?,
        on_host,
        no_new_privs: prctl::get_no_new_privs()?,
        nosuid: fstatvfs(exe)?.flags().contains(FsFlags::ST_NOSUID),
        bounded: caps::has_cap(None, CapSet::Bounding, OURS).map_err(|_| Errno::last())?,
    })
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
