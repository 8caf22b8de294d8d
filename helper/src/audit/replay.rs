//! `landbox-audit replay`: what the kernel said at each launch of a session, judged again by its envelope.

use super::{Done, Ending, say, signature};
use crate::failure::{Context, Failure, Stage, failed, require_at};
use crate::open::open_beneath;
use landbox_shared::bytes;
use landbox_shared::holds;
use landbox_shared::id::SessionId;
use landbox_shared::json;
use landbox_shared::judge::judge;
use landbox_shared::limits;
use landbox_shared::wire;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{SFlag, fstat};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const STAGE: Stage = Stage::Evidence;
/// Longest document of a session read.
const DOCUMENT_BYTES: usize = 16 << 20;

/// Checks every launch of a session, which is named by its id, or by its folder.
pub(super) fn replay(session: &str) -> Done {
    let path = folder(session)?;
    let folder = File::open(&path).at(STAGE, &path, "opening the session's folder")?;
    say(&format!("session folder {}", bytes::escape(path.as_os_str().as_bytes())));
    let launches = numbers(&path)?;
    if launches.is_empty() {
        return Err(Ending::Failed("the session was never launched".to_owned()));
    }
    let last = launches.last().copied();
    // Of every launch whose boundary was proved, the digest of its evidence.
    let proofs = texts(&folder, "state.json", &["launches", "boundary", "evidence_digest"])?;
    let mut bad = proofs.is_none();
    if bad {
        say("DOES NOT HOLD: the session's state can't be understood");
    }
    let proofs = proofs.unwrap_or_default();
    let mut left = proofs.len();
    for number in launches {
        let most = wire::EXEC_HEAD + limits::EVENT_BYTES;
        left -= usize::from(left > 0 && read(&folder, &evidence(number), most)?.is_some());
        let named = (last == Some(number)).then(|| proofs.last());
        let (lines, held) = launch(&folder, number, named)?;
        bad |= !held;
        for line in lines {
            say(&format!("launch {number}: {line}"));
        }
    }
    if left > 0 {
        say("DOES NOT HOLD: the session's state names evidence that is not here");
        bad = true;
    }
    if bad { Err(Ending::Bad) } else { Ok(()) }
}

fn evidence(number: u32) -> String {
    format!("launches/{number}/evidence")
}

fn folder(session: &str) -> Result<PathBuf, Ending> {
    if session.contains('/') {
        let path = Path::new(session).canonicalize();
        return Ok(path.at(STAGE, session, "finding the session's folder")?);
    }
    let id = SessionId::new(session).ok_or(Ending::Usage("this is no id of a session"))?;
    let set =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = set("LANDBOX_STATE_DIR")
        .or_else(|| Some(set("XDG_STATE_HOME")?.join("landbox")))
        .or_else(|| Some(set("HOME")?.join(".local/state/landbox")))
        .ok_or(Ending::Usage("HOME is not set; name the session's folder"))?;
    let path = state.join("sessions").join(id.as_str());
    Ok(path.canonicalize().at(STAGE, &path, "finding the session's folder")?)
}

