//! `landbox gc`.

use super::{Invocation, show};
use crate::error::{Context, Result};
use crate::host;
use crate::land::{self, apply, checkpoint, live, undo};
use crate::overlay::remove::{disk_usage, remove_tree};
use crate::session::scratch;
use crate::session::store::{Session, StateDir, show as show_path};
use crate::ui::text::counted;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use landbox_shared::path::AbsPath;
use landbox_shared::policy::{LayerKind, LayerPolicy};
use serde::Serialize;
use std::collections::BTreeSet;

/// Age at which a session that nobody landed counts as expired.
const EXPIRED: SignedDuration = SignedDuration::from_hours(30 * 24);

#[derive(Debug, Args)]
pub(super) struct GcArgs {
    /// List what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Also remove sessions that ended more than 30 days ago and were never landed
    #[arg(long)]
    expired: bool,
}

/// Why a session goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Reason {
    /// Everything in it was landed.
    Landed,
    /// Its changes were thrown away.
    Discarded,
    /// Its start was cut short: nothing ran in it.
    NeverStarted,
    /// It ran without a boundary, so that there is nothing in it.
    Bare,
    /// It is old.
    Expired,
}

/// What becomes of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Goes(Reason),
    /// All of the project's changes were landed, but it holds more.
    Holds(Left),
    Stays,
}

/// What a session holds that its landings left, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Changes that the ignore rules cover.
    Ignored(u64),
    /// Commits that its owner has not got, by the names for them.
    Commits(u64),
    /// Files on other file systems, mounted in the project.
    Mounted(u64),
    /// Checkpoints that its owner asked for, which may hold what was never landed.
    /// And the bytes they take.
    Checkpoints(u64, u64),
}

#[derive(Debug, Serialize)]
struct Removal {
    id: String,
    name: Option<String>,
    reason: Reason,
    bytes: u64,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    dry_run: bool,
    removed: Vec<Removal>,
    leftovers: usize,
    kept: usize,
    undo: Vec<Forgotten>,
}

/// A landing that can't be undone any more.
#[derive(Debug, Serialize)]
struct Forgotten {
    session: String,
    landing: u32,
    bytes: u64,
}

pub(super) fn gc(call: &Invocation, args: GcArgs) -> Result<u8> {
    let home = host::home()?;
    let state = StateDir::open(&StateDir::locate(&home))?;
    let mut report = Report { dry_run: args.dry_run, ..Report::default() };
    let leftovers = state.leftovers()?;
    report.leftovers = leftovers.len();
    if !args.dry_run {
        for path in leftovers {
            remove_tree(&path).context(|| format!("can't remove {}", show_path(&path)))?;
        }
    }
    forget_landings(call, &state, &mut report)?;
    let listing = state.sessions()?;
    for (path, failure) in &listing.broken {
        call.ui.warning(format!("{}: {failure}", show_path(path)));
    }
    report.kept = listing.broken.len();
    let (mut going, mut checkpoints) = (Vec::new(), false);
    for session in listing.sessions {
        if !args.dry_run {
            scratch::sweep(&session.dir);
            checkpoint::sweep(&session);
            // What can't go now goes later.
            let _ = live::clear(&session);
            if !session.is_running()? {
                land::forget_outlived(&session);
            }
        }
        match fate(&session, args.expired)? {
            Fate::Goes(reason) => going.push((session, reason)),
            Fate::Holds(left) => {
                call.ui.status(holds(&session, left));
                checkpoints |= matches!(left, Left::Checkpoints(..));
                report.kept += 1;
            }
            Fate::Stays => report.kept += 1,
        }
    }
    if checkpoints {
        call.ui.status(
            "landbox: of checkpoints, landbox show ID lists them, landbox land ID --checkpoint N shows one, \
             landbox discard ID --checkpoint N removes it",
        );
    }
    // Listed before anything goes: whoever sees one he wants to keep can still stop it.
    for (session, reason) in &going {
        let doing = if args.dry_run { "would remove" } else { "removing" };
        let what = format!("{} {}: {}", session.snapshot.id, word(*reason), describe(session));
        tell(call, args.dry_run, &format!("{doing} {what}"))?;
    }
    for (session, reason) in going {
        let id = session.snapshot.id.to_string();
        let bytes = disk_usage(&session.dir);
        if !args.dry_run {
            // Proof of death: nobody attends it, and the lock that its helper would hold is ours.
            let Some(_stopped) = apply::try_stop(&session)? else {
                report.kept += 1;
                continue;
            };
            // What a landing or an undo that broke off needs of this session must be there for it.
            match apply::recover(&state, &session.snapshot.policy.project) {
                Ok(note) => {
                    note.into_iter().for_each(|note| call.ui.warning(note));
                    state.remove(&session)?;
                }
                Err(failure) => {
                    call.ui.warning(format!("{id} stays: {failure}"));
                    report.kept += 1;
                    continue;
                }
            }
        }
        report.removed.push(Removal { id, name: session.snapshot.name.clone(), reason, bytes });
    }
    if call.ui.json {
        call.ui.document(&report)?;
    } else {
        let bytes: u64 = report.removed.iter().map(|r| r.bytes).sum();
        call.ui.status(format!(
            "landbox: {} {} ({}), {} kept",
            if args.dry_run { "would remove" } else { "removed" },
            counted(report.removed.len() as u64, "session", "sessions"),
            show::size_word(bytes),
            report.kept
        ));
    }
    Ok(0)
}

