//! Judging: signature and digest first, then, decoded, every part of the plan and every operation of its own.
//!
//! The caller is taken to be hostile: it may have signed anything. What makes any plan harmless is that all of it is
//! carried out inside a user namespace that maps the caller's own id and no other, so no operation can reach what the
//! caller could not reach without us. The arms below keep, beyond that, the promises about the task.

use crate::failure::{refused, refused_at};
use crate::stage::{Received, Verified};
use crate::trust;
use landbox_shared::event::{Failure, Stage};
use landbox_shared::exec::Exec;
use landbox_shared::limits;
use landbox_shared::path::{AbsPath, RelPath};
use landbox_shared::plan::{Access, LayerOp, Op, Plan, Stdio};
use landbox_shared::policy::{Network, SeccompProfile};
use landbox_shared::wire;
use nix::sys::stat::{SFlag, fstat};
use std::collections::{BTreeSet, HashSet};
use std::os::fd::BorrowedFd;

const STAGE: Stage = Stage::Verify;

/// Entries of the session's folder that say what the session is, or are what a landing is judged by: never shown.
const NEVER_SHOWN: [&[u8]; 7] =
    [b"lock", b"snapshot.json", b"state.json", b"layers", b"launches", b"base", b"log"];

/// Checks the two frames and judges the plan.
pub(crate) fn verify(received: Received) -> Result<Verified, Failure> {
    let Received { caller, binding, envelope, exec } = received;
    let mut trouble = None;
    let opened = wire::open(&envelope, &binding, |id| {
        trust::find(&caller, id).unwrap_or_else(|failure| {
            trouble = Some(failure);
            None
        })
    });
    let opened = match (opened, trouble) {
        (_, Some(failure)) => return Err(failure),
        (Err(e), None) => return Err(refused(STAGE, e)),
        (Ok(opened), None) => opened,
    };
    let plan = opened.plan;
    let exec = wire::open_exec(&exec, &plan.exec_digest).map_err(|e| refused(STAGE, e))?;
    if (plan.uid, plan.gid) != (caller.uid, caller.gid) {
        return Err(refused(STAGE, "the plan is for another user or group"));
    }
    judge_exec(&exec)?;
    judge_plan(&plan)?;
    Ok(Verified { caller, plan, exec, envelope_digest: opened.digest })
}

fn judge_exec(exec: &Exec) -> Result<(), Failure> {
    if exec.argv.first().is_none_or(Vec::is_empty) {
        return Err(refused(STAGE, "the command is empty"));
    }
    if exec.argv.iter().chain(&exec.env).any(|text| text.contains(&0)) {
        return Err(refused(STAGE, "a NUL byte in an argument or in the environment"));
    }
    Ok(())
}

fn judge_plan(plan: &Plan) -> Result<(), Failure> {
    if plan.launch == 0 || plan.session_dir.is_root() {
        return Err(refused(STAGE, "the launch has no number or the session no folder"));
    }
    match plan.network {
        // Safe: the caller's own network, or a namespace where only loopback exists.
        Network::Host | Network::None => {}
    }
    match plan.seccomp {
        SeccompProfile::Base => {}
    }
    if plan.ops.len() > limits::OPS {
        return Err(refused(STAGE, "the plan has too many operations"));
    }
    let mut seen = Seen::default();
    for (n, op) in plan.ops.iter().enumerate() {
        judge_op(op, n == 0, &mut seen)?;
    }
    if !(seen.root && seen.proc && seen.dev) {
        return Err(refused(STAGE, "the plan has no root, no /proc or no /dev"));
    }
    if plan.stdio.contains(&Stdio::Pty) && !seen.console {
        return Err(refused(STAGE, "the plan wants a terminal but names none"));
    }
    judge_stdio(&plan.stdio)
}

