//! Where each mask is made: in the layer that shows the path, or on top of everything else.

use super::binds::{Binding, Role};
use crate::host::{Kind, LaunchView};
use landbox_shared::path::AbsPath;
use landbox_shared::plan::{LayerMask, Loss, Op};
use landbox_shared::policy::{Mask, MaskKind, Policy};
use std::collections::BTreeSet;

/// Masks on top of everything, and the sockets that stay reachable.
pub(super) struct Outside {
    pub(super) ops: Vec<Op>,
    pub(super) reachable: Vec<AbsPath>,
}

/// The policy with what this host makes needed: every name of what is masked, and every `/proc` of the host's other
/// than the one the session replaces: through it a session would see the host's processes, and through their `root` and
/// `cwd` the real files, writable.
pub(super) fn on_this_host(policy: &Policy, view: &LaunchView) -> Policy {
    let mut policy = policy.clone();
    let procs = view.procs.iter().filter_map(|(path, kind)| {
        let kind = match kind {
            Kind::Dir => MaskKind::Dir,
            Kind::File | Kind::Socket | Kind::Special | Kind::Link => MaskKind::File,
            // Covered by another mount, or not to be reached by the session either.
            Kind::Missing | Kind::Denied => return None,
        };
        Some(Mask { path: path.clone(), kind })
    });
    let mut known = Paths::of(&policy);
    for mask in view.mask_aliases.iter().cloned().chain(procs) {
        // A second name of a whole layer's folder can't be hidden without the layer.
        let covers_layer = policy.layers.iter().any(|layer| layer.target.is_within(&mask.path));
        if !covers_layer && !known.cover(&mask.path) {
            if known.any_within(&mask.path) {
                policy.masks.retain(|known| !known.path.is_within(&mask.path));
            }
            known.0.insert(mask.path.clone());
            policy.masks.push(mask);
        }
    }
    policy
}

/// The paths of masks, to be asked about many others: there may be thousands of both.
struct Paths(BTreeSet<AbsPath>);

impl Paths {
    fn of(policy: &Policy) -> Self {
        Self(policy.masks.iter().map(|mask| mask.path.clone()).collect())
    }

    /// Whether `path` is one of them or lies below one.
    fn cover(&self, path: &AbsPath) -> bool {
        std::iter::successors(Some(path.clone()), AbsPath::parent).any(|at| self.0.contains(&at))
    }

    /// Whether one of them is `path` or lies below it.
    fn any_within(&self, path: &AbsPath) -> bool {
        // Whatever lies below begins with its bytes; so do names like `path-x`, which sort among them.
        let same_start = |at: &&AbsPath| at.as_bytes().starts_with(path.as_bytes());
        self.0.range(path..).take_while(same_start).any(|at| at.is_within(path))
    }
}

/// The masks that layer number `at` shows, below its target.
pub(super) fn inside_layer(policy: &Policy, at: usize) -> Vec<LayerMask> {
    policy
        .masks
        .iter()
        .filter(|mask| nearest_layer(policy, &mask.path) == Some(at))
        .filter_map(|mask| {
            let path = mask.path.relative_to(&policy.layers[at].target)?;
            Some(LayerMask { path, kind: mask.kind })
        })
        .collect()
}

/// The layer through which `path` is seen. Later layers are never outside earlier ones, so the deepest wins.
fn nearest_layer(policy: &Policy, path: &AbsPath) -> Option<usize> {
    policy
        .layers
        .iter()
        .enumerate()
        .filter(|(_, layer)| path.is_within(&layer.target))
        .max_by_key(|(_, layer)| layer.target.depth())
        .map(|(at, _)| at)
}

/// The masks that no layer makes: of paths outside the layers, and of paths shown by a binding. What `frozen`, the
/// policy without what this host adds, hides is worth a session.
pub(super) fn outside_layers(
    policy: &Policy,
    frozen: &Policy,
    bindings: &[Binding],
    view: &LaunchView,
) -> Outside {
    let mut masks: Vec<(AbsPath, Loss, MaskKind)> = Vec::new();
    let mut reachable = Vec::new();
    let frozen = Paths::of(frozen);
    for mask in &policy.masks {
        // One that this host adds may have taken the place of some below it.
        let matters = frozen.any_within(&mask.path);
        let loss = if matters { Loss::EndsSession } else { Loss::Tolerated };
        for binding in bindings {
            // A link in a real folder leads to what is masked by itself; over the link nothing can be mounted.
            if let Some(shown) = binding.shows(&mask.path)
                && !view.masked_links.contains(&mask.path)
            {
                masks.push((shown, loss, mask.kind));
            }
        }
        if is_bare(policy, view, &mask.path) && !is_bound(bindings, &mask.path) {
            masks.push((mask.path.clone(), loss, mask.kind));
        }
    }
    let hidden = Paths::of(policy);
    for socket in view.sockets.iter().filter(|socket| !hidden.cover(socket)) {
        // The last binding at a place is the one that is seen there.
        for (at, binding) in bindings.iter().enumerate() {
            let Some(shown) = binding.shows(socket) else { continue };
            if bindings[at + 1..].iter().any(|later| shown.is_within(&later.target)) {
                continue;
            }
            match binding.role {
                Role::Auth => reachable.push(socket.clone()),
                Role::Needed | Role::ReadOnly => {
                    masks.push((shown, Loss::Tolerated, MaskKind::File));
                }
            }
        }
        // An overlay's sockets lead nowhere, so those inside layers need nothing.
        if is_bare(policy, view, socket) && !is_bound(bindings, socket) {
            masks.push((socket.clone(), Loss::Tolerated, MaskKind::File));
        }
    }
    // Of two for one path the stricter comes first, and stays.
    masks.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    masks.dedup_by(|a, b| a.0 == b.0);
    reachable.sort();
    reachable.dedup();
    let op = |(target, loss, kind)| Op::Mask { target, kind, loss };
    Outside { ops: masks.into_iter().map(op).collect(), reachable }
}

/// Whether the host's own `path` shows through the root: in no layer, and in no folder that a session has its own of.
fn is_bare(policy: &Policy, view: &LaunchView, path: &AbsPath) -> bool {
    nearest_layer(policy, path).is_none()
        && !crate::host::is_private(path)
        && !view.var_tmp.as_ref().is_some_and(|var_tmp| path.is_within(var_tmp))
}

/// Whether a binding covers `path`: what shows there is the binding's affair.
fn is_bound(bindings: &[Binding], path: &AbsPath) -> bool {
    bindings.iter().any(|binding| path.is_within(&binding.target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_cover_what_lies_below_and_nothing_that_only_begins_alike() {
        let at = |path: &str| AbsPath::new(path).unwrap();
        let paths = Paths(["/a/b", "/a/b-c/d", "/a/b-d"].map(at).into());
        assert!(paths.cover(&at("/a/b")) && paths.cover(&at("/a/b/c/d")));
        assert!(
            !paths.cover(&at("/a")) && !paths.cover(&at("/a/bc")) && !paths.cover(&at("/a/b-c"))
        );
        assert!(paths.any_within(&at("/a")) && paths.any_within(&at("/")));
        assert!(paths.any_within(&at("/a/b-c")) && !paths.any_within(&at("/a/b/c")));
        assert!(!paths.any_within(&at("/a/b-")));
    }
}