/// What is done is told; what only would be done is what was asked for.
fn tell(call: &Invocation, dry_run: bool, line: &str) -> Result<()> {
    if dry_run && !call.ui.json {
        return call.ui.result(format!("{line}\n"));
    }
    call.ui.status(format!("landbox: {line}"));
    Ok(())
}

/// Removes what undoing needs of landings that are too old, or too much. Says so, and what rolled-back work left aside.
fn forget_landings(call: &Invocation, state: &StateDir, report: &mut Report) -> Result<()> {
    for gone in undo::sweep(state, report.dry_run)? {
        let done = if report.dry_run { "would forget" } else { "forgot" };
        let what = format!("the landing of {} of {} on {}", gone.at, gone.session, gone.project);
        let size = show::size_word(gone.bytes);
        tell(call, report.dry_run, &format!("{done} how to undo {what} ({size})"))?;
        let session = gone.session.to_string();
        report.undo.push(Forgotten { session, landing: gone.number, bytes: gone.bytes });
    }
    let listing = state.sessions()?;
    let projects: BTreeSet<&AbsPath> =
        listing.sessions.iter().map(|session| &session.snapshot.policy.project).collect();
    for path in projects.into_iter().flat_map(|project| apply::kept(state, project)) {
        call.ui.warning(format!(
            "{} keeps files of a project, from a landing that broke off; put them back or remove them",
            show_path(&path)
        ));
    }
    Ok(())
}

fn word(reason: Reason) -> &'static str {
    match reason {
        Reason::Landed => "(landed)",
        Reason::Discarded => "(discarded)",
        Reason::NeverStarted => "(never started)",
        Reason::Bare => "(ran without a boundary)",
        Reason::Expired => "(expired)",
    }
}

fn describe(session: &Session) -> String {
    let folder = show_path(session.snapshot.policy.project.as_path());
    // Never landed, and gone with the session: what it keeps of itself lies there.
    let home = |layer: &&LayerPolicy| layer.kind == LayerKind::Home;
    let layers = session.snapshot.policy.layers.iter().filter(home);
    let files: u64 = layers.map(|layer| land::layer_files(session, layer).unwrap_or(0)).sum();
    let home = match files {
        0 => String::new(),
        files => format!(", with {} of its home", counted(files, "file", "files")),
    };
    format!("{folder}, created {}{home}", session.snapshot.created_at)
}

/// What the owner is told of a session that stays for what its landings left.
fn holds(session: &Session, left: Left) -> String {
    let id = &session.snapshot.id;
    let (what, next) = match left {
        Left::Ignored(count) => (
            counted(count, "change to ignored files was", "changes to ignored files were"),
            format!(
                "Look at them with landbox diff {id} --with-ignored, take them with landbox land {id} --with-ignored"
            ),
        ),
        Left::Commits(_) => (
            "commits of its own were".to_owned(),
            format!("Take them with landbox land {id} --to-branch NAME --keep-commits"),
        ),
        Left::Mounted(count) => (
            counted(
                count,
                "file on a mounted file system was",
                "files on mounted file systems were",
            ),
            format!(
                "Look at them with landbox diff {id} --layer NAME (landbox show {id} has the names)"
            ),
        ),
        // What is to be done about these is the same for all, and said once.
        Left::Checkpoints(count, bytes) => {
            let (count, bytes) =
                (counted(count, "checkpoint was", "checkpoints were"), show::size_word(bytes));
            return format!("landbox: {id} stays: it was landed, but {count} left in it ({bytes})");
        }
    };
    format!(
        "landbox: {id} stays: it was landed, but {what} left in it. {next}, or throw them away with landbox discard {id}"
    )
}

