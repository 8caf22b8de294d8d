//! One credential file, on the host and inside, and which of the two moved.

use super::Agreed;
use super::courier::Courier;
use super::file::{self, Content, Stamp};
use super::writers::Writers;
use crate::config::known;
use crate::session::store::Session;
use landbox_shared::digest::Digest;
use landbox_shared::id::LayerId;
use landbox_shared::path::{AbsPath, RelPath};
use landbox_shared::policy::Policy;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::inotify::ReadFlags;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The sides, where there is one of each.
const HOST: usize = 0;
const INSIDE: usize = 1;

/// Most files of one folder that are kept in step: whoever is inside names them.
const MOST_FILES: usize = 32;

/// A place in a layer.
#[derive(Clone, Debug)]
struct Place {
    upper: Arc<OwnedFd>,
    merged: Arc<OwnedFd>,
    path: RelPath,
}

/// One credential file.
#[derive(Debug)]
pub(super) struct Pair {
    /// Where the CLI looks for it.
    pub(super) declared: AbsPath,
    /// What both sides held when they last agreed; `None` for no file.
    pub(super) agreed: Option<Digest>,
    /// The file itself on the host, behind whatever links lead there.
    real: AbsPath,
    /// Where the session may have written it: at the declared place (a rename over a link), or behind the links.
    inside: Vec<Place>,
    /// Where the losers of two changes at once are kept.
    kept: PathBuf,
    is_json: bool,
    courier: Option<Courier>,
    /// Who writes it, on the host and inside.
    writers: [Writers; 2],
    seen: Option<[Option<Stamp>; 2]>,
    done: Option<[Option<Stamp>; 2]>,
}

/// Makes the pairs of a session.
#[derive(Debug)]
pub(super) struct Maker {
    policy: Policy,
    layers: Layers,
    courier: Option<Courier>,
    kept: PathBuf,
}

impl Maker {
    pub(super) fn new(session: &Session, merged: &BTreeMap<LayerId, OwnedFd>) -> Self {
        let policy = session.snapshot.policy.clone();
        let mut layers = BTreeMap::new();
        for layer in &policy.layers {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let upper = fs::open(session.upper(&layer.id), flags, Mode::empty());
            let merged = merged.get(&layer.id).and_then(|fd| fd.try_clone().ok());
            if let (Ok(upper), Some(merged)) = (upper, merged) {
                layers.insert(layer.id.clone(), (Arc::new(upper), Arc::new(merged)));
            }
        }
        let (courier, kept) = (Courier::of(session), session.dir.join("credentials"));
        Self { policy, layers, courier, kept }
    }

    /// The pairs of what the policy names.
    pub(super) fn declared(&self, recorded: &Agreed) -> Vec<Pair> {
        let all = self.policy.credentials.iter();
        all.filter_map(|declared| {
            let mut pair = self.pair(declared)?;
            // At the first launch the inside is the host's file; later the record says what both held.
            pair.agreed = match recorded.get(declared) {
                Some(agreed) => *agreed,
                None => pair.read_host().map(|content| content.digest),
            };
            Some(pair)
        })
        .collect()
    }

    /// The pairs of files in declared folders that `pairs` has not yet.
    pub(super) fn found(&self, pairs: &[Pair], recorded: &Agreed) -> Vec<Pair> {
        let mut new: Vec<Pair> = Vec::new();
        for folder in self.policy.credentials.iter().filter(|path| is_folder(path)) {
            let of_it = |pair: &&Pair| pair.declared.parent().as_ref() == Some(folder);
            let mut room = MOST_FILES.saturating_sub(pairs.iter().filter(of_it).count());
            for declared in self.names(folder) {
                let known = |pair: &Pair| pair.declared == declared;
                if room == 0 || pairs.iter().any(known) || new.iter().any(known) {
                    continue;
                }
                let Some(mut pair) = self.pair(&declared) else { continue };
                // Where nothing is recorded, what is there inside was written there: it is not the host's.
                pair.agreed = match recorded.get(&declared) {
                    Some(agreed) => *agreed,
                    None if pair.open_inside().is_some() => None,
                    None => pair.read_host().map(|content| content.digest),
                };
                new.push(pair);
                room -= 1;
            }
        }
        new
    }

    /// The pair of one file that is declared, or lies in a declared folder.
    pub(super) fn one(&self, declared: &AbsPath) -> Option<Pair> {
        let is_declared = self.policy.credentials.contains(declared);
        let folder = declared.parent().filter(is_folder);
        let lies_there = folder.is_some_and(|folder| self.policy.credentials.contains(&folder));
        (is_declared || lies_there).then(|| self.pair(declared)).flatten()
    }

    /// The files of a folder, the host's first.
    fn names(&self, folder: &AbsPath) -> Vec<AbsPath> {
        let (beside, real) = resolve(folder);
        let mut names = file::names_in(file::open_folder(real.as_path()));
        for place in places(&self.policy, &self.layers, &[beside, real]) {
            names.extend(file::names_in(file::open_folder_beneath(&place.upper, &place.path)));
        }
        names.iter().filter_map(|name| folder.join(name).ok()).collect()
    }

