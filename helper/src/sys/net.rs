//! The loopback interface of a new network namespace.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::os::fd::AsRawFd;

/// Sets the interface `lo` of the calling thread's network namespace up.
pub(crate) fn loopback_up() -> nix::Result<()> {
    let any = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut name = [0; libc::IFNAMSIZ];
    for (to, from) in name.iter_mut().zip(b"lo") {
        *to = libc::c_char::try_from(*from).map_err(|_| Errno::EINVAL)?;
    }
    let flags = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).map_err(|_| Errno::EINVAL)?;
    let request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags },
    };
    // SAFETY: SIOCSIFFLAGS reads a `struct ifreq`, which lives until the call has returned.
    let result = unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    Errno::result(result).map(drop)
}
