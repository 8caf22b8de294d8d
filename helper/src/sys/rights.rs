//! Capability sets and secure bits of the calling thread.

use landbox_shared::evidence::CapSets;
use nix::errno::Errno;

const VERSION_3: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn joined(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The calling thread's effective, permitted and inheritable sets; the other two are left empty.
pub(crate) fn get() -> nix::Result<CapSets> {
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut data = [Data::default(); 2];
    // SAFETY: version 3 writes two records of three words, which is what `data` is.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    Errno::result(result)?;
    let [low, high] = data;
    Ok(CapSets {
        effective: joined(low.effective, high.effective),
        permitted: joined(low.permitted, high.permitted),
        inheritable: joined(low.inheritable, high.inheritable),
        bounding: 0,
        ambient: 0,
    })
}

/// Sets the calling thread's effective and permitted sets, and empties the inheritable one.
pub(crate) fn set(effective: u64, permitted: u64) -> nix::Result<()> {
    let mut header = Header { version: VERSION_3, pid: 0 };
    let half = |shift: u32| Data {
        effective: u32::try_from(effective >> shift & 0xffff_ffff).unwrap_or(0),
        permitted: u32::try_from(permitted >> shift & 0xffff_ffff).unwrap_or(0),
        inheritable: 0,
    };
    let data = [half(0), half(32)];
    // SAFETY: version 3 reads two records of three words, which is what `data` is.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) };
    Errno::result(result).map(drop)
}

/// Removes every capability the kernel knows from the bounding set, and empties the ambient set.
pub(crate) fn empty_bounding_and_ambient() -> nix::Result<()> {
    // The kernel answers EINVAL for the first number it does not know: newer capabilities go too.
    for capability in 0..64u64 {
        match prctl(libc::PR_CAPBSET_DROP, capability, 0) {
            Ok(_) => {}
            Err(Errno::EINVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    let clear_all = u64::from(libc::PR_CAP_AMBIENT_CLEAR_ALL.unsigned_abs());
    prctl(libc::PR_CAP_AMBIENT, clear_all, 0).map(drop)
}

/// Whether `capability` is in the bounding set.
pub(crate) fn bounding_has(capability: u32) -> nix::Result<bool> {
    prctl(libc::PR_CAPBSET_READ, u64::from(capability), 0).map(|value| value == 1)
}

/// Sets the secure bits.
pub(crate) fn set_secure_bits(bits: u32) -> nix::Result<()> {
    prctl(libc::PR_SET_SECUREBITS, u64::from(bits), 0).map(drop)
}

fn prctl(option: i32, a: u64, b: u64) -> nix::Result<i32> {
    // SAFETY: none of the options used in this file takes a pointer; the unused arguments are 0 as they must be.
    let result = unsafe { libc::prctl(option, a, b, 0u64, 0u64) };
    Errno::result(result)
}
