//! What the owner is shown: the changeset of a session with its figures, as a card and as a patch.

use super::card::{Card, Groups, OtherLayer, card_changes};
use super::changeset::{Bodies, Change, Node, OldBytes};
use super::checkpoint;
use super::digest::digest;
use super::git::{Sayable, Source, unkept};
use super::interactive::Item;
use super::kind::{ChangeState, Durability, Group};
use super::layer::{LayerView, policy_of, project_of};
use super::live::{self, Sight};
use super::patch::{Coverage, Figures, PatchWriter, beyond, figures, obstructed};
use super::resolve::{Choices, Resolution, Resolved, resolve_telling};
use super::risk::{self, LARGE, Site};
use super::select::{Picked, Selection, Wanted};
use super::{check_present, many, tree};
use crate::error::{Context, Failure, Kind, Result};
use crate::session::model::ChangeCounts;
use crate::session::store::Session;
use landbox_shared::digest::Digest;
use landbox_shared::id::LayerId;
use landbox_shared::path::{AbsPath, RelPath};
use landbox_shared::policy::{LayerKind, LayerPolicy};
use std::collections::{HashMap, HashSet};
use std::io::{Read as _, Write};

/// One layer of a session, scanned for review.
#[derive(Debug)]
pub struct Review {
    view: LayerView,
    picked: Picked,
    resolution: Resolution,
    /// Digest of the selection.
    pub digest: Digest,
}

impl Review {
    /// Scans the project layer, or the one named.
    pub fn of(session: &Session, layer: Option<&str>, selection: Selection) -> Result<Self> {
        let live = session.is_running()?;
        Self::with(session, layer, selection, live, live)
    }

    /// Goes on with what was looked at before, and selects of it: of a session that runs, what it was then.
    pub fn again(session: &Session, sight: Sight, selection: Selection) -> Result<Self> {
        let live = session.is_running()?;
        let Some(picture) = sight.picture.filter(|_| live) else {
            return Self::of(session, None, selection);
        };
        check_present(session)?;
        let layer = project_of(session).ok_or_else(|| bare(session))?;
        let mut view = LayerView::read(session, layer, true)?;
        picture.onto(&mut view);
        Self::seen(session, view, selection)
    }

    fn with(
        session: &Session,
        layer: Option<&str>,
        mut selection: Selection,
        live: bool,
        consistent: bool,
    ) -> Result<Self> {
        check_present(session)?;
        let layer = match layer {
            Some(id) => policy_of(session, id)?,
            None => project_of(session).ok_or_else(|| bare(session))?,
        };
        selection.all = layer.kind != LayerKind::Project;
        let view = match selection.checkpoint {
            Some(number) => checkpoint::view(session, layer, number)?,
            None if consistent => live::picture(session, layer)?,
            None => LayerView::read(session, layer, live)?,
        };
        Self::seen(session, view, selection)
    }

    fn seen(session: &Session, mut view: LayerView, selection: Selection) -> Result<Self> {
        view.narrow(&selection);
        let picked = selection.pick(&view.changeset, &session.snapshot.id)?;
        let digest = digest(&[&view.changeset], |c| picked.holds(c));
        let mut review = Self { view, picked, resolution: Resolution::default(), digest };
        if !selection.all {
            review.resolve(session, &selection.choices)?;
        }
        Ok(review)
    }

    /// Judges what has drifted, and does about it as `choices` says.
    pub fn resolve(&mut self, session: &Session, choices: &Choices) -> Result<()> {
        let chosen: Vec<&Change> = self.selected().filter(|c| c.landable).collect();
        self.resolution = resolve_telling(session, &self.view, &chosen, choices)?;
        Ok(())
    }

    /// What is done with each change of the selection that can land and has met an edit of the owner's.
    pub fn resolution(&self) -> &Resolution {
        &self.resolution
    }

    /// The changed paths that a typed path means, as the one folder or file they lie in.
    pub fn path_of(&self, session: &Session, wanted: &Wanted) -> Result<RelPath> {
        let changed = |path: &RelPath| self.selected().any(|c| c.path.is_within(path));
        let readings = wanted.readings(&self.view.changeset.target)?;
        readings
            .into_iter()
            .flatten()
            .find(changed)
            .ok_or_else(|| wanted.unmatched(&session.snapshot.id))
    }

    /// Whether the session was running when it was looked at.
    pub fn is_live(&self) -> bool {
        self.view.live
    }

