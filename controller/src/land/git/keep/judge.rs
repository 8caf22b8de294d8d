//! What a commit of the session's may change: files and links of the project that the session could see, and nothing else.

use super::batch::Batch;
use super::layer::refused;
use super::object::{Kind, TreeEntry, owned_tree};
use crate::error::Result;
use crate::land::changeset::{Base, Change, Node};
use crate::land::content;
use crate::land::git::repo::Repo;
use crate::land::git::workshop::Workshop;
use crate::land::kind::{ChangeKind, ChangeState, Group};
use crate::land::patch::git_accepts;
use crate::land::risk::{self, Risk, RiskKind, Site, link};
use crate::ui::text::visible_name;
use landbox_shared::id::LayerId;
use landbox_shared::path::{AbsPath, RelPath};
use std::collections::BTreeMap;

/// Most changed paths of one commit. A tree of few objects can stand for more paths than anybody can hold.
const PATHS: usize = 100_000;
/// Most of all of them, each counted against each of its commit's parents.
const ALL_PATHS: usize = 1_000_000;

/// What commits are held to.
pub(in crate::land::git) struct Bounds<'a> {
    pub repo: &'a Repo,
    pub project: &'a AbsPath,
    /// Of the owner.
    pub home: &'a AbsPath,
    /// Paths that were hidden from the session.
    pub masks: &'a [RelPath],
    /// The layer of the project.
    pub layer: &'a LayerId,
}

/// Judges commits, one after the other.
pub(super) struct Judge<'a> {
    bounds: &'a Bounds<'a>,
    objects: Batch,
    layer: LayerId,
    looked_at: usize,
}

/// What deserves a second look, each with its reason.
pub(super) type Risks = BTreeMap<(RelPath, RiskKind), String>;

/// A folder on the way: its name in the repository, and its trees before and after.
type Pair = (Vec<u8>, Option<String>, Option<String>);

impl<'a> Judge<'a> {
    /// One whose objects are those of the workshop.
    pub(super) fn new(bounds: &'a Bounds<'a>, workshop: &Workshop) -> Result<Self> {
        let objects = Batch::start(workshop.command(), "--batch")?;
        Ok(Self { bounds, objects, layer: bounds.layer.clone(), looked_at: 0 })
    }

    /// The tree of a commit.
    pub(super) fn tree_of(&mut self, commit: &str) -> Result<String> {
        let content = self.objects.content(commit)?;
        let content = content.filter(|(kind, _)| *kind == Kind::Commit).map(|(_, bytes)| bytes);
        let line = content.as_deref().and_then(|bytes| bytes.strip_prefix(b"tree "));
        let id = line.and_then(|line| line.split(|b| *b == b'\n').next());
        id.map(|id| String::from_utf8_lossy(id).into_owned())
            .ok_or_else(|| refused(&format!("{commit} is no commit")))
    }

    /// Judges everything that differs between two trees.
    pub(super) fn compare(&mut self, old: &str, new: &str) -> Result<Risks> {
        let mut risks = Risks::new();
        let mut todo: Vec<Pair> = vec![(Vec::new(), Some(old.to_owned()), Some(new.to_owned()))];
        let mut count = 0;
        while let Some((folder, old, new)) = todo.pop() {
            if old == new {
                continue;
            }
            let mut names: BTreeMap<Vec<u8>, (Option<TreeEntry>, Option<TreeEntry>)> =
                BTreeMap::new();
            for entry in self.entries(old.as_deref())? {
                let slot = names.entry(entry.name.clone()).or_default();
                slot.0 = Some(entry);
            }
            for entry in self.entries(new.as_deref())? {
                let slot = names.entry(entry.name.clone()).or_default();
                slot.1 = Some(entry);
            }
            for (name, (old, new)) in names {
                if old == new {
                    continue;
                }
                count += 1;
                self.looked_at += 1;
                if count > PATHS {
                    return Err(refused("one of them changes more paths than can be looked at"));
                }
                if self.looked_at > ALL_PATHS {
                    return Err(refused("they change more paths than can be looked at"));
                }
                let path = [folder.as_slice(), &name].concat();
                let tree = |entry: &Option<TreeEntry>| {
                    let entry = entry.as_ref().filter(|entry| entry.kind == Some(Kind::Tree));
                    entry.map(|entry| entry.id.clone())
                };
                let (below_old, below_new) = (tree(&old), tree(&new));
                let rest = |entry: Option<TreeEntry>| entry.filter(|e| e.kind != Some(Kind::Tree));
                let (old, new) = (rest(old), rest(new));
                if old.is_some() || new.is_some() {
                    let inside = self.path(&path, old.as_ref(), new.as_ref())?;
                    let found = self.risks(&inside, old.as_ref(), new.as_ref())?;
                    risks.extend(found.into_iter().map(|r| ((inside.clone(), r.kind), r.why)));
                }
                if below_old.is_some() || below_new.is_some() {
                    todo.push(([path.as_slice(), b"/"].concat(), below_old, below_new));
                }
            }
        }
        Ok(risks)
    }

