//! `landbox show`.

use super::Invocation;
use super::checkpoint::label;
use crate::error::Result;
use crate::host::{self, Facts, LaunchView};
use crate::land;
use crate::land::checkpoint::Skipped;
use crate::overlay::remove::disk_usage;
use crate::plan;
use crate::session::document::{self, Document, Findings};
use crate::session::egress::Ledger;
use crate::session::model::{Phase, Snapshot};
use crate::session::store::{Session, StateDir, show as show_path};
use crate::session::traffic;
use crate::ui::text::{counted, visible};
use clap::Args;
use landbox_shared::bytes;
use landbox_shared::event::Status;
use landbox_shared::network::class::ZoneName;
use landbox_shared::network::{NetworkPolicy, Zone};
use landbox_shared::path::AbsPath;
use landbox_shared::policy::Network;
use std::fmt::Write;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// Session; the newest of this directory when left out
    #[arg(value_name = "ID")]
    id: Option<String>,
}

pub(super) fn show(call: &Invocation, args: ShowArgs) -> Result<u8> {
    let facts = Facts::gather()?;
    let state = StateDir::open(facts.state_dir.as_path())?;
    let mut session = state.find(args.id.as_deref(), facts.cwd.as_ref())?;
    let running = session.is_running()?;
    if running || session.state.changes.is_none() {
        refresh_changes(&mut session, running);
    }
    let findings = Findings {
        running,
        layer_bytes: layer_bytes(&session),
        reachable_sockets: reachable_sockets(&session, &facts),
        owner_edits: land::owner_edits(&session, running).unwrap_or_default(),
        egress: super::policy::traffic(call, &session),
        undo: land::undo::summary(&state, &session.snapshot.id),
        checkpoints: land::checkpoint::list(&session),
        checkpoint_bytes: land::checkpoint::bytes(&session),
        skipped: land::checkpoint::skipped(&session),
        receipts: land::receipt::of(&state, &session.snapshot.id),
    };
    let document = Document::new(&session, &findings);
    if call.ui.json {
        call.ui.document(&document)?;
    } else {
        call.ui.result(face(&session, &document, &findings))?;
    }
    Ok(0)
}

/// Writes the session document where `--report` asks for it.
pub(super) fn report(call: &Invocation, session: &Session, findings: &Findings, path: &Path) {
    let written = serde_json::to_vec_pretty(&Document::new(session, findings))
        .map_err(std::io::Error::from)
        .and_then(|mut bytes| {
            bytes.push(b'\n');
            std::fs::write(path, bytes)
        });
    if let Err(e) = written {
        let id = &session.snapshot.id;
        let path = show_path(path);
        call.ui.warning(format!(
            "can't write the report {path}: {e}; landbox show {id} --json prints the same"
        ));
    }
}

/// What is kept beside a session: its checkpoints, the state before its last landing, its receipts.
pub(super) fn kept(state: &StateDir, session: &Session) -> Findings {
    let id = &session.snapshot.id;
    Findings {
        undo: land::undo::summary(state, id),
        checkpoints: land::checkpoint::list(session),
        checkpoint_bytes: land::checkpoint::bytes(session),
        skipped: land::checkpoint::skipped(session),
        receipts: land::receipt::of(state, id),
        ..Findings::default()
    }
}

/// The command of a session, for people.
pub(super) fn command(session: &Session) -> String {
    let plain = |word: &String| bytes::unescape(word).unwrap_or_else(|| word.clone().into_bytes());
    let words: Vec<Vec<u8>> = session.snapshot.command.iter().map(plain).collect();
    visible(&words.join(&b' '))
}

/// Bytes of each layer, in policy order.
pub(super) fn layer_bytes(session: &Session) -> Vec<u64> {
    let layers = session.snapshot.policy.layers.iter();
    layers.map(|layer| disk_usage(&session.upper(&layer.id))).collect()
}

/// Takes the figures of the changes anew, as far as they can be had; `live` says whether the task may still write. Gives the
/// number of changes that the ignore rules cover.
pub(super) fn refresh_changes(session: &mut Session, live: bool) -> u64 {
    let all = match session.snapshot.isolated {
        true => land::counts_and_ignored(session, live).ok(),
        false => None,
    };
    session.state.changes = all.map(|(counts, _)| counts);
    all.map_or(0, |(_, ignored)| ignored)
}

/// Whether a session holds changes that were neither landed nor discarded. What can't be read counts as held.
pub(super) fn holds_changes(session: &Session) -> bool {
    if session.state.landing.discarded_at.is_some() || !session.snapshot.isolated {
        return false;
    }
    let mut fresh = session.clone();
    refresh_changes(&mut fresh, false);
    fresh.state.changes.is_none_or(|counts| counts.files > 0)
}

