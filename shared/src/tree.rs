//! The tree that a plan makes, as far as it can be judged without looking at it: its mounts and the masks below a folder.

use crate::path::{AbsPath, RelPath};
use crate::plan::{LayerOp, Loss};
use crate::policy::MaskKind;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::successors;

/// A mount of the session's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Where it is.
    pub path: AbsPath,
    /// Only the session fills it, so mount points may be made on it.
    pub own: bool,
    /// What its loss means.
    pub loss: Loss,
}

/// The mounts made so far, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Points(Vec<Point>);

impl Points {
    /// Notes a new mount.
    pub fn push(&mut self, path: AbsPath, loss: Loss) {
        self.0.push(Point { path, own: false, loss });
    }

    /// The newest.
    pub fn last_mut(&mut self) -> Option<&mut Point> {
        self.0.last_mut()
    }

    /// Whether a path lies on a mount that only the session fills: the deepest and latest one counts.
    pub fn is_own(&self, path: &AbsPath) -> bool {
        let around = self.0.iter().filter(|point| path.is_within(&point.path));
        around.max_by_key(|point| point.path.depth()).is_some_and(|point| point.own)
    }

    /// Whether there is one below a folder.
    pub fn any_below(&self, folder: &AbsPath) -> bool {
        self.0.iter().any(|point| point.path.relative_to(folder).is_some())
    }

    /// The places of those whose loss ends the session.
    pub fn into_vital(self) -> Vec<AbsPath> {
        let vital = self.0.into_iter().filter(|point| point.loss == Loss::EndsSession);
        vital.map(|point| point.path).collect()
    }
}

/// Masks below one folder, sorted so that a path comes before what lies below it.
pub type Masks = BTreeMap<RelPath, (MaskKind, Loss)>;

/// The masks of a layer.
pub fn of_layer(layer: &LayerOp) -> Masks {
    let masks = layer.masks.iter();
    masks.map(|mask| (mask.path.clone(), (mask.kind, Loss::EndsSession))).collect()
}

/// What the loss of a folder's cover means: as much as the loss of any mask in it.
pub fn loss(masks: &Masks) -> Loss {
    masks.values().map(|(_, loss)| *loss).min().unwrap_or(Loss::Tolerated)
}

/// What the mask folders of a folder hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch<L> {
    /// The folders on the way, a path before what lies below it, and how they look.
    pub folders: BTreeMap<RelPath, L>,
    /// What is hidden: the masked paths, and whatever is in their way.
    pub hidden: BTreeSet<RelPath>,
    /// What shows in place of a masked path.
    pub shown: Vec<(RelPath, MaskKind)>,
}

/// Sketches them; `look` says how a folder looks.
pub fn sketch<L>(masks: &Masks, look: impl Fn(&RelPath) -> Option<L>) -> Sketch<L> {
    let (mut folders, mut hidden) = (BTreeMap::new(), BTreeSet::new());
    let is_in = |folders: &BTreeMap<RelPath, L>, path: &RelPath| {
        path.parent().is_none_or(|parent| folders.contains_key(&parent))
    };
    for path in ways(masks) {
        if !is_in(&folders, &path) {
            continue;
        }
        match look(&path) {
            Some(look) => drop(folders.insert(path, look)),
            // No folder that we can see: it gets hidden itself, with everything that may appear below it.
            None => drop(hidden.insert(path)),
        }
    }
    let reached = masks.iter().filter(|(path, _)| is_in(&folders, path));
    let shown: Vec<_> = reached.map(|(path, (kind, _))| (path.clone(), *kind)).collect();
    hidden.extend(shown.iter().map(|(path, _)| path.clone()));
    Sketch { folders, hidden, shown }
}

/// The folders on the way to masks, a path before what lies below it, but for those that are masked themselves.
fn ways(masks: &Masks) -> BTreeSet<RelPath> {
    let above = |path: &RelPath| successors(path.parent(), RelPath::parent);
    masks.keys().flat_map(above).filter(|path| !masks.contains_key(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn abs(path: &str) -> AbsPath {
        AbsPath::new(path).unwrap()
    }

    #[test]
    fn the_deepest_and_latest_mount_around_a_path_says_whose_it_is() {
        let mut points = Points::default();
        for (path, own) in [("/", false), ("/run", true), ("/run/user", false)] {
            points.push(abs(path), Loss::EndsSession);
            points.last_mut().unwrap().own = own;
        }
        assert!(points.is_own(&abs("/run")) && points.is_own(&abs("/run/x")));
        assert!(!points.is_own(&abs("/run/user/1")) && !points.is_own(&abs("/etc")));
        assert!(points.any_below(&abs("/run")) && !points.any_below(&abs("/run/user")));
        points.push(abs("/run/user"), Loss::Tolerated);
        points.last_mut().unwrap().own = true;
        assert!(points.is_own(&abs("/run/user/1")));
        assert_eq!(points.into_vital(), ["/", "/run", "/run/user"].map(abs));
    }

    #[test]
    fn the_ways_to_masks_are_the_folders_that_are_not_hidden_themselves() {
        let rel = |path: &str| RelPath::new(path).unwrap();
        let mask = |path, loss| (rel(path), (MaskKind::Dir, loss));
        let masks: Masks = [
            mask("a/b/c", Loss::Tolerated),
            mask("a/b/d/e", Loss::EndsSession),
            mask("a/b/d", Loss::Tolerated),
        ]
        .into();
        assert!(ways(&masks).iter().eq(&["a", "a/b"].map(rel)));
        assert_eq!(loss(&masks), Loss::EndsSession);
        assert_eq!(loss(&Masks::new()), Loss::Tolerated);
    }

    #[test]
    fn what_is_no_folder_on_the_way_to_a_mask_is_hidden_itself() {
        let rel = |path: &str| RelPath::new(path).unwrap();
        let kinds =
            [("a/b/c", MaskKind::File), ("a/no/d/e", MaskKind::Dir), ("top", MaskKind::Missing)];
        let masks = kinds.map(|(path, kind)| (rel(path), (kind, Loss::EndsSession))).into();
        let found = sketch(&masks, |path| [rel("a"), rel("a/b")].contains(path).then_some(7));
        assert_eq!(found.folders, [(rel("a"), 7), (rel("a/b"), 7)].into());
        assert_eq!(found.hidden, ["a/b/c", "a/no", "top"].map(rel).into());
        assert_eq!(found.shown, [(rel("a/b/c"), MaskKind::File), (rel("top"), MaskKind::Missing)]);
    }
}