fn numbers(path: &Path) -> Result<Vec<u32>, Failure> {
    const DOING: &str = "listing the launches";
    let path = path.join("launches");
    let list = match std::fs::read_dir(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        list => list.at(STAGE, &path, DOING)?,
    };
    let mut numbers = Vec::new();
    for entry in list {
        let name = entry.at(STAGE, &path, DOING)?.file_name();
        let number = name.to_str().and_then(|name| name.parse::<u32>().ok());
        // One form of a number is a launch's; a folder of another name is none.
        numbers.extend(number.filter(|number| name == number.to_string().as_str()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Lines, and whether what they tell of holds.
type Said = (Vec<String>, bool);

/// What is to be said of one launch. `state`: for the newest one, the evidence that the session's state names, if any.
fn launch(folder: &File, number: u32, state: Option<Option<&String>>) -> Result<Said, Failure> {
    let most = wire::ENVELOPE_HEAD + limits::PLAN_BYTES + wire::ENVELOPE_TAIL;
    let evidence = read(folder, &evidence(number), wire::EXEC_HEAD + limits::EVENT_BYTES)?;
    let Some(envelope) = read(folder, &format!("launches/{number}/envelope"), most)? else {
        let line = match &evidence {
            None => "there is no envelope: nothing was handed to the helper",
            Some(_) => "DOES NOT HOLD: there is evidence, and no envelope",
        };
        return Ok((vec![line.to_owned()], evidence.is_none()));
    };
    let inspected = match wire::inspect(&envelope) {
        Ok(inspected) => inspected,
        Err(e) => return Ok((vec![format!("the envelope can't be read: {e}")], false)),
    };
    let (signed, forged) = signature(&envelope, &inspected);
    let plan = &inspected.plan;
    let mut lines = vec![format!("envelope {}", inspected.digest), signed];
    let mut flaws = Vec::new();
    if !inspected.fits {
        flaws.push("the envelope's digest does not fit its bytes".to_owned());
    }
    if plan.launch != number {
        flaws.push(format!("the envelope is that of launch {}", plan.launch));
    }
    flaws.extend(
        judge(plan).err().map(|failure| format!("the helper refuses such a plan: {failure}")),
    );
    let policies = texts(folder, "snapshot.json", &["policy_digest"])?;
    if policies != Some(vec![plan.policy_digest.to_string()]) {
        flaws.push("the session's snapshot is of another policy".to_owned());
    }
    match evidence {
        None => {
            lines.push("there is no evidence: the boundary was not made, and nothing ran".into())
        }
        Some(frame) => match wire::open_evidence(&frame) {
            Err(e) => flaws.push(format!("the evidence can't be read: {e}")),
            Ok((evidence, digest)) => {
                let (version, mode) = (&evidence.helper_version, evidence.mode.words());
                lines.push(format!("evidence {digest}, by helper {version} {mode}"));
                flaws.extend(holds::check(plan, &inspected.digest, &evidence).err());
                if state.is_some_and(|named| named != Some(&digest.to_string())) {
                    flaws.push("the session's state names other evidence".to_owned());
                }
            }
        },
    }
    let held = flaws.is_empty() && !forged;
    if held {
        lines.push("what the kernel said is what the plan asks for".to_owned());
    }
    lines.extend(flaws.into_iter().map(|flaw| format!("DOES NOT HOLD: {flaw}")));
    Ok((lines, held))
}

/// What stands at a place of one of the session's documents; nothing where there is none, or an empty one. `None` where it
/// can't be understood.
fn texts(folder: &File, name: &str, path: &[&str]) -> Result<Option<Vec<String>>, Failure> {
    let document = read(folder, name, DOCUMENT_BYTES)?.filter(|bytes| !bytes.is_empty());
    let Some(document) = document else { return Ok(Some(Vec::new())) };
    let found = json::texts(&document, path);
    Ok(found.map(|found| found.into_iter().map(bytes::escape).collect()))
}

/// Reads a file of the session's, which whoever owns it may have made anything of. `None` where there is none.
fn read(folder: &File, name: &str, limit: usize) -> Result<Option<Vec<u8>>, Failure> {
    let fd = match open_beneath(folder, name, OFlag::O_RDONLY | OFlag::O_NONBLOCK) {
        Err(Errno::ENOENT) => return Ok(None),
        opened => opened.at(STAGE, name, "opening it")?,
    };
    let mode = fstat(&fd).at(STAGE, name, "reading what it is")?.st_mode;
    let regular = mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
    require_at(regular, STAGE, name, "this is not a regular file")?;
    let mut bytes = Vec::new();
    let read = File::from(fd).take(limit as u64 + 1).read_to_end(&mut bytes);
    read.at(STAGE, name, "reading it")?;
    if bytes.len() > limit {
        return Err(failed(STAGE, Errno::EFBIG, name, "reading it"));
    }
    Ok(Some(bytes))
}