    /// Both sides of one credential. One that no layer covers or a mask hides has none.
    fn pair(&self, declared: &AbsPath) -> Option<Pair> {
        let hidden = |path: &AbsPath| {
            self.policy.masks.iter().any(|mask| path.is_within(&mask.path))
                || self.policy.auth.iter().any(|auth| path.is_within(auth))
        };
        let (beside, real) = resolve(declared);
        if hidden(declared) || hidden(&beside) || hidden(&real) {
            return None;
        }
        let inside = places(&self.policy, &self.layers, &[beside, real.clone()]);
        (!inside.is_empty()).then(|| Pair {
            declared: declared.clone(),
            agreed: None,
            is_json: real.as_bytes().ends_with(b".json"),
            real,
            inside,
            courier: self.courier.clone(),
            kept: self.kept.clone(),
            writers: Default::default(),
            seen: None,
            done: None,
        })
    }
}

fn is_folder(path: &AbsPath) -> bool {
    path.file_name().is_some_and(known::may_be_folder)
}

fn places(policy: &Policy, layers: &Layers, paths: &[AbsPath]) -> Vec<Place> {
    let mut places: Vec<Place> =
        paths.iter().filter_map(|path| place(policy, layers, path)).collect();
    places.dedup_by(|a, b| a.path == b.path && Arc::ptr_eq(&a.upper, &b.upper));
    places
}

/// Where a declared path leads: its folder resolved, and the file itself resolved too.
fn resolve(declared: &AbsPath) -> (AbsPath, AbsPath) {
    let canonical = |path: &AbsPath| {
        path.as_path().canonicalize().ok().and_then(|path| AbsPath::from_path(&path).ok())
    };
    let beside = declared
        .parent()
        .and_then(|parent| canonical(&parent))
        .zip(declared.file_name())
        .and_then(|(parent, name)| parent.join(name).ok())
        .unwrap_or_else(|| declared.clone());
    let real = canonical(&beside).unwrap_or_else(|| beside.clone());
    (beside, real)
}

type Layers = BTreeMap<LayerId, (Arc<OwnedFd>, Arc<OwnedFd>)>;

fn place(policy: &Policy, layers: &Layers, path: &AbsPath) -> Option<Place> {
    let layer = policy
        .layers
        .iter()
        .filter(|layer| path.relative_to(&layer.target).is_some())
        .max_by_key(|layer| layer.target.depth())?;
    let (upper, merged) = layers.get(&layer.id)?;
    let path = path.relative_to(&layer.target)?;
    Some(Place { upper: Arc::clone(upper), merged: Arc::clone(merged), path })
}

impl Pair {
    /// Watches the folders in which a change shows: the host's, and the session's own as the session sees it.
    pub(super) fn watch(&mut self, mut add: impl FnMut(&Path) -> Option<i32>) {
        if let Some((folder, name)) = self.real.parent().zip(self.real.file_name())
            && let Some(watch) = add(folder.as_path())
        {
            self.writers[HOST].add(watch, name);
        }
        for place in &self.inside {
            let parent = place.path.parent();
            let path = parent.as_ref().map_or(Path::new("."), |p| p.as_path());
            for (root, shows) in &[(&place.merged, true), (&place.upper, false)] {
                // Through the open descriptor: an inotify watch wants a path. The folder is resolved beneath, so a link
                // laid by the task leads nowhere.
                let beneath = fs::ResolveFlags::BENEATH
                    | fs::ResolveFlags::NO_SYMLINKS
                    | fs::ResolveFlags::NO_MAGICLINKS;
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                if fs::openat2(root, path, flags, Mode::empty(), beneath).is_ok() {
                    let base = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
                    // Of a write the merged view tells in full. The kernel's overlay is silent in the upper, and
                    // fuse-overlayfs opens and closes a file there on its own, too.
                    if let Some(watch) = add(&base.join(path)).filter(|_| *shows) {
                        self.writers[INSIDE].add(watch, place.path.file_name());
                    }
                }
            }
        }
    }

    /// Whether a side has no watch that tells who writes it.
    pub(super) fn is_unwatched(&self) -> bool {
        self.writers.iter().any(Writers::are_unwatched)
    }

    /// Takes what a watch has noticed.
    pub(super) fn notice(&mut self, watch: i32, name: &[u8], events: ReadFlags) {
        self.writers.iter_mut().for_each(|side| side.notice(watch, name, events));
    }

    /// Whether such an event is about this file.
    pub(super) fn is_watched_as(&self, watch: i32, name: &[u8]) -> bool {
        self.writers.iter().any(|side| side.sees(watch, name))
    }

    /// After events were lost: the clock decides.
    pub(super) fn forget_writers(&mut self) {
        self.writers.iter_mut().for_each(Writers::forget);
    }

