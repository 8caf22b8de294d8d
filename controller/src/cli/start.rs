//! One launch from beginning to end, for `run` and `resume` alike.

use super::outcome::{self, Unstarted};
use super::{Invocation, show};
use crate::config::Checkpoints;
use crate::credentials::Keeper;
use crate::error::{Context, Failure, Kind, Result};
use crate::host::{self, Facts, LaunchView, helper, umask};
use crate::land;
use crate::land::checkpoint::Turns;
use crate::land::watch::{self, Watcher};
use crate::launch::{self, Helper, Launched, Order, Refusal};
use crate::overlay::prepare;
use crate::plan::{self, Compiled};
use crate::pty::signals::Signals;
use crate::pty::{self, Beside, Made, Pace, Relayed, Stdio, Terminal};
use crate::seal::{self, Key};
use crate::session;
use crate::session::document::Findings;
use crate::session::egress::Recorder;
use crate::session::model::{Boundary, ChangeCounts, Launch, Phase};
use crate::session::store::{Session, StateDir, show};
use landbox_shared::digest::Digest;
use landbox_shared::exec::Exec;
use landbox_shared::network::egress::Egress;
use landbox_shared::path::AbsPath;
use landbox_shared::plan::{Op, Plan};
use landbox_shared::policy::Network;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// What every launch of this process needs.
#[derive(Debug)]
pub(super) struct Starter<'a> {
    call: &'a Invocation,
    pub(super) facts: Facts,
    pub(super) state: StateDir,
    signals: Signals,
    key: Key,
    warned: RefCell<BTreeSet<String>>,
}

impl<'a> Starter<'a> {
    /// Gathers it. Signals are caught from here on, so that nothing half made is left behind.
    pub(super) fn new(call: &'a Invocation, facts: Facts, state: StateDir) -> Result<Self> {
        let key = Key::load(facts.key_dir.as_path())?;
        let signals = Signals::install()?;
        Ok(Self { call, facts, state, signals, key, warned: RefCell::default() })
    }

    /// Refuses a session whose frozen policy is not the one that was signed when it started.
    pub(super) fn refuse_unsigned(&self, session: &Session) -> Result<()> {
        if seal::holds(session, &self.key, self.facts.key_dir.as_path()) {
            return Ok(());
        }
        let id = &session.snapshot.id;
        let why = "its policy is not the one that was signed when it started";
        Err(Failure::new(Kind::Refused, format!("session {id}: {why}"))
            .hint(format!("landbox-audit replay {id} says more"))
            .hint(format!("landbox diff {id} and landbox land {id} work without")))
    }

    /// Prints a warning, once however many attempts a launch takes.
    pub(super) fn warn(&self, warning: &str) {
        if self.warned.borrow_mut().insert(warning.to_owned()) {
            self.call.ui.warning(warning);
        }
    }

    /// Launches `session` with `argv` and sees it through: relay, exit, state, figures, report. Gives the exit code.
    pub(super) fn launch(
        &self,
        session: &mut Session,
        argv: &[OsString],
        report: Option<&Path>,
        begun: Begun,
    ) -> Result<u8, Unstarted> {
        let (Relayed { end, lost, leaving: _leaving }, sockets) =
            self.attempt(session, argv, begun)?;
        let (mut code, told) = outcome::conclude(session, end)?;
        // From here on something ran: no failure of ours may look as if nothing had.
        let ignored = settle(session, &self.signals).unwrap_or_else(|failure| {
            let id = &session.snapshot.id;
            let hint = format!("the session is kept: make room, then landbox show {id}");
            self.call.ui.failure(&failure.hint(hint));
            0
        });
        self.report(session, report, sockets);
        if let Some(error) = lost {
            self.call.ui.failure(&outcome::output_lost(error));
            code = outcome::LANDBOX_FAILED;
        }
        match told {
            Some(failure) => self.call.ui.failure(&failure),
            None => self.call.ui.status(outcome::farewell(session, ignored)),
        }
        if let Some(line) = super::policy::refused_line(session) {
            self.call.ui.status(format!("landbox: {line}"));
        }
        Ok(code)
    }

