//! The review card: what a landing would do, in one structure with several faces.

use super::changeset::{Base, Change, Node};
use super::kind::{ChangeKind, ChangeState, Durability, EntryType, Group};
use super::patch::{Coverage, Figures};
use super::risk::Risk;
use crate::document::{bytes_array_entry, bytes_entry};
use landbox_shared::digest::Digest;
use landbox_shared::id::{LayerId, SessionId};
use landbox_shared::path::AbsPath;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The card of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The session.
    pub session: SessionId,
    /// The real folders that would be written.
    pub targets: Vec<AbsPath>,
    /// Digest of the selection shown.
    pub digest: Digest,
    /// Number of changes in the selection.
    pub files: u64,
    /// Added lines of the selection.
    pub added: u64,
    /// Deleted lines of the selection.
    pub deleted: u64,
    /// Every change, of all groups.
    pub changes: Vec<CardChange>,
    /// Number of changes that were not asked for and are not listed; not in the document.
    pub unchosen: u64,
    /// Number of changes per group.
    pub groups: Groups,
    /// What the layers that never land hold.
    pub other_layers: Vec<OtherLayer>,
    /// Whether the changes were applied.
    pub applied: bool,
    /// Whether the layer's data is on disk.
    pub durability: Durability,
    /// The receipt, once they were.
    pub receipt: Option<PathBuf>,
}

/// One change on a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardChange {
    /// The layer it is in.
    pub layer: LayerId,
    /// Relative to the layer's target.
    pub path: Vec<u8>,
    /// What happened.
    pub kind: ChangeKind,
    /// Where it was, for a rename.
    pub old_path: Option<Vec<u8>>,
    /// What was there.
    pub old_type: Option<EntryType>,
    /// What is there.
    pub new_type: Option<EntryType>,
    /// Permission bits before.
    pub old_mode: Option<u32>,
    /// Permission bits after.
    pub new_mode: Option<u32>,
    /// Where a link pointed.
    pub old_target: Option<Vec<u8>>,
    /// Where a link points.
    pub new_target: Option<Vec<u8>>,
    /// Bytes before.
    pub old_size: Option<u64>,
    /// Bytes after.
    pub new_size: Option<u64>,
    /// Whether the content is not text.
    pub binary: bool,
    /// Added lines; none for binary content.
    pub added: Option<u64>,
    /// Deleted lines; none for binary content.
    pub deleted: Option<u64>,
    /// Which part of the project.
    pub group: Group,
    /// Whether it is part of the selection; not in the document.
    pub selected: bool,
    /// How the real path stands to the base.
    pub state: ChangeState,
    /// Whether an apply would write it.
    pub landable: bool,
    /// Why not, or what else is worth knowing.
    pub reason: Option<String>,
    /// Whether a git patch can say it.
    pub in_patch: bool,
    /// What deserves a second look.
    pub risks: Vec<Risk>,
}

/// Number of changes per group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Groups {
    /// The project proper.
    pub project: u64,
    /// What ignore rules cover.
    pub ignored: u64,
    /// Git's own files.
    pub git: u64,
}

/// What a layer that never lands holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OtherLayer {
    /// The layer.
    pub layer: LayerId,
    /// Number of changed files.
    pub files: u64,
}

impl Groups {
    /// Counts one change.
    pub fn count(&mut self, group: Group) {
        match group {
            Group::Project => self.project += 1,
            Group::Ignored => self.ignored += 1,
            Group::Git => self.git += 1,
        }
    }
}

/// The card's list of `changes`, given the figures and flags of each.
pub fn card_changes(
    changes: &[&Change],
    figures: &[Figures],
    risks: Vec<Vec<Risk>>,
) -> Vec<CardChange> {
    // A folder in place of a file comes with its first entry.
    let filled: HashSet<(&LayerId, &[u8])> = changes
        .iter()
        .filter(|c| c.new.is_some())
        .flat_map(|c| parents(c.path.as_bytes()).map(move |parent| (&c.layer, parent)))
        .collect();
    let cover = |change: &Change, coverage| {
        let key = (&change.layer, change.path.as_bytes());
        let fills = coverage == Coverage::NotFolder && filled.contains(&key);
        if fills { Coverage::Whole } else { coverage }
    };
    let one = |((c, f), risks): ((&&Change, &Figures), _)| CardChange {
        risks,
        ..card_change(c, f, cover(c, f.coverage))
    };
    changes.iter().zip(figures).zip(risks).map(one).collect()
}

/// The folders a relative path lies in.
fn parents(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| &path[..at])
}

