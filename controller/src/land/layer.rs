//! One layer of a session, read: its changeset, with access to the bytes on both sides.

use super::base::{Stamp, Store, before};
use super::changeset::{Bodies, Change, Changeset, OldBytes};
use super::ignore::{Owner, assign_groups};
use super::live::{self, Spool};
use super::renames;
use super::rules;
use super::scan::{self, Facts, Seen, TooMany};
use super::select::{Part, Selection};
use super::tree::{self, Time, Tree};
use crate::error::{Context, Failure, Kind, Result};
use crate::overlay::marks;
use crate::session::model::Launch;
use crate::session::scratch::Scratch;
use crate::session::store::{Session, show};
use landbox_shared::id::LayerId;
use landbox_shared::path::{AbsPath, RelPath};
use landbox_shared::policy::{LayerKind, LayerPolicy};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A layer that was scanned. Its base store stays locked as long as this lives.
#[derive(Debug)]
pub struct LayerView {
    /// What changed.
    pub changeset: Changeset,
    /// Whether the session was running: then this is a picture of a moment.
    pub live: bool,
    /// What the owner should know about how the changes were grouped.
    pub note: Option<String>,
    pub(crate) masks: Vec<RelPath>,
    pub(crate) store: Store,
    pub(crate) upper: Tree,
    pub(crate) real: Option<Tree>,
    /// What its files held, as far as that need not be read again.
    pub(crate) seen: Seen,
    /// Where the session runs and a consistent picture was asked for: the files of that picture.
    pub(crate) spool: Option<Spool>,
    /// Where what is no layer of the session now is laid out.
    _held: Option<Scratch>,
    /// Content in the place of the layer's, of which more stays than lands.
    pub(crate) parts: BTreeMap<RelPath, Part>,
}

/// The layer of that name.
pub(crate) fn policy_of<'a>(session: &'a Session, id: &str) -> Result<&'a LayerPolicy> {
    let layers = &session.snapshot.policy.layers;
    layers.iter().find(|l| l.id.as_str() == id).ok_or_else(|| {
        let names: Vec<&str> = layers.iter().map(|l| l.id.as_str()).collect();
        let id = crate::ui::text::visible(id.as_bytes());
        Failure::new(Kind::Usage, format!("this session has no layer {id}"))
            .hint(format!("its layers are: {}", names.join(", ")))
    })
}

/// The layer that lands; `None` for a session that ran bare.
pub(crate) fn project_of(session: &Session) -> Option<&LayerPolicy> {
    session.snapshot.policy.layers.iter().find(|l| l.kind == LayerKind::Project)
}

/// Whether the project layer holds nothing and no scan has recorded anything: then the end of a launch needs no scan.
/// (Before the next launch there is one in any case, since the epochs move on with it.)
pub fn is_untouched(session: &Session) -> bool {
    let Some(layer) = project_of(session) else { return false };
    let is_empty = || -> std::io::Result<bool> {
        let upper = Tree::open(&session.upper(&layer.id))?;
        let names = tree::names(upper.root())?;
        let found = marks::folder_marks(layer.backend, upper.root(), &names)?;
        Ok(names.is_empty() && !found.opaque && !found.redirected)
    };
    is_empty().unwrap_or(false) && !Store::exists(&session.dir, &layer.id)
}

impl LayerView {
    /// Scans a layer and records in the base store what was clean. `live` says whether the session may be running.
    pub(crate) fn read(session: &Session, layer: &LayerPolicy, live: bool) -> Result<Self> {
        Self::read_again(session, layer, live, Seen::default())
    }

    /// The same where what it held was read before.
    pub(crate) fn read_again(
        session: &Session,
        layer: &LayerPolicy,
        live: bool,
        seen: Seen,
    ) -> Result<Self> {
        Self::scan(session, layer, live, (&session.upper(&layer.id), None), seen)
    }

    /// Scans what a layer was at checkpoint `number`, laid out in `held`.
    pub(crate) fn read_from(
        session: &Session,
        layer: &LayerPolicy,
        held: Scratch,
        (path, number): (&Path, u32),
    ) -> Result<Self> {
        let (live, past) = (session.is_running()?, Some(number));
        let view = Self::scan(session, layer, live, (path, past), Seen::default())?;
        Ok(Self { _held: Some(held), ..view })
    }

