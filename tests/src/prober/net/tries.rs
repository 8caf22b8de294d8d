//! Trying destinations, one after the other. Before that the session's own loopback gets listeners on the same ports, so
//! that what stays inside is answered too, by another name.

use super::{errno, option, socket, target};
use landbox_tests::net::{Answer, Flow, Transport};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// What is refused is refused at once, so only something that is lost takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// A datagram that got no answer is sent again after this time: a full queue may have dropped it.
const AGAIN: Duration = Duration::from_millis(500);

/// Tries them all, in order, each for so long.
pub(crate) fn tries(flows: &[Flow], patience: Duration) -> io::Result<Vec<Answer>> {
    // The lower ports are not a session's to listen on.
    let ports: BTreeSet<u16> = flows.iter().map(|f| f.port).filter(|port| *port >= 1024).collect();
    super::serve::listen("inner", &ports.into_iter().collect::<Vec<_>>())?;
    let mut datagrams = Datagrams { patience, ..Datagrams::default() };
    let one = |flow: &Flow| {
        let start = Instant::now();
        let result = match flow.transport {
            Transport::Tcp => stream(flow, patience),
            Transport::Udp => datagrams.exchange(flow),
        };
        let (errno, said) = match result {
            Ok(said) => (0, said),
            Err(errno) => (errno, String::new()),
        };
        let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        Answer { errno, said, micros }
    };
    Ok(flows.iter().map(one).collect())
}

/// Connects, and hears who answers.
fn stream(flow: &Flow, patience: Duration) -> Result<String, i32> {
    let fd = socket(flow, libc::SOCK_STREAM)?;
    // Ends by a reset, so that thousands of tries leave no sockets behind here or in the link.
    option(&fd, libc::SOL_SOCKET, libc::SO_LINGER, &[1i32.to_ne_bytes(), [0; 4]].concat())?;
    let mut stream = connect(fd, target(flow), patience)?;
    stream.set_read_timeout(Some(patience)).map_err(|e| errno(&e))?;
    let mut said = Vec::new();
    let mut buffer = [0; 128];
    while !said.ends_with(b"\n") {
        match stream.read(&mut buffer) {
            Ok(0) => return Err(libc::EPIPE),
            Ok(count) => said.extend_from_slice(&buffer[..count]),
            Err(error) => return Err(errno(&error)),
        }
    }
    Ok(String::from_utf8_lossy(said.trim_ascii()).into_owned())
}

/// As `TcpStream::connect_timeout`, for a socket that has options already.
fn connect(fd: OwnedFd, to: SocketAddr, patience: Duration) -> Result<TcpStream, i32> {
    let stream = TcpStream::from(fd);
    stream.set_nonblocking(true).map_err(|e| errno(&e))?;
    match rustix::net::connect(&stream, &to) {
        Ok(()) => {}
        Err(rustix::io::Errno::INPROGRESS) => {
            let mut poll = [rustix::event::PollFd::new(&stream, rustix::event::PollFlags::OUT)];
            let limit = patience.try_into().map_err(|_| libc::EINVAL)?;
            match rustix::event::poll(&mut poll, Some(&limit)) {
                Ok(0) => return Err(libc::ETIMEDOUT),
                Ok(_) => {}
                Err(error) => return Err(error.raw_os_error()),
            }
            if let Some(error) = stream.take_error().map_err(|e| errno(&e))? {
                return Err(errno(&error));
            }
        }
        Err(error) => return Err(error.raw_os_error()),
    }
    stream.set_nonblocking(false).map_err(|e| errno(&e))?;
    Ok(stream)
}

/// One socket for each family and way, used again and again: the link keeps each that it sees for minutes.
#[derive(Default)]
struct Datagrams {
    sockets: BTreeMap<(bool, bool), UdpSocket>,
    number: u32,
    patience: Duration,
}

impl Datagrams {
    /// Sends, and hears who answers.
    fn exchange(&mut self, flow: &Flow) -> Result<String, i32> {
        let to = target(flow);
        let key = (to.is_ipv4(), flow.bound);
        let socket = match self.sockets.entry(key) {
            std::collections::btree_map::Entry::Occupied(there) => there.into_mut(),
            std::collections::btree_map::Entry::Vacant(free) => {
                let made = UdpSocket::from(socket(flow, libc::SOCK_DGRAM)?);
                made.set_read_timeout(Some(AGAIN.min(self.patience))).map_err(|e| errno(&e))?;
                free.insert(made)
            }
        };
        self.number += 1;
        let question = format!("{}\n", self.number);
        let end = Instant::now() + self.patience;
        while Instant::now() < end {
            socket.send_to(question.as_bytes(), to).map_err(|e| errno(&e))?;
            if let Some(said) = heard(socket, &question)? {
                return Ok(said);
            }
        }
        Err(libc::ETIMEDOUT)
    }
}

/// The answer to this question; answers to earlier ones, sent twice, are passed over.
fn heard(socket: &UdpSocket, question: &str) -> Result<Option<String>, i32> {
    let mut buffer = [0; 256];
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((count, _)) => {
                let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
                if let Some(said) = text.strip_prefix(question) {
                    return Ok(Some(said.to_owned()));
                }
            }
            Err(error) if errno(&error) == libc::EAGAIN => return Ok(None),
            Err(error) if errno(&error) == libc::EINTR => {}
            Err(error) => return Err(errno(&error)),
        }
    }
}
