//! The task, from its first fork to its program. Forked by init before anything is mounted, so that a host that refuses
//! its user namespace says so early and none of init's later descriptors can reach it.

use crate::channel::{Channel, Message};
use crate::confine;
use crate::failure::{Context, Failure, Stage, refused, require};
use crate::init::Meant;
use crate::start::Caller;
use crate::sys::{fd, process};
use landbox_shared::event::Event;
use landbox_shared::exec::{Exec, Program, Tried};
use landbox_shared::idmap::Worlds;
use landbox_shared::plan::Stdio;
use landbox_shared::policy::SeccompProfile;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, stat, umask};
use nix::unistd::{
    AccessFlags, access, chdir, dup2_stderr, dup2_stdin, dup2_stdout, execve, setsid,
};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, RawFd};

const STAGE: Stage = Stage::Confine;
const SHELL: &CStr = c"/bin/sh";
const CONSOLE: &str = "/dev/console";

/// Goes all the way. The caller is a fresh fork of init.
pub(crate) fn run(init: &Channel, meant: &Meant, exec: Exec) -> ! {
    let event = match prepare(init, meant, exec) {
        Ok(program) => Event::ExecFailed { errno: execute(&program) },
        Err(failure) => Event::Failed(failure),
    };
    // If init can't be told it is gone, and this process is about to follow.
    let _ = init.send(STAGE, &Message::End(event), &[]);
    process::leave(127)
}

fn prepare(init: &Channel, meant: &Meant, exec: Exec) -> Result<Program, Failure> {
    let Meant { caller, plan, envelope_digest: _, maps } = meant;
    // While init mounts, on the other processor.
    let filters = match plan.seccomp {
        SeccompProfile::Base => confine::filters(landbox_seccomp::base)?,
        SeccompProfile::Restricted => confine::filters(landbox_seccomp::restricted)?,
    };
    let program = Program::new(exec).ok_or_else(|| refused(STAGE, "a NUL byte in the command"))?;

    let root = init.hear(STAGE)?;
    match maps.worlds {
        // A copy of the mounts that this user namespace can't change.
        Worlds::Two => unshare(CloneFlags::CLONE_NEWNS).stage(STAGE, "copying the mounts")?,
        Worlds::One => {}
    }
    let here = stat("/").at(STAGE, "/", "reading the new root")?;
    let moved = root == Message::Mounted(here.st_dev, here.st_ino);
    require(moved, STAGE, "the new root is not the one that was made")?;
    init.send(STAGE, &Message::Entered, &[])?;
    setsid().stage(STAGE, "starting a session")?;
    open_terminal(&plan.stdio).at(STAGE, CONSOLE, "opening the terminal")?;
    chdir(plan.cwd.as_path()).at(STAGE, &plan.cwd, "entering the working folder")?;
    restore(caller).stage(STAGE, "restoring what the caller had")?;
    keep_only(init).stage(STAGE, "closing every other descriptor")?;
    let abi = confine::confine(&filters)?;
    init.send(STAGE, &Message::Confined(abi), &[])?;
    init.expect(STAGE, &Message::Release)?;
    Ok(program)
}

/// The slave is opened anew, by its name in the new root: the caller's descriptor leads out of it.
fn open_terminal(stdio: &[Stdio; 3]) -> nix::Result<()> {
    if !stdio.contains(&Stdio::Pty) {
        return Ok(());
    }
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let terminal = open(CONSOLE, flags, Mode::empty())?;
    fd::control(terminal.as_fd())?;
    let place = [dup2_stdin, dup2_stdout, dup2_stderr];
    let mut wanted = stdio.iter().zip(place).filter(|(kind, _)| **kind == Stdio::Pty);
    wanted.try_for_each(|(_, place)| place(&terminal))
}

/// Gives the task what the caller had, and we changed for ourselves.
fn restore(caller: &Caller) -> nix::Result<()> {
    umask(caller.umask);
    let (soft, hard) = caller.core_limit;
    setrlimit(Resource::RLIMIT_CORE, soft, hard)?;
    process::default_action(Signal::SIGPIPE)?;
    SigSet::empty().thread_set_mask()
}

/// Closes everything but 0, 1, 2 and the channel, which execve closes.
fn keep_only(channel: &Channel) -> nix::Result<()> {
    let kept = channel.as_fd().as_raw_fd();
    if kept > 3 {
        fd::close_range(3, kept - 1)?;
    }
    fd::close_range(kept + 1, RawFd::MAX)
}

/// As execvp(3). Comes back only with why not.
fn execute(program: &Program) -> i32 {
    let mut tried = Tried::default();
    for path in &program.candidates {
        let there = || program.is_path() || access(path.as_c_str(), AccessFlags::F_OK).is_ok();
        if tried.note(try_one(program, path) as i32, there) {
            break;
        }
    }
    tried.errno
}

fn try_one(program: &Program, path: &CStr) -> Errno {
    match execve(path, &program.argv, &program.env) {
        // A script without a first line that names its interpreter.
        Err(Errno::ENOEXEC) => {
            let Err(errno) = execve(SHELL, &program.as_script(SHELL, path), &program.env);
            errno
        }
        Err(errno) => errno,
    }
}
