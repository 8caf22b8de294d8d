//! `landbox run`.

use super::creation::{create, digest, freeze};
use super::outcome::Unstarted;
use super::start::{self, Begun, Starter};
use super::{Invocation, bare};
use crate::config::{self, Config, NetworkChoice, OverlayChoice};
use crate::error::Result;
use crate::host::link::Probe;
use crate::host::owners::require_open;
use crate::host::storage::require_answers;
use crate::host::{self, Facts, Fuse, helper};
use crate::land::apply;
use crate::launch::{self, Refusal};
use crate::policy::{self, Flags, Resolved};
use crate::session::store::StateDir;
use crate::session::{self};
use clap::Args;
use landbox_shared::event::Stage;
use landbox_shared::path::AbsPath;
use landbox_shared::policy::{Backend, Network, Policy};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[derive(Debug, Args)]
#[command(override_usage = "landbox run [OPTIONS] [--] [CMD [ARG]...]")]
pub(super) struct RunArgs {
    /// Take the sandbox settings of this bot (`name`, else a unique `cliId`)
    #[arg(long, value_name = "NAME")]
    bot: Option<String>,
    /// Name the session
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Work in this folder instead of the current one
    #[arg(long, value_name = "DIR")]
    workdir: Option<std::path::PathBuf>,
    /// Show this path as empty
    #[arg(long, value_name = "PATH")]
    hide: Vec<OsString>,
    /// Show this path read-only
    #[arg(long, value_name = "PATH")]
    read_only: Vec<OsString>,
    /// Give the real path, read-write
    #[arg(long, value_name = "PATH")]
    auth: Vec<OsString>,
    /// Network: the host's (on), loopback alone (off), or what the policy in FILE lets through
    #[arg(long, value_name = "on|off|FILE")]
    network: Option<OsString>,
    /// Which overlay writes the layers
    #[arg(long, value_name = "auto|kernel|fuse", value_parser = ["auto", "kernel", "fuse"], hide_possible_values = true)]
    overlay: Option<String>,
    /// Write the session document to FILE at exit
    #[arg(long, value_name = "FILE")]
    report: Option<std::path::PathBuf>,
    // Refused: it is no use where stdout belongs to the command, so help does not list it.
    #[arg(long, hide = true)]
    json: bool,
    /// The command and its arguments
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    command: Vec<OsString>,
}

pub(super) fn run(call: &Invocation, args: RunArgs) -> Result<u8> {
    if let Some(name) = &args.name {
        session::check_name(name)?;
    }
    let network = args.network.as_deref().map(NetworkChoice::from_text).transpose()?;
    let home = host::home()?;
    let env = |name: &str| std::env::var_os(name);
    let config =
        config::load(call.config.as_deref(), args.bot.as_deref(), &args.command, &home, env)?;
    let flags = Flags {
        workdir: args.workdir,
        hide: args.hide,
        read_only: args.read_only,
        auth: args.auth,
        network,
        overlay: args.overlay,
    };
    policy::bare(&config, &flags)?;
    policy::network::supported(&config, &flags)?;
    if config.packaged_helper {
        helper::require_packaged(config.sandbox)?;
    }
    // Where that fails it is tried again, and said, when its turn has come.
    let mut early = if config.sandbox { start::begin().ok() } else { None };
    let result = run_configured(call, config, flags, args.name, args.report.as_deref(), &mut early);
    if let Some(begun) = early {
        begun.abandon();
    }
    result
}

