//! `landbox ls`.

use super::Invocation;
use super::show::{phase_word, refresh_changes};
use crate::error::Result;
use crate::host;
use crate::session::document::{Document, Findings};
use crate::session::store::{Session, StateDir, show};
use crate::ui::text::visible;
use clap::Args;
use unicode_width::UnicodeWidthStr;

#[derive(Debug, Args)]
pub(super) struct LsArgs {
    /// Scan the layers of every session, also of running ones
    #[arg(long)]
    scan: bool,
}

pub(super) fn ls(call: &Invocation, args: LsArgs) -> Result<u8> {
    let home = host::home()?;
    let state = StateDir::open(&StateDir::locate(&home))?;
    let mut listing = state.sessions()?;
    for (path, failure) in &listing.broken {
        call.ui.warning(format!("{}: {failure}", show(path)));
    }
    let mut findings = Vec::new();
    for session in &mut listing.sessions {
        let running = session.is_running()?;
        if args.scan {
            refresh_changes(session, running);
        } else if running {
            session.state.changes = None;
        }
        let layer_bytes = if args.scan { super::show::layer_bytes(session) } else { Vec::new() };
        let egress = super::policy::traffic(call, session);
        findings.push(Findings {
            running,
            layer_bytes,
            egress,
            ..super::show::kept(&state, session)
        });
    }
    let documents: Vec<Document<'_>> =
        listing.sessions.iter().zip(&findings).map(|(s, f)| Document::new(s, f)).collect();
    if call.ui.json {
        call.ui.document(&serde_json::json!({ "sessions": documents }))?;
    } else if documents.is_empty() {
        call.ui.status("landbox: no sessions; landbox run -- CMD starts one");
    } else {
        call.ui.result(table(&listing.sessions, &documents))?;
    }
    Ok(0)
}

fn table(sessions: &[Session], documents: &[Document<'_>]) -> String {
    let mut rows = vec![
        ["ID", "NAME", "STATE", "CHANGES", "CREATED", "WORKDIR", "COMMAND"].map(str::to_owned),
    ];
    for (session, document) in sessions.iter().zip(documents) {
        let snapshot = &session.snapshot;
        let landing = &session.state.landing;
        let changes = match session.state.changes {
            _ if landing.discarded_at.is_some() => "discarded".into(),
            Some(c) if c.files == 0 && landing.count as usize > landing.undone.len() => {
                "landed".into()
            }
            Some(c) => format!("{} (+{} -{})", c.files, c.added, c.deleted),
            None => "?".into(),
        };
        let minute = snapshot.created_at.get(..16).unwrap_or(&snapshot.created_at);
        rows.push([
            snapshot.id.to_string(),
            snapshot.name.as_deref().map_or_else(|| "-".into(), |n| visible(n.as_bytes())),
            phase_word(document.phase()).into(),
            changes,
            minute.replace('T', " "),
            show(snapshot.policy.project.as_path()),
            shortened(&super::show::command(session)),
        ]);
    }
    let mut widths = [0; 7];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width());
        }
    }
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            line.push_str(cell);
            line.push_str(&" ".repeat(width - cell.width() + 2));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn shortened(text: &str) -> String {
    const MOST: usize = 40;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST - 1).chain(['…']).collect()
}