/// A descriptor opened by the caller leads, re-opened through `/proc/self/fd`, to the real file through the caller's
/// own mount, whatever is read-only inside. So a pipe, or nothing of the caller's: a terminal is opened anew.
fn judge_stdio(stdio: &[Stdio; 3]) -> Result<(), Failure> {
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let fds: [BorrowedFd<'_>; 3] = {
        use std::os::fd::AsFd;
        [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()]
    };
    for (n, (kind, fd)) in stdio.iter().zip(fds).enumerate() {
        match kind {
            Stdio::Pty => {}
            Stdio::Pipe => {
                let mode = fstat(fd).map_or(0, |stat| stat.st_mode);
                if mode & SFlag::S_IFMT.bits() != SFlag::S_IFIFO.bits() {
                    return Err(refused(STAGE, format!("descriptor {n} is not a pipe")));
                }
            }
        }
    }
    Ok(())
}

#[derive(Default)]
struct Seen<'a> {
    root: bool,
    proc: bool,
    dev: bool,
    console: bool,
    layers: HashSet<&'a str>,
    layer_targets: HashSet<&'a AbsPath>,
    masks: BTreeSet<&'a AbsPath>,
}

fn once(seen: &mut bool, what: &str) -> Result<(), Failure> {
    if std::mem::replace(seen, true) {
        return Err(refused(STAGE, format!("the plan has {what} twice")));
    }
    Ok(())
}

fn judge_op<'a>(op: &'a Op, first: bool, seen: &mut Seen<'a>) -> Result<(), Failure> {
    if first != matches!(op, Op::Root) {
        return Err(refused(STAGE, "the root must come first, and once"));
    }
    match op {
        // Safe for a hostile caller because the bind is recursive (what a mount hides stays hidden), only takes rights
        // away (read-only, nosuid), and has no argument. First, so that all else is made on top of it.
        Op::Root => once(&mut seen.root, "the root"),
        // Safe because a fresh /proc shows the new pid namespace alone; the kernel itself refuses it where parts of the
        // caller's /proc are hidden. Its writable system parts are made read-only, always: root owns them.
        Op::Proc => once(&mut seen.proc, "/proc"),
        // Safe because it is a tmpfs with binds of the host's harmless nodes, which the caller can open anyway. The
        // terminal must be a slave by its name: anything else bound there would be a real file behind 0, 1 and 2.
        Op::Dev { console } => {
            once(&mut seen.dev, "/dev")?;
            match console {
                Some(path) if !is_slave(path) => {
                    Err(refused_at(STAGE, path.as_bytes(), "this is not a pseudo-terminal's slave"))
                }
                console => {
                    seen.console = console.is_some();
                    Ok(())
                }
            }
        }
        // Safe because an empty tmpfs shows nothing and belongs to the caller; its size is bounded by the kernel's
        // accounting as any memory of the caller's is. Special mode bits but the sticky one have no use here.
        Op::Tmpfs { target, mode, size } => {
            if mode & !0o1777 != 0 || *size == 0 {
                return Err(refused_at(
                    STAGE,
                    target.as_bytes(),
                    "the tmpfs has a mode or size that is not allowed",
                ));
            }
            judge_target(target, seen)
        }
        // Safe because the source lies in a folder that is the caller's alone (checked when it was locked) and is
        // entered beneath it without links. Not the parts that a landing or a resume relies on: the task could forge
        // what the owner is shown.
        Op::Private { source, target, access: Access::ReadOnly | Access::ReadWrite } => {
            if source.components().next().is_none_or(|first| NEVER_SHOWN.contains(&first)) {
                return Err(refused_at(
                    STAGE,
                    source.as_bytes(),
                    "this part of the session's folder is never shown",
                ));
            }
            judge_target(target, seen)
        }
        Op::Layer(layer) => judge_layer(layer, seen),
        // Safe because the caller can reach the source without us: the namespace maps no other id, and the bind is
        // recursive. Two sources would undo the boundary itself: the whole root again, and the host's /proc, whose
        // system parts are read-only only in the fresh one.
        Op::Bind { source, target, access: Access::ReadOnly | Access::ReadWrite } => {
            if source.is_root() || within(source, b"/proc") {
                return Err(refused_at(
                    STAGE,
                    source.as_bytes(),
                    "this path can't be shown a second time",
                ));
            }
            judge_target(target, seen)
        }
        // Safe because hiding only takes away; what its loss means is for who signed to say.
        Op::Mask { target, kind: _, loss: _ } => {
            if target.is_root() || is_boundary(target) {
                return Err(refused_at(STAGE, target.as_bytes(), "this path can't be hidden"));
            }
            seen.masks.insert(target);
            Ok(())
        }
    }
}

