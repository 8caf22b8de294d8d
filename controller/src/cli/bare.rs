//! `sandbox: false`: the command runs as it would without Landbox, says so, and is recorded as not isolated.

use super::creation::{create, freeze};
use super::outcome::{self, Unstarted};
use super::{Invocation, run, show};
use crate::config::Config;
use crate::error::{Context, Result};
use crate::host::{Facts, umask};
use crate::policy::{self, Flags};
use crate::session;
use crate::session::document::Findings;
use crate::session::model::{Launch, Phase};
use crate::session::store::{Session, StateDir};
use landbox_shared::event::Status;
use landbox_shared::exec::Exec;
use landbox_shared::policy::{Network, POLICY_VERSION, Policy, SeccompProfile};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

pub(super) fn run(
    call: &Invocation,
    config: &Config,
    flags: &Flags,
    facts: &Facts,
    state: &StateDir,
    name: Option<String>,
    report: Option<&Path>,
) -> Result<u8> {
    let project = policy::working_dir(config, flags, facts)?;
    let policy = Policy {
        version: POLICY_VERSION,
        uid: facts.uid,
        gid: facts.gid,
        home: facts.home.clone(),
        project: project.clone(),
        layers: Vec::new(),
        masks: Vec::new(),
        read_only: Vec::new(),
        auth: Vec::new(),
        credentials: Vec::new(),
        run_folders: Vec::new(),
        network: Network::Host,
        seccomp: SeccompProfile::Base,
        env: config.env.clone(),
        env_removed: Vec::new(),
    };
    let (mut session, attendance) = create(state, freeze(config, name, policy, false)?)?;
    session.state.launches.push(Launch {
        number: 1,
        started_at: session::now(),
        ended_at: None,
        exit: None,
        failure: None,
        boundary: None,
        epochs: BTreeMap::new(),
    });
    session.state.state = Phase::Running;
    session.save_state()?;
    call.ui.warning(
        "this bot has \"sandbox\": false: the command runs on your real files, with no boundary",
    );
    let status = match start(config, project.as_path()) {
        Ok(child) => wait(child),
        Err(error) => {
            let unstarted = Unstarted::Exec(errno(&error, config, project.as_path()));
            // For the report alone: nothing ran, and nothing is kept.
            let _ = unstarted.record(&mut session);
            tell(call, &session, report);
            state.remove(&session)?;
            drop(attendance);
            return run::tell(call, unstarted, &config.command);
        }
    };
    let status = status.context(|| "can't wait for the command".into())?;
    let raw = |n: i32| u8::try_from(n).unwrap_or(u8::MAX);
    let (exit, code) = match (status.code(), status.signal()) {
        (Some(code), _) => (Status::Code(raw(code)), raw(code)),
        (None, Some(signal)) => (Status::Signal(raw(signal)), 128u8.saturating_add(raw(signal))),
        (None, None) => (Status::Code(u8::MAX), u8::MAX),
    };
    // It ran: no failure of ours may look as if it had not.
    if let Err(failure) = outcome::finish(&mut session, Some(exit), None) {
        call.ui.failure(&failure);
    }
    drop(attendance);
    tell(call, &session, report);
    Ok(code)
}

/// Writes the session document where it was asked for.
fn tell(call: &Invocation, session: &Session, report: Option<&Path>) {
    if let Some(path) = report {
        show::report(call, session, &Findings::default(), path);
    }
}

/// Why the program could not be started. Of a folder of the search path that may not be entered execvp(3) says no more
/// than of a program that may not be executed.
fn errno(error: &std::io::Error, config: &Config, project: &Path) -> i32 {
    let set = config.env.iter().find(|(name, _)| name == "PATH");
    let path = set.map(|(_, value)| value.into()).or_else(|| std::env::var_os("PATH"));
    let exec = Exec {
        argv: config.command.iter().take(1).map(|word| word.clone().into_vec()).collect(),
        env: path.map(|path| [b"PATH=", path.as_bytes()].concat()).into_iter().collect(),
    };
    let there = |path: Vec<u8>| project.join(OsString::from_vec(path)).symlink_metadata().is_ok();
    let errno = error.raw_os_error().unwrap_or_default();
    let denied = errno == Errno::ACCESS.raw_os_error();
    let named = config.command.first().is_some_and(|word| word.as_bytes().contains(&b'/'));
    if denied && !named && !exec.candidates().into_iter().any(there) {
        Errno::NOENT.raw_os_error()
    } else {
        errno
    }
}

fn start(config: &Config, project: &Path) -> std::io::Result<Child> {
    let mut words = config.command.iter();
    let program = words.next().map(|p| p.as_os_str()).unwrap_or_default();
    let mut command = Command::new(program);
    command.args(words).envs(config.env.iter().map(|(name, value)| (name, value)));
    command.current_dir(project);
    umask::as_callers(|| command.spawn())
}

/// Waits for the command. Keys that signal reach it from the terminal itself; what is sent to us alone is passed on.
fn wait(mut child: Child) -> std::io::Result<ExitStatus> {
    let pid = Pid::from_child(&child);
    let ignored = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    for signal in [Signal::INT, Signal::QUIT] {
        signal_hook::flag::register(signal.as_raw(), std::sync::Arc::clone(&ignored))?;
    }
    let mut passed = signal_hook::iterator::Signals::new(
        [Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2].map(Signal::as_raw),
    )?;
    let handle = passed.handle();
    let passer = std::thread::spawn(move || {
        for raw in passed.forever() {
            let known = [Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2];
            if let Some(signal) = known.into_iter().find(|s| s.as_raw() == raw) {
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
    });
    // The thread is asked to stop only after the wait: until then the pid can't be somebody else's.
    wait_unreaped(pid).and_then(|()| {
        handle.close();
        let _ = passer.join();
        child.wait()
    })
}

/// Waits until the command has ended, and leaves it to be reaped.
fn wait_unreaped(pid: Pid) -> std::io::Result<()> {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    loop {
        match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
