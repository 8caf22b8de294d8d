//! Listeners on every address of a network, by TCP and UDP. Each says its name and the destination it was reached at, and
//! counts. On stdin it is asked for the counts.

use super::option;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, recvmsg, sendmsg,
    setsockopt, sockopt,
};
use std::collections::BTreeMap;
use std::io::{self, BufRead, IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// A sysctl-free way to answer from an address that only a route makes local.
const IPV6_FREEBIND: i32 = 78;

/// How often each destination was reached.
#[derive(Clone, Default)]
pub(crate) struct Counts(Arc<Mutex<BTreeMap<String, u64>>>);

impl Counts {
    fn add(&self, name: String) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(name).or_default() += 1;
    }

    fn json(&self) -> io::Result<Vec<u8>> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut line = serde_json::to_vec(&*counts).map_err(io::Error::other)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// Serves until stdin ends.
pub(crate) fn serve(ports: &[u16]) -> io::Result<()> {
    let counts = listen("outer", ports)?;
    let mut out = io::stdout();
    out.write_all(b"listening\n")?;
    out.flush()?;
    for line in io::stdin().lock().lines() {
        if line? == "counts" {
            out.write_all(&counts.json()?)?;
            out.flush()?;
        }
    }
    Ok(())
}

/// Starts listeners that call themselves `name`.
pub(crate) fn listen(name: &'static str, ports: &[u16]) -> io::Result<Counts> {
    let counts = Counts::default();
    for port in ports.iter().copied() {
        let streams = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?;
        let own = counts.clone();
        thread::spawn(move || accept(&streams, name, &own));
        let v4 = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
        setsockopt(&v4, sockopt::Ipv4PacketInfo, &true)?;
        let own = counts.clone();
        thread::spawn(move || answer_v4(&v4, name, port, &own));
        let v6 = v6_only(port)?;
        setsockopt(&v6, sockopt::Ipv6RecvPacketInfo, &true)?;
        option(&v6, libc::SOL_IPV6, IPV6_FREEBIND, &1i32.to_ne_bytes())
            .map_err(io::Error::from_raw_os_error)?;
        let own = counts.clone();
        thread::spawn(move || answer_v6(&v6, name, port, &own));
    }
    Ok(counts)
}

/// The standard library binds to both families, and IPv4's socket has the port already.
fn v6_only(port: u16) -> io::Result<UdpSocket> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
    let flags = SocketFlags::CLOEXEC;
    let fd = socket_with(AddressFamily::INET6, SocketType::DGRAM, flags, None)?;
    sockopt::set_ipv6_v6only(&fd, true)?;
    bind(&fd, &std::net::SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
    Ok(fd.into())
}

fn accept(streams: &TcpListener, name: &'static str, counts: &Counts) {
    for stream in streams.incoming().flatten() {
        // An error here is a connection that was reset meanwhile: it was reached all the same, but not where.
        let Ok(at) = stream.local_addr() else { continue };
        let (address, port) = (at.ip().to_canonical(), at.port());
        counts.add(format!("tcp {address} {port}"));
        thread::spawn(move || keep(stream, format!("{name} {address} {port}\n")));
    }
}

/// Says where it was reached, then holds the connection until the other side ends it.
fn keep(mut stream: TcpStream, said: String) {
    if stream.write_all(said.as_bytes()).is_ok() {
        let mut buffer = [0; 4096];
        while matches!(stream.read(&mut buffer), Ok(1..)) {}
    }
}

fn said(question: &[u8], name: &str, address: IpAddr, port: u16) -> Vec<u8> {
    [question, format!("{name} {address} {port}").as_bytes()].concat()
}

fn answer_v4(socket: &UdpSocket, name: &str, port: u16, counts: &Counts) {
    let mut buffer = [0; 2048];
    let mut space = nix::cmsg_space!(libc::in_pktinfo);
    loop {
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let flags = MsgFlags::empty();
        let Ok(message) =
            recvmsg::<SockaddrIn>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)
        else {
            continue;
        };
        let info = message.cmsgs().ok().into_iter().flatten().find_map(|one| {
            if let ControlMessageOwned::Ipv4PacketInfo(info) = one { Some(info) } else { None }
        });
        let (Some(mut info), Some(from), count) = (info, message.address, message.bytes) else {
            continue;
        };
        let address = IpAddr::from(info.ipi_addr.s_addr.to_ne_bytes());
        counts.add(format!("udp {address} {port}"));
        info.ipi_spec_dst = info.ipi_addr;
        info.ipi_ifindex = 0;
        let text = said(&buffer[..count], name, address, port);
        let control = [ControlMessage::Ipv4PacketInfo(&info)];
        let _ = sendmsg(socket.as_raw_fd(), &[IoSlice::new(&text)], &control, flags, Some(&from));
    }
}

fn answer_v6(socket: &UdpSocket, name: &str, port: u16, counts: &Counts) {
    let mut buffer = [0; 2048];
    let mut space = nix::cmsg_space!(libc::in6_pktinfo);
    loop {
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let flags = MsgFlags::empty();
        let Ok(message) =
            recvmsg::<SockaddrIn6>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)
        else {
            continue;
        };
        let info = message.cmsgs().ok().into_iter().flatten().find_map(|one| {
            if let ControlMessageOwned::Ipv6PacketInfo(info) = one { Some(info) } else { None }
        });
        let (Some(mut info), Some(from), count) = (info, message.address, message.bytes) else {
            continue;
        };
        let address = IpAddr::from(info.ipi6_addr.s6_addr);
        counts.add(format!("udp {address} {port}"));
        info.ipi6_ifindex = 0;
        let text = said(&buffer[..count], name, address, port);
        let control = [ControlMessage::Ipv6PacketInfo(&info)];
        let _ = sendmsg(socket.as_raw_fd(), &[IoSlice::new(&text)], &control, flags, Some(&from));
    }
}
