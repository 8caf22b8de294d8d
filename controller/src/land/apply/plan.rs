//! A changeset as ordered steps. Names go before names come, the deepest first; folders come before what they hold.

use crate::error::{Context, Failure, Kind, Result};
use crate::land::changeset::{Base, Change, Changeset, ImpliedFolder, Node};
use crate::land::digest::ancestors;
use crate::land::kind::{ChangeKind, EntryType};
use crate::land::tree::{self, Meta, Time, Tree, is_absence};
use landbox_shared::digest::Digest;
use landbox_shared::path::RelPath;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// One step.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::land) struct Step {
    /// Names its place in the stage.
    pub slot: usize,
    pub path: RelPath,
    pub action: Action,
    /// Device and inode of what was staged for it.
    pub staged: Option<((u32, u32), u64)>,
    /// Digest of the extended attributes of what was staged for it, where they can be read.
    pub attributes: Option<Digest>,
    /// When the file that was staged for it was written, as long as the landing is under way.
    #[serde(skip)]
    pub written: Option<Time>,
}

/// What a step does. All but `Mode` are renames between the project and the stage.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(in crate::land) enum Action {
    /// The old object moves into the stage.
    Take { old: Node },
    /// The staged object moves to a name at which nothing is. An `implied` folder may be there already.
    Put { new: Node, implied: bool },
    /// Both at once.
    Swap { old: Node, new: Node },
    /// Permission bits alone.
    Mode { kind: EntryType, old: u32, new: u32 },
}

/// The steps of a landing, and what they make of the base.
#[derive(Debug)]
pub(super) struct Plan {
    pub steps: Vec<Step>,
    /// Every path that lands with its new base.
    pub landed: BTreeMap<RelPath, Option<Node>>,
    /// Deleted folders that stay, because they hold something that does not land.
    pub staying: Vec<RelPath>,
    /// Those that hold nothing of the session's: as far as it goes, they are gone.
    pub owners: Vec<RelPath>,
}

/// Makes the steps that land `chosen`. `same` are paths that the owner has deleted, too.
pub(super) fn plan(
    set: &Changeset,
    chosen: &[&Change],
    same: &[&RelPath],
    masks: &[RelPath],
    project: &Tree,
) -> Result<Plan> {
    let Removals { removed, staying, owners } = removals(set, chosen, masks, project)?;
    let mut planner =
        Planner { gone: Vec::new(), come: Vec::new(), modes: Vec::new(), landed: BTreeMap::new() };
    for change in chosen {
        planner.change(change, &staying)?;
    }
    let above = ancestors(chosen.iter().flat_map(|c| crate::land::digest::paths(c)));
    let emptied = ancestors(same.iter().copied());
    // What lies in a folder that goes, goes too, also where the owner has emptied it already. Sorted: folders come first.
    let mut going: HashSet<RelPath> = planner.gone.iter().map(|step| step.path.clone()).collect();
    for folder in &set.folders {
        let goes = folder.make.is_none() && removed.contains_key(&folder.path);
        let mut outer = std::iter::successors(folder.path.parent(), RelPath::parent);
        // Or the owner has deleted all that it held, and the session the folder as well.
        let with =
            goes && (emptied.contains(&folder.path) || outer.any(|path| going.contains(&path)));
        if with || above.contains(&folder.path) {
            planner.folder(folder, &removed);
            if goes {
                going.insert(folder.path.clone());
            }
        }
    }
    let Planner { mut gone, mut come, mut modes, landed } = planner;
    gone.sort_by(|a: &Step, b| b.path.cmp(&a.path));
    come.sort_by(|a: &Step, b| a.path.cmp(&b.path));
    modes.sort_by(|a: &Step, b| b.path.cmp(&a.path));
    let mut steps = widen(&mut gone, &mut come, &mut modes, project)?;
    steps.extend(gone);
    steps.extend(come);
    steps.extend(modes);
    for (slot, step) in steps.iter_mut().enumerate() {
        step.slot = slot;
    }
    let staying = staying.into_iter().collect();
    Ok(Plan { steps, landed, staying, owners })
}

/// Bytes of the old files that the steps displace.
pub(super) fn displaced(steps: &[Step]) -> u64 {
    let old = |step: &Step| match &step.action {
        Action::Take { old } | Action::Swap { old, .. } => old.size(),
        Action::Put { .. } | Action::Mode { .. } => None,
    };
    steps.iter().filter_map(old).fold(0, u64::saturating_add)
}