fn reachable_sockets(session: &Session, facts: &Facts) -> Vec<AbsPath> {
    if !session.snapshot.isolated {
        return Vec::new();
    }
    let policy = &session.snapshot.policy;
    // A host that has changed so much that no plan can be made reaches nothing either.
    LaunchView::gather(policy, facts)
        .and_then(|view| plan::compile(policy, None, &view))
        .map(|plan| plan.reachable_sockets)
        .unwrap_or_default()
}

/// The word for where a session is.
pub(super) fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Running => "running",
        Phase::Exited => "exited",
        Phase::Failed => "failed",
    }
}

/// Bytes for people.
pub(super) fn size_word(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut tenths = u128::from(bytes) * 10 / 1024;
    let mut unit = units[0];
    for larger in &units[1..] {
        if tenths < 10240 {
            break;
        }
        tenths /= 1024;
        unit = larger;
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// Paths of one kind that a person is shown; `--json` has all.
const NAMED: usize = 20;

/// What is hidden because its owner said so: that Landbox's own places are is the same in every session.
fn owners_masks(session: &Session) -> Vec<&AbsPath> {
    let policy = &session.snapshot.policy;
    let home = policy.home.as_path();
    let state = session.dir.ancestors().nth(2).map(Path::to_owned);
    let mut own: Vec<PathBuf> = state.into_iter().chain([host::config_dir(home)]).collect();
    own.extend(host::key_dir(home).ok());
    let beside = host::places::outside(&policy.project, policy.uid);
    own.extend(beside.iter().map(|path| path.as_path().to_owned()));
    let masks = policy.masks.iter().map(|mask| &mask.path);
    masks.filter(|path| !own.iter().any(|own| path.as_path().starts_with(own))).collect()
}

fn face(session: &Session, document: &Document<'_>, findings: &Findings) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(out, "{key:<12} {value}");
    };
    let snapshot = &session.snapshot;
    let policy = &snapshot.policy;
    let name = snapshot.name.as_deref().map(|n| format!(" ({})", visible(n.as_bytes())));
    line("session", &format!("{}{}", snapshot.id, name.unwrap_or_default()));
    if let Some(bot) = &snapshot.bot {
        line("bot", &visible(bot.as_bytes()));
    }
    if let Some(file) = &snapshot.config_file {
        let hidden = policy.masks.iter().any(|mask| file.is_within(&mask.path));
        let note = if hidden || !snapshot.isolated {
            ""
        } else {
            ", which the session can read: --hide it"
        };
        line("config", &format!("{}{note}", visible(file.as_bytes())));
    }
    line("command", &command(session));
    line("workdir", &show_path(policy.project.as_path()));
    line("created", &snapshot.created_at);
    let last = session.state.launches.last();
    let mut state = phase_word(document.phase()).to_owned();
    match last.and_then(|launch| launch.exit) {
        Some(Status::Code(code)) => {
            let _ = write!(state, ", code {code}");
        }
        Some(Status::Signal(signal)) => {
            let _ = write!(state, ", signal {signal}");
        }
        None => {}
    }
    line("state", &state);
    if let Some(failure) = document.failure() {
        let path = failure.path.map(|path| format!(": {path}")).unwrap_or_default();
        line("failure", &format!("{}{path}", visible(failure.message.as_bytes())));
    }
    if !snapshot.isolated {
        line("boundary", "none: the bot has \"sandbox\": false");
        return out;
    }
    line("boundary", &format!("{}; {}", reach(&policy.network), snapshot.policy_digest));
    if let Some(boundary) = last.and_then(|launch| launch.boundary.as_ref()) {
        line("helper", boundary.mode.words());
    }
    if let Network::Policy(network) = &policy.network {
        line("network", &network_words(network));
    }
    for (layer, bytes) in policy.layers.iter().zip(&findings.layer_bytes) {
        let kind = document::layer_kind(layer.kind);
        let overlay = document::overlay(session, layer.backend);
        let target = show_path(layer.target.as_path());
        line("layer", &format!("{kind}: {target}, {overlay}, {}", size_word(*bytes)));
    }
    for path in document.real_writes() {
        line("real write", &show_path(path.as_path()));
    }
    for (key, paths) in
        [("hidden", owners_masks(session)), ("read-only", policy.read_only.iter().collect())]
    {
        for path in paths.iter().take(NAMED) {
            line(key, &show_path(path.as_path()));
        }
        if let Some(more @ 1..) = paths.len().checked_sub(NAMED) {
            line(key, &format!("and {more} more; --json has them"));
        }
    }
    for path in &findings.reachable_sockets {
        line("socket", &show_path(path.as_path()));
    }
    if let (Network::Policy(network), Some(ledger)) = (&policy.network, &findings.egress) {
        for (key, text) in traffic_lines(network, ledger) {
            line(key, &text);
        }
    }
    let landing = &session.state.landing;
    let changes = match session.state.changes {
        Some(c) => {
            format!("{}, +{} -{}", counted(c.files, "file", "files"), c.added, c.deleted)
        }
        None => format!("not counted; landbox diff {} shows them", snapshot.id),
    };
    line("changes", &changes);
    for path in findings.owner_edits.iter().take(NAMED) {
        line("your edit", &format!("{}, which the session changed", visible(path.as_bytes())));
    }
    if let Some(more @ 1..) = findings.owner_edits.len().checked_sub(NAMED) {
        line("your edit", &format!("of {}", counted(more as u64, "more file", "more files")));
    }
    for checkpoint in &findings.checkpoints {
        let message = label(checkpoint);
        let text = format!("{} {} {message}", checkpoint.number, checkpoint.at);
        line("checkpoint", text.trim_end());
    }
    if !findings.checkpoints.is_empty() {
        let (keeps, most) = (findings.checkpoint_bytes, land::checkpoint::MOST_BYTES);
        let text = format!("all of them keep {} of at most {}", size_word(keeps), size_word(most));
        line("checkpoint", &text);
    }
    if let Some(Skipped { turn, at, why }) = &findings.skipped {
        let why = visible(why.as_bytes());
        line("checkpoint", &format!("none {at} before turn {turn}: {why}"));
    }
    if let Some(at) = &landing.discarded_at {
        line("landing", &format!("discarded {at}"));
    } else if let Some(at) = &landing.last_at {
        let undone = match landing.undone.len() {
            0 => String::new(),
            n => format!(", {n} of them undone"),
        };
        let times = counted(landing.count.into(), "time", "times");
        line("landing", &format!("landed {times}, last {at}{undone}"));
    }
    if let Some(undo) = &findings.undo {
        let bytes = size_word(undo.bytes);
        let times = counted(undo.count, "landing", "landings");
        line("undo", &format!("{times}, until {}; keeps {bytes}", undo.until));
    }
    for path in &findings.receipts {
        line("receipt", &show_path(path));
    }
    out
}

fn reach(network: &Network) -> &'static str {
    match network {
        Network::Host => "network of the host",
        Network::None => "loopback alone",
        Network::Policy(_) => "network by the policy's destinations",
    }
}