    /// What was seen, for landing it as it was shown; with this goes the lock on the base.
    pub fn into_sight(self) -> Sight {
        Sight::of(self.view)
    }

    /// The changes of the selection.
    pub fn selected(&self) -> impl Iterator<Item = &Change> {
        self.view.changeset.changes.iter().filter(|c| self.picked.holds(c))
    }

    /// How many changes of a group there are, chosen or not.
    pub fn count(&self, group: Group) -> u64 {
        self.view.changeset.changes.iter().filter(|c| c.group == group).count() as u64
    }

    /// Whether the session has commits that its owner has not got, as far as can be told.
    pub fn has_commits(&self, session: &Session) -> bool {
        unkept(session, &self.view).is_ok_and(|count| count > 0)
    }

    /// What can land of the selection, read for a review by hand.
    pub fn items(&self) -> Result<Vec<Item>> {
        Item::read(self.selected().filter(|c| c.landable), &self.view)
    }

    /// The real folder that it is about.
    pub(super) fn target(&self) -> &AbsPath {
        &self.view.changeset.target
    }

    /// What of the selection a commit can hold.
    pub(super) fn source(&self) -> Source<'_> {
        let sayable = Sayable::of(self.selected(), &self.obstructed());
        let layer = &self.view.changeset.layer;
        Source { sayable, bodies: &self.view, masks: &self.view.masks, layer }
    }

    /// Whether anything of the selection can land.
    pub fn has_landable(&self) -> bool {
        self.selected().any(|c| c.landable)
    }

    /// What the owner should know about how the changes were grouped.
    pub fn note(&self) -> Option<&str> {
        self.view.note.as_deref()
    }

    /// The card.
    pub fn card(&self, session: &Session) -> Result<Card> {
        self.build(session, None::<PatchWriter<std::io::Sink>>, true)
    }

    /// The card without its figures, for those to whom nothing is shown: comparing is most of the work.
    pub fn bare_card(&self, session: &Session) -> Result<Card> {
        self.build(session, None::<PatchWriter<std::io::Sink>>, false)
    }

    /// The card, and the patch in the same go: reading and comparing is most of the work of both.
    pub fn card_with_patch(&self, session: &Session, out: impl Write) -> Result<Card> {
        self.build(session, Some(PatchWriter::new(out)), true)
    }

    fn build<W: Write>(
        &self,
        session: &Session,
        mut patch: Option<PatchWriter<W>>,
        counted: bool,
    ) -> Result<Card> {
        let set = &self.view.changeset;
        let mut card = Card {
            session: session.snapshot.id.clone(),
            targets: vec![set.target.clone()],
            digest: self.digest,
            files: 0,
            added: 0,
            deleted: 0,
            changes: Vec::new(),
            unchosen: 0,
            groups: Groups::default(),
            other_layers: other_layers(session, &set.layer)?,
            applied: false,
            durability: durability(session),
            receipt: None,
        };
        let judged: HashMap<&RelPath, &Resolved> = self
            .resolution
            .items
            .iter()
            .filter(|item| item.state != ChangeState::Clean)
            .map(|item| (&item.change.path, item))
            .collect();
        let faces: HashMap<&RelPath, Change> =
            judged.iter().map(|(path, item)| (*path, item.face())).collect();
        let covered = set.changes.iter().filter(|c| self.picked.covers(c));
        let changes: Vec<&Change> = covered.map(|c| faces.get(&c.path).unwrap_or(c)).collect();
        let left_out = self.left_out();
        let facing = Facing { review: self, judged, left_out };
        let all = match &mut patch {
            // One text, in order.
            Some(patch) => {
                let one = |change: &&Change| facing.figures(change, Some(&mut *patch));
                changes.iter().map(one).collect::<Result<Vec<_>>>()?
            }
            None if counted => many::map(&changes, |change| facing.figures::<W>(change, None))?,
            None => changes.iter().map(|change| Figures::uncounted(change)).collect(),
        };
        let site = Site { project: &set.target, home: &session.snapshot.policy.home };
        let risks = many::map(&changes, |change| Ok(self.risks(change, &site)))?;
        for (change, figures) in changes.iter().zip(&all) {
            card.groups.count(change.group);
            if self.picked.holds(change) {
                card.files += 1;
                card.added += figures.added.unwrap_or(0);
                card.deleted += figures.deleted.unwrap_or(0);
            }
        }
        if let Some(patch) = patch {
            patch.finish()?;
        }
        card.changes = card_changes(&changes, &all, risks);
        for (change, shown) in changes.iter().zip(&mut card.changes) {
            shown.selected = self.picked.holds(change);
        }
        card.unchosen = (set.changes.len() - changes.len()) as u64;
        Ok(card)
    }

    fn risks(&self, change: &Change, site: &Site<'_>) -> Vec<risk::Risk> {
        if !self.picked.holds(change) {
            return risk::judge_names(change, site);
        }
        risk::judge(change, &Read { change, view: &self.view }, site)
    }

    /// Changes that git could not make of the patch.
    fn obstructed(&self) -> HashSet<RelPath> {
        let lands = |c: &Change| c.landable && self.picked.holds(c);
        obstructed(&self.view.changeset.changes, lands)
    }

    /// Changes that the patch of the selection cannot say beside the others.
    fn left_out(&self) -> HashMap<RelPath, Coverage> {
        let changes = &self.view.changeset.changes;
        let lands = |c: &Change| c.landable && self.picked.holds(c);
        let beyond = beyond(changes, lands);
        let obstructed = obstructed(changes, |c| lands(c) && !beyond.contains(&c.path));
        let obstructed = obstructed.into_iter().map(|path| (path, Coverage::NotEmptied));
        obstructed.chain(beyond.into_iter().map(|path| (path, Coverage::NotSize))).collect()
    }

    #[cfg(test)]
    pub(crate) fn forget(&mut self, path: &str) {
        self.view.changeset.changes.retain(|c| c.path.as_bytes() != path.as_bytes());
    }

    /// Writes the selection's landable changes as a patch.
    pub fn write_patch(&self, out: impl Write) -> Result<()> {
        let mut patch = PatchWriter::new(out);
        let left_out = self.left_out();
        let sayable = |c: &&Change| c.landable && !left_out.contains_key(&c.path);
        for change in self.selected().filter(sayable) {
            patch.add(change, &self.view)?;
        }
        patch.finish()
    }
}

