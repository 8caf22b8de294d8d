//! A real session, run by this very program in a folder of its own below the state folder, so that the same disk, the
//! same helper and the same kernel features are met. Chosen over version numbers: distributions patch their kernels.

use crate::host::{Facts, Kind, config_dir, files, helper};
use crate::overlay::remove::remove_tree;
use crate::ui::text::visible;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A session of an idle machine takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// How the trial's folder is called, and after how long it is nobody's any more.
const PREFIX: &str = ".doctor-";
const ABANDONED: Duration = Duration::from_secs(3600);
/// Everything that half-working overlays get wrong: an opaque folder, a renamed one, a whiteout, and the read-back.
const SCRIPT: &str = "rm -rf d && mkdir d && : > d/x && mkdir n && mv n m && rm gone && echo y > kept && \
                      test ! -e d/old && test ! -e gone && test -d m && test \"$(cat kept)\" = y && echo tried";

/// How it went.
#[derive(Clone, Debug)]
pub(super) struct Outcome(Result<Option<u64>, String>);

impl Outcome {
    /// Whether the session ran, did everything, and left the real files alone.
    pub(super) fn works(&self) -> bool {
        self.0.is_ok()
    }

    /// What failed, in one line.
    pub(super) fn reason(&self) -> String {
        match &self.0 {
            Ok(_) => "it works".to_owned(),
            Err(why) => why.clone(),
        }
    }

    /// The Landlock ABI the session's evidence names.
    pub(super) fn landlock_abi(&self) -> Option<u64> {
        self.0.as_ref().ok().copied().flatten()
    }
}

/// A policy that needs everything a network policy can need, and lets nothing out.
const POLICY: &str =
    r#"{"version": 1, "public": {"mode": "block"}, "private": {"mode": "allowlist"}}"#;

/// Runs one session with the named back end.
pub(super) fn run(facts: &Facts, overlay: &str) -> Outcome {
    one(facts, overlay, "host")
}

/// Runs one session with a network policy.
pub(super) fn run_filtered(facts: &Facts) -> Outcome {
    one(facts, "auto", "policy")
}

fn one(facts: &Facts, overlay: &str, network: &str) -> Outcome {
    let name = format!("{PREFIX}{}-{overlay}-{network}", std::process::id());
    let place = facts.state_dir.as_path().join(name);
    let _ = remove_tree(&place);
    let outcome = attempt(facts, overlay, network == "policy", &place);
    // What can't be removed is said: it would be met again as somebody else's riddle.
    let removed = remove_tree(&place);
    Outcome(outcome.and_then(|abi| match removed {
        Ok(()) => Ok(abi),
        Err(e) => Err(format!("{} can't be removed: {e}", crate::session::store::show(&place))),
    }))
}

fn attempt(
    facts: &Facts,
    overlay: &str,
    filtered: bool,
    place: &Path,
) -> Result<Option<u64>, String> {
    let home = place.join("home");
    let project = home.join("project");
    prepare(place, &project).map_err(|e| format!("the trial's folder can't be made: {e}"))?;
    let report = place.join("report.json");
    let mut command = Command::new(facts.exe.as_path());
    command.args(["run", "--overlay", overlay, "--report"]).arg(&report);
    if filtered {
        let policy = place.join("policy.json");
        std::fs::write(&policy, POLICY).map_err(|e| format!("no policy can be written: {e}"))?;
        command.arg("--network").arg(policy);
        // A proxy is the owner's affair, not the machine's.
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
    }
    command
        .arg("--workdir")
        .arg(&project)
        .args(["--", "/bin/sh", "-c", SCRIPT])
        .current_dir(&project)
        .env("HOME", &home)
        .env("LANDBOX_STATE_DIR", place.join("state"))
        .env("XDG_CONFIG_HOME", configuration(facts, place))
        .env("NO_COLOR", "1")
        .stdin(Stdio::null());
    let (code, out, err) = finish(&mut command)?;
    if code != Some(0) || out.trim() != "tried" {
        return Err(last_error(&err, code));
    }
    let untouched = files::kind_of(project.join("gone")) == Kind::File
        && files::kind_of(project.join("d/old")) == Kind::File
        && files::kind_of(project.join("m")) == Kind::Missing
        && std::fs::read(project.join("kept")).is_ok_and(|bytes| bytes == b"x\n");
    if !untouched {
        return Err("the session changed real files".to_owned());
    }
    let document =
        std::fs::read(&report).map_err(|e| format!("the session left no report: {e}"))?;
    let document: serde_json::Value = serde_json::from_slice(&document)
        .map_err(|e| format!("the session's report can't be read: {e}"))?;
    Ok(document["boundary"]["landlock_abi"].as_u64())
}

