//! `landbox-audit`: what an administrator or an auditor types. It never has a privilege that its caller hasn't, and refuses to
//! run where somebody gave it one.
//!
//! Everything it reads may be hostile: it prints printable ASCII alone.

mod explain;
mod replay;
mod trust;

use crate::caps;
use crate::failure::Failure;
use landbox_shared::bytes::plain;
use landbox_shared::evidence::HelperMode;
use landbox_shared::trust::{Place, SYSTEM, config_folder, places};
use landbox_shared::wire::{self, Inspected};
use nix::unistd::geteuid;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
landbox-audit: looks at what landbox-helper was or would be asked to do, and says whose keys it trusts.

  landbox-audit trust add KEY UID [COMMENT..]   enrol a key (as root); landbox doctor prints the words
  landbox-audit trust list                      the keys that are enrolled on this machine
  landbox-audit trust remove ID                 take a key out again (as root); 8 digits of its id will do
  landbox-audit explain < ENVELOPE              what the helper would do, in plain words
  landbox-audit replay ID|FOLDER                check what was read back at each launch of a session against its envelope
  landbox-audit --version | --help

A signature says which enrolled key approved a plan. The key lies in its user's home: it is no wall between two
programs of one user.
";

/// Why it ends other than well.
pub(crate) enum Ending {
    /// Something looked at is not as it should be; it was said.
    Bad,
    /// What was typed makes no sense.
    Usage(&'static str),
    /// It will not do that.
    Refused(String),
    /// It can't do that.
    Failed(String),
}

impl From<Failure> for Ending {
    fn from(failure: Failure) -> Self {
        let text = failure.to_string();
        if failure.errno == 0 { Self::Refused(text) } else { Self::Failed(text) }
    }
}

type Done = Result<(), Ending>;

/// The whole program.
pub fn audit() -> ExitCode {
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (code, why) = match act(&words) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Ending::Bad) => return ExitCode::FAILURE,
        Err(Ending::Failed(why)) => (1, why),
        Err(Ending::Usage(why)) => (2, format!("{why}; landbox-audit --help says what there is")),
        Err(Ending::Refused(why)) => (6, why),
    };
    let _ = writeln!(std::io::stderr(), "landbox-audit: {}", plain(&why));
    ExitCode::from(code)
}

fn act(words: &[&str]) -> Done {
    plain_rights()?;
    match words {
        ["--version"] => say(concat!("landbox-audit ", env!("CARGO_PKG_VERSION"))),
        ["--help" | "help"] => HELP.lines().for_each(say),
        ["trust", "add", key, uid, comment @ ..] => {
            return trust::add(key, uid, &comment.join(" "));
        }
        ["trust", "list"] => return trust::list(),
        ["trust", "remove", id] => return trust::remove(id),
        ["explain"] => return explain::explain(),
        ["replay", session] => return replay::replay(session),
        _ => return Err(Ending::Usage("this is not how it is called")),
    }
    Ok(())
}

fn plain_rights() -> Done {
    let unknown =
        |e: std::io::Error| Ending::Failed(format!("can't tell with what rights it runs: {e}"));
    let exe = File::open(caps::EXE).map_err(unknown)?;
    if caps::facts(&exe, true).map_err(unknown)?.is_plain() {
        return Ok(());
    }
    let why = "landbox-audit runs with no set-id bit and no capability of its own (chmod ug-s, setcap -r)";
    Err(Ending::Refused(why.to_owned()))
}

/// Prints one line, of which nothing can reach the terminal but printable characters.
fn say(line: &str) {
    // Nobody may listen any more.
    let _ = writeln!(std::io::stdout(), "{}", plain(line));
}

/// Who signed an envelope, as far as the keys at hand can tell; whether that speaks against it.
fn signature(envelope: &[u8], Inspected { binding, key, .. }: &Inspected) -> (String, bool) {
    let home = |name: &str| std::env::var_os(name);
    let config = config_folder(home("XDG_CONFIG_HOME"), home("HOME"));
    let mut folders = vec![Place::Roots(PathBuf::from(SYSTEM))];
    folders.extend(places(HelperMode::Unprivileged, true, config, b""));
    let own = geteuid().as_raw() == binding.uid;
    folders.retain(|place| own || matches!(place, Place::Roots(_)));
    match crate::trust::find(&folders, binding.uid, key) {
        Err(failure) => (format!("signed by key {key}, which can't be looked up: {failure}"), true),
        Ok(None) => {
            (format!("said to be signed by key {key}, which is not at hand: NOT CHECKED"), false)
        }
        Ok(Some(found)) => match wire::open(envelope, binding, |_| Some(found)) {
            Ok(_) => (format!("signed by key {key}: checked"), false),
            Err(e) => (format!("NOT signed by key {key}, which it names: {e}"), true),
        },
    }
}