fn card_change(change: &Change, figures: &Figures, coverage: Coverage) -> CardChange {
    let (old, new) = (change.old_node(), change.new.as_ref());
    let bytes = |target: &[u8]| target.to_vec();
    CardChange {
        layer: change.layer.clone(),
        path: change.path.as_bytes().to_vec(),
        kind: change.kind,
        old_path: change.old_path.as_ref().map(|p| p.as_bytes().to_vec()),
        old_type: old.map(Node::kind),
        new_type: new.map(Node::kind),
        old_mode: old.and_then(Node::mode),
        new_mode: new.and_then(Node::mode),
        old_target: old.and_then(Node::target).map(bytes),
        new_target: new.and_then(Node::target).map(bytes),
        old_size: old.and_then(Node::size),
        new_size: new.and_then(Node::size),
        binary: figures.binary,
        added: figures.added,
        deleted: figures.deleted,
        group: change.group,
        selected: change.group == Group::Project,
        state: change.state,
        landable: change.landable,
        reason: change.reason.clone().or_else(|| patch_reason(change, coverage)),
        in_patch: coverage == Coverage::Whole && change.landable && change.group != Group::Git,
        risks: Vec::new(),
    }
}

/// What the owner should know who lands by the patch.
fn patch_reason(change: &Change, coverage: Coverage) -> Option<String> {
    let what = match coverage {
        Coverage::Whole => return None,
        Coverage::NotKnown if change.old == Base::Unknown => {
            let why =
                "the real path was changed before it was first looked at, so its base is unknown";
            return Some(why.to_owned());
        }
        Coverage::NotKnown => return None,
        Coverage::NotMode => {
            let mode = change.new.as_ref().and_then(Node::mode).unwrap_or(0);
            format!("mode {} is not in the patch", octal(mode))
        }
        Coverage::NotFolder => "an empty folder is not in the patch".to_owned(),
        Coverage::NotType => "not in the patch: git knows no folders and special files".to_owned(),
        Coverage::NotName => "not in the patch: git refuses a name like this".to_owned(),
        Coverage::NotSize => {
            "not in the patch: with it there would be more than 512 MiB of files in one patch"
                .to_owned()
        }
        Coverage::NotEmptied => {
            "not in the patch: git can't take away all that the folder in its place holds"
                .to_owned()
        }
    };
    (change.landable && change.group != Group::Git).then_some(what)
}

/// Permission bits as the documents write them.
pub fn octal(mode: u32) -> String {
    format!("{:04o}", mode & 0o7777)
}

impl Serialize for Card {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        map.serialize_entry("session", &self.session)?;
        let targets: Vec<&[u8]> = self.targets.iter().map(AbsPath::as_bytes).collect();
        bytes_array_entry(&mut map, "targets", &targets)?;
        map.serialize_entry("digest", &self.digest)?;
        map.serialize_entry("files", &self.files)?;
        map.serialize_entry("added", &self.added)?;
        map.serialize_entry("deleted", &self.deleted)?;
        map.serialize_entry("changes", &self.changes)?;
        map.serialize_entry("groups", &self.groups)?;
        map.serialize_entry("other_layers", &self.other_layers)?;
        map.serialize_entry("applied", &self.applied)?;
        map.serialize_entry("durability", &self.durability)?;
        let receipt = self.receipt.as_ref().map(|path| path.as_os_str().as_bytes());
        bytes_entry(&mut map, "receipt", receipt)?;
        map.end()
    }
}

impl Serialize for CardChange {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        map.serialize_entry("layer", &self.layer)?;
        bytes_entry(&mut map, "path", Some(&self.path))?;
        map.serialize_entry("kind", &self.kind)?;
        bytes_entry(&mut map, "old_path", self.old_path.as_deref())?;
        map.serialize_entry("old_type", &self.old_type)?;
        map.serialize_entry("new_type", &self.new_type)?;
        map.serialize_entry("old_mode", &self.old_mode.map(octal))?;
        map.serialize_entry("new_mode", &self.new_mode.map(octal))?;
        bytes_entry(&mut map, "old_target", self.old_target.as_deref())?;
        bytes_entry(&mut map, "new_target", self.new_target.as_deref())?;
        map.serialize_entry("old_size", &self.old_size)?;
        map.serialize_entry("new_size", &self.new_size)?;
        map.serialize_entry("binary", &self.binary)?;
        map.serialize_entry("added", &self.added)?;
        map.serialize_entry("deleted", &self.deleted)?;
        map.serialize_entry("group", &self.group)?;
        map.serialize_entry("state", &self.state)?;
        map.serialize_entry("landable", &self.landable)?;
        map.serialize_entry("reason", &self.reason)?;
        map.serialize_entry("in_patch", &self.in_patch)?;
        map.serialize_entry("risks", &self.risks)?;
        map.end()
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;

    /// A change with nothing but a name, a kind and line counts.
    pub(crate) fn change(path: &[u8], kind: ChangeKind) -> CardChange {
        CardChange {
            layer: LayerId::new("project").unwrap(),
            path: path.to_vec(),
            kind,
            old_path: None,
            old_type: Some(EntryType::File),
            new_type: Some(EntryType::File),
            old_mode: Some(0o644),
            new_mode: Some(0o644),
            old_target: None,
            new_target: None,
            old_size: Some(3),
            new_size: Some(4),
            binary: false,
            added: Some(2),
            deleted: Some(1),
            group: Group::Project,
            selected: true,
            state: ChangeState::Clean,
            landable: true,
            reason: None,
            in_patch: true,
            risks: Vec::new(),
        }
    }

