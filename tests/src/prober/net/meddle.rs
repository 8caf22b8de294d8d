//! Standing between a program and the packet filter: what it says to the kernel by netlink, and what it hears, passes
//! through here, as on a machine where somebody else has a hand in it. The program itself knows nothing of that.

use crate::sys::{self, Arg, call, n};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode};

/// Messages of netlink to the packet filter, by their numbers.
const BATCH: u16 = 0x10;
const GENERATION: u16 = 0x0a10;
const LIST_CHAINS: u16 = 0x0a04;
const RULE: u16 = 0x0a06;
/// And to the interfaces.
const NEW_ADDRESS: u16 = 20;
const NETFILTER: i32 = libc::NETLINK_NETFILTER;

/// `_IOWR('!', 0, struct seccomp_notif)` and `_IOWR('!', 1, struct seccomp_notif_resp)`.
const RECEIVE: i64 = 0xc050_2100;
const ANSWER: i64 = 0xc018_2101;
/// The call is made after all.
const CONTINUE: u32 = 1;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Nothing.
    None,
    /// Batches are said to be sent, and never reach the kernel.
    NothingLoads,
    /// The kernel says of the first batch that it lacks a part that this would need.
    PartMissing,
    /// There is another table before the first batch.
    ForeignTable,
    /// A rule that lets everything out is added right after the batch.
    RuleBefore,
    /// The same while it is read back.
    RuleMeanwhile,
    /// Half of each packet with rules is lost.
    ListCut,
    /// No interface takes an IPv6 address.
    NoIpv6,
}

impl Fault {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "none" => Self::None,
            "nothing-loads" => Self::NothingLoads,
            "part-missing" => Self::PartMissing,
            "foreign-table" => Self::ForeignTable,
            "rule-before" => Self::RuleBefore,
            "rule-meanwhile" => Self::RuleMeanwhile,
            "list-cut" => Self::ListCut,
            "no-ipv6" => Self::NoIpv6,
            _ => return None,
        })
    }
}

/// Runs the command with a fault; its exit status as a shell would say it.
pub(crate) fn meddle(fault: &str, command: &[&str]) -> io::Result<ExitCode> {
    let fault = Fault::named(fault).ok_or_else(|| io::Error::other("no such fault"))?;
    let mut child = Command::new("/proc/self/exe").arg("meddled-with").args(command).spawn()?;
    let listener = listener(&child)?;
    let mut between = Between { fault, listener, done: false };
    while between.step()? {}
    let status = child.wait()?;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

/// Becomes the command, whose netlink calls, and those of all it starts, wait for what [`meddle`] says.
pub(crate) fn meddled_with(command: &[&str]) -> io::Error {
    let Some((program, args)) = command.split_first() else {
        return io::Error::other("no command");
    };
    let filter = filter();
    let mut program_of_filter = vec![0; 16];
    let length = u16::try_from(filter.len() / 8).unwrap_or_default();
    program_of_filter[..2].copy_from_slice(&length.to_ne_bytes());
    program_of_filter[8..].copy_from_slice(&sys::address(&filter).to_ne_bytes());
    // SECCOMP_SET_MODE_FILTER, with a listener, which closes when the command is executed.
    let set = call(libc::SYS_seccomp, vec![n(1), n(8), Arg::M(&mut program_of_filter)]);
    if let Err(errno) = set {
        return io::Error::from_raw_os_error(errno);
    }
    // Until the other side has taken the listener.
    match rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP) {
        Ok(()) => Command::new(program).args(args).exec(),
        Err(error) => error.into(),
    }
}

/// `sendto`, `sendmsg` and `recvmsg` ask; all else passes.
fn filter() -> Vec<u8> {
    let line = |code: u32, jt: u8, jf: u8, k: u32| {
        let code = u16::try_from(code).unwrap_or_default().to_ne_bytes();
        [&code[..], &[jt, jf], &k.to_ne_bytes()].concat()
    };
    let calls = [libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_recvmsg];
    let mut lines = vec![line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for (number, left) in calls.into_iter().zip([3, 2, 1]) {
        let number = u32::try_from(number).unwrap_or_default();
        lines.push(line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, left, 0, number));
    }
    for end in [libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_USER_NOTIF] {
        lines.push(line(libc::BPF_RET | libc::BPF_K, 0, 0, end));
    }
    lines.concat()
}

