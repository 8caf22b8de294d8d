//! What landings have made of the times of real folders.
//!
//! The time of a folder's last change tells that no name has come or gone since. A landing of the running session itself is
//! no change that could have taken anything from the session's sight; so it is written down what the time was before.

use super::Store;
use super::file::read_own;
use crate::host::places::INSIDE;
use crate::land::many;
use crate::land::tree::{self, Time, Tree, is_absence};
use landbox_shared::id::LayerId;
use landbox_shared::path::RelPath;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// Names in a folder at most that are compared, and folders that are kept.
const MOST: usize = 4096;

/// A folder whose last change was a landing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Own {
    /// `None` is the root.
    #[serde(rename = "p")]
    pub path: Option<RelPath>,
    /// When somebody else had last changed it.
    #[serde(rename = "b")]
    pub before: Time,
    /// When the landing changed it.
    #[serde(rename = "a")]
    pub after: Time,
}

/// Folders as they are before names in them are exchanged.
#[derive(Debug, Default)]
pub(crate) struct Folders(BTreeMap<Option<RelPath>, Look>);

/// A folder at one moment.
#[derive(Debug)]
struct Look {
    changed: Time,
    names: BTreeSet<Vec<u8>>,
}

/// `None` where it can't be told, or changes while it is looked at.
fn look(project: &Tree, path: Option<&RelPath>) -> Option<Look> {
    let changed = |dir: &std::os::fd::OwnedFd| tree::meta_of(dir).map(|meta| meta.ctime);
    let at_once = || -> io::Result<Option<Look>> {
        let dir = match project.dir(path) {
            Ok(dir) => dir,
            // Whatever is in it later came with the landing.
            Err(e) if is_absence(&e) => {
                return Ok(Some(Look { changed: (i64::MIN, 0), names: BTreeSet::new() }));
            }
            Err(e) => return Err(e),
        };
        let before = changed(&dir)?;
        let ours = |name: &Vec<u8>| path.is_none() && name.as_slice() == INSIDE.as_bytes();
        let names =
            tree::list(&dir)?.into_iter().filter(|name| !ours(name)).collect::<BTreeSet<_>>();
        let same = changed(&dir)? == before && names.len() <= MOST;
        Ok(same.then_some(Look { changed: before, names }))
    };
    at_once().ok().flatten()
}

impl Folders {
    /// Looks at the folders in which names are about to be exchanged.
    pub(crate) fn of(project: &Tree, paths: impl Iterator<Item = Option<RelPath>>) -> Self {
        let folders: BTreeSet<Option<RelPath>> = paths.take(MOST).collect();
        let folders: Vec<Option<RelPath>> = folders.into_iter().collect();
        let found = many::map(&folders, |path| Ok(look(project, path.as_ref())));
        // What could not be looked at is left out.
        let looks = folders.into_iter().zip(found.unwrap_or_default());
        Self(looks.filter_map(|(path, look)| Some((path, look?))).collect())
    }

    /// The same ones, now.
    pub(crate) fn again(&self, project: &Tree) -> Self {
        let look = |path: &Option<RelPath>| Some((path.clone(), look(project, path.as_ref())?));
        Self(self.0.keys().filter_map(look).collect())
    }
}

fn by_folder(paths: &BTreeSet<RelPath>) -> BTreeMap<Option<RelPath>, Vec<Vec<u8>>> {
    let mut out: BTreeMap<Option<RelPath>, Vec<Vec<u8>>> = BTreeMap::new();
    for path in paths {
        out.entry(path.parent()).or_default().push(path.file_name().to_vec());
    }
    out
}

/// When somebody else than a landing has last changed a folder, as `own` says.
fn by_others(own: &[Own], path: Option<&RelPath>, changed: Time) -> Time {
    let own = own.iter().find(|own| own.path.as_ref() == path && own.after == changed);
    own.map_or(changed, |own| own.before)
}

/// The same by what a layer's store says.
pub(crate) fn changed_by_others(
    session_dir: &Path,
    layer: &LayerId,
) -> impl Fn(Option<&RelPath>, Time) -> Time {
    let own = read_own(&session_dir.join("base"), layer).unwrap_or_default();
    move |path, changed| by_others(&own, path, changed)
}

