//! What this machine lacks: one line a fact, and for each that is not well, what that costs and what to type.

mod install;
mod machine;
mod network;
mod project;
mod storage;
mod trial;
mod trust;

pub use install::install_fuse;

use crate::error::Failure;
use crate::host::{Facts, storage::UpperSupport};
use crate::policy::layers::fuse_refuses;
use serde::Serialize;
use std::path::Path;
use trial::Outcome;

/// How a fact stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Nothing to do.
    Ok,
    /// Sessions run, with a limit.
    Warning,
    /// Sessions don't run, or not safely.
    Failed,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// A name for programs, which does not change.
    pub id: &'static str,
    /// How it stands.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What it costs; null where nothing is wrong.
    pub cost: Option<String>,
    /// The command that repairs it; null where nothing is wrong or no command can.
    pub fix: Option<String>,
}

impl Check {
    fn ok(id: &'static str, found: impl Into<String>) -> Self {
        Self { id, status: Status::Ok, found: found.into(), cost: None, fix: None }
    }

    fn bad(
        id: &'static str,
        status: Status,
        found: impl Into<String>,
        cost: impl Into<String>,
        fix: Option<String>,
    ) -> Self {
        Self { id, status, found: found.into(), cost: Some(cost.into()), fix }
    }
}

/// Everything found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whether sessions can run: no check failed.
    pub ok: bool,
    /// The lines, in order.
    pub checks: Vec<Check>,
}

impl Report {
    fn new(checks: Vec<Check>) -> Self {
        Self { ok: !checks.iter().any(|check| check.status == Status::Failed), checks }
    }

    /// Whether fuse-overlayfs is not installed.
    pub fn lacks_fuse(&self) -> bool {
        self.checks.iter().any(|c| c.id == "fuse" && c.fix.as_deref() == Some(&install::command()))
    }
}

/// Looks at this machine. Real sessions are run in a folder of their own below the state folder, which is removed.
pub fn examine() -> Report {
    let facts = match Facts::gather() {
        Ok(facts) => facts,
        Err(failure) => return Report::new(vec![from_failure("environment", failure)]),
    };
    let (state, usable) = storage::state_dir(&facts);
    let mut checks = vec![
        machine::kernel(facts.kernel),
        machine::helper(),
        machine::user_namespaces(facts.uid, &machine::Settings::read()),
        machine::proc_mounts(&facts.mounts),
        state,
    ];
    let trust = trust::enrolled(&facts);
    // Without a key that counts, every other line would say the same.
    let usable = usable && trust.as_ref().is_none_or(|check| check.status == Status::Ok);
    checks.extend(trust);
    if usable {
        trial::sweep(facts.state_dir.as_path());
        let kernel = trial::run(&facts, "kernel");
        let fuse = match fuse_refuses(&facts) {
            None => Some(trial::run(&facts, "fuse")),
            Some(_) => None,
        };
        let restricted = machine::Settings::read().apparmor_restricts;
        checks.push(session(&kernel, fuse.as_ref(), restricted));
        checks.push(storage::kernel_overlay(&facts, &kernel, fuse.as_ref()));
        checks.push(storage::fuse_overlay(&facts, &kernel, fuse.as_ref()));
        let link = network::link();
        let whole = link.iter().all(|check| check.status == Status::Ok);
        checks.extend(link);
        // Where no session can be run, that is what is to be said.
        if whole && (kernel.works() || fuse.as_ref().is_some_and(Outcome::works)) {
            checks.push(network::policy(&facts));
        }
        checks.push(machine::landlock(
            facts.kernel,
            kernel.landlock_abi().or_else(|| fuse.as_ref().and_then(Outcome::landlock_abi)),
        ));
    }
    checks.push(project::foreign_owners(&facts));
    checks.push(machine::git());
    Report::new(checks)
}

/// Whether a session could be run at all, on any back end.
fn session(kernel: &Outcome, fuse: Option<&Outcome>, apparmor: bool) -> Check {
    const ID: &str = "session";
    if kernel.works() || fuse.is_some_and(Outcome::works) {
        return Check::ok(ID, "a real session was run and checked from inside");
    }
    let why = fuse.unwrap_or(kernel).reason();
    let fix = apparmor.then(machine::apparmor_fix).flatten();
    let found = if apparmor {
        format!("{why} (AppArmor takes the rights of unprivileged user namespaces away)")
    } else {
        why
    };
    Check::bad(ID, Status::Failed, found, "no session can be run", fix)
}

fn from_failure(id: &'static str, failure: Failure) -> Check {
    let fix = failure.hints.into_iter().next();
    Check::bad(id, Status::Failed, failure.message, "no session can be run", fix)
}

/// Whether `program` is on the caller's search path.
fn has_program(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    })
}

/// `sudo `, where the caller is not root.
fn sudo() -> &'static str {
    if rustix::process::geteuid().is_root() { "" } else { "sudo " }
}

/// A word for a command line that a person copies.
fn quote(path: &Path) -> String {
    shell_words::quote(&path.to_string_lossy()).into_owned()
}

/// Why the kernel's overlay can't keep its layers in the state folder.
fn upper_problem(facts: &Facts) -> Option<&str> {
    match &facts.upper {
        UpperSupport::Yes => None,
        UpperSupport::No(why) => Some(why),
    }
}
