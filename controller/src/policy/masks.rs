//! What shows as empty: the owner's hide paths, and always Landbox's own state and keys.

use super::paths::{locate, refusal};
use crate::config::{Entry, Origin};
use crate::error::Result;
use crate::host::mounts::covering;
use crate::host::{Facts, Kind, Located, places};
use landbox_shared::path::AbsPath;
use landbox_shared::policy::{Mask, MaskKind};

/// Without these no program starts, so hiding one whole is a slip.
const NEEDED: &[&str] = &[
    "/", "/bin", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys",
    "/usr", "/usr/bin", "/usr/lib",
];

/// Decides the masks.
pub(super) fn decide(
    entries: &[Entry],
    project: &AbsPath,
    facts: &Facts,
    warnings: &mut Vec<String>,
) -> Result<Vec<Mask>> {
    let mut masks = Vec::new();
    for entry in entries {
        let mut located = locate(entry, project, facts)?;
        if located.kind == Kind::Denied {
            // Its permissions may change while a session runs. The folder in which nothing can be seen now is hidden whole.
            located = closed(located.path, facts);
            let folder = &located.path;
            warnings.push(format!("{entry}: you can't look into {folder}, so all of it is hidden"));
        }
        refuse_cover(entry, &located, project, facts)?;
        if located.kind == Kind::Missing && matches!(entry.origin, Origin::Flag(_)) {
            warnings.push(format!(
                "{entry}: {} does not exist; it stays hidden if it appears",
                located.path
            ));
        }
        masks.extend(of(&located, project, &facts.home));
    }
    // Landbox's own, after the owner's: that they are there is not for the owner to choose.
    for own in [&facts.state_dir, &facts.config_dir, &facts.key_dir] {
        if project.is_within(own) || facts.home.is_within(own) {
            return Err(super::refuse(format!(
                "{project} or your home folder lies inside Landbox's own folder {own}, which is always hidden"
            ))
            .hint("work in another folder, or move the state: LANDBOX_STATE_DIR=DIR"));
        }
        if let Some(located) = facts.files.locate(own.as_path()) {
            masks.extend(of(&located, project, &facts.home));
        }
    }
    // Where landings keep what they displaced. On the project's own file system, so beside the state or in these.
    let same = |a: &AbsPath, b: &AbsPath| {
        covering(&facts.mounts, a).map(|m| &m.point) == covering(&facts.mounts, b).map(|m| &m.point)
    };
    let used = !same(&facts.state_dir, project);
    let is_dir = |path: &AbsPath| {
        facts.files.locate(path.as_path()).is_some_and(|located| located.kind == Kind::Dir)
    };
    for path in places::outside(project, facts.uid) {
        if is_dir(&path) {
            masks.push(Mask { path, kind: MaskKind::Dir });
        } else if used && path.is_within(project) && path.parent().is_some_and(|p| is_dir(&p)) {
            // A landing of another session may make it any time.
            masks.push(Mask { path, kind: MaskKind::Missing });
        }
    }
    Ok(tidy(masks))
}

/// The end of a path, and each link that led there at the end: the owner may re-point a link while a session runs.
/// Outside the layers a link stays: it can't be mounted over where no overlay can be made, and only root re-points it.
fn of(located: &Located, project: &AbsPath, home: &AbsPath) -> Vec<Mask> {
    let kind = match located.kind {
        Kind::Dir => MaskKind::Dir,
        Kind::File | Kind::Socket | Kind::Special | Kind::Link => MaskKind::File,
        Kind::Missing | Kind::Denied => MaskKind::Missing,
    };
    std::iter::once(&located.path)
        .chain(located.links.iter().filter(|link| link.is_within(home) || link.is_within(project)))
        .map(|path| Mask { path: path.clone(), kind })
        .collect()
}

/// The deepest part of a path that can be seen: the folder that is closed.
fn closed(path: AbsPath, facts: &Facts) -> Located {
    let mut at = Located { path, kind: Kind::Denied, links: Vec::new(), hops: Vec::new() };
    while at.kind == Kind::Denied
        && let Some(parent) = at.path.parent()
    {
        at = facts.files.locate(parent.as_path()).unwrap_or(Located { path: parent, ..at });
    }
    at
}

fn refuse_cover(entry: &Entry, located: &Located, project: &AbsPath, facts: &Facts) -> Result<()> {
    let path = &located.path;
    let refuse = |what: &str| Err(refusal(entry, &format!("this would hide {what}")));
    if facts.home.is_within(path) {
        return refuse("your whole home folder")
            .map_err(|f| f.hint("hide what is in it, for example --hide ~/.ssh"));
    }
    if project.is_within(path) {
        return refuse("the project itself");
    }
    if NEEDED.iter().any(|needed| path.as_bytes() == needed.as_bytes()) {
        return refuse("what every program needs");
    }
    if facts.exe.is_within(path) && located.kind != Kind::Dir {
        return refuse("Landbox itself");
    }
    Ok(())
}

/// Sorted, each path once, and nothing below a masked folder. Of two kinds for one path the one that exists wins.
fn tidy(mut masks: Vec<Mask>) -> Vec<Mask> {
    let rank = |kind| match kind {
        MaskKind::Dir => 0,
        MaskKind::File => 1,
        MaskKind::Missing => 2,
    };
    masks.sort_by(|a, b| (&a.path, rank(a.kind)).cmp(&(&b.path, rank(b.kind))));
    let mut kept: Vec<Mask> = Vec::with_capacity(masks.len());
    // Sorting by bytes does not put a folder right before what it holds ("a", "a-b", "a/c"), so look the parents up.
    let mut seen = std::collections::BTreeSet::new();
    for mask in masks {
        let mut above = Some(mask.path.clone());
        let mut covered = false;
        while let Some(path) = above {
            covered |= seen.contains(&path);
            above = path.parent();
        }
        if !covered {
            seen.insert(mask.path.clone());
            kept.push(mask);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(path: &str, kind: MaskKind) -> Mask {
        Mask { path: AbsPath::new(path).unwrap(), kind }
    }

    #[test]
    fn a_mask_below_a_mask_is_left_out_and_an_existing_kind_wins() {
        let tidied = tidy(vec![
            mask("/a/c", MaskKind::File),
            mask("/a-b", MaskKind::Missing),
            mask("/a", MaskKind::Dir),
            mask("/a-b", MaskKind::File),
            mask("/m/x", MaskKind::Missing),
            mask("/m", MaskKind::Missing),
        ]);
        assert_eq!(
            tidied,
            [
                mask("/a", MaskKind::Dir),
                mask("/a-b", MaskKind::File),
                mask("/m", MaskKind::Missing)
            ]
        );
    }
}