    fn attempt(
        &self,
        session: &mut Session,
        argv: &[OsString],
        begun: Begun,
    ) -> Result<(Relayed, Vec<AbsPath>), Unstarted> {
        let number = session.state.launches.last().map_or(1, |last| last.number + 1);
        let Begun { terminal, stdio, console, helper } = begun;
        let prepared = match self.prepare(session, argv, number, console, stdio.kinds) {
            Ok(prepared) => prepared,
            Err(failure) => {
                helper.abandon();
                return Err(failure.into());
            }
        };
        let Prepared { order, compiled } = prepared;
        let folder = session.dir.join("launches").join(number.to_string());
        let folders = || make_folders(session, number, &compiled, self.facts.config_dir.as_path());
        let mut launched =
            launch::launch(helper, &order, folders, &self.key, &folder, &self.signals)?;
        let sockets = compiled.reachable_sockets;
        let merged = std::mem::take(&mut launched.merged);
        let recorded = record_boundary(session, &launched);
        if recorded.is_ok() {
            self.call.ui.detail(|| show::boundary(session));
        }
        let mut watcher = Watcher::new(session, &merged);
        let ready = recorded.and_then(|()| Keeper::start(session, merged));
        let keeper = match ready {
            Ok(keeper) => keeper,
            Err(failure) => return Err(refuse(launched, failure)),
        };
        let mut traffic = Recorder::new(&folder);
        let mut note = |egress: &Egress| traffic.note(egress);
        let mut later = || watcher.iter_mut().for_each(Watcher::begin);
        let mut turns = match session.snapshot.checkpoints {
            Checkpoints::Turn => Some(Turns::new(session)),
            Checkpoints::Manual => None,
        };
        let pace = turns.as_mut().map(|turns| turns as &mut dyn Pace);
        let beside = Beside { note: &mut note, later: (watch::SHORT, &mut later), pace };
        let relayed = pty::relay(terminal.as_ref(), stdio, launched, &self.signals, beside);
        let mut watches = Vec::new();
        watches.extend(keeper.and_then(Keeper::finish));
        watches.extend(watcher.and_then(Watcher::finish));
        if let Ok(relayed) = &relayed {
            relayed.leaving.hand_over(&watches);
        }
        if let Some(turns) = turns.map(|turns| turns.count()) {
            session.state.turns = turns;
        }
        if let Err(failure) = traffic.finish() {
            self.warn(&format!("where the session's traffic went is not kept: {failure}"));
        }
        Ok((relayed?, sockets))
    }

    /// Makes the session ready for launch `number`. It is written down only with its boundary, before the task is
    /// released: until then nothing has run.
    fn prepare(
        &self,
        session: &mut Session,
        argv: &[OsString],
        number: u32,
        console: Option<AbsPath>,
        stdio: [landbox_shared::plan::Stdio; 3],
    ) -> Result<Prepared> {
        session.state.state = Phase::Starting;
        session.state.changes = None;
        session.state.landing.synced = false;
        session.state.turns = session.state.turns.saturating_add(1);
        session.state.launches.push(Launch {
            number,
            started_at: session::now(),
            ended_at: None,
            exit: None,
            failure: None,
            boundary: None,
            epochs: BTreeMap::new(),
        });
        let policy = &session.snapshot.policy;
        let view = LaunchView::gather(policy, &self.facts)?;
        let mut compiled = plan::compile(policy, console, &view)?;
        for warning in &compiled.warnings {
            self.warn(warning);
        }
        let named = || host::proxies::named_below(policy.home.as_path());
        for warning in crate::policy::network::proxy_warnings(policy, named) {
            self.warn(&warning);
        }
        if let Network::Policy(network) = &policy.network {
            for warning in crate::config::network::shadowed(network, host::routes::networks) {
                self.warn(&warning);
            }
        }
        let env = plan::environment(std::env::vars_os(), policy, &view);
        let exec = Exec { argv: argv.iter().map(|a| a.clone().into_vec()).collect(), env };
        let (exec_frame, exec_digest) = launch::exec_frame(&exec)?;
        let ops = std::mem::take(&mut compiled.ops);
        let plan = make_plan(session, number, stdio, exec_digest, ops)?;
        Ok(Prepared { order: Order { plan, exec_frame }, compiled })
    }

