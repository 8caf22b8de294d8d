//! What to do: a policy compiled to the ordered operations that make it true on this host. Touches no disk.

mod binds;
mod environment;
mod masks;
mod resolver;

pub use environment::environment;

use crate::error::{Failure, Kind, Result};
use crate::host::{INSIDE, Kind as FileKind, LaunchView};
use binds::{Binding, Role};
use landbox_shared::limits;
use landbox_shared::path::{AbsPath, PathError, RelPath};
use landbox_shared::plan::{Access, LayerOp, Op};
use landbox_shared::policy::{Backend, LayerKind, Policy, SeccompProfile};

/// Size limit of the private `/run`.
const RUN_BYTES: u64 = 64 << 20;
/// Size limit of the private `/dev/shm`. Memory is taken only as it is used.
const SHM_BYTES: u64 = 1 << 30;

/// A plan's operations and what they need in the session's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The operations, in order.
    pub ops: Vec<Op>,
    /// Folders below the session's folder that must exist, with their modes.
    pub private_dirs: Vec<(RelPath, u32)>,
    /// Files below the session's folder, written anew before each launch.
    pub private_files: Vec<PrivateFile>,
    /// Sockets of the host that the session can reach, because the owner shared the path they lie in.
    pub reachable_sockets: Vec<AbsPath>,
    /// Sentences for the terminal.
    pub warnings: Vec<String>,
}

/// A file below the session's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateFile {
    /// Where.
    pub path: RelPath,
    /// What it holds.
    pub bytes: Vec<u8>,
    /// Its permission bits.
    pub mode: u32,
}

/// Compiles `policy` for one launch. `console` is the host's path of the pseudo-terminal's slave, where there is one.
pub fn compile(policy: &Policy, console: Option<AbsPath>, view: &LaunchView) -> Result<Compiled> {
    let mut plan = Compiled {
        ops: Vec::new(),
        private_dirs: Vec::new(),
        private_files: Vec::new(),
        reachable_sockets: Vec::new(),
        warnings: Vec::new(),
    };
    let frozen = policy;
    let policy = &masks::on_this_host(frozen, view);
    base(&mut plan, console, view).map_err(internal)?;
    let resolver = resolver::decide(policy, view)?;
    let bindings = binds::decide(policy, view, resolver.as_ref(), &mut plan.warnings);
    // What links and executables need from /run comes before the layers: a project may lie below /run as well.
    plan.ops.extend(bindings.iter().filter(|b| b.role == Role::Needed).map(Binding::op));
    if let Some(resolver) = &resolver {
        resolver.show(&mut plan, policy, true).map_err(internal)?;
    }
    ssh_copies(&mut plan, view).map_err(internal)?;
    layers(&mut plan, policy, view)?;
    if let Some(resolver) = &resolver {
        resolver.show(&mut plan, policy, false).map_err(internal)?;
    }
    // Deepest last, so that the deepest rule wins.
    plan.ops.extend(bindings.iter().filter(|b| b.role != Role::Needed).map(Binding::op));
    let outside = masks::outside_layers(policy, frozen, &bindings, view);
    plan.ops.extend(outside.ops);
    plan.reachable_sockets = match policy.seccomp {
        SeccompProfile::Base => outside.reachable,
        // No socket of that kind can be made to reach one with.
        SeccompProfile::Restricted => Vec::new(),
    };
    own(&mut plan, view).map_err(internal)?;
    if plan.ops.len() > limits::OPS {
        return Err(Failure::new(
            Kind::Usage,
            format!(
                "{} paths are to be shown or hidden; a session can have {}",
                plan.ops.len(),
                limits::OPS
            ),
        )
        .hint("hide folders instead of the files in them"));
    }
    Ok(plan)
}

fn internal(error: PathError) -> Failure {
    Failure::new(Kind::Failed, format!("can't make the plan: {error}"))
}

fn base(plan: &mut Compiled, console: Option<AbsPath>, view: &LaunchView) -> Result<(), PathError> {
    plan.ops.extend([Op::Root, Op::Proc, Op::Dev { console }]);
    private(plan, "tmp", 0o1777, AbsPath::new("/tmp")?)?;
    if let Some(var_tmp) = &view.var_tmp {
        private(plan, "vartmp", 0o1777, var_tmp.clone())?;
    }
    plan.ops.extend([
        Op::Tmpfs { target: AbsPath::new("/run")?, mode: 0o755, size: RUN_BYTES },
        Op::Tmpfs { target: AbsPath::new("/dev/shm")?, mode: 0o1777, size: SHM_BYTES },
    ]);
    Ok(())
}