/// How the changes of a review meet the project.
struct Facing<'a> {
    review: &'a Review,
    judged: HashMap<&'a RelPath, &'a Resolved>,
    left_out: HashMap<RelPath, Coverage>,
}

impl Facing<'_> {
    /// The figures of a change; its text goes into `patch`.
    fn figures<W: Write>(
        &self,
        change: &Change,
        patch: Option<&mut PatchWriter<W>>,
    ) -> Result<Figures> {
        let view = &self.review.view;
        // Build output can be large, and nobody reviews it line by line.
        if !self.review.picked.holds(change) {
            return Ok(Figures::uncounted(change));
        }
        let item = self.judged.get(&change.path);
        match item.map(|item| item.effective()) {
            // What lands is not what the session left, or not over what it saw.
            Some(met) if !met.is_empty() => self.met(change, &met, patch),
            // Nothing is written.
            Some(_) if !item.is_some_and(|i| i.is_open()) => {
                Ok(Figures { added: Some(0), deleted: Some(0), ..Figures::uncounted(change) })
            }
            Some(_) | None => match (self.left_out.get(&change.path), patch) {
                (Some(why), _) => {
                    let all = figures(change, view)?;
                    let coverage = if all.coverage.writes() { *why } else { all.coverage };
                    Ok(Figures { coverage, ..all })
                }
                // A conflict is shown as what the session did.
                (None, Some(patch)) if change.landable => patch.add(change, view),
                (None, _) => figures(change, view),
            },
        }
    }

    /// The same of a change in whose place others land.
    fn met<W: Write>(
        &self,
        change: &Change,
        met: &[Change],
        mut patch: Option<&mut PatchWriter<W>>,
    ) -> Result<Figures> {
        let view = &self.review.view;
        let mut all = Figures { added: Some(0), deleted: Some(0), ..figures(change, view)? };
        let bodies = self.review.resolution.bodies(view);
        for change in met {
            let one = match &mut patch {
                Some(patch) => patch.add(change, &bodies)?,
                None => figures(change, &bodies)?,
            };
            all.added = all.added.zip(one.added).map(|(a, b)| a + b);
            all.deleted = all.deleted.zip(one.deleted).map(|(a, b)| a + b);
        }
        Ok(all)
    }
}

/// The bytes of one change, for the flags.
struct Read<'a> {
    change: &'a Change,
    view: &'a LayerView,
}