/// A folder of its own for a key of its own, unless only an enrolled key counts.
fn configuration(facts: &Facts, place: &Path) -> PathBuf {
    let own = helper::find().is_ok_and(|helper| helper.is_capable()) && facts.uid != 0;
    let real = config_dir(&facts.home_spelled);
    let real = real.parent().filter(|_| own);
    real.map_or_else(|| place.join("config"), Path::to_path_buf)
}

fn prepare(place: &Path, project: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700);
    builder.create(place)?;
    builder.recursive(true).create(project)?;
    builder.create(project.join("d"))?;
    for file in ["d/old", "gone", "kept"] {
        std::fs::write(project.join(file), "x\n")?;
    }
    Ok(())
}

/// Runs a command to its end or to the end of patience: code, stdout, stderr.
fn finish(command: &mut Command) -> Result<(Option<i32>, String, String), String> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("landbox can't be started: {e}"))?;
    let out = reader(child.stdout.take());
    let err = reader(child.stderr.take());
    let until = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                return Ok((status.code(), collect(out), collect(err)));
            }
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                // Its helper and everything below end with it.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("a session did not end within {} s", PATIENCE.as_secs()));
            }
            Err(e) => return Err(format!("a session can't be waited for: {e}")),
        }
    }
}

fn reader(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(from) = from {
            // A line or two; a flood is cut.
            let _ = from.take(64 << 10).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn collect(thread: std::thread::JoinHandle<String>) -> String {
    thread.join().unwrap_or_default()
}

/// The error of a failed session, without the program's name and colours.
fn last_error(err: &str, code: Option<i32>) -> String {
    let mut errors = err.lines().filter_map(|line| line.strip_prefix("landbox: error: "));
    match errors.next_back().or_else(|| err.lines().find(|line| !line.trim().is_empty())) {
        Some(line) => visible(line.trim().as_bytes()),
        None => match code {
            Some(code) => format!("a session ended with code {code}"),
            None => "a session was killed".to_owned(),
        },
    }
}

/// Removes what doctors that were killed left behind. By age alone: the folder may be shared between containers, where
/// a process number says nothing.
pub(super) fn sweep(state_dir: &Path) {
    let Ok(entries) = std::fs::read_dir(state_dir) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        let age = entry.metadata().and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
        if is_ours && age.is_some_and(|age| age > ABANDONED) {
            let _ = remove_tree(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_error_the_session_printed() {
        let err = "landbox: warning: x\nlandbox: error: the boundary can't be made\n  hint: y\n";
        assert_eq!(last_error(err, Some(125)), "the boundary can't be made");
        assert_eq!(last_error("sh: not found\n", Some(127)), "sh: not found");
        assert_eq!(last_error("", Some(3)), "a session ended with code 3");
        assert_eq!(last_error("", None), "a session was killed");
    }

    #[test]
    fn the_trial_folder_holds_what_the_script_needs() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("trial");
        let project = place.join("home/project");
        prepare(&place, &project).unwrap();
        let status = Command::new("/bin/sh").args(["-c", SCRIPT]).current_dir(&project).output();
        assert_eq!(status.unwrap().stdout, b"tried\n");
    }
}