/// What stands around a session that begins, for whoever asked for more: it was proved before its command runs.
pub(super) fn boundary(session: &Session) -> Vec<String> {
    let Snapshot { id, policy, .. } = &session.snapshot;
    let proved = session.state.launches.last().and_then(|launch| launch.boundary.as_ref());
    let helper = proved.map_or("unknown", |boundary| boundary.mode.words());
    let mut out = vec![format!("session {id}: {}; helper: {helper}", reach(&policy.network))];
    out.extend(policy.layers.iter().map(|layer| {
        let overlay = document::overlay(session, layer.backend);
        let target = show_path(layer.target.as_path());
        format!("layer {}: {target}, {overlay}", document::layer_kind(layer.kind))
    }));
    out
}

fn network_words(policy: &NetworkPolicy) -> String {
    let zone = |name: ZoneName| {
        let zone = policy.zone(name);
        let mode = crate::config::network::mode(zone);
        match (zone, zone.rules().len()) {
            (Zone::Allow | Zone::Block, _) => format!("{name} {mode}"),
            (Zone::Allowlist(_) | Zone::Denylist(_), 1) => format!("{name} {mode} of 1 rule"),
            (Zone::Allowlist(_) | Zone::Denylist(_), n) => format!("{name} {mode} of {n} rules"),
        }
    };
    let servers: Vec<String> = policy.dns_servers.iter().map(ToString::to_string).collect();
    let dns = if servers.is_empty() { "none".to_owned() } else { servers.join(", ") };
    format!("{}, {}, name servers: {dns}", zone(ZoneName::Public), zone(ZoneName::Private))
}

/// Destinations of each list that a person is shown; `--json` has all.
const SHOWN_DESTINATIONS: usize = 10;

fn traffic_lines(policy: &NetworkPolicy, ledger: &Ledger) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    for (key, list) in [("reached", &ledger.reached), ("refused", &ledger.refused)] {
        let rows = traffic::lines(policy, list);
        if list.totals.sum() > 0 || !rows.is_empty() {
            out.push((key, format!("{} in all", list.totals.sum())));
        }
        for row in rows.iter().take(SHOWN_DESTINATIONS) {
            let port = row.port.map(|port| format!(" {port}")).unwrap_or_default();
            let why = traffic::because(policy, row.address, row.by, row.zone, row.rule);
            let (address, protocol, count) = (row.address, &row.protocol, row.count);
            out.push((key, format!("{count} × {address} {protocol}{port} ({why})")));
        }
        if let Some(more) = rows.len().checked_sub(SHOWN_DESTINATIONS).filter(|more| *more > 0) {
            out.push((key, format!("and {more} more destinations; --json has them")));
        }
    }
    if ledger.unlisted() > 0 {
        out.push(("egress", format!("{} more that no line tells of", ledger.unlisted())));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        assert_eq!(size_word(0), "0 B");
        assert_eq!(size_word(1536), "1.5 KiB");
        assert_eq!(size_word(10 << 20), "10.0 MiB");
        assert_eq!(size_word(u64::MAX), "16777215.9 TiB");
    }
}
