//! Going through the chosen changes.

use super::choose::{Choice, Choices};
use super::judge::{Verdict, is_dir, judge, judge_move};
use super::look::{Ground, Standing};
use super::merge::{self, Merged, Merger};
use super::outcome::Resolution;
use super::{Clash, Decision, Expect, Resolved, Written};
use crate::error::{Context, Failure, Kind, Result};
use crate::land::changeset::{Bodies, Change, Changeset, ImpliedFolder, Node, OldBytes};
use crate::land::content;
use crate::land::digest::ancestors;
use crate::land::kind::{ChangeKind, ChangeState};
use crate::land::layer::LayerView;
use crate::session::store::Session;
use crate::ui::text::visible;
use landbox_shared::path::RelPath;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read;
use std::sync::Arc;

/// Resolves `chosen`, which are changes of `view` that can land, as `choices` says.
pub fn resolve(
    session: &Session,
    view: &LayerView,
    chosen: &[&Change],
    choices: &Choices,
) -> Result<Resolution> {
    let mut run = Run::new(session, view, chosen, choices);
    let mut items = Vec::with_capacity(chosen.len());
    for change in chosen {
        items.push(run.one(change)?);
    }
    follow(&mut items);
    Ok(run.resolution(items))
}

/// Like [`resolve`], but of changes over which there is nothing to decide and nothing to say, nothing is kept: that is
/// nearly all of them, and a layer may hold a million.
pub fn resolve_telling(
    session: &Session,
    view: &LayerView,
    chosen: &[&Change],
    choices: &Choices,
) -> Result<Resolution> {
    let mut run = Run::new(session, view, chosen, choices);
    let tells = |item: &Resolved| item.state != ChangeState::Clean;
    let mut items = Vec::new();
    for change in chosen {
        items.extend(Some(run.one(change)?).filter(tells));
    }
    // Only what is to be a folder, or was one, takes others along.
    if items.iter().any(|i| is_dir(i.change.new.as_ref()) || is_dir(i.change.old_node())) {
        let mut all = resolve(session, view, chosen, choices)?;
        all.items.retain(tells);
        return Ok(all);
    }
    Ok(run.resolution(items))
}

impl<'a> Run<'a> {
    fn new(
        session: &Session,
        view: &'a LayerView,
        chosen: &[&Change],
        choices: &'a Choices,
    ) -> Self {
        let set = &view.changeset;
        let mut run = Run {
            view,
            choices,
            ground: Ground::new(view.real.as_ref(), made(set, chosen), turned(chosen)),
            merger: Merger::new(&session.dir, set.target.as_path()),
            gone: set.changes.iter().filter(|c| c.new.is_none()).map(|c| c.path.clone()).collect(),
            folders: BTreeMap::new(),
            refused: Vec::new(),
        };
        run.gone.extend(set.changes.iter().filter_map(|c| c.old_path.clone()));
        run.gone.extend(set.folders.iter().filter(|f| f.make.is_none()).map(|f| f.path.clone()));
        run
    }

    fn resolution(self, items: Vec<Resolved>) -> Resolution {
        let folders = self.folders.into_values().collect();
        Resolution { items, folders, refused: self.refused }
    }
}

/// Folders that the chosen changes bring along.
fn made(set: &Changeset, chosen: &[&Change]) -> HashSet<RelPath> {
    let above = ancestors(chosen.iter().map(|c| &c.path));
    let implied = set.folders.iter().filter(|f| f.make.is_some() && above.contains(&f.path));
    let own = chosen.iter().filter(|c| is_dir(c.new.as_ref()));
    implied.map(|f| f.path.clone()).chain(own.map(|c| c.path.clone())).collect()
}

/// Folders that take the place of something else.
fn turned(chosen: &[&Change]) -> HashSet<RelPath> {
    let turned = |c: &&&Change| is_dir(c.new.as_ref()) && c.old_node().is_some();
    chosen.iter().filter(turned).map(|c| c.path.clone()).collect()
}

