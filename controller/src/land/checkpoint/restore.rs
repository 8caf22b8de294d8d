//! Putting the layers of a session that has ended in the place of what they are now: all made ready first, then exchanged
//! one after the other, which needs no room and can be gone on with at any point.
//!
//! ```text
//! <session>/layers/<layer>/rewound    what the layer becomes, whole before the marker is there
//! <session>/layers/<layer>/replaced   what it was
//! ```

use super::folder::Folder;
use super::lift::{self, Lifts};
use super::model::Manifest;
use super::rebuild::rebuild;
use super::take::logins;
use crate::error::{Context, Result};
use crate::land::kind::EntryType;
use crate::land::tree::Tree;
use crate::overlay::remove::remove_tree;
use crate::session::store::{Session, show, write_json};
use landbox_shared::id::LayerId;
use landbox_shared::path::RelPath;
use landbox_shared::policy::LayerPolicy;
use rustix::fs::{self, Mode, RenameFlags};
use std::io;
use std::path::{Path, PathBuf};

const REWOUND: &str = "rewound";
const REPLACED: &str = "replaced";

fn beside(session: &Session, layer: &LayerPolicy, name: &str) -> PathBuf {
    session.upper(&layer.id).with_file_name(name)
}

/// Makes the layers of a checkpoint beside those that there are.
pub(super) fn make_ready(session: &Session, folder: &Folder, manifest: &Manifest) -> Result<()> {
    let made = manifest.layers.pictures.iter().try_for_each(|picture| {
        let upper = session.upper(&picture.layer);
        let beside = upper.with_file_name(REWOUND);
        let what = || format!("can't make {} as it was", show(&upper));
        remove_tree(&beside).context(what)?;
        rebuild(&picture.entries, folder, &beside).context(what)
    });
    made.inspect_err(|_| give_up(session))
}

/// Removes what was made ready. Nothing has changed then.
pub(super) fn give_up(session: &Session) {
    for layer in &session.snapshot.policy.layers {
        let _ = remove_tree(&beside(session, layer, REWOUND));
    }
}

/// Writes down that what is ready takes the place of what there is: from here on it is gone on with, not given up.
pub(super) fn begin(session: &Session, folder: &Folder, manifest: &Manifest) -> Result<()> {
    let written = write_json(&folder.marker(), &manifest.head.number, 0o600);
    written.inspect_err(|_| give_up(session))
}

/// Exchanges what was made ready, as far as that was not done yet.
pub(super) fn exchange(session: &Session, folder: &Folder) -> Result<()> {
    for layer in &session.snapshot.policy.layers {
        let upper = session.upper(&layer.id);
        let (new, old) = (beside(session, layer, REWOUND), beside(session, layer, REPLACED));
        let what = || format!("can't bring {} back", show(&upper));
        if is_there(&new) {
            if is_there(&upper) {
                // One that an earlier time has left whole.
                remove_tree(&old).context(what)?;
                std::fs::rename(&upper, &old).context(what)?;
            }
            std::fs::rename(&new, &upper).context(what)?;
        }
        for path in logins(&session.snapshot.policy, layer) {
            let mut lifts = Lifts::new(session, folder);
            keep_login(&old, &upper, &path, (&mut lifts, &layer.id)).context(what)?;
        }
        remove_tree(&old).context(what)?;
    }
    Ok(())
}

/// Writes down that the session is there.
pub(super) fn end(folder: &Folder) -> Result<()> {
    std::fs::remove_file(folder.marker()).context(|| "can't end going back".into())
}

fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// Login files stay what they are: no picture holds them. Where their folder is gone, the real one shows.
fn keep_login(
    old: &Path,
    new: &Path,
    path: &RelPath,
    (lifts, layer): (&mut Lifts<'_>, &LayerId),
) -> io::Result<()> {
    if !is_there(old) {
        return Ok(());
    }
    // What is old is removed as it is. What is new is closed again, also by whoever comes after one that was killed.
    lift::open_up(old, path)?;
    lifts.lift_way(layer, path)?;
    move_login(old, new, path)
}

fn move_login(old: &Path, new: &Path, path: &RelPath) -> io::Result<()> {
    let old = Tree::open(old)?;
    if old.meta(path)?.is_none() {
        return Ok(());
    }
    let new = Tree::open(new)?;
    let mut above = Vec::new();
    let mut at = path.parent();
    while let Some(folder) = at {
        at = folder.parent();
        above.push(folder);
    }
    for folder in above.iter().rev() {
        match new.meta(folder)? {
            Some(meta) if meta.kind == EntryType::Dir => continue,
            // What the session has put there counts.
            Some(_) => return Ok(()),
            None => {}
        }
        let Some(meta) = old.meta(folder)? else { return Ok(()) };
        let place = new.place(folder.parent().as_ref())?;
        fs::mkdirat(&place, folder.file_name(), Mode::from_raw_mode(meta.mode | 0o700))?;
    }
    let (from, to) = (old.place(path.parent().as_ref())?, new.place(path.parent().as_ref())?);
    let name = path.file_name();
    match fs::renameat_with(&from, name, &to, name, RenameFlags::NOREPLACE) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
