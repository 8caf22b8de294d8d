//! The stages of a landing, each of which takes up what the one before has left.

use super::entry::{self, Detail, Entry, Standing};
use super::journal::{self, Journal, ProjectLock, Work};
use super::plan::{self, Action, Plan, Step};
use super::stage::{self, Stage};
use super::{
    Landed, Order, Stopped, commit, finish, nothing, parts, place, prune, refuse_too_many,
    stop_if_ended,
};
use crate::error::{Context, Failure, Kind, Result};
use crate::land::base::own::Folders;
use crate::land::base::{KEEP_FILE, Store};
use crate::land::changeset::{Base, Bodies, Change, Changeset, Node};
use crate::land::kind::Group;
use crate::land::layer::{LayerView, project_of};
use crate::land::live::{self, Sight};
use crate::land::receipt::Receipt;
use crate::land::resolve::{Resolution, resolve};
use crate::land::select::{Picked, Selection};
use crate::land::tree::{self, Tree};
use crate::land::{check_present, checkpoint, digest, many, patch, receipt, sync};
use crate::seal::Key;
use crate::session::model::ChangeCounts;
use crate::session::store::{Session, StateDir, show};
use landbox_shared::id::SessionId;
use landbox_shared::path::{AbsPath, RelPath};
use landbox_shared::policy::LayerPolicy;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

/// The project and the session, held.
pub(super) struct Site {
    session: Session,
    layer: LayerPolicy,
    lock: ProjectLock,
    /// `None` where the session goes on running.
    stopped: Option<Stopped>,
}

impl Site {
    /// Holds them, and finishes what broke off there.
    pub(super) fn take(state: &StateDir, id: &SessionId) -> Result<Self> {
        let session = state.load(id)?;
        let layer = project_of(&session).cloned().ok_or_else(|| nothing(id))?;
        let lock = ProjectLock::take(state, &layer.target, true)?
            .ok_or_else(|| Failure::new(Kind::Failed, "can't lock the project"))?;
        lock.recover()?;
        let stopped = stop_if_ended(&session)?;
        // Anything may have happened while we waited: another landing of this very session, say.
        let session = state.load(id)?;
        check_present(&session)?;
        Ok(Self { session, layer, lock, stopped })
    }

    fn is_live(&self) -> bool {
        self.stopped.is_none()
    }

    /// What is to be landed from: the layer, what was shown of it while it runs, or a checkpoint.
    pub(super) fn look(&self, selection: &Selection, sight: Sight) -> Result<LayerView> {
        let Self { session, layer, .. } = self;
        let live = self.is_live();
        let Sight { picture, seen } = sight;
        let mut view = match (selection.checkpoint, live, picture) {
            (Some(number), ..) => checkpoint::view(session, layer, number)?,
            (None, true, None) => live::picture(session, layer)?,
            (None, _, picture) => {
                let mut view = LayerView::read_again(session, layer, live, seen)?;
                if let Some(picture) = picture.filter(|_| live) {
                    picture.onto(&mut view);
                }
                view
            }
        };
        view.narrow(selection);
        Ok(view)
    }
}

/// A landing under way.
pub(super) struct Landing<'a> {
    state: &'a StateDir,
    site: &'a mut Site,
    view: LayerView,
    set: Changeset,
    picked: Picked,
    resolution: Resolution,
    /// What is put there, and over what.
    effective: Vec<Change>,
    project: Tree,
    plan: Plan,
    /// The folders it changes, before that.
    folders: Folders,
    /// The bases once it has happened.
    bases: Vec<(RelPath, Option<Node>)>,
    /// What may leave the layer although it is not what landed.
    settled: BTreeMap<RelPath, Option<Node>>,
    /// The stage, and where it went what lay there.
    path: PathBuf,
    aside: Option<PathBuf>,
    /// The new base records, beside their place.
    records: PathBuf,
    receipt: Receipt,
    journal: Journal,
    /// Whether a checkpoint lands.
    past: bool,
    synced: bool,
    disturbed: Option<RelPath>,
}