    fn scan(
        session: &Session,
        layer: &LayerPolicy,
        live: bool,
        (path, checkpoint): (&Path, Option<u32>),
        seen: Seen,
    ) -> Result<Self> {
        let upper = match Tree::open(path) {
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                let text = format!("can't read the layer {}: {}", layer.id, rules::UNREADABLE);
                return Err(Failure::new(Kind::Failed, text));
            }
            opened => opened.context(|| format!("can't read the layer {}", show(path)))?,
        };
        let real = match Tree::open(layer.target.as_path()) {
            Ok(tree) => Some(tree),
            Err(e) if tree::is_absence(&e) => None,
            Err(e) => return Err(e).context(|| format!("can't read {}", layer.target)),
        };
        let mut store = Store::open(&session.dir, &layer.id)?;
        let past = checkpoint.is_some();
        if let Some(number) = checkpoint {
            store.look_past(before::at(&session.dir, &layer.id, number));
        }
        let facts = facts_of(session, layer, &store, real.as_ref());
        let (masks, behind) = (facts.masks.clone(), facts.behind);
        let what = || format!("can't scan the layer {}", layer.id);
        let scanned = scan::scan(&facts, &upper, real.as_ref(), &mut store, seen);
        let (mut changeset, seen) = match scanned {
            Err(e) if e.get_ref().is_some_and(|e| e.is::<TooMany>()) => {
                let id = &session.snapshot.id;
                return Err(Failure::new(
                    Kind::Refused,
                    format!("the layer {} of session {id} can't be read: {e}", layer.id),
                )
                .hint(format!("remove in the session what it need not hold: landbox resume {id}"))
                .hint(format!("or throw all of it away: landbox discard {id}")));
            }
            other => other.context(what)?,
        };
        let last = session.state.launches.last().map_or(0, |l| l.number);
        let ended = if live || past { last.saturating_sub(1) } else { last };
        let ended = ended.max(store.scanned);
        if live || past {
            store.keep_rest();
        }
        // What can't be written down now is only looked at: a landing writes its records itself, or fails.
        let unsaved = store.save(ended).err().map(|failure| failure.message);
        let owner = Owner::from_env(layer.target.as_path());
        let note = assign_groups(&layer.target, layer.kind, &mut changeset.changes, &owner);
        let behind = behind.then(|| BEHIND.to_owned());
        let notes = [unsaved, behind, note].into_iter().flatten();
        let note = notes.reduce(|all, more| format!("{all}; {more}"));
        renames::pair(&mut changeset.changes);
        let parts = BTreeMap::new();
        Ok(Self {
            changeset,
            live,
            note,
            masks,
            store,
            upper,
            real,
            parts,
            seen,
            spool: None,
            _held: None,
        })
    }

    /// Lets of the files that were reviewed in parts only what was picked be a change.
    pub(crate) fn narrow(&mut self, selection: &Selection) {
        let Some(reviewed) = &selection.reviewed else { return };
        for change in &mut self.changeset.changes {
            if let Some(part) = reviewed.parts.get(&change.path)
                && part.narrow(change)
            {
                self.parts.insert(change.path.clone(), part.clone());
            }
        }
    }

    /// Added and deleted lines between the part of a file that was picked and what the layer holds.
    pub(crate) fn beyond(&self, path: &RelPath, part: &Part) -> Result<(u64, u64)> {
        let mut whole = Vec::new();
        let open = || tree::file_at(self.upper.place(path.parent().as_ref())?, path.file_name());
        open()
            .and_then(|mut file| file.read_to_end(&mut whole))
            .context(|| format!("can't read {path} in the layer"))?;
        Ok(super::patch::lines::diff(part.bytes(), &whole).counts())
    }
}