    /// What deserves a second look in one path, as if the commit were a session's changes.
    fn risks(
        &mut self,
        path: &RelPath,
        old: Option<&TreeEntry>,
        new: Option<&TreeEntry>,
    ) -> Result<Vec<Risk>> {
        let same = old.map(|entry| &entry.id) == new.map(|entry| &entry.id);
        let (old, new) = (self.side(old)?, self.side(new)?);
        let kind = match (&old, &new) {
            (None, _) => ChangeKind::Added,
            (Some(_), None) => ChangeKind::Deleted,
            (Some((old, _)), Some((new, _))) if old.kind() != new.kind() => ChangeKind::Type,
            (Some((Node::Symlink { .. }, _)), Some(_)) => ChangeKind::Symlink,
            (Some(_), Some(_)) if same => ChangeKind::Mode,
            (Some(_), Some(_)) => ChangeKind::Modified,
        };
        let (old_node, old) = old.unzip();
        let (new_node, new) = new.unzip();
        let change = Change {
            layer: self.layer.clone(),
            path: path.clone(),
            kind,
            old_path: None,
            old: old_node.map_or(Base::Absent, Base::Known),
            new: new_node,
            group: Group::Project,
            state: ChangeState::Clean,
            landable: true,
            reason: None,
        };
        let site = Site { project: self.bounds.project, home: self.bounds.home };
        Ok(risk::judge(&change, &Sides { old, new }, &site))
    }

    /// An entry as an object of the project, and its first bytes.
    fn side(&mut self, entry: Option<&TreeEntry>) -> Result<Option<(Node, Vec<u8>)>> {
        let Some(entry) = entry else { return Ok(None) };
        let Some((size, bytes)) = self.objects.start_of(&entry.id, risk::LARGE)? else {
            return Err(refused(&format!("its object {} is missing", entry.id)));
        };
        let node = if entry.link {
            Node::Symlink { target: bytes.clone() }
        } else {
            let mode = if entry.executable { 0o755 } else { 0o644 };
            Node::File { mode, size, digest: content::digest_of(entry.id.as_bytes()) }
        };
        Ok(Some((node, bytes)))
    }

    fn entries(&mut self, tree: Option<&str>) -> Result<Vec<TreeEntry>> {
        let Some(id) = tree else { return Ok(Vec::new()) };
        let broken = |why: &str| refused(&format!("the tree {id} is none: {why}"));
        match self.objects.content(id)? {
            // The session's own were held to git's rules when they were found.
            Some((Kind::Tree, bytes)) => {
                owned_tree(&bytes, self.bounds.repo.format).map_err(broken)
            }
            Some(_) => Err(broken("it is something else")),
            None => Err(refused(&format!("its object {id} is missing"))),
        }
    }

    fn path(
        &mut self,
        name: &[u8],
        old: Option<&TreeEntry>,
        new: Option<&TreeEntry>,
    ) -> Result<RelPath> {
        let shown = visible_name(name);
        let bounds = self.bounds;
        if [old, new].into_iter().flatten().any(|entry| entry.kind.is_none()) {
            return Err(refused(&format!("they change {shown}, which is a repository of its own")));
        }
        let inside = name.strip_prefix(bounds.repo.prefix.as_slice());
        let Some(inside) = inside.and_then(|inside| RelPath::new(inside).ok()) else {
            return Err(refused(&format!("they change {shown}, which lies outside the project")));
        };
        if bounds.masks.iter().any(|mask| inside.is_within(mask) || mask.is_within(&inside)) {
            return Err(refused(&format!(
                "they change {shown}, which was hidden from the session"
            )));
        }
        let Some(new) = new else { return Ok(inside) };
        if !git_accepts(name, new.link) {
            return Err(refused(&format!("git refuses a name like {shown}")));
        }
        if new.link {
            let target = self.objects.content(&new.id)?.map(|(_, bytes)| bytes).unwrap_or_default();
            if target.contains(&0) || link::judge(&inside, &target, bounds.project).is_some() {
                return Err(refused(&format!("the link {shown} may lead out of the project")));
            }
        }
        Ok(inside)
    }
}

/// The first bytes of a file before and after.
struct Sides {
    old: Option<Vec<u8>>,
    new: Option<Vec<u8>>,
}

impl risk::Contents for Sides {
    fn new_bytes(&self) -> Option<Vec<u8>> {
        self.new.clone()
    }

    fn old_bytes(&self) -> Option<Vec<u8>> {
        self.old.clone()
    }
}
