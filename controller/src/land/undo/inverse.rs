//! The steps that undo steps, and what stands in their way.

use crate::error::{Context, Failure, Kind, Result};
use crate::land::apply::commit;
use crate::land::apply::plan::{Action, Step};
use crate::land::apply::stage::Stage;
use crate::land::changeset::Node;
use crate::land::kind::EntryType;
use crate::land::tree::{self, Tree};
use crate::ui::text::visible;
use landbox_shared::path::RelPath;
use std::collections::BTreeSet;

/// The path of a step, unless it is but a folder that others may share.
pub(super) fn own_path(step: &Step) -> Option<&RelPath> {
    match &step.action {
        Action::Put { implied: true, .. } => None,
        Action::Put { .. } | Action::Take { .. } | Action::Swap { .. } | Action::Mode { .. } => {
            Some(&step.path)
        }
    }
}

/// A folder as its step has left it before a later one took rights away.
fn as_made(node: &Node) -> Node {
    match node {
        Node::Dir { mode } => Node::Dir { mode: mode | 0o700 },
        Node::File { .. }
        | Node::Symlink { .. }
        | Node::Special { .. }
        | Node::Unreadable { .. } => node.clone(),
    }
}

/// The steps that undo `steps`, whose old objects lie in `stage`.
pub(super) fn inverse(steps: &[Step], stage: &Stage) -> Result<Vec<Step>> {
    let mut out = Vec::with_capacity(steps.len());
    for step in steps.iter().rev() {
        let held = stage.holds(step.slot).context(|| format!("can't look for {}", step.path))?;
        let lost = || {
            let path = visible(step.path.as_bytes());
            Failure::new(Kind::Failed, format!("what was at {path} before the landing is gone"))
        };
        let (action, staged) = match &step.action {
            Action::Take { old } => {
                let held = held.ok_or_else(lost)?;
                (Action::Put { new: old.clone(), implied: false }, Some(held))
            }
            // It was there already, so it was not made.
            Action::Put { .. } if held.is_some() && held == step.staged => continue,
            Action::Put { new, .. } => (Action::Take { old: as_made(new) }, None),
            Action::Swap { old, new } => {
                let held = held.ok_or_else(lost)?;
                (Action::Swap { old: as_made(new), new: old.clone() }, Some(held))
            }
            Action::Mode { kind, old, new } => {
                (Action::Mode { kind: *kind, old: *new, new: *old }, None)
            }
        };
        out.push(Step {
            slot: step.slot,
            path: step.path.clone(),
            action,
            staged,
            attributes: None,
            written: None,
        });
    }
    Ok(out)
}

/// Every path that is not what the landing has left: of another type, mode, content or other attributes; there or gone; or in a folder that came with the landing and would have to go.
pub(super) fn changed(steps: &[Step], project: &Tree, stage: &Stage) -> Vec<RelPath> {
    let mut found: BTreeSet<RelPath> = commit::changed(steps, project).into_iter().collect();
    let ours: BTreeSet<&RelPath> = steps.iter().map(|step| &step.path).collect();
    let later: BTreeSet<&RelPath> = steps
        .iter()
        .filter(|step| matches!(step.action, Action::Mode { .. }))
        .map(|step| &step.path)
        .collect();
    for step in steps {
        let (Action::Put { new, .. } | Action::Swap { new, .. }) = &step.action else { continue };
        if found.contains(&step.path) || stage.holds(step.slot).is_ok_and(|h| h == step.staged) {
            continue;
        }
        let place = project.place(step.path.parent().as_ref());
        let Ok(place) = place else { continue };
        let Ok(Some(meta)) = tree::meta_at(&place, step.path.file_name()) else { continue };
        if new.kind() == EntryType::Dir {
            if !later.contains(&step.path) && new.mode() != Some(meta.mode) {
                found.insert(step.path.clone());
            }
            match project.dir(Some(&step.path)).and_then(tree::names) {
                Ok(names) => found.extend(
                    names
                        .iter()
                        .filter_map(|name| step.path.join(name).ok())
                        .filter(|path| !ours.contains(path)),
                ),
                Err(_) => drop(found.insert(step.path.clone())),
            }
        } else if step.attributes.is_some()
            && tree::attributes(&place, step.path.file_name(), &meta) != step.attributes
        {
            found.insert(step.path.clone());
        }
    }
    found.into_iter().collect()
}