    /// Writes the session document where it was asked for.
    pub(super) fn report(&self, session: &Session, report: Option<&Path>, sockets: Vec<AbsPath>) {
        let Some(path) = report else { return };
        let findings = Findings {
            running: false,
            checkpoints: land::checkpoint::list(session),
            checkpoint_bytes: land::checkpoint::bytes(session),
            skipped: land::checkpoint::skipped(session),
            layer_bytes: super::show::layer_bytes(session),
            reachable_sockets: sockets,
            owner_edits: land::owner_edits(session, false).unwrap_or_default(),
            egress: super::policy::traffic(self.call, session),
            undo: crate::land::undo::summary(&self.state, &session.snapshot.id),
            receipts: crate::land::receipt::of(&self.state, &session.snapshot.id),
        };
        super::show::report(self.call, session, &findings, path);
    }
}

/// A helper that is getting ready, and what its task will have for descriptors.
#[derive(Debug)]
pub(super) struct Begun {
    terminal: Option<Terminal>,
    stdio: Stdio,
    console: Option<AbsPath>,
    helper: Helper,
}

/// Starts the helper, first of all: it gets ready on another processor while the session is made.
pub(super) fn begin() -> Result<Begun> {
    let terminal = Terminal::find();
    let Made { stdio, task, console } = Stdio::make(terminal.as_ref())?;
    let program = helper::find()?.path;
    let helper = umask::as_callers(|| launch::start(&program, task))?;
    Ok(Begun { terminal, stdio, console, helper })
}

impl Begun {
    /// For a launch that does not come about.
    pub(super) fn abandon(self) {
        self.helper.abandon();
    }
}

/// What a launch needs.
struct Prepared {
    order: Order,
    /// The rest of what was compiled: the folders that are to be made, and what is to be told.
    compiled: Compiled,
}

/// Makes what the plan mounts. What time it is before that is written down with the launch.
fn make_folders(
    session: &mut Session,
    number: u32,
    compiled: &Compiled,
    config: &Path,
) -> Result<()> {
    let policy = &session.snapshot.policy;
    prepare::private(&session.dir, compiled)?;
    prepare::layers(&session.dir, policy, number)?;
    if let Some(launch) = session.state.launches.last_mut() {
        launch.epochs = prepare::epochs(policy, &[&session.dir, config]);
    }
    Ok(())
}

/// Writes the end of a session down, with the figures of its changes. Gives the number of those to ignored files.
fn settle(session: &mut Session, signals: &Signals) -> Result<u64> {
    let mut ignored = 0;
    if land::is_untouched(session) {
        session.state.changes = Some(ChangeCounts { files: 0, added: 0, deleted: 0 });
    } else {
        // Before the scan, which may take a while: nobody need wait for it.
        session.save_run()?;
        signals.let_go();
        ignored = super::show::refresh_changes(session, false);
    }
    session.save_run()?;
    Ok(ignored)
}

fn make_plan(
    session: &Session,
    launch: u32,
    stdio: [landbox_shared::plan::Stdio; 3],
    exec_digest: Digest,
    ops: Vec<Op>,
) -> Result<Plan> {
    let policy = &session.snapshot.policy;
    let session_dir = AbsPath::from_path(&session.dir)
        .context(|| format!("can't use the session folder {}", show(&session.dir)))?;
    Ok(Plan {
        session: session.snapshot.id.clone(),
        policy_digest: session.snapshot.policy_digest,
        session_dir,
        launch,
        uid: policy.uid,
        gid: policy.gid,
        stdio,
        cwd: policy.project.clone(),
        network: policy.network.clone(),
        seccomp: policy.seccomp,
        exec_digest,
        ops,
    })
}

/// Ends a boundary that stands although something on our side failed.
fn refuse(launched: Launched, failure: Failure) -> Unstarted {
    let Launched { mut child, events, .. } = launched;
    drop(events);
    launch::reap(&mut child);
    Unstarted::Refused(Refusal::Other(failure))
}

fn record_boundary(session: &mut Session, launched: &Launched) -> Result<()> {
    let evidence = &launched.evidence;
    if session.snapshot.packaged_helper {
        helper::require_rights(evidence.mode)?;
    }
    let own = evidence.namespaces.iter().filter(|ns| ns.own).map(|ns| ns.kind.clone());
    if let Some(launch) = session.state.launches.last_mut() {
        launch.boundary = Some(Boundary {
            mode: evidence.mode,
            owner_map: evidence.owner_map,
            namespaces: own.collect(),
            evidence_digest: launched.evidence_digest,
            landlock_abi: evidence.landlock_abi,
        });
    }
    session.state.state = Phase::Running;
    // A landing of what an earlier launch left may have been written down meanwhile.
    session.save_run()
}
