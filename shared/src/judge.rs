//! Judging a plan for the helper: every part of it and every operation of its own.
//!
//! The caller is taken to be hostile: it may have signed anything. What makes any plan harmless is that all of it is
//! carried out inside a user namespace that maps the caller's own id and no other, so no operation can reach what the
//! caller could not reach without the helper. The arms below keep, beyond that, the promises about the task. Each says
//! why it is safe, and no wildcard stands for one that doesn't.

use crate::failure::{Failure, Stage, refused, require, require_at};
use crate::limits;
use crate::path::AbsPath;
use crate::plan::{self, Access, LayerOp, Op, Plan, Stdio};
use crate::policy::{Network, SeccompProfile};
use std::collections::{BTreeSet, HashSet};

const STAGE: Stage = Stage::Verify;

/// Entries of the session's folder that say what the session is, or are what a landing is judged by: never shown.
const NEVER_SHOWN: [&[u8]; 7] =
    [b"lock", b"snapshot.json", b"state.json", b"layers", b"launches", b"base", b"log"];

/// Judges all of a plan that can be judged by itself.
pub fn judge(plan: &Plan) -> Result<(), Failure> {
    let named = plan.launch > 0 && !plan.session_dir.is_root();
    require(named, STAGE, "the launch has no number or the session no folder")?;
    match &plan.network {
        // Safe: the caller's own network, or a namespace where only loopback exists.
        Network::Host | Network::None => {}
        // Safe: a namespace with rules that are compiled here, from a policy that is in every way what the parser makes,
        // and loaded before there is a link. The rules live in N, which the caller owns: they can refuse the caller
        // nothing it could have without us, and reach no other namespace. The link is an ordinary process of the
        // caller's: it can connect to what the caller can. Its path, flags and environment are fixed.
        Network::Policy(policy) => {
            policy.flaw().map_or(Ok(()), |flaw| Err(refused(STAGE, flaw)))?
        }
    }
    match (plan.seccomp, &plan.network) {
        // Safe: each profile only takes rights away.
        (SeccompProfile::Restricted, _) | (SeccompProfile::Base, Network::Host | Network::None) => {
        }
        // The rules judge IP packets: with other sockets, or in another namespace, they say nothing.
        (SeccompProfile::Base, Network::Policy(_)) => {
            return Err(refused(STAGE, "a network policy needs the restricted filter"));
        }
    }
    require(plan.ops.len() <= limits::OPS, STAGE, "the plan has too many operations")?;
    let mut seen = Seen::default();
    for (n, op) in plan.ops.iter().enumerate() {
        let first = matches!(op, Op::Root) == (n == 0);
        require(first, STAGE, "the root must come first, and once")?;
        judge_op(op, &mut seen)?;
    }
    let whole = !plan.ops.is_empty() && seen.proc && seen.dev;
    require(whole, STAGE, "the plan has no root, no /proc or no /dev")?;
    let terminal = seen.console || !plan.stdio.contains(&Stdio::Pty);
    require(terminal, STAGE, "the plan wants a terminal but names none")
}

#[derive(Default)]
struct Seen<'a> {
    proc: bool,
    dev: bool,
    console: bool,
    layers: HashSet<&'a str>,
    layer_targets: HashSet<&'a AbsPath>,
    masks: BTreeSet<&'a AbsPath>,
}

fn once(seen: &mut bool, what: &str) -> Result<(), Failure> {
    require(!std::mem::replace(seen, true), STAGE, format!("the plan has {what} twice"))
}