    fn read_host(&self) -> Option<Content> {
        file::read(file::open_real(self.real.as_path())?, self.is_json)
    }

    fn open_inside(&self) -> Option<OwnedFd> {
        self.inside.iter().find_map(|place| file::open_beneath(&place.upper, &place.path))
    }

    fn read_inside(&self) -> Option<Content> {
        file::read(self.open_inside()?, self.is_json)
    }

    fn stamps(&self) -> [Option<Stamp>; 2] {
        let host = file::open_real(self.real.as_path()).as_ref().and_then(file::stamp);
        let inside = self.open_inside().as_ref().and_then(file::stamp);
        [host, inside]
    }

    /// Looks once; true where something has changed but not settled.
    pub(super) fn check(&mut self, last: bool) -> bool {
        let now = Some(self.stamps());
        if now == self.done && !last {
            return false;
        }
        // Half a file may well parse, or need not. Whoever is seen writing it is waited for; the close wakes us.
        if !last && self.writers.iter().any(Writers::are_at_it) {
            self.seen = None;
            return false;
        }
        if now != self.seen && !last {
            self.seen = now;
            return true;
        }
        let host = self.read_host();
        let inside = self.read_inside();
        let moved = |side: &Option<Content>| {
            side.as_ref().is_some_and(|content| Some(content.digest) != self.agreed)
        };
        let (host_moved, inside_moved) = (moved(&host) && !last, moved(&inside));
        let settled = match (host, inside) {
            (Some(host), Some(inside)) if host.digest == inside.digest => {
                self.agreed = Some(host.digest);
                true
            }
            (Some(host), Some(inside)) if host_moved && inside_moved => {
                let (winner, loser) = if inside.modified >= host.modified {
                    (&inside, &host)
                } else {
                    (&host, &inside)
                };
                self.keep(&loser.bytes)
                    && if winner.digest == inside.digest {
                        self.hand_out(&inside, Some(host.digest))
                    } else {
                        self.hand_in(&host, Some(inside.digest))
                    }
            }
            (host, Some(inside)) if inside_moved => {
                // At the end a change on the host is not handed in any more, but it is not overwritten unkept either.
                let differs = host.as_ref().is_some_and(|h| Some(h.digest) != self.agreed);
                let kept = match &host {
                    Some(host) if differs && host.modified > inside.modified => return false,
                    Some(host) if differs => self.keep(&host.bytes),
                    Some(_) | None => true,
                };
                kept && self.hand_out(&inside, host.map(|h| h.digest))
            }
            (Some(host), inside) if host_moved => self.hand_in(&host, inside.map(|i| i.digest)),
            // Nothing moved, or a file vanished or is not complete: a deletion is never passed on.
            _ => true,
        };
        if settled {
            // As it was before the reading: what changed since, by us or by others, is looked at once more.
            self.done = now;
        }
        !settled
    }

    fn hand_out(&mut self, inside: &Content, expected: Option<Digest>) -> bool {
        let still = || self.read_host().map(|content| content.digest) == expected;
        let written = file::replace_real(self.real.as_path(), &inside.bytes, still);
        if matches!(written, Ok(true)) {
            self.agreed = Some(inside.digest);
        }
        // What can't be written now (a full disk, a folder that is not ours) is tried again when something changes.
        !matches!(written, Ok(false))
    }

    fn hand_in(&mut self, host: &Content, expected: Option<Digest>) -> bool {
        let Some(place) = self.inside.last() else { return true };
        let shows = file::open_beneath(&place.merged, &place.path)
            .and_then(|fd| file::read(fd, self.is_json))
            .is_some_and(|content| content.digest == host.digest);
        let written = match (&self.courier, shows) {
            (_, true) => Ok(true),
            (Some(courier), false) => courier.hand_in(&self.declared, &host.bytes, expected),
            (None, false) => self.replace_inside(&host.bytes, expected),
        };
        if matches!(written, Ok(true)) {
            self.agreed = Some(host.digest);
        }
        !matches!(written, Ok(false))
    }

    /// Replaces the file in the merged view, if it is still `expected` just before.
    pub(super) fn replace_inside(
        &self,
        bytes: &[u8],
        expected: Option<Digest>,
    ) -> Result<bool, Errno> {
        let Some(place) = self.inside.last() else { return Ok(false) };
        let still = || self.read_inside().map(|content| content.digest) == expected;
        file::replace_beneath(&place.merged, &place.path, bytes, still)
    }

    /// Keeps the older of two changes in the session's folder, under the first number that is free.
    fn keep(&self, bytes: &[u8]) -> bool {
        use std::io::Write;
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        if std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.kept).is_err() {
            return false;
        }
        let name = String::from_utf8_lossy(self.declared.file_name().unwrap_or_default());
        for number in 1..10_000 {
            let path = self.kept.join(format!("{number}-{name}"));
            match std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
                Ok(mut file) => return file.write_all(bytes).is_ok(),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(_) => return false,
            }
        }
        false
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