fn private(plan: &mut Compiled, name: &str, mode: u32, target: AbsPath) -> Result<(), PathError> {
    let source = RelPath::new(name)?;
    plan.private_dirs.push((source.clone(), mode));
    plan.ops.push(Op::Private { source, target, access: Access::ReadWrite });
    Ok(())
}

fn ssh_copies(plan: &mut Compiled, view: &LaunchView) -> Result<(), PathError> {
    if view.ssh.folder.is_none() && view.ssh.others.is_empty() {
        return Ok(());
    }
    let files = RelPath::new("files")?;
    plan.private_dirs.push((files.clone(), 0o700));
    if let Some(target) = &view.ssh.folder {
        let source = files.join(b"ssh_config.d")?;
        plan.private_dirs.push((source.clone(), 0o755));
        for (name, bytes) in &view.ssh.copies {
            let path = source.join(name)?;
            plan.private_files.push(PrivateFile { path, bytes: bytes.clone(), mode: 0o644 });
        }
        let target = target.clone();
        plan.ops.push(Op::Private { source, target, access: Access::ReadOnly });
    }
    for (number, (target, bytes)) in view.ssh.others.iter().enumerate() {
        let source = files.join(format!("ssh-{number}").as_bytes())?;
        let path = source.clone();
        plan.private_files.push(PrivateFile { path, bytes: bytes.clone(), mode: 0o644 });
        let target = target.clone();
        plan.ops.push(Op::Private { source, target, access: Access::ReadOnly });
    }
    Ok(())
}

fn layers(plan: &mut Compiled, policy: &Policy, view: &LaunchView) -> Result<()> {
    for (at, layer) in policy.layers.iter().enumerate() {
        let kind = view.kinds.iter().find(|(path, _)| *path == layer.target).map(|(_, kind)| *kind);
        if kind != Some(FileKind::Dir) {
            return Err(Failure::new(
                Kind::Refused,
                format!("the folder {} of layer {} is gone", layer.target, layer.id),
            )
            .hint("put it back, or land what the session holds and start a new one"));
        }
        let is_mounted = || view.mounts.iter().any(|mount| mount.point == layer.target);
        if layer.kind == LayerKind::Mount && !is_mounted() {
            return Err(Failure::new(
                Kind::Refused,
                format!(
                    "nothing is mounted at {} any more, which layer {} covers",
                    layer.target, layer.id
                ),
            )
            .hint("mount it again, or land what the session holds and start a new one"));
        }
        let inner = view.mounts.iter().find(|m| m.point.relative_to(&layer.target).is_some());
        if let (Backend::Kernel, Some(inner)) = (layer.backend, inner) {
            return Err(Failure::new(
                Kind::Unavailable,
                format!(
                    "{} was mounted below {} since the session was made, and its overlay can't span mounts",
                    inner.point, layer.target
                ),
            )
            .hint("unmount it, or land what the session holds and start a new one"));
        }
        let masks = masks::inside_layer(policy, at);
        if masks.len() > limits::LAYER_MASKS {
            return Err(Failure::new(
                Kind::Usage,
                format!(
                    "{} paths are to be hidden below {}; a session can have {}",
                    masks.len(),
                    layer.target,
                    limits::LAYER_MASKS
                ),
            )
            .hint("hide folders instead of the files in them"));
        }
        plan.ops.push(Op::Layer(LayerOp {
            id: layer.id.clone(),
            target: layer.target.clone(),
            backend: layer.backend,
            masks,
        }));
    }
    Ok(())
}

/// Landbox's own places inside. Last, so that nothing the owner wrote can cover them.
fn own(plan: &mut Compiled, view: &LaunchView) -> Result<(), PathError> {
    let inside = AbsPath::new(INSIDE)?;
    match &view.exe {
        // By the name of the host program, too: what was written for that one sends by it.
        Some(exe) => {
            for name in ["bin/landbox", "bin/botmux"] {
                let (source, target) = (exe.clone(), inside.join(name)?);
                plan.ops.push(Op::Bind { source, target, access: Access::ReadOnly });
            }
        }
        None => plan.warnings.push(
            "this program's file was replaced while it ran, so there is no landbox inside".into(),
        ),
    }
    private(plan, "outbox", 0o700, inside.join("outbox")?)
}

#[cfg(test)]
mod tests;