impl risk::Contents for Read<'_> {
    fn new_bytes(&self) -> Option<Vec<u8>> {
        start(self.view.new_bytes(self.change).ok()?)
    }

    fn old_bytes(&self) -> Option<Vec<u8>> {
        if !matches!(self.change.old_node(), Some(Node::File { .. })) {
            return None;
        }
        match self.view.old_bytes(self.change).ok()?? {
            OldBytes::Kept(bytes) => Some(bytes),
            OldBytes::Real(file) => start(file),
        }
    }
}

/// The first bytes of a file, as many as are searched.
fn start(file: std::fs::File) -> Option<Vec<u8>> {
    let size = file.metadata().ok()?.len().min(LARGE);
    let mut bytes = Vec::with_capacity(usize::try_from(size).ok()? + 1);
    file.take(LARGE).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The figures of a session's project layer, for the line at its end and for lists. What was clean is recorded. `live`
/// says whether the task may still be running: its own controller knows best.
pub fn counts(session: &Session, live: bool) -> Result<ChangeCounts> {
    counts_and_ignored(session, live).map(|(counts, _)| counts)
}

/// The same, and how many changes beside those the ignore rules cover.
pub fn counts_and_ignored(session: &Session, live: bool) -> Result<(ChangeCounts, u64)> {
    let mut out = ChangeCounts { files: 0, added: 0, deleted: 0 };
    if project_of(session).is_none() || session.state.landing.discarded_at.is_some() {
        return Ok((out, 0));
    }
    let review = Review::with(session, None, Selection::default(), live, false)?;
    let changes: Vec<&Change> = review.selected().collect();
    for figures in many::map(&changes, |change| figures(change, &review.view))? {
        out.files += 1;
        out.added += figures.added.unwrap_or(0);
        out.deleted += figures.deleted.unwrap_or(0);
    }
    Ok((out, review.count(Group::Ignored)))
}

/// The changed paths of a session's project layer that its owner has changed, too, since the session did.
pub fn owner_edits(session: &Session, live: bool) -> Result<Vec<RelPath>> {
    if project_of(session).is_none() || session.state.landing.discarded_at.is_some() {
        return Ok(Vec::new());
    }
    let review = Review::with(session, None, Selection::default(), live, false)?;
    let met = review.selected().filter(|c| c.state != ChangeState::Clean);
    Ok(met.map(|c| c.old_path.as_ref().unwrap_or(&c.path).clone()).collect())
}

/// What landings leave in a stopped session unless they are asked to take it.
#[derive(Clone, Copy, Debug)]
pub struct LeftBehind {
    /// Number of changes in its project layer that the ignore rules cover.
    pub ignored: u64,
    /// Number of branches, tags and heads of its own whose commits the owner has not got.
    pub commits: u64,
}

/// Looks for what landings leave in a stopped session.
pub fn left_behind(session: &Session) -> Result<LeftBehind> {
    let review = Review::with(session, None, Selection::default(), false, false)?;
    let ignored = review.view.changeset.changes.iter().filter(|c| c.group == Group::Ignored);
    let ignored = ignored.count() as u64;
    Ok(LeftBehind { ignored, commits: unkept(session, &review.view)? })
}

/// Number of entries that a layer holds.
pub fn layer_files(session: &Session, layer: &LayerPolicy) -> Result<u64> {
    tree::count(&session.upper(&layer.id), layer.backend)
        .context(|| format!("can't look into the layer {}", layer.id))
}

/// What the layers other than `shown` hold, by number of entries. Their content is not looked at.
pub fn other_layers(session: &Session, shown: &LayerId) -> Result<Vec<OtherLayer>> {
    let mut out = Vec::new();
    for layer in session.snapshot.policy.layers.iter().filter(|l| l.id != *shown) {
        let files = layer_files(session, layer)?;
        if files > 0 {
            out.push(OtherLayer { layer: layer.id.clone(), files });
        }
    }
    Ok(out)
}

fn bare(session: &Session) -> Failure {
    let id = &session.snapshot.id;
    Failure::new(
        Kind::Nothing,
        format!("session {id} ran without the sandbox: what it wrote is on the real disk already"),
    )
}

/// Whether what the session wrote is known to be on disk.
fn durability(session: &Session) -> Durability {
    if session.state.landing.synced { Durability::Synced } else { Durability::Unsynced }
}
