//! The task, from its first fork to its program. Forked by init before anything is mounted, so that a host that refuses
//! its user namespace says so early and none of init's later descriptors can reach it.

use crate::channel::{Channel, Message};
use crate::confine;
use crate::failure::{Context, failed, refused};
use crate::ns::Worlds;
use crate::start::Caller;
use crate::sys::{fd, process};
use landbox_shared::event::{Event, Failure, Stage};
use landbox_shared::exec::Exec;
use landbox_shared::plan::{Plan, Stdio};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, stat, umask};
use nix::unistd::{
    AccessFlags, access, chdir, dup2_stderr, dup2_stdin, dup2_stdout, execve, setsid,
};
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const STAGE: Stage = Stage::Confine;
/// Where a program is looked up without a `PATH`.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";
const SHELL: &CStr = c"/bin/sh";

/// Goes all the way. The caller is a fresh fork of init.
pub(crate) fn run(
    channel: &Channel,
    plan: &Plan,
    exec: Exec,
    caller: &Caller,
    worlds: Worlds,
) -> ! {
    let event = match prepare(channel, plan, exec, caller, worlds) {
        Ok(program) => {
            let errno = program.execute() as i32;
            Event::ExecFailed { errno }
        }
        Err(failure) => Event::Failed(failure),
    };
    // If init can't be told it is gone, and this process is about to follow.
    let _ = channel.send_event(&event, &[]);
    process::leave(127)
}

fn prepare(
    channel: &Channel,
    plan: &Plan,
    exec: Exec,
    caller: &Caller,
    worlds: Worlds,
) -> Result<Prepared, Failure> {
    // pivot_root moves every process that stands in the old root along, and this one must not stand elsewhere.
    chdir("/").stage(STAGE, "leaving the caller's folder")?;

    // While init mounts, on the other processor.
    let filters = confine::filters(plan.seccomp)?;
    let program = Prepared::new(exec)?;

    let (root, _) = channel
        .receive()
        .stage(STAGE, "waiting for the mounts")?
        .ok_or_else(|| refused(STAGE, "init is gone"))?;
    enter(&root, plan, caller, worlds)?;
    keep_only(channel)?;
    let abi = confine::confine(&filters)?;
    channel.send(&Message::Confined(abi)).stage(STAGE, "talking to init")?;
    channel.expect(&Message::Release).stage(STAGE, "waiting to be released")?;
    Ok(program)
}

/// Moves into the new root, with a copy of the mounts that this user namespace can't change.
fn enter(root: &Message, plan: &Plan, caller: &Caller, worlds: Worlds) -> Result<(), Failure> {
    match worlds {
        Worlds::Two => unshare(CloneFlags::CLONE_NEWNS).stage(STAGE, "copying the mounts")?,
        Worlds::One => {}
    }
    let here = stat("/").at(STAGE, b"/", "reading the new root")?;
    if *root != Message::Mounted(here.st_dev, here.st_ino) {
        return Err(refused(STAGE, "the new root is not the one that was made"));
    }
    setsid().stage(STAGE, "starting a session")?;
    open_terminal(&plan.stdio)?;
    chdir(plan.cwd.as_path()).at(STAGE, plan.cwd.as_bytes(), "entering the working folder")?;
    // What the caller had, and we changed for ourselves.
    umask(caller.umask);
    let (soft, hard) = caller.core_limit;
    setrlimit(Resource::RLIMIT_CORE, soft, hard).stage(STAGE, "restoring the core limit")?;
    process::default_action(Signal::SIGPIPE).stage(STAGE, "restoring SIGPIPE")?;
    SigSet::empty().thread_set_mask().stage(STAGE, "restoring the signal mask")
}

/// The slave is opened anew, by its name in the new root: the caller's descriptor leads out of it.
fn open_terminal(stdio: &[Stdio; 3]) -> Result<(), Failure> {
    if !stdio.contains(&Stdio::Pty) {
        return Ok(());
    }
    const CONSOLE: &str = "/dev/console";
    let at = |result: nix::Result<()>, what| result.at(STAGE, CONSOLE.as_bytes(), what);
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let terminal = open(CONSOLE, flags, Mode::empty()).at(
        STAGE,
        CONSOLE.as_bytes(),
        "opening the terminal",
    )?;
    at(fd::control(terminal.as_fd()), "taking the terminal")?;
    let [stdin, stdout, stderr] = stdio.map(|kind| matches!(kind, Stdio::Pty));
    if stdin {
        at(dup2_stdin(&terminal), "placing the terminal")?;
    }
    if stdout {
        at(dup2_stdout(&terminal), "placing the terminal")?;
    }
    if stderr {
        at(dup2_stderr(&terminal), "placing the terminal")?;
    }
    Ok(())
}