impl Bodies for LayerView {
    fn old_bytes(&self, change: &Change) -> Result<Option<OldBytes>> {
        let path = change.old_path.as_ref().unwrap_or(&change.path);
        if let Some(kept) = self.store.bytes(path) {
            return Ok(Some(OldBytes::Kept(kept)));
        }
        // Too many to keep: the real file has them, as long as it is the base.
        let (Some(real), Some(record)) = (&self.real, self.store.kept(path)) else {
            return Ok(None);
        };
        if self.masks.iter().any(|m| path.is_within(m)) {
            return Ok(None);
        }
        let what = || format!("can't read {path}");
        let open = || tree::file_at(real.place(path.parent().as_ref())?, path.file_name());
        let Ok(mut file) = open() else { return Ok(None) };
        let stamp = Stamp::of(&tree::meta_of(&file).context(what)?);
        if record.stamp.as_deref() == Some(&stamp) {
            return Ok(Some(OldBytes::Real(file)));
        }
        let same = match (super::content::digest(&file).context(what)?, record.base.node()) {
            ((size, found), Some(super::changeset::Node::File { size: s, digest, .. })) => {
                (size, &found) == (*s, digest)
            }
            _ => false,
        };
        std::io::Seek::rewind(&mut file).context(what)?;
        Ok(same.then_some(OldBytes::Real(file)))
    }

    fn new_bytes(&self, change: &Change) -> Result<File> {
        let path = &change.path;
        if let Some(part) = self.parts.get(path) {
            return part.file().context(|| format!("can't prepare the parts of {path}"));
        }
        let open = || self.upper.file(path);
        let what = || format!("can't read {path} in the layer");
        match &self.spool {
            None => open().context(what),
            Some(spool) => {
                let file = spool.file(change, open).context(what)?;
                file.ok_or_else(|| live::moved(path))
            }
        }
    }
}

/// What it means that the clock is behind the time of the session's start.
const BEHIND: &str = "this machine's clock has gone back since the session started, so the time of a file does not tell \
                      whether the session saw it as it is";

/// What a scan of a layer over `real` needs to know.
pub(crate) fn facts_of<'a>(
    session: &Session,
    layer: &'a LayerPolicy,
    store: &Store,
    real: Option<&Tree>,
) -> Facts<'a> {
    let launches = &session.state.launches;
    let launch = launches.last().map_or(0, |launch| launch.number);
    let lands = match layer.kind {
        LayerKind::Project | LayerKind::Worktree => true,
        LayerKind::Home | LayerKind::Mount => false,
    };
    // What never lands is only looked at: what is there now is what it is compared with.
    let epoch = if lands { epoch(launches, &layer.id, store.scanned) } else { Some((i64::MAX, 0)) };
    // What is changed then seems older than the session, so no time says that something is.
    let behind = lands
        && epoch.is_some_and(|epoch| tree::now() < epoch)
        && real.is_some_and(|real| tree::has_kernel_time(real.root()));
    Facts {
        layer,
        masks: masks_of(session, layer),
        epoch: if behind { Some((i64::MIN, 0)) } else { epoch },
        behind,
        all_git: layer.kind == LayerKind::Worktree,
        root: store.root_of(launch),
        launch,
        prepared: live::Noted::read(session, &layer.id),
    }
}

/// Hidden paths inside a layer, relative to its target.
fn masks_of(session: &Session, layer: &LayerPolicy) -> Vec<RelPath> {
    let masks = session.snapshot.policy.masks.iter().map(|m| m.path.clone());
    // Wherever it lies, and whatever the policy says: Landbox's own state is nothing to land.
    let state = session.dir.ancestors().nth(2).and_then(|dir| AbsPath::from_path(dir).ok());
    masks.chain(state).filter_map(|path| path.relative_to(&layer.target)).collect()
}

/// The time before the first launch that a scan has not yet seen to its end. A launch that failed before its layers
/// were mounted wrote nothing and has no such time; any other without one makes everything uncertain.
fn epoch(launches: &[Launch], layer: &LayerId, scanned: u32) -> Option<Time> {
    let wrote =
        |l: &&Launch| l.epochs.contains_key(layer) || l.failure.is_none() || l.boundary.is_some();
    let first = launches.iter().filter(|l| l.number > scanned).find(wrote);
    let launch = first.or_else(|| launches.iter().rfind(wrote))?;
    launch.epochs.get(layer).map(|e| (e.seconds, e.nanoseconds))
}