struct Planner {
    gone: Vec<Step>,
    come: Vec<Step>,
    modes: Vec<Step>,
    landed: BTreeMap<RelPath, Option<Node>>,
}

fn step(path: &RelPath, action: Action) -> Step {
    Step { slot: 0, path: path.clone(), action, staged: None, attributes: None, written: None }
}

impl Planner {
    fn change(&mut self, change: &Change, staying: &BTreeSet<RelPath>) -> Result<()> {
        let path = &change.path;
        if change.kind == ChangeKind::Renamed
            && let (Some(from), Base::Known(old)) = (&change.old_path, &change.old)
        {
            self.gone.push(step(from, Action::Take { old: old.clone() }));
            self.landed.insert(from.clone(), None);
        }
        let old = match (&change.old, change.kind) {
            (_, ChangeKind::Renamed) | (Base::Absent, _) => None,
            (Base::Known(old), _) => Some(old.clone()),
            (Base::Unknown, _) => {
                return Err(Failure::new(Kind::Conflict, format!("{path}: its base is unknown")));
            }
        };
        match (old, change.new.clone()) {
            (None, None) => {}
            (Some(old), None) => {
                if staying.contains(path) {
                    return Ok(());
                }
                self.gone.push(step(path, Action::Take { old }));
            }
            (None, Some(new)) => {
                self.later_mode(path, None, &new);
                self.come.push(step(path, Action::Put { new, implied: false }));
            }
            (Some(Node::Dir { mode: old }), Some(Node::Dir { mode: new })) => {
                self.modes.push(step(path, Action::Mode { kind: EntryType::Dir, old, new }));
            }
            (Some(old @ Node::Dir { .. }), Some(new)) => {
                if staying.contains(path) {
                    return Err(Failure::new(
                        Kind::Refused,
                        format!("{path} can't stop being a folder: it holds something that does not land"),
                    )
                    .hint("landbox land --with-ignored lands what the ignore rules cover, too"));
                }
                self.gone.push(step(path, Action::Swap { old, new }));
            }
            (Some(old), Some(new)) => {
                if let (ChangeKind::Mode, Some(old), Some(new)) =
                    (change.kind, old.mode(), new.mode())
                {
                    self.come.push(step(path, Action::Mode { kind: EntryType::File, old, new }));
                } else {
                    self.later_mode(path, None, &new);
                    self.come.push(step(path, Action::Swap { old, new }));
                }
            }
        }
        self.landed.insert(path.clone(), change.new.clone());
        Ok(())
    }

    /// A folder is made with the right to write into it; a mode that takes that away comes last.
    fn later_mode(&mut self, path: &RelPath, old: Option<u32>, new: &Node) {
        if let Node::Dir { mode } = new
            && mode & 0o700 != 0o700
        {
            let old = old.unwrap_or(mode | 0o700);
            self.modes.push(step(path, Action::Mode { kind: EntryType::Dir, old, new: *mode }));
        }
    }

    fn folder(&mut self, folder: &ImpliedFolder, removed: &BTreeMap<RelPath, u32>) {
        let path = &folder.path;
        match folder.make {
            Some(mode) => {
                let new = Node::Dir { mode };
                self.later_mode(path, None, &new);
                self.come.push(step(path, Action::Put { new: new.clone(), implied: true }));
                self.landed.insert(path.clone(), Some(new));
            }
            None => {
                if let Some(mode) = removed.get(path) {
                    let old = Node::Dir { mode: *mode };
                    self.gone.push(step(path, Action::Take { old }));
                    self.landed.insert(path.clone(), None);
                }
            }
        }
    }
}

/// What becomes of the folders that the session deleted.
struct Removals {
    /// These go; with their mode.
    removed: BTreeMap<RelPath, u32>,
    /// These stay.
    staying: BTreeSet<RelPath>,
    /// Those of them that hold nothing but what the session never saw.
    owners: Vec<RelPath>,
}

