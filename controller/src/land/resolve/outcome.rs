//! What came of resolving, and the bytes that go with it.

use super::look;
use super::{Choice, Clash, Decision, Resolved, Written};
use crate::error::{Context, Failure, Kind, Result};
use crate::land::changeset::{Bodies, Change, Changeset, ImpliedFolder, Node, OldBytes};
use crate::land::kind::{ChangeKind, ChangeState, EntryType};
use crate::land::layer::LayerView;
use crate::ui::text::visible;
use landbox_shared::path::RelPath;
use rustix::fs::MemfdFlags;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{Seek, Write};

/// What a landing does with every change that was chosen.
#[derive(Debug, Default)]
pub struct Resolution {
    /// Sorted by path.
    pub items: Vec<Resolved>,
    /// Folders to be made that the owner has removed meanwhile.
    pub folders: Vec<ImpliedFolder>,
    /// Choices that can't be carried out, with the reason.
    pub refused: Vec<(RelPath, String)>,
}

impl Resolution {
    /// Why these changes can't be committed as the session made them; `None` if they can. What was merged can: the commit
    /// has the session's side of it, and the owner's stays in the work tree, as not committed as it was.
    pub fn uncommittable(&self) -> Option<(&RelPath, &'static str)> {
        self.items.iter().find_map(|item| {
            let why = match (&item.clash, &item.decision) {
                (Some(_), _) => "you and the session changed it, and not so that both go together",
                (None, Decision::Skip) => "it is not to land",
                (None, Decision::Mine) if item.expect.node() != item.change.new.as_ref() => {
                    "yours is to stay"
                }
                (
                    None,
                    Decision::Mine
                    | Decision::Layer(_)
                    | Decision::Bytes(_)
                    | Decision::Mode(_)
                    | Decision::Open(_),
                ) => return None,
            };
            Some((&item.change.path, why))
        })
    }

    /// What nobody has decided yet.
    pub fn open(&self) -> impl Iterator<Item = (&Resolved, &Clash)> {
        self.items.iter().filter_map(|item| match &item.decision {
            Decision::Open(clash) => Some((item, clash)),
            Decision::Layer(_)
            | Decision::Bytes(_)
            | Decision::Mode(_)
            | Decision::Mine
            | Decision::Skip => None,
        })
    }

    /// The choices there are for a conflict: conflict markers need a text on both sides.
    pub fn choices_of(item: &Resolved) -> Vec<Choice> {
        let is_file = |node: Option<&Node>| node.is_some_and(|n| n.kind() == EntryType::File);
        let texts = is_file(item.expect.node())
            && is_file(item.change.new.as_ref())
            && item.expect_old.is_none();
        let may_mark = match &item.clash {
            Some(Clash::Lines | Clash::Added | Clash::Untrusted | Clash::Modes) => texts,
            Some(
                Clash::Content(_)
                | Clash::Unseen
                | Clash::Gone
                | Clash::Deleted
                | Clash::Types
                | Clash::Targets
                | Clash::Folder(_)
                | Clash::Holds(_)
                | Clash::Keeps(_),
            )
            | None => false,
        };
        let all = [Choice::Mine, Choice::Theirs, Choice::Markers, Choice::Skip];
        all.into_iter().filter(|choice| may_mark || *choice != Choice::Markers).collect()
    }

    /// Fails while anything is undecided: then nothing is applied.
    pub fn check(&self) -> Result<()> {
        const NAMED: usize = 20;
        let name = |path: &RelPath, why: &str| format!("{} ({why})", visible(path.as_bytes()));
        if let Some((path, why)) = self.refused.first() {
            return Err(Failure::new(
                Kind::Conflict,
                format!("nothing was changed, because a choice can't be made: {}", name(path, why)),
            )
            .hint("choose mine or skip for that path"));
        }
        let mut names: Vec<String> =
            self.open().map(|(item, clash)| name(&item.change.path, &clash.to_string())).collect();
        if names.is_empty() {
            return Ok(());
        }
        let rest = names.len().saturating_sub(NAMED);
        names.truncate(NAMED);
        if rest > 0 {
            names.push(format!("and {rest} more"));
        }
        Err(Failure::new(
            Kind::Conflict,
            format!("nothing was changed, because of conflicts: {}", names.join("; ")),
        )
        .hint("--resolve PATH=mine|theirs|markers|skip decides one path, --resolve-all all of them")
        .hint("--patch FILE in the place of --apply writes the changes as a patch, to be merged by hand"))
    }

    /// Choices for paths that have no use for them.
    pub fn unused(&self, choices: &super::Choices) -> Vec<RelPath> {
        let used = |path: &RelPath| {
            self.items
                .iter()
                .any(|item| item.state != ChangeState::Clean && item.change.path.is_within(path))
        };
        choices.paths.keys().filter(|path| !used(path)).cloned().collect()
    }

    /// The changes as apply must carry them out, sorted by path.
    pub fn effective(&self) -> Vec<Change> {
        let mut all: Vec<Change> = self.items.iter().flat_map(Resolved::effective).collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }

    /// The changeset for the planner: without what was turned down, and with the folders that must be made besides its
    /// own.
    pub(crate) fn planned(&self, mut set: Changeset) -> Changeset {
        let mine = |item: &&Resolved| item.decision == Decision::Mine;
        let mine: HashSet<&RelPath> =
            self.items.iter().filter(mine).map(|item| &item.change.path).collect();
        set.changes.retain(|change| !mine.contains(&change.path));
        let new = |f: &&ImpliedFolder| set.folders.iter().all(|other| other.path != f.path);
        let more: Vec<ImpliedFolder> = self.folders.iter().filter(new).cloned().collect();
        set.folders.extend(more);
        set.folders.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        set
    }

    /// Paths that both sides have deleted.
    pub(crate) fn deleted_too(&self) -> Vec<&RelPath> {
        let too = |item: &&Resolved| {
            item.decision == Decision::Mine && item.clash.is_none() && item.change.new.is_none()
        };
        self.items.iter().filter(too).map(|item| &item.change.path).collect()
    }

    /// Number of changes that were turned down: of these the owner's side stays.
    pub fn dropped(&self) -> usize {
        let mine = |item: &&Resolved| item.decision == Decision::Mine && item.clash.is_some();
        self.items.iter().filter(mine).count()
    }

    /// Number of changes that are dealt with, those that were turned down among them.
    pub fn landed(&self) -> usize {
        let left = |item: &&Resolved| !matches!(item.decision, Decision::Skip | Decision::Open(_));
        self.items.iter().filter(left).count()
    }

    /// What the layer holds of changes that landed otherwise than it holds them, and have nothing left to do: it may
    /// leave the layer although what is really there is something else.
    pub(crate) fn settled(&self, view: &LayerView) -> BTreeMap<RelPath, Option<Node>> {
        let other = |item: &&Resolved| {
            let done = match &item.decision {
                Decision::Bytes(_) | Decision::Mode(_) | Decision::Mine => true,
                Decision::Layer(put) => *put != item.change.new,
                Decision::Skip | Decision::Open(_) => false,
            };
            done && !view.parts.contains_key(&item.change.path)
        };
        let mut out = BTreeMap::new();
        for item in self.items.iter().filter(other) {
            if let Some(old) = &item.change.old_path {
                out.insert(old.clone(), None);
            }
            out.insert(item.change.path.clone(), item.change.new.clone());
        }
        out
    }

    /// The bytes of the effective changes.
    pub fn bodies<'a>(&'a self, view: &'a LayerView) -> ResolvedBodies<'a> {
        let items = self.items.iter().map(|item| (&item.change.path, item)).collect();
        ResolvedBodies { view, items }
    }

    /// Every path that is dealt with once this has landed, with the base it has from then on.
    pub fn bases(&self) -> Vec<(RelPath, Option<Node>)> {
        let mut out = Vec::new();
        for item in &self.items {
            match item.decision {
                Decision::Skip | Decision::Open(_) => continue,
                Decision::Layer(_) | Decision::Bytes(_) | Decision::Mode(_) | Decision::Mine => {}
            }
            if let (ChangeKind::Renamed, Some(old)) = (item.change.kind, &item.change.old_path) {
                out.push((old.clone(), None));
            }
            out.push((item.change.path.clone(), item.change.new.clone()));
        }
        out
    }
}

/// Bytes of effective changes: the old ones are what is really there.
#[derive(Debug)]
pub struct ResolvedBodies<'a> {
    view: &'a LayerView,
    items: HashMap<&'a RelPath, &'a Resolved>,
}

impl Bodies for ResolvedBodies<'_> {
    fn old_bytes(&self, change: &Change) -> Result<Option<OldBytes>> {
        match self.items.get(&change.path) {
            Some(item) if item.state != ChangeState::Clean => {
                let (path, expect) = match (&change.old_path, &item.expect_old) {
                    (Some(path), Some(expect)) => (path, expect),
                    (Some(_) | None, _) => (&change.path, &item.expect),
                };
                Ok(look::open(self.view.real.as_ref(), path, expect).ok().map(OldBytes::Real))
            }
            Some(_) | None => self.view.old_bytes(change),
        }
    }

    fn new_bytes(&self, change: &Change) -> Result<File> {
        let written = self.items.get(&change.path).and_then(|item| match &item.decision {
            Decision::Bytes(written) => Some(written),
            Decision::Layer(_)
            | Decision::Mode(_)
            | Decision::Mine
            | Decision::Skip
            | Decision::Open(_) => None,
        });
        let Some(Written { bytes, .. }) = written else { return self.view.new_bytes(change) };
        let what = || format!("can't hold {} in memory", change.path);
        let fd = rustix::fs::memfd_create("landing", MemfdFlags::CLOEXEC).context(what)?;
        let mut file = File::from(fd);
        file.write_all(bytes).context(what)?;
        file.rewind().context(what)?;
        Ok(file)
    }
}