fn judge_op<'a>(op: &'a Op, seen: &mut Seen<'a>) -> Result<(), Failure> {
    match op {
        // Safe for a hostile caller because the bind is recursive (what a mount hides stays hidden), only takes rights
        // away (read-only, nosuid), and has no argument. First, so that all else is made on top of it.
        Op::Root => Ok(()),
        // Safe because a fresh /proc shows the new pid namespace alone; the kernel itself refuses it where parts of the
        // caller's /proc are hidden. Its writable system parts are made read-only, always: root owns them.
        Op::Proc => once(&mut seen.proc, "/proc"),
        // Safe because it is a tmpfs with binds of the host's harmless nodes, which the caller can open anyway. The
        // terminal must be a slave by its name: anything else bound there would be a real file behind 0, 1 and 2.
        Op::Dev { console } => {
            once(&mut seen.dev, "/dev")?;
            seen.console = console.is_some();
            let slave = |path: &AbsPath| {
                require_at(path.is_terminal(), STAGE, path, "this is not a pseudo-terminal's slave")
            };
            console.as_ref().map_or(Ok(()), slave)
        }
        // Safe because an empty tmpfs shows nothing and belongs to the caller; its size is bounded by the kernel's
        // accounting as any memory of the caller's is. Special mode bits but the sticky one have no use here.
        Op::Tmpfs { target, mode, size } => {
            let plain = mode & !0o1777 == 0 && *size > 0;
            require_at(plain, STAGE, target, "the tmpfs has a mode or size that is not allowed")?;
            judge_target(target, seen)
        }
        // Safe because the source lies in a folder that is the caller's alone (checked when it was locked) and is
        // entered beneath it without links. Not the parts that a landing or a resume relies on: the task could forge
        // what the owner is shown.
        Op::Private { source, target, access } => {
            let shown = source.components().next().is_some_and(|top| !NEVER_SHOWN.contains(&top));
            require_at(shown, STAGE, source, "this part of the session's folder is never shown")?;
            match access {
                // In place of what is hidden, too: it shows nothing of that, and takes nothing. So a file can be shown
                // where the host has none, since the mask of a file is made whether or not there is one.
                Access::ReadOnly => {
                    let others = seen.masks.iter().copied().filter(|mask| *mask != target);
                    judge_place(target, &others.collect())
                }
                Access::ReadWrite => judge_target(target, seen),
            }
        }
        Op::Layer(layer) => judge_layer(layer, seen),
        // Safe because the caller can reach the source without us: the namespace maps no other id, and the bind is
        // recursive. Two sources would undo the boundary itself: the whole root again, and the host's /proc, whose
        // system parts are read-only only in the fresh one.
        Op::Bind { source, target, access: Access::ReadOnly | Access::ReadWrite } => {
            let other = !source.is_root() && !source.is_in("/proc");
            require_at(other, STAGE, source, "this path can't be shown a second time")?;
            judge_target(target, seen)
        }
        // Safe because hiding only takes away; what its loss means is for who signed to say.
        Op::Mask { target, kind: _, loss: _ } => {
            let other = !target.is_root() && !is_boundary(target);
            require_at(other, STAGE, target, "this path can't be hidden")?;
            seen.masks.insert(target);
            Ok(())
        }
    }
}

/// A layer. Safe because its upper is the caller's own (beneath the locked folder), its lower is only read, and the
/// kernel checks every access against the caller's id, in a namespace where no other is mapped.
fn judge_layer<'a>(layer: &'a LayerOp, seen: &mut Seen<'a>) -> Result<(), Failure> {
    let LayerOp { id, target, backend: _, masks } = layer;
    let new = seen.layers.insert(id.as_str()) && seen.layer_targets.insert(target);
    require_at(new, STAGE, target, "the plan has this layer twice")?;
    let few = seen.layers.len() <= limits::LAYERS && masks.len() <= limits::LAYER_MASKS;
    require(few, STAGE, "the plan has too many layers or masks")?;
    require_at(layer.masks_are_apart(), STAGE, target, "a mask of this layer lies in another")?;
    let system = ["/proc", "/dev", "/sys"].iter().any(|top| target.is_in(top));
    require_at(!system, STAGE, target, "a layer can't cover system folders")?;
    judge_target(target, seen)
}

/// A place something is shown at: never the root, never the parts that are the boundary, and nothing that opens a mask
/// made before.
fn judge_target(target: &AbsPath, seen: &Seen<'_>) -> Result<(), Failure> {
    judge_place(target, &seen.masks)
}

fn judge_place(target: &AbsPath, masks: &BTreeSet<&AbsPath>) -> Result<(), Failure> {
    let free = !target.is_root() && !is_boundary(target);
    require_at(free, STAGE, target, "nothing can be shown there")?;
    let opens = plan::opens_a_mask(target, masks);
    require_at(!opens, STAGE, target, "this would open a mask again")
}

/// Whether a path is one of those that [`Op::Proc`] and [`Op::Dev`] make.
fn is_boundary(path: &AbsPath) -> bool {
    const DEV: [&[u8]; 4] = [b"/dev", b"/dev/console", b"/dev/ptmx", b"/dev/tty"];
    path.is_in("/proc") || path.is_in("/dev/pts") || DEV.contains(&path.as_bytes())
}

#[cfg(test)]
mod tests;