impl<'a> Landing<'a> {
    /// Compares the changes with what was shown, and the project with the base, and says what is to be done.
    pub(super) fn plan(
        state: &'a StateDir,
        site: &'a mut Site,
        order: &Order<'_>,
        view: LayerView,
    ) -> Result<Self> {
        let id = &site.session.snapshot.id;
        let set = view.changeset.clone();
        let picked = order.selection.pick(&set, id)?;
        let holds = |c: &Change| picked.holds(c);
        let found = digest::digest(&[&set], holds);
        let chosen: Vec<&Change> = set.changes.iter().filter(|c| holds(c) && c.landable).collect();
        if chosen.is_empty() {
            return Err(nothing(id));
        }
        refuse_too_many(id, chosen.len())?;
        if found != *order.shown {
            return Err(Failure::new(
                Kind::Refused,
                format!(
                    "the changes are not the ones that were shown: their digest is {found} now"
                ),
            )
            .hint(format!("landbox land {id} shows them as they are")));
        }
        let resolution = resolve(&site.session, &view, &chosen, &order.selection.choices)?;
        resolution.check()?;
        if resolution.landed() == 0 {
            return Err(nothing(id));
        }
        let target = &site.layer.target;
        let project =
            Tree::open(target.as_path()).context(|| format!("can't open the project {target}"))?;
        let effective = resolution.effective();
        let put: Vec<&Change> = effective.iter().collect();
        let planned = resolution.planned(set.clone());
        let plan = plan::plan(&planned, &put, &resolution.deleted_too(), &view.masks, &project)?;
        let root = tree::meta_of(project.root()).context(|| "can't read the project".into())?.ino;
        // Before a place to prepare it is made in the project itself.
        let parents = plan.steps.iter().map(|step| step.path.parent());
        let folders = Folders::of(&project, parents.chain([None]));
        let number = site.session.state.landing.count.saturating_add(1);
        let path = place::make(state, target, &project)?.join(entry::name(id, number));
        let aside = stage::clear(&path, id)?;
        let store =
            AbsPath::from_path(&path).context(|| format!("can't use the path {}", show(&path)))?;
        let sequence = entry::next_sequence(state, target);
        let mut entry = Entry::new(id.clone(), number, sequence, target.clone(), root, store);
        entry.changes = (resolution.landed() - resolution.dropped()) as u64;
        let receipt = finish::receipt(&site.session, number, found, &resolution, &plan.staying);
        let owners = || plan.owners.iter().map(|path| (path.clone(), None));
        let mut bases = resolution.bases();
        bases.retain(|(path, _)| !plan.staying.contains(path));
        bases.extend(owners());
        let mut settled = resolution.settled(&view);
        settled.extend(owners());
        let records = view.store.path().with_extension("landing");
        let journal = Journal::new(Work::Landing, entry, Some(&records), &receipt.path(state))?;
        let past = order.selection.checkpoint.is_some();
        let (synced, disturbed) = (true, None);
        Ok(Self {
            state,
            site,
            view,
            set,
            picked,
            resolution,
            effective,
            project,
            plan,
            folders,
            bases,
            settled,
            path,
            aside,
            records,
            receipt,
            journal,
            past,
            synced,
            disturbed,
        })
    }

    /// Makes everything that is needed, on disk, and the journal that tells of it; or nothing.
    pub(super) fn prepare(&mut self, key: &Key) -> Result<(Stage, parts::Parts)> {
        self.make(key).inspect_err(|_| {
            // Nothing in the project was touched. What can't be cleared away now, the next command clears away.
            if self.journal.discard(self.state).is_ok() {
                let _ = self.site.lock.end();
            }
        })
    }

    fn make(&mut self, key: &Key) -> Result<(Stage, parts::Parts)> {
        // From here on there is something to be cleared away. It names no step yet, so there is nothing to roll back.
        self.site.lock.begin(&self.journal)?;
        let stage = Stage::make(self.path.clone())?;
        let Self { view, resolution, effective, project, plan, .. } = self;
        let by_path: HashMap<&RelPath, &Change> = effective.iter().map(|c| (&c.path, c)).collect();
        stage.fill(&mut plan.steps, project, &by_path, &resolution.bodies(view))?;
        let (parts, beside) = self.write_down(key)?;
        // All of it is there before the journal says so.
        let steps = self.plan.steps.clone();
        stage.sync(&steps, &beside)?;
        self.journal.steps = steps;
        self.journal.ready = true;
        self.site.lock.begin(&self.journal)?;
        Ok((stage, parts))
    }