/// Takes the listener from the stopped child and lets it go on.
fn listener(child: &Child) -> io::Result<OwnedFd> {
    let id = i32::try_from(child.id()).map_err(io::Error::other)?;
    let pid = rustix::process::Pid::from_raw(id).ok_or_else(|| io::Error::other("no child"))?;
    rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::UNTRACED)?;
    for entry in fs::read_dir(format!("/proc/{id}/fd"))? {
        let entry = entry?;
        let named = fs::read_link(entry.path())?;
        if named.to_string_lossy().contains("seccomp notify") {
            let number = entry.file_name().to_string_lossy().parse().map_err(io::Error::other)?;
            let taken = descriptor(u64::try_from(id).unwrap_or_default(), number)?;
            rustix::process::kill_process(pid, rustix::process::Signal::CONT)?;
            return Ok(taken);
        }
    }
    Err(io::Error::other("the child has no listener"))
}

/// A descriptor of another process.
fn descriptor(pid: u64, number: i64) -> io::Result<OwnedFd> {
    let fd = |result: Result<i64, i32>| {
        let fd = result.map_err(io::Error::from_raw_os_error)?;
        Ok::<_, io::Error>(sys::owned(i32::try_from(fd).map_err(io::Error::other)?))
    };
    let pid = i64::try_from(pid).map_err(io::Error::other)?;
    let process = fd(call(libc::SYS_pidfd_open, vec![n(pid), n(0)]))?;
    fd(call(libc::SYS_pidfd_getfd, vec![n(process.as_raw_fd()), n(number), n(0)]))
}

/// A call that waits.
struct Call {
    pid: u64,
    number: i64,
    args: [u64; 6],
    memory: File,
}

impl Call {
    fn word(&self, at: u64) -> io::Result<u64> {
        let mut word = [0; 8];
        self.memory.read_exact_at(&mut word, at)?;
        Ok(u64::from_ne_bytes(word))
    }

    /// Where the pieces of the message lie, and how long they are.
    fn pieces(&self) -> io::Result<Vec<(u64, u64)>> {
        if self.number == libc::SYS_sendto {
            return Ok(vec![(self.args[1], self.args[2])]);
        }
        let (list, count) = (self.word(self.args[1] + 16)?, self.word(self.args[1] + 24)?);
        (0..count).map(|n| Ok((self.word(list + n * 16)?, self.word(list + n * 16 + 8)?))).collect()
    }

    /// The kind of the message that begins with these bytes.
    fn kind(bytes: &[u8]) -> Option<u16> {
        Some(u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?))
    }

    /// Its socket, if that leads to this part of the kernel.
    fn socket(&self, protocol: i32) -> Option<OwnedFd> {
        let socket = descriptor(self.pid, i64::try_from(self.args[0]).ok()?).ok()?;
        let asked = |option| {
            let (mut value, mut length) = ([0; 4], 4i32.to_ne_bytes());
            let place = vec![
                n(socket.as_raw_fd()),
                n(libc::SOL_SOCKET),
                n(option),
                Arg::M(&mut value),
                Arg::M(&mut length),
            ];
            call(libc::SYS_getsockopt, place).ok().map(|_| i32::from_ne_bytes(value))
        };
        let is =
            asked(libc::SO_DOMAIN)? == libc::AF_NETLINK && asked(libc::SO_PROTOCOL)? == protocol;
        is.then_some(socket)
    }
}

/// What a call is answered.
enum Answer {
    /// It is made.
    Made,
    /// It is not made, and gives this.
    Gives(u64),
}

struct Between {
    fault: Fault,
    listener: OwnedFd,
    done: bool,
}

