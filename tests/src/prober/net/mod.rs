//! The network, from inside (`net`, `flood`) and from outside (`serve`).

mod flood;
mod meddle;
mod poorer;
mod serve;
mod tries;

pub(crate) use flood::flood;
pub(crate) use meddle::{meddle, meddled_with};
pub(crate) use poorer::without;
pub(crate) use serve::serve;
pub(crate) use tries::{PATIENCE, tries};

use landbox_tests::net::Flow;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::path::Path;

/// The name of the link inside a session.
const LINK: &str = "tap0";

/// Flows of a file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<Flow>> {
    serde_json::from_slice(&std::fs::read(path)?).map_err(io::Error::other)
}

/// The address as the socket of this flow takes it.
fn target(flow: &Flow) -> SocketAddr {
    match flow.address {
        IpAddr::V4(address) if flow.mapped => {
            SocketAddrV6::new(address.to_ipv6_mapped(), flow.port, 0, 0).into()
        }
        IpAddr::V4(address) => SocketAddrV4::new(address, flow.port).into(),
        IpAddr::V6(address) => SocketAddrV6::new(address, flow.port, 0, 0).into(),
    }
}

/// A socket for this flow, bound to the link where it says so.
fn socket(flow: &Flow, kind: i32) -> Result<OwnedFd, i32> {
    let family = if target(flow).is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let fd = crate::sys::call(
        libc::SYS_socket,
        vec![crate::sys::n(family), crate::sys::n(kind | libc::SOCK_CLOEXEC), crate::sys::n(0)],
    )?;
    let fd = crate::sys::owned(i32::try_from(fd).map_err(|_| libc::EBADF)?);
    if flow.bound {
        option(&fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, LINK.as_bytes())?;
    }
    Ok(fd)
}

/// Sets an option of a socket.
fn option(fd: &impl std::os::fd::AsRawFd, level: i32, name: i32, value: &[u8]) -> Result<i64, i32> {
    use crate::sys::{Arg, call, n};
    let mut value = value.to_vec();
    let length = i64::try_from(value.len()).map_err(|_| libc::EINVAL)?;
    let args = vec![n(fd.as_raw_fd()), n(level), n(name), Arg::M(&mut value), n(length)];
    call(libc::SYS_setsockopt, args)
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EPROTO)
}