    /// A card of `changes` with matching figures.
    pub(crate) fn card(changes: Vec<CardChange>) -> Card {
        let mut groups = Groups::default();
        let shown = || changes.iter().filter(|c| c.group == Group::Project);
        changes.iter().for_each(|c| groups.count(c.group));
        Card {
            session: SessionId::new("abc123def4").unwrap(),
            targets: vec![AbsPath::new("/home/a/app").unwrap()],
            digest: Digest::of("sample", &[]),
            files: groups.project,
            added: shown().filter_map(|c| c.added).sum(),
            deleted: shown().filter_map(|c| c.deleted).sum(),
            groups,
            other_layers: vec![OtherLayer { layer: LayerId::new("home").unwrap(), files: 14 }],
            applied: false,
            durability: Durability::Unsynced,
            unchosen: 0,
            receipt: None,
            changes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::patch::coverage;
    use super::*;
    use landbox_shared::path::RelPath;
    use serde_json::{Value, json};

    #[test]
    fn absent_values_are_null_and_no_key_is_missing() {
        let mut change = samples::change(b"a", ChangeKind::Added);
        change.old_type = None;
        change.old_mode = None;
        change.old_size = None;
        change.added = None;
        change.new_mode = Some(0o102_755);
        assert_eq!(
            serde_json::to_value(&change).unwrap(),
            json!({
                "layer": "project", "path": "a", "kind": "added", "old_path": null,
                "old_type": null, "new_type": "file", "old_mode": null, "new_mode": "2755",
                "old_target": null, "new_target": null, "old_size": null, "new_size": 4,
                "binary": false, "added": null, "deleted": 1, "group": "project",
                "state": "clean", "landable": true, "reason": null, "in_patch": true, "risks": [],
            })
        );
    }

    #[test]
    fn names_that_are_not_plain_text_come_with_their_bytes() {
        let mut change = samples::change(b"\xff\\", ChangeKind::Symlink);
        change.new_target = Some(b"plain".to_vec());
        let value = serde_json::to_value(&change).unwrap();
        assert_eq!(value["path"], "\\xff\\\\");
        assert_eq!(value["path_b64"], "/1w=");
        assert_eq!(value["new_target"], "plain");
        assert_eq!(value.get("new_target_b64"), None);
    }

    #[test]
    fn the_card_has_the_keys_of_the_contract() {
        let mut card = samples::card(vec![]);
        card.targets.push(AbsPath::new(b"/\xfe".to_vec()).unwrap());
        let Value::Object(map) = serde_json::to_value(&card).unwrap() else { panic!() };
        assert_eq!(map["targets"], json!(["/home/a/app", "/\\xfe"]));
        assert_eq!(map["targets_b64"], json!([null, "L/4="]));
        assert_eq!(map["groups"], json!({"project": 0, "ignored": 0, "git": 0}));
        assert_eq!(map["other_layers"], json!([{"layer": "home", "files": 14}]));
        assert_eq!(map["durability"], "unsynced");
        let keys = ["session", "targets", "digest", "files", "added", "deleted", "changes"];
        let more = ["groups", "other_layers", "applied", "durability", "receipt", "targets_b64"];
        assert!(keys.iter().chain(&more).all(|k| map.contains_key(*k)));
        assert_eq!(map.len(), keys.len() + more.len());
    }

    fn change(path: &str, old: Base, new: Option<Node>) -> Change {
        Change {
            layer: LayerId::new("project").unwrap(),
            path: RelPath::new(path).unwrap(),
            kind: ChangeKind::Type,
            old_path: None,
            old,
            new,
            group: Group::Project,
            state: ChangeState::Clean,
            landable: true,
            reason: None,
        }
    }

    #[test]
    fn a_folder_in_place_of_a_file_is_in_the_patch_if_something_is_in_it() {
        let file = |mode| Node::File { mode, size: 1, digest: Digest::of("test", &[]) };
        let dir = Some(Node::Dir { mode: 0o755 });
        let changes = [
            change("a", Base::Known(file(0o644)), dir.clone()),
            change("a/b/c", Base::Absent, Some(file(0o600))),
            change("a.d", Base::Known(file(0o644)), dir),
        ];
        let figures = changes.each_ref().map(|c| Figures {
            coverage: coverage(c),
            binary: false,
            added: Some(0),
            deleted: Some(1),
        });
        let card = card_changes(&changes.each_ref(), &figures, vec![Vec::new(); changes.len()]);
        let said: Vec<_> = card.iter().map(|c| (c.in_patch, c.reason.as_deref())).collect();
        assert_eq!(
            said,
            [
                (true, None),
                (false, Some("mode 0600 is not in the patch")),
                (false, Some("an empty folder is not in the patch")),
            ]
        );
    }
}