/// What goes along with a change that is not made after all: what belongs into a folder does not land without it, and
/// what a folder held stays with it where it does not become something else.
fn follow(items: &mut [Resolved]) {
    stay_folders(items);
    let mut unmade: HashMap<RelPath, Decision> = HashMap::new();
    let mut held: HashMap<RelPath, (Clash, Decision)> = HashMap::new();
    for item in items {
        let above = || std::iter::successors(item.change.path.parent(), RelPath::parent);
        if item.change.new.is_none()
            && let Some((clash, decision)) = above().find_map(|folder| held.get(&folder))
        {
            item.state = ChangeState::Conflict;
            item.clash = Some(clash.clone());
            item.decision = decision.clone();
        } else if item.change.new.is_some()
            && let Some(folder) = above().find(|folder| unmade.contains_key(folder))
            && let Some(decision) = unmade.get(&folder)
            && !item.effective().is_empty()
        {
            let clash = Clash::Folder(folder);
            item.decision = decision.clone().over(&clash);
            item.state = ChangeState::Conflict;
            item.clash = Some(clash);
        }
        let Resolved { change, clash, decision, expect, .. } = &*item;
        if !matches!(decision, Decision::Mine | Decision::Skip | Decision::Open(_)) {
            continue;
        }
        if is_dir(change.new.as_ref()) && !is_dir(expect.node()) {
            unmade.insert(change.path.clone(), decision.clone());
        }
        if is_turned(change) && !matches!(decision, Decision::Open(_)) {
            let clash = clash.clone().unwrap_or(Clash::Types);
            held.insert(change.path.clone(), (clash, decision.clone()));
        }
    }
}

/// Whether the session has put something else in the place of a folder.
fn is_turned(change: &Change) -> bool {
    is_dir(change.old_node()) && change.new.is_some() && !is_dir(change.new.as_ref())
}

/// A folder in which a file stays, because its owner has changed it, does not become something else.
fn stay_folders(items: &mut [Resolved]) {
    let turned: HashSet<RelPath> =
        items.iter().filter(|i| is_turned(&i.change)).map(|i| i.change.path.clone()).collect();
    if turned.is_empty() {
        return;
    }
    let mut kept: HashMap<RelPath, (RelPath, Decision)> = HashMap::new();
    let stays = |i: &&Resolved| i.state == ChangeState::Conflict && i.change.new.is_none();
    for Resolved { change, decision, .. } in items.iter().filter(stays) {
        // What nobody has decided counts first, and then what was put off.
        let rank = |decision: &Decision| match decision {
            Decision::Open(_) => Some(0),
            Decision::Skip => Some(1),
            Decision::Mine => Some(2),
            Decision::Layer(_) | Decision::Bytes(_) | Decision::Mode(_) => None,
        };
        let mut above = std::iter::successors(change.path.parent(), RelPath::parent);
        let (Some(ours), Some(folder)) = (rank(decision), above.find(|f| turned.contains(f)))
        else {
            continue;
        };
        if kept.get(&folder).and_then(|(_, known)| rank(known)).is_none_or(|known| ours < known) {
            kept.insert(folder, (change.path.clone(), decision.clone()));
        }
    }
    for item in items {
        let Some((path, decision)) = kept.remove(&item.change.path) else { continue };
        if matches!(item.decision, Decision::Mine | Decision::Skip | Decision::Open(_)) {
            continue;
        }
        let clash = Clash::Keeps(path);
        item.decision = decision.over(&clash);
        item.state = ChangeState::Conflict;
        item.clash = Some(clash);
    }
}

struct Run<'a> {
    view: &'a LayerView,
    choices: &'a Choices,
    ground: Ground<'a>,
    merger: Merger,
    /// Every path that the session left nothing at, folders among them.
    gone: HashSet<RelPath>,
    folders: BTreeMap<RelPath, ImpliedFolder>,
    refused: Vec<(RelPath, String)>,
}

/// A change with what lands of it and what was found where it lands.
struct Case<'a> {
    change: &'a Change,
    expect: Expect,
    expect_old: Option<Expect>,
}

impl Case<'_> {
    /// The session's content, perhaps with another mode.
    fn land(&self, mode: Option<u32>) -> Decision {
        Decision::Layer(match (&self.change.new, mode) {
            (Some(Node::File { size, digest, .. }), Some(mode)) => {
                Some(Node::File { mode, size: *size, digest: *digest })
            }
            (node, _) => node.clone(),
        })
    }

    fn resolved(self, state: ChangeState, clash: Option<Clash>, decision: Decision) -> Resolved {
        let Self { change, expect, expect_old } = self;
        let change = change.clone();
        Resolved { change, state, clash, decision, expect, expect_old }
    }
}

