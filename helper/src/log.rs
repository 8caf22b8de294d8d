//! Telling the system's log of refusals and launches, where we have the file capability.
//!
//! Never blocks. Where there is no log, or no room in it, no line is written and all else goes on: a launch is no more
//! dangerous for not being told of, and a machine without a log must not be without sandboxes.
//!
//! One process writes at most one line of each kind, and stays a second after a refusal, so that a caller who tries again
//! and again by mistake fills no log. One who means to can do so without us: the socket takes everybody's lines.

use landbox_shared::log::{Caller, Entry, SOCKET};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

const PAUSE: Duration = Duration::from_secs(1);

/// Tells it about this caller.
pub(crate) fn tell(caller: &Caller, entry: Entry) {
    let Some(line) = caller.line(entry, std::process::id()) else { return };
    // Neither error could be helped.
    let _ = send(line.as_bytes());
    match entry {
        Entry::Launch => {}
        Entry::Refusal(_) => std::thread::sleep(PAUSE),
    }
}

fn send(line: &[u8]) -> std::io::Result<usize> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect(SOCKET)?;
    socket.send(line)
}
