//! `landbox-audit explain`: an envelope in plain words.

use super::{Done, Ending, say, signature};
use landbox_shared::explain;
use landbox_shared::judge::judge;
use landbox_shared::wire::{self, Inspected};
use std::io::Read;

/// Reads an envelope, or all that goes through the helper's pipe, from stdin.
pub(super) fn explain() -> Done {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(wire::PIPE_BYTES as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|e| Ending::Failed(format!("can't read stdin: {e}")))?;
    let whole = wire::frames(&bytes).ok();
    let envelope = whole.map_or(&*bytes, |[envelope, _]| envelope);
    let inspected = wire::inspect(envelope).map_err(|e| {
        Ending::Failed(format!("this is no envelope that the helper would read: {e}"))
    })?;
    let Inspected { binding, digest, fits, plan, .. } = &inspected;
    say(&format!("envelope {digest} of {} bytes, made for uid {}", envelope.len(), binding.uid));
    let (signed, mut bad) = signature(envelope, &inspected);
    say(&signed);
    if !fits {
        say("its digest DOES NOT FIT its bytes: the helper refuses it");
        bad = true;
    }
    explain::plan(plan).iter().for_each(|line| say(line));
    if let Some([_, frame]) = whole {
        match wire::open_exec(frame, &plan.exec_digest) {
            Ok(exec) => explain::exec(&exec).iter().for_each(|line| say(line)),
            Err(e) => {
                say(&format!("the command that follows it is refused: {e}"));
                bad = true;
            }
        }
    }
    match judge(plan) {
        Ok(()) => say("the helper finds nothing in this plan to refuse"),
        Err(failure) => {
            say(&format!("the helper REFUSES this plan: {failure}"));
            bad = true;
        }
    }
    if bad { Err(Ending::Bad) } else { Ok(()) }
}