/// A layer. Safe because its upper is the caller's own (beneath the locked folder), its lower is only read, and the
/// kernel checks every access against the caller's id, in a namespace where no other is mapped.
fn judge_layer<'a>(layer: &'a LayerOp, seen: &mut Seen<'a>) -> Result<(), Failure> {
    let LayerOp { id, target, backend: _, masks } = layer;
    if !seen.layers.insert(id.as_str()) || !seen.layer_targets.insert(target) {
        return Err(refused_at(STAGE, target.as_bytes(), "the plan has this layer twice"));
    }
    if seen.layers.len() > limits::LAYERS || masks.len() > limits::LAYER_MASKS {
        return Err(refused(STAGE, "the plan has too many layers or masks"));
    }
    let all: HashSet<&RelPath> = masks.iter().map(|mask| &mask.path).collect();
    let below_another = |path: &RelPath| {
        std::iter::successors(path.parent(), RelPath::parent).any(|parent| all.contains(&parent))
    };
    if all.len() != masks.len() || all.iter().any(|path| below_another(path)) {
        return Err(refused_at(STAGE, target.as_bytes(), "a mask of this layer lies in another"));
    }
    if ["/proc", "/dev", "/sys"].iter().any(|top| within(target, top.as_bytes())) {
        return Err(refused_at(STAGE, target.as_bytes(), "a layer can't cover system folders"));
    }
    judge_target(target, seen)
}

/// A place something is shown at: never the root, never the parts that are the boundary, and nothing that opens a mask
/// made before.
fn judge_target(target: &AbsPath, seen: &Seen<'_>) -> Result<(), Failure> {
    if target.is_root() || is_boundary(target) {
        return Err(refused_at(STAGE, target.as_bytes(), "nothing can be shown there"));
    }
    let inside = std::iter::successors(Some(target.clone()), AbsPath::parent)
        .any(|ancestor| seen.masks.contains(&ancestor));
    // Sorted by bytes, whatever lies below a path comes after it, but not always next to it.
    let covers = seen
        .masks
        .range::<AbsPath, _>(target..)
        .take_while(|m| m.as_bytes().starts_with(target.as_bytes()));
    if inside || covers.into_iter().any(|mask| mask.is_within(target)) {
        return Err(refused_at(STAGE, target.as_bytes(), "this would open a mask again"));
    }
    Ok(())
}

/// Whether a path is one of those that [`Op::Proc`] and [`Op::Dev`] make.
fn is_boundary(path: &AbsPath) -> bool {
    const DEV: [&[u8]; 4] = [b"/dev", b"/dev/console", b"/dev/ptmx", b"/dev/tty"];
    within(path, b"/proc") || within(path, b"/dev/pts") || DEV.contains(&path.as_bytes())
}

fn within(path: &AbsPath, top: &[u8]) -> bool {
    path.as_bytes().strip_prefix(top).is_some_and(|r| r.is_empty() || r.starts_with(b"/"))
}

fn is_slave(path: &AbsPath) -> bool {
    path.as_bytes()
        .strip_prefix(b"/dev/pts/")
        .is_some_and(|number| number.len() <= 10 && number.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
pub(crate) mod tests;
