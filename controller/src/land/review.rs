//! What the owner is shown: the changeset of a session with its figures, as a card and as a patch.

use super::card::{Card, CardChange, Groups, OtherLayer};
use super::changeset::{Base, Change};
use super::digest::digest;
use super::kind::{Durability, EntryType};
use super::layer::{LayerView, policy_of, project_of};
use super::patch::{Coverage, Figures, PatchWriter, figures};
use super::select::Selection;
use super::{check_present, tree};
use crate::error::{Context, Failure, Kind, Result};
use crate::session::model::ChangeCounts;
use crate::session::store::Session;
use landbox_shared::digest::Digest;
use landbox_shared::id::LayerId;
use landbox_shared::path::RelPath;
use landbox_shared::policy::LayerKind;
use std::io::Write;

/// One layer of a session, scanned for review.
#[derive(Debug)]
pub struct Review {
    view: LayerView,
    selection: Selection,
    /// Digest of the selection.
    pub digest: Digest,
}

impl Review {
    /// Scans the project layer, or the one named.
    pub fn of(session: &Session, layer: Option<&str>, selection: Selection) -> Result<Self> {
        Self::with(session, layer, selection, session.is_running()?)
    }

    fn with(
        session: &Session,
        layer: Option<&str>,
        mut selection: Selection,
        live: bool,
    ) -> Result<Self> {
        check_present(session)?;
        let layer = match layer {
            Some(id) => policy_of(session, id)?,
            None => project_of(session).ok_or_else(|| bare(session))?,
        };
        selection.all = layer.kind != LayerKind::Project;
        let view = LayerView::read(session, layer, live)?;
        let digest = digest(&[&view.changeset], |c| selection.holds(c));
        Ok(Self { view, selection, digest })
    }

    /// Whether the session was running when it was looked at.
    pub fn is_live(&self) -> bool {
        self.view.live
    }

    /// The changes of the selection.
    pub fn selected(&self) -> impl Iterator<Item = &Change> {
        self.view.changeset.changes.iter().filter(|c| self.selection.holds(c))
    }

    /// Whether anything of the selection can land.
    pub fn has_landable(&self) -> bool {
        self.selected().any(|c| c.landable)
    }

    /// The card.
    pub fn card(&self, session: &Session) -> Result<Card> {
        let set = &self.view.changeset;
        let mut card = Card {
            session: session.snapshot.id.clone(),
            targets: vec![set.target.clone()],
            digest: self.digest,
            files: 0,
            added: 0,
            deleted: 0,
            changes: Vec::with_capacity(set.changes.len()),
            groups: Groups::default(),
            other_layers: other_layers(session, &set.layer)?,
            applied: false,
            durability: durability(session),
        };
        for change in set.changes.iter().filter(|c| self.selection.covers(c)) {
            let figures = figures(change, &self.view)?;
            card.groups.count(change.group);
            if self.selection.holds(change) {
                card.files += 1;
                card.added += figures.added.unwrap_or(0);
                card.deleted += figures.deleted.unwrap_or(0);
            }
            card.changes.push(row(change, &figures));
        }
        Ok(card)
    }

    /// Writes the selection's landable changes as a patch.
    pub fn write_patch(&self, out: impl Write) -> Result<()> {
        let mut patch = PatchWriter::new(out);
        for change in self.selected().filter(|c| c.landable) {
            patch.add(change, &self.view)?;
        }
        patch.finish()
    }
}

/// The figures of a session's project layer, for the line at its end and for lists. What was clean is recorded. `live`
/// says whether the task may still be running: its own controller knows best.
pub fn counts(session: &Session, live: bool) -> Result<ChangeCounts> {
    let mut out = ChangeCounts { files: 0, added: 0, deleted: 0 };
    if project_of(session).is_none() || session.state.landing.discarded_at.is_some() {
        return Ok(out);
    }
    let review = Review::with(session, None, Selection::default(), live)?;
    for change in review.selected() {
        let figures = figures(change, &review.view)?;
        out.files += 1;
        out.added += figures.added.unwrap_or(0);
        out.deleted += figures.deleted.unwrap_or(0);
    }
    Ok(out)
}

/// What the layers other than `shown` hold, by number of entries. Their content is not looked at.
pub fn other_layers(session: &Session, shown: &LayerId) -> Result<Vec<OtherLayer>> {
    let mut out = Vec::new();
    for layer in session.snapshot.policy.layers.iter().filter(|l| l.id != *shown) {
        let upper = session.upper(&layer.id);
        let files = tree::count(&upper, layer.backend)
            .context(|| format!("can't look into the layer {}", layer.id))?;
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

fn row(change: &Change, figures: &Figures) -> CardChange {
    let (old, new) = (change.old_node(), change.new.as_ref());
    let in_patch = match figures.coverage {
        Coverage::Whole => change.landable,
        Coverage::NotMode
        | Coverage::NotFolder
        | Coverage::NotName
        | Coverage::NotType
        | Coverage::NotKnown => false,
    };
    let reason = match (&change.reason, &change.old) {
        (Some(reason), _) => Some(reason.clone()),
        (None, Base::Unknown) => Some(
            "the real path was changed before it was first looked at, so its base is unknown"
                .to_owned(),
        ),
        (None, Base::Absent | Base::Known(_)) => None,
    };
    CardChange {
        layer: change.layer.clone(),
        path: change.path.as_bytes().to_vec(),
        kind: change.kind,
        old_path: change.old_path.as_ref().map(|p: &RelPath| p.as_bytes().to_vec()),
        old_type: old.map(super::changeset::Node::kind),
        new_type: new.map(|n| -> EntryType { n.kind() }),
        old_mode: old.and_then(super::changeset::Node::mode),
        new_mode: new.and_then(super::changeset::Node::mode),
        old_target: old.and_then(|n| n.target().map(<[u8]>::to_vec)),
        new_target: new.and_then(|n| n.target().map(<[u8]>::to_vec)),
        old_size: old.and_then(super::changeset::Node::size),
        new_size: new.and_then(super::changeset::Node::size),
        binary: figures.binary,
        added: figures.added,
        deleted: figures.deleted,
        group: change.group,
        state: change.state,
        landable: change.landable,
        reason,
        in_patch,
        risks: Vec::new(),
    }
}