impl Between {
    /// Answers one call; `false` once nobody is left to make one.
    fn step(&mut self) -> io::Result<bool> {
        let mut fds = [rustix::event::PollFd::new(&self.listener, rustix::event::PollFlags::IN)];
        match rustix::event::poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => return Ok(true),
            polled => polled?,
        };
        if fds[0].revents().contains(rustix::event::PollFlags::HUP) {
            return Ok(false);
        }
        let mut room = [0; 80];
        let received = vec![n(self.listener.as_raw_fd()), n(RECEIVE), Arg::M(&mut room)];
        // Whoever called may be gone by now.
        if call(libc::SYS_ioctl, received).is_err() {
            return Ok(true);
        }
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|n| room[at + n]));
        let half = |at: usize| u32::from_ne_bytes(std::array::from_fn(|n| room[at + n]));
        let (id, pid) = (word(0), u64::from(half(8)));
        let answer = match File::options().read(true).write(true).open(format!("/proc/{pid}/mem")) {
            Err(_) => Answer::Made,
            Ok(memory) => {
                let (number, args) =
                    (i64::from(half(16)), std::array::from_fn(|n| word(32 + n * 8)));
                // What can't be looked at is none of the helper's.
                self.judge(&Call { pid, number, args, memory }).unwrap_or(Answer::Made)
            }
        };
        let (value, flags) = match answer {
            Answer::Made => (0, CONTINUE),
            Answer::Gives(value) => (value, 0),
        };
        let flags = u64::from(flags) << 32;
        let mut said = sys::words(&[id, value, flags]);
        let _ =
            call(libc::SYS_ioctl, vec![n(self.listener.as_raw_fd()), n(ANSWER), Arg::M(&mut said)]);
        Ok(true)
    }

    fn judge(&mut self, call: &Call) -> io::Result<Answer> {
        let protocol = if self.fault == Fault::NoIpv6 { libc::NETLINK_ROUTE } else { NETFILTER };
        let Some(socket) = call.socket(protocol) else { return Ok(Answer::Made) };
        let pieces = call.pieces()?;
        let Some(first) = pieces.first() else { return Ok(Answer::Made) };
        if call.number == libc::SYS_recvmsg {
            return match self.fault {
                Fault::ListCut => cut(call, &socket, *first),
                Fault::PartMissing if std::mem::take(&mut self.done) => {
                    error(call, first.0, 7, libc::ENOENT)
                }
                Fault::NoIpv6 if std::mem::take(&mut self.done) => {
                    error(call, first.0, 1, libc::EOPNOTSUPP)
                }
                Fault::None
                | Fault::NoIpv6
                | Fault::NothingLoads
                | Fault::PartMissing
                | Fault::ForeignTable
                | Fault::RuleBefore
                | Fault::RuleMeanwhile => Ok(Answer::Made),
            };
        }
        let mut head = [0; 16];
        call.memory.read_exact_at(&mut head, first.0)?;
        let kind = Call::kind(&head);
        let (when, words): (u16, &[&str]) = match self.fault {
            Fault::NothingLoads | Fault::PartMissing if kind == Some(BATCH) => {
                self.done = true;
                return Ok(Answer::Gives(pieces.iter().map(|(_, length)| length).sum()));
            }
            Fault::NoIpv6 if kind == Some(NEW_ADDRESS) => {
                self.done = true;
                return Ok(Answer::Gives(first.1));
            }
            Fault::ForeignTable => (BATCH, &["add", "table", "inet", "other"]),
            Fault::RuleBefore => (GENERATION, &OPENS),
            Fault::RuleMeanwhile => (LIST_CHAINS, &OPENS),
            Fault::NothingLoads
            | Fault::PartMissing
            | Fault::NoIpv6
            | Fault::None
            | Fault::ListCut => return Ok(Answer::Made),
        };
        if kind == Some(when) && !std::mem::replace(&mut self.done, true) {
            let place = format!("--net=/proc/{}/ns/net", call.pid);
            let status = Command::new("nsenter").args([&place, "nft"]).args(words).status()?;
            if !status.success() {
                return Err(io::Error::other("nft failed"));
            }
        }
        Ok(Answer::Made)
    }
}

/// A rule with which everything would pass.
const OPENS: [&str; 6] = ["insert", "rule", "inet", "landbox", "output", "accept"];

/// Receives in the caller's place, and hands half of it on where it holds rules.
fn cut(call: &Call, socket: &OwnedFd, (room, length): (u64, u64)) -> io::Result<Answer> {
    let mut packet = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let size = i64::try_from(length).map_err(io::Error::other)?;
    let place = vec![n(socket.as_raw_fd()), Arg::M(&mut packet), n(size), n(0), n(0), n(0)];
    let got = sys::call(libc::SYS_recvfrom, place).map_err(io::Error::from_raw_os_error)?;
    let got = usize::try_from(got).map_err(io::Error::other)?;
    let keep = if Call::kind(&packet) == Some(RULE) { got / 2 } else { got };
    call.memory.write_all_at(&packet[..keep], room)?;
    Ok(Answer::Gives(u64::try_from(keep).map_err(io::Error::other)?))
}

/// Answers as the kernel does where something is not to be had: an error for the message of that number.
fn error(call: &Call, room: u64, number: u32, errno: i32) -> io::Result<Answer> {
    let mut error = Vec::new();
    // nlmsghdr (NLMSG_ERROR), the number, and the header of what it is about.
    error.extend(36u32.to_ne_bytes());
    error.extend(2u16.to_ne_bytes());
    error.extend([0; 2]);
    error.extend(number.to_ne_bytes());
    error.extend([0; 4]);
    error.extend((-errno).to_ne_bytes());
    error.extend([0; 16]);
    call.memory.write_all_at(&error, room)?;
    Ok(Answer::Gives(36))
}
