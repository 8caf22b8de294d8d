//! `landbox receipt`.

use super::Invocation;
use crate::error::{Context, Failure, Kind, Result};
use crate::host;
use crate::land::receipt::{Event, Verdict, verify};
use crate::seal::trusted;
use crate::session::store::show;
use crate::ui::text::{counted, visible};
use clap::{Args, Subcommand};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct ReceiptArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check that a receipt is whole, unchanged and signed with a key of yours
    Verify {
        /// Receipt, as `landbox show` names it
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// Where to find one.
const WHERE: &str = "landbox show ID lists the receipts of a session";
/// Larger than the receipt of a million paths.
const MOST: u64 = 1 << 30;

pub(super) fn receipt(call: &Invocation, args: ReceiptArgs) -> Result<u8> {
    let Action::Verify { file } = args.action;
    let bytes = read(&file)?;
    let keys = trusted(&host::key_dir(&host::home()?)?)?;
    let verdict = verify(&bytes, &keys)
        .map_err(|failure| Failure { message: format!("{}: {failure}", show(&file)), ..failure })
        .map_err(|failure| failure.hint(WHERE))?;
    if call.ui.json {
        call.ui.document(&serde_json::json!({
            "valid": verdict.fault.is_none(),
            "reason": verdict.fault,
            "key": verdict.key.map(|key| key.to_string()),
            "receipt": verdict.receipt,
        }))?;
    } else {
        tell(call, &file, &verdict)?;
    }
    Ok(u8::from(verdict.fault.is_some()))
}

fn tell(call: &Invocation, file: &Path, verdict: &Verdict) -> Result<()> {
    if let Some(fault) = verdict.fault {
        return call.ui.result(format!("{}: NOT GOOD: {fault}\n", show(file)));
    }
    let (Some(receipt), Some(key)) = (&verdict.receipt, &verdict.key) else { return Ok(()) };
    let word = match receipt.kind {
        Event::Landing => "landing",
        Event::Undo => "undo of landing",
    };
    // What a receipt says is data: names in it may hold anything.
    let text = |text: &str| visible(text.as_bytes());
    let who = match &receipt.user {
        Some(user) => format!("{} (uid {})", text(user), receipt.uid),
        None => format!("uid {}", receipt.uid),
    };
    call.ui.result(format!(
        "{}: good\n{word} {} of session {}, {} in {}\nby {who} at {}\nchanges {}\nkey {key}\n",
        show(file),
        receipt.number,
        receipt.session,
        counted(receipt.changes.len() as u64, "path", "paths"),
        text(&receipt.project),
        text(&receipt.at),
        receipt.changeset_digest
    ))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let unreadable = |e: std::io::Error| {
        Failure::new(Kind::Usage, format!("can't read {}: {e}", show(path))).hint(WHERE)
    };
    let file = File::open(path).map_err(unreadable)?;
    let meta = file.metadata().context(|| format!("can't read {}", show(path)))?;
    if meta.is_dir() {
        return Err(Failure::new(Kind::Usage, format!("{} is a folder", show(path))).hint(WHERE));
    }
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}