/// What a session holds whose landings left nothing of the project's changes; `None` where it is no more.
fn left(session: &Session, behind: land::LeftBehind) -> Option<Left> {
    if behind.ignored > 0 {
        return Some(Left::Ignored(behind.ignored));
    }
    if behind.commits > 0 {
        return Some(Left::Commits(behind.commits));
    }
    let mounts = |layer: &&LayerPolicy| layer.kind == LayerKind::Mount;
    let count = |layer: &LayerPolicy| land::layer_files(session, layer).unwrap_or(1);
    let mounted = session.snapshot.policy.layers.iter().filter(mounts).map(count).sum();
    if mounted > 0 {
        return Some(Left::Mounted(mounted));
    }
    // Those that were taken by themselves are a help, and no reason to stay.
    let checkpoints = land::checkpoint::list(session);
    let checkpoints = checkpoints.iter().filter(|c| c.turn.is_none()).count() as u64;
    let bytes = || land::checkpoint::bytes(session);
    (checkpoints > 0).then(|| Left::Checkpoints(checkpoints, bytes()))
}

/// Whether a session may go. A live one always stays.
fn fate(session: &Session, expired: bool) -> Result<Fate> {
    if session.is_running()? {
        return Ok(Fate::Stays);
    }
    let landing = &session.state.landing;
    if landing.discarded_at.is_some() {
        return Ok(Fate::Goes(Reason::Discarded));
    }
    if !session.snapshot.isolated {
        return Ok(Fate::Goes(Reason::Bare));
    }
    if session.has_never_started() {
        return Ok(Fate::Goes(Reason::NeverStarted));
    }
    let is_landed = landing.count > 0 && !show::holds_changes(session);
    // What can't be counted counts as held.
    let behind = if is_landed { land::left_behind(session).ok() } else { None };
    let held = behind.map(|behind| left(session, behind));
    if held == Some(None) {
        return Ok(Fate::Goes(Reason::Landed));
    }
    if expired && is_old(session) {
        return Ok(Fate::Goes(Reason::Expired));
    }
    Ok(held.flatten().map_or(Fate::Stays, Fate::Holds))
}

/// Whether everything about a session lies longer ago than [`EXPIRED`]. A time that can't be read is not old.
fn is_old(session: &Session) -> bool {
    let launches = &session.state.launches;
    let times = launches.iter().flat_map(|l| [Some(&l.started_at), l.ended_at.as_ref()]).flatten();
    times.chain([&session.snapshot.created_at]).all(|text| {
        text.parse::<Timestamp>().is_ok_and(|at| Timestamp::now().duration_since(at) > EXPIRED)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::testing::snapshot;

    #[test]
    fn only_what_is_landed_discarded_or_never_ran_goes_and_the_old_only_on_demand() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(&dir.path().join("state")).unwrap();
        let mut session = state.create(snapshot("aaaaaaaaaa", None)).unwrap();
        assert_eq!(fate(&session, false).unwrap(), Fate::Goes(Reason::NeverStarted));
        session.state.state = crate::session::model::Phase::Exited;
        assert_eq!(fate(&session, false).unwrap(), Fate::Stays);
        assert_eq!(fate(&session, true).unwrap(), Fate::Goes(Reason::Expired));
        session.snapshot.created_at = crate::session::now();
        assert_eq!(fate(&session, true).unwrap(), Fate::Stays);
        session.state.landing.discarded_at = Some(crate::session::now());
        assert_eq!(fate(&session, false).unwrap(), Fate::Goes(Reason::Discarded));
        let _helper = session.try_lock().unwrap();
        assert_eq!(fate(&session, true).unwrap(), Fate::Stays);
    }
}