/// Closes everything but 0, 1, 2 and the channel, which execve closes.
fn keep_only(channel: &Channel) -> Result<(), Failure> {
    let kept = channel.as_fd().as_raw_fd();
    let close = |first: RawFd, last: RawFd| {
        if first > last { Ok(()) } else { fd::close_range(first, last) }
    };
    close(3, kept - 1)
        .and_then(|()| close(kept + 1, RawFd::MAX))
        .stage(STAGE, "closing every other descriptor")
}

/// The program with everything execve wants, made ready before the rights go.
#[derive(Debug)]
struct Prepared {
    candidates: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
}

impl Prepared {
    fn new(exec: Exec) -> Result<Self, Failure> {
        let Exec { argv, env } = exec;
        let name = argv.first().ok_or_else(|| refused(STAGE, "the command is empty"))?;
        let path = env.iter().find_map(|text| text.strip_prefix(b"PATH="));
        let candidates = candidates(name, path.unwrap_or(DEFAULT_PATH));
        let all = |texts: Vec<Vec<u8>>| {
            let made: Result<Vec<CString>, _> = texts.into_iter().map(CString::new).collect();
            made.map_err(|_| refused(STAGE, "a NUL byte in the command or environment"))
        };
        Ok(Self { candidates: all(candidates)?, argv: all(argv)?, env: all(env)? })
    }

    /// As execvp(3). Comes back only with why not: the first error that says more than "not there".
    fn execute(&self) -> Errno {
        const NOT_THERE: [Errno; 5] =
            [Errno::ENOENT, Errno::ENOTDIR, Errno::ESTALE, Errno::ENODEV, Errno::ETIMEDOUT];
        let named = self.argv.first().is_some_and(|name| name.as_bytes().contains(&b'/'));
        let mut refused = Errno::ENOENT;
        for path in &self.candidates {
            let errno = self.try_one(path);
            if errno == Errno::EACCES {
                // A folder of the search path that may not be entered says nothing about the program.
                if named || access(path.as_c_str(), AccessFlags::F_OK).is_ok() {
                    refused = errno;
                }
            } else if !NOT_THERE.contains(&errno) {
                return errno;
            }
        }
        refused
    }

    fn try_one(&self, path: &CString) -> Errno {
        let Err(errno) = execve(path, &self.argv, &self.env);
        if errno != Errno::ENOEXEC {
            return errno;
        }
        // A script without a first line that names its interpreter.
        let script = [SHELL, path.as_c_str()].into_iter();
        let argv: Vec<_> = script.chain(self.argv.iter().skip(1).map(CString::as_c_str)).collect();
        let Err(errno) = execve(SHELL, &argv, &self.env);
        errno
    }
}

/// Where a program of this name may lie, in order.
fn candidates(name: &[u8], path: &[u8]) -> Vec<Vec<u8>> {
    if name.contains(&b'/') {
        return vec![name.to_vec()];
    }
    path.split(|b| *b == b':')
        .map(|folder| {
            // An empty entry is the working folder.
            let folder = if folder.is_empty() { b"." } else { folder };
            Path::new(OsStr::from_bytes(folder))
                .join(OsStr::from_bytes(name))
                .into_os_string()
                .into_encoded_bytes()
        })
        .collect()
}

/// What init says of a task that ended before it was released.
pub(crate) fn ended_early() -> Failure {
    failed(STAGE, Errno::ECHILD, b"", "the task's process ended before it was confined")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_slash_is_taken_as_it_is() {
        assert_eq!(candidates(b"./a", b"/bin"), [b"./a".to_vec()]);
    }

    #[test]
    fn a_bare_name_is_looked_up_in_order_and_an_empty_entry_is_here() {
        let found = candidates(b"a", b"/x::/y/");
        assert_eq!(found, [b"/x/a".to_vec(), b"./a".to_vec(), b"/y/a".to_vec()]);
    }
}
