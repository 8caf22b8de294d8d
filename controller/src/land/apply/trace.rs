//! A process stopped at each system call that writes, to be killed there or told that the call fails. For tests.
#![cfg(target_arch = "x86_64")] // the registers of a call

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

/// A call that is about to be made.
#[derive(Clone, Debug)]
pub(in crate::land) struct Call {
    /// Its name.
    pub name: &'static str,
    /// The paths it is about, as far as descriptors and strings tell.
    pub paths: Vec<String>,
}

/// What is done about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::land) enum Act {
    Go,
    Kill,
    Fail(Errno),
}

/// How the process ended.
#[derive(Debug)]
pub(in crate::land) struct Ended {
    pub killed: bool,
    pub success: bool,
    pub output: String,
}

/// Runs the test `name` of this very binary with `value` in the environment under `key`, from the moment in which it
/// stops itself. `at` is asked before each call that writes.
pub(in crate::land) fn run(
    name: &str,
    key: &str,
    value: &str,
    at: &mut dyn FnMut(&Call) -> Act,
) -> Ended {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(key, value)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let process = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let status = waitpid(process, Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert!(matches!(status, WaitStatus::Stopped(_, Signal::SIGSTOP)), "{status:?}");
    let tid = std::fs::read_to_string(format!("{value}/tid")).unwrap();
    let thread = Pid::from_raw(tid.parse().unwrap());
    ptrace::seize(thread, Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL).unwrap();
    nix::sys::signal::kill(process, Signal::SIGCONT).unwrap();
    let mut killed = false;
    let (mut inside, mut failing) = (false, None);
    loop {
        match waitpid(thread, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::PtraceSyscall(_)) => {
                inside = !inside;
                let mut regs = ptrace::getregs(thread).unwrap();
                if inside {
                    match look(thread, &regs).map_or(Act::Go, |call| at(&call)) {
                        Act::Go => {}
                        Act::Kill => {
                            killed = true;
                            nix::sys::signal::kill(process, Signal::SIGKILL).unwrap();
                            break;
                        }
                        Act::Fail(errno) => {
                            // No call has this number, so nothing is done; at its end the answer is exchanged.
                            regs.orig_rax = u64::MAX;
                            ptrace::setregs(thread, regs).unwrap();
                            failing = Some(errno);
                        }
                    }
                } else if let Some(errno) = failing.take() {
                    regs.rax = (-i64::from(errno as i32)).cast_unsigned();
                    ptrace::setregs(thread, regs).unwrap();
                }
            }
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(Errno::ECHILD) => break,
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(e) => panic!("{e}"),
        }
        if ptrace::syscall(thread, None).is_err() {
            break;
        }
    }
    // A thread that is traced is gone only once its end was looked at.
    while killed
        && waitpid(thread, Some(WaitPidFlag::__WALL)).is_ok_and(|status| status.pid().is_some())
    {
        if std::fs::metadata(format!("/proc/{process}/task/{thread}")).is_err() {
            break;
        }
    }
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    let status = child.wait().unwrap();
    Ended { killed, success: status.success(), output }
}

fn look(thread: Pid, regs: &libc::user_regs_struct) -> Option<Call> {
    let int = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap().cast_signed();
    let fd = |value: u64| {
        let path = std::fs::read_link(format!("/proc/{thread}/fd/{}", int(value)));
        path.map(|p| p.display().to_string()).unwrap_or_default()
    };
    let text = |at: u64| -> String {
        let memory = std::fs::File::open(format!("/proc/{thread}/mem")).unwrap();
        let mut bytes = vec![0; 4096];
        let page = 4096 - usize::try_from(at % 4096).unwrap();
        let mut got = memory.read_at(&mut bytes[..page], at).unwrap_or(0);
        if got == page && !bytes[..got].contains(&0) {
            got += memory.read_at(&mut bytes[page..], at + page as u64).unwrap_or(0);
        }
        let end = bytes[..got].iter().position(|b| *b == 0).unwrap_or(got);
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    let at = |dir: u64, name: u64| {
        let name = text(name);
        match (name.starts_with('/'), int(dir)) {
            (true, _) | (_, libc::AT_FDCWD) => name,
            (false, _) => format!("{}/{name}", fd(dir)),
        }
    };
    let (a, b, c, d) = (regs.rdi, regs.rsi, regs.rdx, regs.r10);
    let (name, paths) = match regs.orig_rax.cast_signed() {
        libc::SYS_openat
            if int(c) & (libc::O_CREAT | libc::O_TMPFILE) & !libc::O_DIRECTORY != 0 =>
        {
            ("create", vec![at(a, b)])
        }
        libc::SYS_open if int(b) & libc::O_CREAT != 0 => ("create", vec![text(a)]),
        libc::SYS_rename => ("rename", vec![text(a), text(b)]),
        libc::SYS_renameat | libc::SYS_renameat2 => ("rename", vec![at(a, b), at(c, d)]),
        libc::SYS_linkat => ("link", vec![at(a, b), at(c, d)]),
        libc::SYS_unlink | libc::SYS_rmdir => ("unlink", vec![text(a)]),
        libc::SYS_unlinkat => ("unlink", vec![at(a, b)]),
        libc::SYS_mkdir => ("mkdir", vec![text(a)]),
        libc::SYS_mkdirat => ("mkdir", vec![at(a, b)]),
        libc::SYS_symlinkat => ("symlink", vec![at(b, c)]),
        libc::SYS_chmod => ("chmod", vec![text(a)]),
        libc::SYS_fchmodat => ("chmod", vec![at(a, b)]),
        libc::SYS_fchmod => ("chmod", vec![fd(a)]),
        libc::SYS_fchown => ("chown", vec![fd(a)]),
        libc::SYS_fchownat => ("chown", vec![at(a, b)]),
        libc::SYS_fsetxattr => ("setxattr", vec![fd(a)]),
        libc::SYS_write | libc::SYS_pwrite64 => ("write", vec![fd(a)]),
        libc::SYS_ftruncate => ("truncate", vec![fd(a)]),
        libc::SYS_utimensat => ("times", vec![fd(a)]),
        libc::SYS_fsync | libc::SYS_fdatasync => ("sync", vec![fd(a)]),
        _ => return None,
    };
    // What is said to whoever watches is no step.
    let said =
        name == "write" && paths.iter().any(|p| !p.starts_with('/') || p.starts_with("/dev/"));
    (!said).then_some(Call { name, paths })
}
