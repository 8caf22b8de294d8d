//! The helper's own part of a start: this program, as `landbox-helper` beside a controller, starts the helper that lies in
//! `real/` beside it, hands every word on both ways, and adds to `own-part` in the home folder how long it took, in
//! microseconds: from the helper's start to the word that the task has ended, without and with what it waited for the
//! controller (for the plan's last folder; for the word that releases the task).
#![forbid(unsafe_code)]

use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, posix_spawn};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Instant;

const DESCRIPTORS: usize = 64;
const PACKET: usize = 1 << 20;

/// When what happened.
#[derive(Default)]
struct Times {
    /// The first word: the helper is ready for a plan.
    ready: Option<Instant>,
    /// All of the plan, and the folders it names.
    planned: Option<Instant>,
    /// The last word before the controller's: the boundary stands.
    stands: Option<Instant>,
    released: Option<Instant>,
    /// The helper's last word.
    ended: Option<Instant>,
}

/// Stands between until the helper has ended.
pub(crate) fn stand() -> io::Result<()> {
    let [frames, controller] = inherited()?;
    let mut frames = File::from(frames);
    let (plan_in, plan_out) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (helper, theirs) = rustix::net::socketpair(kind.0, kind.1, kind.2, None)?;
    let begun = Instant::now();
    let child = start([plan_in, theirs])?;
    let (mut plan_out, mut times) = (Some(File::from(plan_out)), Times::default());
    let mut controller = Some(controller);
    let mut buffer = vec![0; PACKET];
    loop {
        // What has ended would wake us for ever.
        let mut fds = vec![PollFd::new(&helper, PollFlags::IN)];
        fds.extend(plan_out.iter().map(|_| PollFd::new(&frames, PollFlags::IN)));
        let listening = fds.len();
        fds.extend(controller.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let seen: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if seen[0] {
            let Some(()) = hand_on(&helper, controller.as_ref(), &mut buffer)? else { break };
            let now = Some(Instant::now());
            times.ready = times.ready.or(now);
            if times.released.is_none() {
                times.stands = now;
            } else {
                times.ended = now;
            }
        }
        if listening > 1 && seen[1] {
            match frames.read(&mut buffer)? {
                0 => {
                    times.planned = Some(Instant::now());
                    plan_out = None;
                }
                length => {
                    plan_out.iter_mut().try_for_each(|out| out.write_all(&buffer[..length]))?
                }
            }
        }
        if let Some(fd) = controller.as_ref().filter(|_| seen.get(listening) == Some(&true)) {
            if hand_on(fd, Some(&helper), &mut buffer)?.is_some() {
                times.released = times.released.or_else(|| Some(Instant::now()));
            } else {
                // The controller is gone; so is our word to the helper then.
                rustix::net::shutdown(&helper, rustix::net::Shutdown::Both)?;
                controller = None;
            }
        }
    }
    nix::sys::wait::waitpid(child, None)?;
    say(begun, &times)
}

/// Copies of the two descriptors that a controller hands over.
fn inherited() -> io::Result<[OwnedFd; 2]> {
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    let get = |fd| pidfd_getfd(&this, fd, PidfdGetfdFlags::empty());
    Ok([get(3)?, get(4)?])
}

/// Starts the real helper with these as descriptors 3 and 4, and what it reads of the environment.
fn start(descriptors: [OwnedFd; 2]) -> io::Result<nix::unistd::Pid> {
    let real = std::env::current_exe()?.with_file_name("real").join("landbox-helper");
    let mut actions = PosixSpawnFileActions::init()?;
    for (number, fd) in (3..).zip(&descriptors) {
        actions.add_dup2(fd.as_raw_fd(), number)?;
    }
    let text = |bytes| CString::new(bytes).map_err(io::Error::other);
    let name = text(real.clone().into_os_string().into_vec())?;
    let mut env = Vec::new();
    for name in ["HOME", "XDG_CONFIG_HOME"] {
        if let Some(value) = std::env::var_os(name) {
            env.push(text([name.as_bytes(), b"=", &value.into_vec()].concat())?);
        }
    }
    Ok(posix_spawn(&real, &actions, &PosixSpawnAttr::init()?, &[name], &env)?)
}

/// Hands one packet on with what lies beside it. `None`: there is nobody any more.
fn hand_on(from: &OwnedFd, to: Option<&OwnedFd>, buffer: &mut [u8]) -> io::Result<Option<()>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = {
        let mut packet = [IoSliceMut::new(buffer)];
        rustix::net::recvmsg(from, &mut packet, &mut control, RecvFlags::CMSG_CLOEXEC)
    };
    let length = match received {
        Ok(message) if message.bytes > 0 => message.bytes,
        Ok(_) | Err(Errno::CONNRESET) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let mut beside: Vec<OwnedFd> = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = part {
            beside.extend(fds);
        }
    }
    let beside: Vec<_> = beside.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !beside.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&beside)) {
        return Err(io::Error::other("too many descriptors beside a packet"));
    }
    let packet = [IoSlice::new(buffer.get(..length).unwrap_or_default())];
    match to.map(|to| rustix::net::sendmsg(to, &packet, &mut control, SendFlags::NOSIGNAL)) {
        // Whoever has gone hears nothing more.
        None | Some(Ok(_) | Err(Errno::PIPE | Errno::CONNRESET)) => Ok(Some(())),
        Some(Err(errno)) => Err(errno.into()),
    }
}

fn say(begun: Instant, times: &Times) -> io::Result<()> {
    let Times {
        ready: Some(ready),
        planned: Some(planned),
        stands: Some(stands),
        released: Some(released),
        ended: Some(ended),
    } = times
    else {
        return Err(io::Error::other("the session did not run to its end"));
    };
    let own = (*ready - begun) + (*stands - *planned) + (*ended - *released);
    let path = PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join("own-part");
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    // In one piece: it is waited for.
    file.write_all(format!("{} {}\n", own.as_micros(), (*ended - begun).as_micros()).as_bytes())
}
