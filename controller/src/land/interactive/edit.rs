//! A hunk in the owner's editor: a private copy, in a folder of its own in which no other file tells an editor anything.

use crate::error::{Context, Failure, Kind, Result};
use crate::session::scratch::Scratch;
use rustix::termios::{self, OptionalActions};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// An edited hunk is read up to this size.
const MOST: u64 = 16 << 20;

/// Five lines before and five after, so that no line of the session's is where editors look for orders to themselves.
const ABOVE: &str = "\
# To leave out a line that starts with '-', make that a space.
# To leave out a line that starts with '+', delete the line.
# Lines with '+' can be changed and added.
# Lines that start with # are not part of the hunk.
# If nothing else is left, the hunk is not decided on.
";
const BELOW: &str = "#\n#\n#\n#\n# the end of the hunk\n";

/// Lets the owner edit `hunk`. The folder in which that happens is made below `session_dir`, which no session sees.
pub fn edit(hunk: &[u8], session_dir: &Path) -> Result<Vec<u8>> {
    let what = || "can't make a file to edit".to_owned();
    let dir = Scratch::new(session_dir)?;
    let folder = dir.path().join("hunk");
    DirBuilder::new().mode(0o700).create(&folder).context(what)?;
    let file = folder.join("hunk.diff");
    let mut out = OpenOptions::new();
    let mut out = out.write(true).create_new(true).mode(0o600).open(&file).context(what)?;
    let hunk = hunk.strip_prefix(ABOVE.as_bytes()).unwrap_or(hunk);
    let hunk = hunk.strip_suffix(BELOW.as_bytes()).unwrap_or(hunk);
    let text = [ABOVE.as_bytes(), hunk, BELOW.as_bytes()].concat();
    out.write_all(&text).context(what)?;
    drop(out);
    run(&file, &folder)?;
    let mut edited = Vec::new();
    let back = std::fs::File::open(&file).context(|| "the editor left no file".into())?;
    back.take(MOST + 1).read_to_end(&mut edited).context(|| "can't read the edited hunk".into())?;
    if edited.len() as u64 > MOST {
        return Err(Failure::new(Kind::Failed, "the edited hunk is too large"));
    }
    Ok(edited)
}

/// The owner's own words for their editor, taken apart like a shell would but run by none.
fn program() -> Result<Vec<String>> {
    let set = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let typed = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".into());
    let words = shell_words::split(&typed).ok().filter(|words| !words.is_empty());
    words.ok_or_else(|| {
        Failure::new(Kind::Usage, "$VISUAL or $EDITOR is no command line")
            .hint("set it to a program and its options, such as EDITOR='nano -w'")
    })
}

fn run(file: &Path, folder: &Path) -> Result<()> {
    let words = program()?;
    let stdin = std::io::stdin();
    let before = termios::tcgetattr(&stdin).ok();
    // Keys that interrupt are the editor's for the while.
    let heard = Arc::new(AtomicBool::new(false));
    let signals = [signal_hook::consts::SIGINT, signal_hook::consts::SIGQUIT];
    let deaf: Vec<_> = signals
        .iter()
        .filter_map(|signal| signal_hook::flag::register(*signal, Arc::clone(&heard)).ok())
        .collect();
    let status = Command::new(&words[0]).args(&words[1..]).arg(file).current_dir(folder).status();
    for id in deaf {
        signal_hook::low_level::unregister(id);
    }
    if let Some(before) = before {
        let _ = termios::tcsetattr(&stdin, OptionalActions::Drain, &before);
    }
    let shown = crate::ui::text::visible_name(words[0].as_bytes());
    let status = status.map_err(|e| {
        Failure::new(Kind::Failed, format!("can't start the editor {shown}: {e}"))
            .hint("$VISUAL or $EDITOR names it")
    })?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(Kind::Failed, format!("the editor {shown} failed ({status})")))
}