/// Makes the session and sees it through. `early` is the helper, which gets ready meanwhile.
fn run_configured(
    call: &Invocation,
    config: Config,
    flags: Flags,
    name: Option<String>,
    report: Option<&Path>,
    early: &mut Option<Begun>,
) -> Result<u8> {
    let env = |name: &str| std::env::var_os(name);
    let probe = match policy::network::choice(&config, &flags) {
        NetworkChoice::Policy(..) => Some(Probe::start()),
        NetworkChoice::Host | NetworkChoice::None => None,
    };
    let facts = Facts::gather()?;
    let state = StateDir::open(facts.state_dir.as_path())?;
    if !config.sandbox {
        return bare::run(call, &config, &flags, &facts, &state, name, report);
    }
    let Resolved { policy, warnings } = policy::resolve(&config, &flags, &facts, env)?;
    admit(&policy, probe)?;
    put_right(call, &state, &policy.project)?;
    let auto = is_auto(&config, &flags);
    require_answers(&facts.mounts, policy.layers.iter().map(|layer| &layer.target))?;
    require_open(policy.project.as_path())?;
    let shared = facts.writer().warning(policy.project.as_path());
    let mut starter = Starter::new(call, facts, state)?;
    if let Some(warning) = &shared {
        starter.warn(warning);
    }
    for warning in &warnings {
        starter.warn(warning);
    }
    let mut snapshot = freeze(&config, name, policy, true)?;
    let mut may_repeat = true;
    loop {
        let begun = early.take().map_or_else(start::begin, Ok)?;
        let (mut session, attendance) = match create(&starter.state, snapshot.clone()) {
            Ok(made) => made,
            Err(failure) => {
                begun.abandon();
                return Err(failure);
            }
        };
        let unstarted = match starter.launch(&mut session, &config.command, report, begun) {
            Ok(code) => return Ok(code),
            Err(unstarted) => unstarted,
        };
        // Nothing ran: nothing is kept, and the name is free again.
        let retry = auto.then(|| with_fuse(&starter, &unstarted, &snapshot.policy)).flatten();
        let repeat = may_repeat && retry.is_none() && may_have_moved(&unstarted);
        if retry.is_none() && !repeat {
            // For the report alone: a state that can't be written must not keep the folder.
            let _ = unstarted.record(&mut session);
            starter.report(&session, report, Vec::new());
        }
        starter.state.remove(&session)?;
        drop(attendance);
        match retry {
            Some((policy, warning)) => {
                starter.warn(&warning);
                snapshot.policy_digest = digest(&policy)?;
                snapshot.policy = policy;
            }
            None if repeat => {
                may_repeat = false;
                starter.facts = Facts::gather()?;
            }
            None => return tell(call, unstarted, &config.command),
        }
    }
}

/// Whether the host may have changed under the launch: a mount, a socket or a folder that was there when the plan was
/// made is gone. Then the plan is worth making once more.
fn may_have_moved(unstarted: &Unstarted) -> bool {
    match unstarted {
        Unstarted::Refused(Refusal::Helper(failure)) => {
            matches!(failure.stage, Stage::Mount | Stage::Evidence)
        }
        Unstarted::Refused(Refusal::Interrupted(_) | Refusal::Other(_)) | Unstarted::Exec(_) => {
            false
        }
    }
}

/// Refuses a network policy that can't hold: what the task would be given points past it, or this machine lacks what
/// enforces it. Before anything is made.
pub(super) fn admit(policy: &Policy, probe: Option<Probe>) -> Result<()> {
    policy::network::admit(policy, std::env::vars_os())?;
    match (&policy.network, probe) {
        (Network::Host | Network::None, _) => Ok(()),
        (Network::Policy(_), probe) => probe.unwrap_or_else(Probe::start).answer(),
    }
}

/// Undoes a landing on the project that broke off: a session must not see one half of it.
pub(super) fn put_right(call: &Invocation, state: &StateDir, project: &AbsPath) -> Result<()> {
    if let Some(note) = apply::recover(state, project)? {
        call.ui.warning(note);
    }
    super::put_right(call, state);
    Ok(())
}

/// Prints why nothing started; gives the exit code.
pub(super) fn tell(call: &Invocation, unstarted: Unstarted, command: &[OsString]) -> Result<u8> {
    let code = unstarted.code();
    let program = command.first().map(|p| p.as_bytes()).unwrap_or_default();
    if let Some(failure) = unstarted.failure(program) {
        call.ui.failure(&failure);
    }
    Ok(code)
}

fn is_auto(config: &Config, flags: &Flags) -> bool {
    match &flags.overlay {
        Some(choice) => choice == "auto",
        None => config.overlay == OverlayChoice::Auto,
    }
}

/// The policy with the layer that the kernel's overlay could not mount given to fuse-overlayfs, if that may help.
fn with_fuse(
    starter: &Starter<'_>,
    unstarted: &Unstarted,
    policy: &Policy,
) -> Option<(Policy, String)> {
    let Unstarted::Refused(Refusal::Helper(failure)) = unstarted else { return None };
    // The other overlay meets the same limit.
    let limit = launch::limit_met(failure.errno).is_some();
    if failure.stage != Stage::Layer || starter.facts.fuse != Fuse::Yes || limit {
        return None;
    }
    let mut policy = policy.clone();
    let layer = policy
        .layers
        .iter_mut()
        .find(|l| l.target.as_bytes() == failure.path && l.backend == Backend::Kernel)?;
    layer.backend = Backend::Fuse;
    let warning = format!(
        "the kernel's overlay can't be mounted over {}; using fuse-overlayfs, which is slower",
        layer.target
    );
    Some((policy, warning))
}