    /// Writes the new base records, the entry by which the landing can be undone and its receipt, beside their places. Gives
    /// these files, to be brought to disk: what was staged is on its way there meanwhile.
    fn write_down(&mut self, key: &Key) -> Result<(parts::Parts, Vec<PathBuf>)> {
        let Self { state, site, view, plan, journal, .. } = self;
        let live = site.is_live();
        let id = &site.session.snapshot.id;
        let path = parts::parts_of(&state.sessions_dir(), id, journal.entry.number);
        let parts = parts::Parts::make(&path).context(|| format!("can't make {}", show(&path)))?;
        journal.entry.bytes = plan::displaced(&plan.steps);
        let bases = || self.bases.iter().map(|(path, node)| (path, node));
        let landed = || plan.landed.iter().chain(bases());
        let (entry, steps, project, receipt) =
            (&journal.entry, &plan.steps, &self.project, &self.receipt);
        let mut told = Vec::new();
        let tell = || -> Result<()> {
            let times = finish::times(steps, project);
            let rebased = landed().map(|(path, _)| path.clone()).collect();
            let mut detail = Detail::new(steps.clone(), rebased, times, receipt.clone());
            detail.past = self.past;
            told.extend(entry.write(state, &detail)?);
            told.push(receipt.write(state, key)?.1);
            Ok(())
        };
        let before = parts::records_of(&path);
        let record = || -> Result<()> {
            view.store.copy_to(&before)?;
            for (path, node) in landed() {
                let base = node.clone().map_or(Base::Absent, Base::Known);
                view.store.rebase(path.clone(), base);
            }
            // What stays in the layer may be edited there again, and then meet the owner's edits.
            let stays = |c: &Change| live || self.settled.contains_key(&c.path);
            for change in self.set.changes.iter().filter(|c| stays(c) && self.picked.holds(c)) {
                if let Some(bytes) = small(view, change) {
                    view.store.keep_for(&change.path, &bytes);
                }
            }
            if live && !self.past {
                view.store.in_layer(plan.landed.keys().chain(bases().map(|(path, _)| path)));
            }
            if !live && !self.past {
                let waits = |c: &&Change| c.new.is_none() && !self.picked.holds(c);
                super::let_leave(view, self.set.changes.iter().filter(waits).map(|c| &c.path));
            }
            view.store.copy_to(&self.records)
        };
        many::beside(steps.len(), tell, record)?;
        let files = [before, self.records.clone()].into_iter().chain(told).collect();
        Ok((parts, files))
    }

    /// Exchanges name after name, or none.
    pub(super) fn exchange(
        &mut self,
        stage: &Stage,
        before: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let Self { site, journal, project, plan, .. } = self;
        let settled = tree::has_kernel_time(project.root()).then(tree::settled);
        site.lock.carry_out(journal, project, stage, before)?;
        let (mut synced, mut disturbed) = (false, None);
        many::beside(
            plan.steps.len(),
            || {
                synced = journal::sync_parents(&plan.steps, project) & sync::folder(&stage.path);
                Ok(())
            },
            || {
                let changed = commit::changed_since(&plan.steps, project, settled);
                disturbed = changed.into_iter().next();
                Ok(())
            },
        )?;
        self.synced &= synced;
        self.disturbed = disturbed;
        Ok(())
    }

    /// Puts the new base records in their place: from here on the landing has happened.
    pub(super) fn happen(&mut self, before: &mut dyn FnMut(usize) -> Result<()>) -> Result<()> {
        before(self.plan.steps.len())?;
        self.view.store.replace(&self.records)?;
        self.synced &= journal::sync(&self.view.store.path()).is_ok();
        Ok(())
    }

    /// Makes the session, the entry for undo and the receipt tell of it.
    pub(super) fn record(&mut self) -> Result<()> {
        self.tell().map_err(|failure| {
            failure.hint("all of it has landed; the next landbox command records that")
        })
    }

    fn tell(&mut self) -> Result<()> {
        let changes = match self.site.is_live() || self.past {
            true => None,
            false => Some(left(&self.set, &self.bases, &self.view)?),
        };
        let synced = self.synced;
        finish::count(&mut self.site.session, &self.journal.entry, |state| {
            state.changes = changes;
            state.landing.synced &= synced;
        })?;
        self.journal.entry.stand(self.state, Standing::New, Standing::Kept)?;
        receipt::publish(self.journal.receipt.as_path())
    }

    /// Takes out of the layer what has landed, and writes down which folders nobody has changed but this landing.
    pub(super) fn clear_layer(&mut self, parts: parts::Parts) {
        let Self { site, view, project, plan, settled, folders, past, .. } = self;
        let (folders, mut now) = (std::mem::take(folders), Folders::default());
        let look = || {
            std::thread::sleep(TICK);
            now = folders.again(project);
            Ok(())
        };
        let clear = || {
            if site.is_live() {
                // What is removed from under a live mount takes later writes along. Equal copies go at the next resume;
                // what has landed in another form is put in its place by way of the merged view.
                drop(parts);
                let mut news = live::News { landed: paths(&plan.steps), ..live::News::default() };
                // Of a checkpoint the layer is not what landed.
                if !*past {
                    news.settled = std::mem::take(settled);
                    let made = plan.landed.iter().filter(|(_, node)| node.is_some());
                    news.made = made.map(|(path, _)| path.clone()).collect();
                }
                rebase(view, project, live::catch_up(&site.session, &site.layer, &news));
            } else if *past {
                drop(parts);
            } else {
                let (backend, into) = (site.layer.backend, (parts, Vec::new()));
                prune::prune(view, backend, project, into, &plan.landed, &plan.steps, settled);
            }
            Ok(())
        };
        // Neither of them says so where it fails.
        let _ = many::beside(plan.steps.len(), look, clear);
        view.store.note_landed(plan.landed.keys());
        own_folders(&mut view.store, folders, now, &plan.steps);
    }

