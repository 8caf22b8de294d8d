//! Which folders get a layer, and which overlay writes each.

use crate::config::OverlayChoice;
use crate::error::{Failure, Kind, Result};
use crate::host::mounts::covering;
use crate::host::storage::{is_pseudo, refused_as_lower};
use crate::host::{Facts, Fuse, Kind as FileKind, Mount, UpperSupport};
use landbox_shared::id::LayerId;
use landbox_shared::limits;
use landbox_shared::path::AbsPath;
use landbox_shared::policy::{Backend, LayerKind, LayerPolicy, Mask};

/// The first kernel whose overlay an ordinary user can mount.
const OVERLAY_IN_USER_NAMESPACE: (u32, u32) = (5, 11);

/// The layers of a session and what could not have one.
#[derive(Debug)]
pub(super) struct Layers {
    pub(super) layers: Vec<LayerPolicy>,
    /// Mounts inside a layer that are shown read-only.
    pub(super) read_only: Vec<AbsPath>,
    pub(super) warnings: Vec<String>,
}

/// A folder that gets a layer.
struct Wanted {
    kind: LayerKind,
    target: AbsPath,
}

/// Decides the layers. `common` is the common folder of a linked worktree; `read_only` what the owner wants read-only.
pub(super) fn decide(
    facts: &Facts,
    project: &AbsPath,
    common: Option<AbsPath>,
    masks: &[Mask],
    read_only: &[AbsPath],
    choice: OverlayChoice,
) -> Result<Layers> {
    let mut found = Layers { layers: Vec::new(), read_only: Vec::new(), warnings: Vec::new() };
    let mut wanted = vec![Wanted { kind: LayerKind::Project, target: project.clone() }];
    if facts.home != *project {
        wanted.push(Wanted { kind: LayerKind::Home, target: facts.home.clone() });
    }
    let hidden = |path: &AbsPath| masks.iter().any(|mask| path.is_within(&mask.path));
    let shut = |path: &AbsPath| hidden(path) || read_only.iter().any(|ro| path.is_within(ro));
    let taken = |wanted: &[Wanted], path: &AbsPath| wanted.iter().any(|w| w.target == *path);
    if let Some(common) = common.filter(|common| !taken(&wanted, common)) {
        if facts.home.is_within(&common) || facts.state_dir.is_within(&common) {
            found.warnings.push(format!(
                "the repository's folder {common} holds your home folder or Landbox's state, so it stays read-only: commits inside will fail"
            ));
        } else if shut(&common) {
            found.warnings.push(format!(
                "the repository's folder {common} is hidden or read-only: commits inside will fail"
            ));
        } else {
            wanted.push(Wanted { kind: LayerKind::Worktree, target: common });
        }
    }
    let outer: Vec<AbsPath> = wanted.iter().map(|w| w.target.clone()).collect();
    for mount in nested(&facts.mounts, &outer) {
        if taken(&wanted, &mount.point) || shut(&mount.point) {
            continue;
        }
        // Asking a server that is away may hang; a mount point is a folder unless it shows part of a file system.
        let is_dir = mount.root == b"/"
            || crate::host::files::kind_of(mount.point.as_path()) == FileKind::Dir;
        if mount.fs_type == "proc" {
            // The plan hides every /proc but the session's own.
            found
                .warnings
                .push(format!("{} shows the host's processes and is hidden", mount.point));
        } else if is_pseudo(&mount.fs_type) {
            found.read_only.push(mount.point.clone());
            found.warnings.push(format!(
                "{} is a {} mount and can't be written inside",
                mount.point, mount.fs_type
            ));
        } else if is_dir {
            wanted.push(Wanted { kind: LayerKind::Mount, target: mount.point.clone() });
        }
        // A single file that is mounted shows through fuse-overlayfs, which such a layer gets.
    }
    // Outermost first, and a stable order among neighbours.
    wanted.sort_by(|a, b| (a.target.depth(), &a.target).cmp(&(b.target.depth(), &b.target)));
    if wanted.len() > limits::LAYERS {
        return Err(Failure::new(
            Kind::Unavailable,
            format!(
                "{} file systems are mounted below {} and {project}; Landbox layers at most {}",
                wanted.len(),
                facts.home,
                limits::LAYERS
            ),
        )
        .hint("hide some of them: --hide PATH"));
    }
    let mut number = 0;
    for want in wanted {
        let name = match want.kind {
            LayerKind::Home => "home".to_owned(),
            LayerKind::Project => "project".to_owned(),
            LayerKind::Worktree => "worktree".to_owned(),
            LayerKind::Mount => {
                number += 1;
                format!("mount-{number}")
            }
        };
        let id = LayerId::new(&name).ok_or_else(|| {
            Failure::new(Kind::Failed, format!("{name} can't be the name of a layer"))
        })?;
        match backend(facts, &want.target, choice) {
            Ok(backend) => {
                found.layers.push(LayerPolicy {
                    id,
                    kind: want.kind,
                    target: want.target,
                    backend,
                });
            }
            // Home and project are the session; without the others it can live.
            Err(failure) => match want.kind {
                LayerKind::Home | LayerKind::Project => return Err(failure),
                LayerKind::Mount | LayerKind::Worktree => {
                    found.warnings.push(format!(
                        "{} can't be written inside: {}",
                        want.target, failure.message
                    ));
                    found.read_only.push(want.target);
                    number -= u32::from(want.kind == LayerKind::Mount);
                }
            },
        }
    }
    Ok(found)
}

