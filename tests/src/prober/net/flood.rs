//! Sends without end, from the first instruction to the last.

use super::{option, socket, target};
use landbox_tests::net::{Flow, Transport};
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// How many connections are under way at once for each flow; older ones are dropped.
const UNDER_WAY: usize = 4;

/// Says so after the first round, then goes on until it is ended. Errors mean nothing: the next packet may pass.
pub(crate) fn flood(flows: &[Flow], clock: Option<&Path>) -> io::Result<Infallible> {
    if let Some(path) = clock {
        let file = File::create(path)?;
        show_the_time(&file)?;
        std::thread::spawn(move || while show_the_time(&file).is_ok() {});
    }
    let mut datagrams: Vec<(Flow, Option<UdpSocket>)> = Vec::new();
    let mut streams: Vec<(Flow, Vec<TcpStream>)> = Vec::new();
    for flow in flows {
        match flow.transport {
            Transport::Udp => datagrams.push((*flow, None)),
            Transport::Tcp => streams.push((*flow, Vec::new())),
        }
    }
    let mut said = false;
    loop {
        for _ in 0..16 {
            for (flow, socket) in &mut datagrams {
                send(flow, socket);
            }
        }
        for (flow, under_way) in &mut streams {
            if under_way.len() >= UNDER_WAY {
                under_way.remove(0);
            }
            under_way.extend(begin(flow));
        }
        if !said {
            said = true;
            let mut out = io::stdout();
            out.write_all(b"flooding\n")?;
            out.flush()?;
        }
    }
}

/// Writes the time into the file, and waits a little. Again and again it stays what this program's last instant was.
fn show_the_time(file: &File) -> io::Result<()> {
    let now = landbox_tests::procs::now().as_nanos().to_string();
    file.write_all_at(now.as_bytes(), 0)?;
    // Until then the kernel keeps it from a fuse daemon, with which it would be lost.
    file.sync_data()?;
    std::thread::sleep(Duration::from_millis(1));
    Ok(())
}

fn send(flow: &Flow, socket: &mut Option<UdpSocket>) {
    if socket.is_none() {
        *socket = super::socket(flow, libc::SOCK_DGRAM).ok().map(UdpSocket::from);
    }
    if let Some(socket) = socket {
        // A full queue must not hold the flood up.
        let _ = socket.set_nonblocking(true);
        let _ = socket.send_to(b"flood\n", target(flow));
    }
}

fn begin(flow: &Flow) -> Option<TcpStream> {
    let fd = socket(flow, libc::SOCK_STREAM | libc::SOCK_NONBLOCK).ok()?;
    option(&fd, libc::SOL_SOCKET, libc::SO_LINGER, &[1i32.to_ne_bytes(), [0; 4]].concat()).ok()?;
    let stream = TcpStream::from(fd);
    let _ = rustix::net::connect(&stream, &target(flow));
    Some(stream)
}