impl Run<'_> {
    fn one(&mut self, change: &Change) -> Result<Resolved> {
        let is_move = change.kind == ChangeKind::Renamed;
        if change.state == ChangeState::Clean {
            let found = Expect::of(&change.old);
            let (expect, expect_old) =
                if is_move { (Expect::Absent, Some(found)) } else { (found, None) };
            let case = Case { change, expect, expect_old };
            return match self.clean_clash(change)? {
                None => {
                    let decision = case.land(None);
                    Ok(case.resolved(ChangeState::Clean, None, decision))
                }
                Some(clash) => self.decide(case, clash, None),
            };
        }
        let expect = self.ground.look(&change.path)?;
        let expect_old = match &change.old_path {
            Some(old) if is_move => Some(self.ground.look(old)?),
            Some(_) | None => None,
        };
        let case = Case { change, expect, expect_old };
        let verdict = match &case.expect_old {
            Some(_) if case.expect != Expect::Absent => Verdict::Clash(Clash::Added),
            Some(from) => judge_move(&change.old, from.node(), case.change.new.as_ref()),
            None => judge(&change.old, case.expect.node(), case.change.new.as_ref()),
        };
        let clash = match &verdict {
            Verdict::Clash(_) => None,
            Verdict::Clean
            | Verdict::Same
            | Verdict::Theirs { .. }
            | Verdict::Mine { .. }
            | Verdict::Merge { .. } => self.clean_clash(change)?,
        };
        if let Some(clash) = clash {
            return self.decide(case, clash, None);
        }
        match verdict {
            Verdict::Clean => {
                let decision = case.land(None);
                Ok(case.resolved(ChangeState::Clean, None, decision))
            }
            Verdict::Same => self.merged(case, Decision::Mine),
            Verdict::Theirs { mode } => {
                let decision = case.land(Some(mode));
                self.merged(case, decision)
            }
            Verdict::Mine { mode } => match self.carry(&case, mode)? {
                Ok(decision) => self.merged(case, decision),
                Err(clash) => self.decide(case, clash, None),
            },
            Verdict::Merge { mode } => match self.merge(&case)? {
                Merged::Clean(bytes) => {
                    let decision = written(mode, bytes);
                    self.merged(case, decision)
                }
                Merged::Marked(bytes) => {
                    let marked = written(mode, bytes);
                    self.decide(case, Clash::Lines, Some(marked))
                }
                Merged::Not(clash) => self.decide(case, clash, None),
            },
            Verdict::Clash(clash) => self.decide(case, clash, None),
        }
    }

    /// What stands in the way although the path itself is as it should be.
    fn clean_clash(&mut self, change: &Change) -> Result<Option<Clash>> {
        if change.new.is_some() {
            match self.ground.standing(&change.path)? {
                Standing::Folder => {}
                Standing::Gone(folder) | Standing::Other(folder) => {
                    return Ok(Some(Clash::Folder(folder)));
                }
            }
        }
        if is_turned(change) {
            let Self { ground, gone, view, .. } = self;
            let goes = |p: &RelPath| gone.contains(p) || view.masks.iter().any(|m| m.is_within(p));
            return Ok(ground.stranger(&change.path, &goes)?.map(Clash::Holds));
        }
        Ok(None)
    }

    /// The owner's content under the session's mode, or name.
    fn carry(&self, case: &Case<'_>, mode: u32) -> Result<Result<Decision, Clash>> {
        match (&case.expect_old, &case.change.old_path) {
            (Some(from), Some(path)) => Ok(match self.ground.bytes(path, from, merge::MOST)? {
                Some(bytes) => Ok(written(mode, bytes)),
                None => Err(Clash::Content(merge::LARGE)),
            }),
            (Some(_) | None, _) => Ok(match case.expect.node() {
                Some(Node::File { size, digest, .. }) => {
                    Ok(Decision::Mode(Node::File { mode, size: *size, digest: *digest }))
                }
                Some(_) | None => Err(Clash::Types),
            }),
        }
    }

    fn merge(&self, case: &Case<'_>) -> Result<Merged> {
        let base = match self.view.old_bytes(case.change)? {
            Some(OldBytes::Kept(bytes)) => bytes,
            Some(OldBytes::Real(_)) | None => {
                return Ok(Merged::Not(Clash::Content(merge::NOT_KEPT)));
            }
        };
        self.merge_with(case, &base)
    }

    fn merge_with(&self, case: &Case<'_>, base: &[u8]) -> Result<Merged> {
        let mine = self.ground.bytes(&case.change.path, &case.expect, merge::MOST)?;
        let (Some(mine), Some(theirs)) = (mine, self.theirs(case)?) else {
            return Ok(Merged::Not(Clash::Content(merge::LARGE)));
        };
        self.merger.merge(base, &mine, &theirs)
    }

    fn theirs(&self, case: &Case<'_>) -> Result<Option<Vec<u8>>> {
        if case.change.new.as_ref().and_then(Node::size).is_none_or(|size| size > merge::MOST) {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let what = || format!("can't read {} in the layer", case.change.path);
        self.view
            .new_bytes(case.change)?
            .take(merge::MOST + 1)
            .read_to_end(&mut bytes)
            .context(what)?;
        match &case.change.new {
            Some(Node::File { size, digest, .. })
                if (*size, *digest) == (bytes.len() as u64, content::digest_of(&bytes)) =>
            {
                Ok(Some(bytes))
            }
            Some(_) | None => Err(Failure::new(
                Kind::Refused,
                format!("{} is being written to by the session", case.change.path),
            )
            .hint("try again when it has come to rest, or end it first")),
        }
    }

    /// Both sides' changes go together. The owner may still say otherwise of a path.
    fn merged(&mut self, case: Case<'_>, decision: Decision) -> Result<Resolved> {
        let own = self.choices.paths.get(&case.change.path).map(|c| c.choice);
        let decision = match own {
            Some(Choice::Mine) => Decision::Mine,
            Some(Choice::Skip) => Decision::Skip,
            Some(Choice::Theirs) => case.land(None),
            Some(Choice::Markers) => {
                self.refuse(&case, "nothing of it clashes".to_owned());
                decision
            }
            None => decision,
        };
        Ok(case.resolved(ChangeState::Merged, None, decision))
    }

    /// Does as the owner says, if they have said anything.
    fn decide(
        &mut self,
        case: Case<'_>,
        clash: Clash,
        marked: Option<Decision>,
    ) -> Result<Resolved> {
        let open = Decision::Open(clash.clone());
        let seen = case.expect_old.as_ref().filter(|_| case.expect == Expect::Absent);
        let decision = match self.choices.of(&case.change.path, seen.unwrap_or(&case.expect)) {
            None => open,
            Some(Choice::Mine) => Decision::Mine,
            Some(Choice::Skip) => Decision::Skip,
            Some(Choice::Theirs) => match self.may_replace(&case, &clash)? {
                None => case.land(None),
                Some(why) => {
                    self.refuse(&case, why);
                    open
                }
            },
            Some(Choice::Markers) => match marked {
                Some(marked) => marked,
                None => match self.mark(&case)? {
                    Ok(marked) => marked,
                    Err(why) => {
                        self.refuse(&case, why);
                        open
                    }
                },
            },
        };
        Ok(case.resolved(ChangeState::Conflict, Some(clash), decision))
    }

    fn refuse(&mut self, case: &Case<'_>, why: String) {
        self.refused.push((case.change.path.clone(), why));
    }

    /// Markers around all that differs, where there is no base to go by.
    fn mark(&self, case: &Case<'_>) -> Result<Result<Decision, String>> {
        let mode = match (case.expect.node(), &case.change.new, &case.expect_old) {
            (Some(Node::File { mode, .. }), Some(Node::File { .. }), None) => *mode,
            _ => return Ok(Err("conflict markers need a file on both sides".to_owned())),
        };
        Ok(match self.merge_with(case, b"")? {
            Merged::Clean(bytes) | Merged::Marked(bytes) => Ok(written(mode, bytes)),
            Merged::Not(why) => Err(why.to_string()),
        })
    }

    /// Why the session's object can't take the place of what is there; `None` if it can.
    fn may_replace(&mut self, case: &Case<'_>, clash: &Clash) -> Result<Option<String>> {
        let path = &case.change.path;
        if let Clash::Holds(_) = clash {
            return Ok(Some(clash.to_string()));
        }
        if let Some(Node::Unreadable { .. } | Node::Special { .. }) = case.expect.node() {
            return Ok(Some("what is there can't be read".to_owned()));
        }
        if is_dir(case.expect.node())
            && !is_dir(case.change.new.as_ref())
            && !is_dir(case.change.old_node())
            && !self.ground.is_empty(path)?
        {
            return Ok(Some("it is a folder now, and holds something".to_owned()));
        }
        if case.change.new.is_none() {
            return Ok(None);
        }
        match self.ground.standing(path)? {
            Standing::Folder => {}
            Standing::Other(folder) => {
                let folder = visible(folder.as_bytes());
                return Ok(Some(format!("{folder} is no folder any more")));
            }
            Standing::Gone(_) => {
                for folder in self.ground.missing_above(path)? {
                    let known = self.view.store.kept(&folder).and_then(|r| r.base.node().cloned());
                    let mode = match known {
                        Some(Node::Dir { mode }) => mode,
                        Some(_) | None => 0o755,
                    };
                    let implied = ImpliedFolder {
                        path: folder.clone(),
                        make: Some(mode),
                        state: ChangeState::Clean,
                    };
                    self.folders.insert(folder, implied);
                }
            }
        }
        Ok(None)
    }
}

fn file(mode: u32, bytes: &[u8]) -> Node {
    Node::File { mode, size: bytes.len() as u64, digest: content::digest_of(bytes) }
}

fn written(mode: u32, bytes: Vec<u8>) -> Decision {
    Decision::Bytes(Written { node: file(mode, &bytes), bytes: Arc::new(bytes) })
}