impl Store {
    /// Writes down which folders a landing alone has changed: they held what they hold `now`, but for the names that `came`
    /// and those that have `gone`. The caller sees to it that the folders' clock had ticked by then.
    pub(crate) fn note_own(
        &mut self,
        folders: Folders,
        mut now: Folders,
        gone: &BTreeSet<RelPath>,
        came: &BTreeSet<RelPath>,
    ) {
        let (mut gone, mut came) = (by_folder(gone), by_folder(came));
        let own = std::mem::take(&mut self.own).into_iter();
        let mut known: BTreeMap<_, _> = own.map(|own| (own.path.clone(), own)).collect();
        for (path, Look { changed, mut names }) in folders.0 {
            for name in gone.remove(&path).unwrap_or_default() {
                names.remove(&name);
            }
            names.extend(came.remove(&path).unwrap_or_default());
            let Some(now) = now.0.remove(&path).filter(|now| now.names == names) else {
                continue;
            };
            let before = known.get(&path).filter(|own| own.after == changed);
            let before = before.map_or(changed, |own| own.before);
            known.insert(path.clone(), Own { path, before, after: now.changed });
            self.changed = true;
        }
        self.own = known.into_values().take(MOST).collect();
    }

    /// When somebody else than a landing of the session has last changed a folder, whose last change was at `changed`.
    pub(crate) fn changed_by_others(&self, path: Option<&RelPath>, changed: Time) -> Time {
        by_others(&self.own, path, changed)
    }

    /// Reads again what landings have written down since.
    pub(crate) fn hear_of_landings(&mut self) {
        if let Some(own) = read_own(&self.dir, &self.layer) {
            self.own = own;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn paths<const N: usize>(all: [&str; N]) -> BTreeSet<RelPath> {
        all.iter().map(|path| RelPath::new(*path).unwrap()).collect()
    }

    #[test]
    fn the_time_of_a_folder_that_a_landing_alone_has_changed_is_that_of_the_change_before() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join("project").join(name);
        for name in ["d/f", "d/gone", "busy/f"] {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), "").unwrap();
        }
        let project = Tree::open(&at("")).unwrap();
        let path = |path: &str| (!path.is_empty()).then(|| RelPath::new(path).unwrap());
        let changed =
            |name: &str| tree::meta_of(project.dir(path(name).as_ref()).unwrap()).unwrap().ctime;
        let before = ["", "d", "busy"].map(changed);
        let mut store = Store::open(dir.path(), &LayerId::new("project").unwrap()).unwrap();
        let mut land = |seen: &dyn Fn(), come: &dyn Fn(), gone, came| {
            let folders = Folders::of(&project, ["", "d", "busy", "new"].map(path).into_iter());
            seen();
            std::thread::sleep(std::time::Duration::from_millis(30));
            come();
            let now = folders.again(&project);
            store.note_own(folders, now, &gone, &came);
            ["", "d", "busy", "new"].map(|name| {
                project
                    .dir(path(name).as_ref())
                    .map(|_| store.changed_by_others(path(name).as_ref(), changed(name)))
                    .ok()
            })
        };
        let done = || {
            fs::remove_file(at("d/gone")).unwrap();
            fs::write(at("d/came"), "").unwrap();
            fs::create_dir(at("new")).unwrap();
            fs::write(at("new/f"), "").unwrap();
            fs::write(at("busy/came"), "").unwrap();
            // Somebody else.
            fs::remove_file(at("busy/f")).unwrap();
        };
        let all =
            land(&|| (), &done, paths(["d/gone"]), paths(["d/came", "new", "new/f", "busy/came"]));
        assert_eq!(all[..2], [Some(before[0]), Some(before[1])]);
        assert_eq!(all[2], Some(changed("busy")));
        assert_eq!(all[3], Some((i64::MIN, 0)));
        // A landing after that one, and then somebody's edit.
        let more = || fs::write(at("d/more"), "").unwrap();
        let all = land(&|| (), &more, paths([]), paths(["d/more"]));
        assert_eq!(all[1], Some(before[1]));
        let edit = || fs::write(at("d/mine"), "").unwrap();
        let more = || fs::write(at("d/even more"), "").unwrap();
        let all = land(&edit, &more, paths([]), paths(["d/even more"]));
        assert_eq!(all[1], Some(changed("d")));
    }
}