/// Mounts strictly below one of `folders`, each point once (the newest, which is the one that is seen).
fn nested<'a>(mounts: &'a [Mount], folders: &[AbsPath]) -> Vec<&'a Mount> {
    let mut found: Vec<&Mount> = Vec::new();
    for mount in mounts {
        if folders.iter().any(|folder| mount.point.relative_to(folder).is_some()) {
            found.retain(|known| known.point != mount.point);
            found.push(mount);
        }
    }
    found
}

/// Why the kernel's overlay can't write a layer over `target`; `None` if it can.
pub(crate) fn kernel_refuses(facts: &Facts, target: &AbsPath) -> Option<String> {
    if facts.kernel < OVERLAY_IN_USER_NAMESPACE {
        let (major, minor) = facts.kernel;
        return Some(format!("Linux {major}.{minor} is older than 5.11"));
    }
    if let UpperSupport::No(why) = &facts.upper {
        return Some(why.clone());
    }
    if let Some(inner) = nested(&facts.mounts, std::slice::from_ref(target)).first() {
        return Some(format!("{} is mounted below it", inner.point));
    }
    covering(&facts.mounts, target)
        .filter(|mount| refused_as_lower(&mount.fs_type))
        .map(|mount| format!("it lies on {}", mount.fs_type))
}

/// Why fuse-overlayfs can't be used; `None` if it can.
pub(crate) fn fuse_refuses(facts: &Facts) -> Option<&'static str> {
    match facts.fuse {
        Fuse::Yes => None,
        Fuse::NoProgram => Some("fuse-overlayfs is not installed"),
        Fuse::NoDevice => Some("/dev/fuse is missing or not yours to open"),
    }
}

fn backend(facts: &Facts, target: &AbsPath, choice: OverlayChoice) -> Result<Backend> {
    let refuse = |why: String| {
        Failure::new(Kind::Unavailable, why).hint("landbox doctor shows what this machine lacks")
    };
    let (kernel, fuse) = (kernel_refuses(facts, target), fuse_refuses(facts));
    let install = |f: Failure| match facts.fuse {
        Fuse::NoProgram => f.hint("landbox doctor --fix installs fuse-overlayfs"),
        Fuse::Yes | Fuse::NoDevice => f,
    };
    match (choice, kernel, fuse) {
        (OverlayChoice::Auto | OverlayChoice::Kernel, None, _) => Ok(Backend::Kernel),
        (OverlayChoice::Auto | OverlayChoice::Fuse, _, None) => Ok(Backend::Fuse),
        (OverlayChoice::Kernel, Some(why), _) => {
            Err(refuse(format!("the kernel's overlay can't write a layer over {target}: {why}"))
                .hint("leave --overlay kernel out, and fuse-overlayfs takes this layer"))
        }
        (OverlayChoice::Fuse, _, Some(why)) => {
            Err(install(refuse(format!("fuse-overlayfs can't write a layer over {target}: {why}"))))
        }
        (OverlayChoice::Auto, Some(kernel), Some(fuse)) => Err(install(refuse(format!(
            "no overlay can write a layer over {target}: for the kernel's, {kernel}; for fuse, {fuse}"
        )))),
    }
}