/// Decides which folders can go: those whose every real name goes too. A folder that holds something of the session's
/// that does not land, or something that the session never saw, stays.
fn removals(
    set: &Changeset,
    chosen: &[&Change],
    masks: &[RelPath],
    project: &Tree,
) -> Result<Removals> {
    let dir_mode = |c: &Change| match (&c.old, &c.new) {
        (Base::Known(Node::Dir { mode }), None) => Some(*mode),
        (Base::Known(Node::Dir { mode }), Some(new)) if new.kind() != EntryType::Dir => Some(*mode),
        _ => None,
    };
    let mut gone: HashSet<RelPath> = HashSet::new();
    let mut folders: BTreeMap<RelPath, Option<u32>> = BTreeMap::new();
    for change in chosen {
        if let Some(mode) = dir_mode(change) {
            folders.insert(change.path.clone(), Some(mode));
        } else if change.kind == ChangeKind::Renamed {
            gone.extend(change.old_path.clone());
        } else if change.new.is_none() {
            gone.insert(change.path.clone());
        }
    }
    for folder in set.folders.iter().filter(|f| f.make.is_none()) {
        folders.insert(folder.path.clone(), None);
    }
    let picked: HashSet<&RelPath> =
        chosen.iter().flat_map(|c| crate::land::digest::paths(c)).collect();
    let mut kept: HashSet<RelPath> = HashSet::new();
    let waits = |c: &&Change| !picked.contains(&c.path);
    // Of a file that waits to be moved also where it is taken from: the folder it leaves goes with it.
    let waiting = set.changes.iter().filter(waits).flat_map(crate::land::digest::paths);
    for path in waiting.chain(masks) {
        kept.insert(path.clone());
        kept.extend(ancestors(std::iter::once(path)));
    }
    let mut owners = Vec::new();
    let (mut removed, mut staying) = (BTreeMap::new(), BTreeSet::new());
    // The deepest first, so that what becomes of a folder is known when the one above is judged.
    for (path, _) in folders.iter().rev() {
        let names = match project.dir(Some(path)) {
            Ok(dir) => {
                let mode = tree::meta_of(&dir).context(|| format!("can't read {path}"))?.mode;
                (mode, tree::names(&dir).context(|| format!("can't list {path}"))?)
            }
            Err(e) if is_absence(&e) => continue,
            Err(e) => return Err(e).context(|| format!("can't list {path}")),
        };
        let mut stays = false;
        for name in names.1 {
            let Ok(child) = path.join(&name) else { continue };
            if gone.contains(&child) {
                continue;
            }
            // It waits for another landing, or is the owner's own, which the session never saw.
            stays = true;
        }
        if stays {
            if !kept.contains(path) {
                owners.push(path.clone());
            }
            staying.insert(path.clone());
        } else {
            gone.insert(path.clone());
            removed.insert(path.clone(), names.0);
        }
    }
    Ok(Removals { removed, staying, owners })
}

/// Whoever may not write into a folder of their own must first be allowed to: the session did the same.
fn widen(
    gone: &mut [Step],
    come: &mut [Step],
    modes: &mut Vec<Step>,
    project: &Tree,
) -> Result<Vec<Step>> {
    if rustix::process::geteuid().is_root() {
        return Ok(Vec::new());
    }
    let mut parents = BTreeSet::new();
    for step in gone.iter().chain(come.iter()) {
        parents.extend(step.path.parent());
        // A folder that moves to another parent has its `..` written.
        if let Action::Take { old: Node::Dir { .. } } | Action::Swap { old: Node::Dir { .. }, .. } =
            step.action
        {
            parents.insert(step.path.clone());
        }
    }
    let mut first = Vec::new();
    for path in parents {
        let Some(Meta { kind: EntryType::Dir, mode, .. }) =
            project.meta(&path).context(|| format!("can't read {path}"))?
        else {
            continue;
        };
        if mode & 0o300 == 0o300 {
            continue;
        }
        let wide = mode | 0o300;
        first.push(step(&path, Action::Mode { kind: EntryType::Dir, old: mode, new: wide }));
        let mut settled = false;
        for step in gone.iter_mut().filter(|s| s.path == path) {
            if let Action::Take { old: Node::Dir { mode } }
            | Action::Swap { old: Node::Dir { mode }, .. } = &mut step.action
            {
                *mode = wide;
                settled = true;
            }
        }
        for step in modes.iter_mut().filter(|s| s.path == path) {
            if let Action::Mode { old, .. } = &mut step.action {
                *old = wide;
                settled = true;
            }
        }
        if !settled {
            modes.push(step(&path, Action::Mode { kind: EntryType::Dir, old: wide, new: mode }));
        }
    }
    modes.sort_by(|a, b| b.path.cmp(&a.path));
    Ok(first)
}