    /// Removes the journal.
    pub(super) fn end(self) -> Result<Landed> {
        let Self { site, view, resolution, .. } = self;
        site.lock.end()?;
        // Of a checkpoint only another look tells what the layer still holds; it needs the base, which the view locks.
        drop(view);
        if self.past
            && !site.is_live()
            && let Ok(changes) = crate::land::counts(&site.session, false)
        {
            // Figures alone: whoever wants them looks again.
            let _ = site.session.amend(|state| state.changes = Some(changes));
        }
        Ok(Landed {
            changes: resolution.landed() - resolution.dropped(),
            dropped: resolution.dropped(),
            synced: self.synced,
            staying: self.plan.staying,
            disturbed: self.disturbed,
            aside: self.aside,
            receipt: self.journal.receipt.to_path_buf(),
        })
    }
}

/// Longer than a tick of the clock by which folders are stamped: a change in the same tick leaves no trace.
pub(in crate::land) const TICK: Duration = Duration::from_millis(12);

fn paths(steps: &[Step]) -> Vec<RelPath> {
    steps.iter().map(|step| step.path.clone()).collect()
}

/// Makes what the session sees of landed paths their base, where that is not what it had left there.
fn rebase(view: &mut LayerView, project: &Tree, shown: BTreeMap<RelPath, Base>) {
    let paths: Vec<RelPath> = shown.keys().cloned().collect();
    for (path, base) in shown {
        let size = base.node().and_then(Node::size);
        view.store.rebase(path.clone(), base);
        let open = || tree::file_at(project.place(path.parent().as_ref())?, path.file_name());
        let mut bytes = Vec::new();
        if let Some(size) = size.filter(|size| *size <= KEEP_FILE)
            && let Ok(file) = open()
            && file.take(size + 1).read_to_end(&mut bytes).is_ok()
        {
            view.store.keep_for(&path, &bytes);
        }
    }
    view.store.in_layer(paths.iter());
}

/// Writes down which folders nobody has changed but these steps of a landing, or of an undo. Where it can't be told, or
/// written, what the session makes there may count as made over something that the owner has deleted.
pub(in crate::land) fn own_folders(
    store: &mut Store,
    before: Folders,
    now: Folders,
    steps: &[Step],
) {
    let (mut gone, mut came) = (BTreeSet::new(), BTreeSet::new());
    for Step { path, action, .. } in steps {
        match action {
            Action::Take { .. } => drop(gone.insert(path.clone())),
            Action::Put { .. } => drop(came.insert(path.clone())),
            Action::Swap { .. } | Action::Mode { .. } => {}
        }
    }
    store.note_own(before, now, &gone, &came);
    let scanned = store.scanned;
    let _ = store.save(scanned);
}

/// The bytes of a change's file, if they are few enough to be kept.
fn small(view: &LayerView, change: &Change) -> Option<Vec<u8>> {
    let size = change.new.as_ref().and_then(Node::size)?;
    if size > KEEP_FILE {
        return None;
    }
    let mut bytes = Vec::new();
    view.new_bytes(change).ok()?.take(size + 1).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Figures of what a landing leaves: changes that cannot land or were not chosen.
fn left(
    set: &Changeset,
    bases: &[(RelPath, Option<Node>)],
    view: &LayerView,
) -> Result<ChangeCounts> {
    let landed: HashSet<&RelPath> = bases.iter().map(|(path, _)| path).collect();
    let rest =
        set.changes.iter().filter(|c| c.group == Group::Project && !landed.contains(&c.path));
    let mut out = ChangeCounts { files: 0, added: 0, deleted: 0 };
    for change in rest {
        let figures = patch::figures(change, view)?;
        out.files += 1;
        out.added += figures.added.unwrap_or(0);
        out.deleted += figures.deleted.unwrap_or(0);
    }
    for (path, part) in view.parts.iter().filter(|(path, _)| landed.contains(path)) {
        let (added, deleted) = view.beyond(path, part)?;
        out.files += 1;
        out.added += added;
        out.deleted += deleted;
    }
    Ok(out)
}
