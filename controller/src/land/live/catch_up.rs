//! What a running session is to see of what has landed: where that is not what it had left there, and what it must know of to
//! delete it.

use super::merged::{self, is_closed};
use super::prepared::Prepared;
use super::refresh::look_again;
use super::restore::{self, Source};
use super::{holds, prepared, put_back, take_away};
use crate::error::{Context, Result};
use crate::land::changeset::{Base, Node};
use crate::land::layer::project_of;
use crate::land::tree::Tree;
use crate::session::store::Session;
use landbox_shared::path::RelPath;
use landbox_shared::policy::{Backend, LayerPolicy};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// What has landed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::land) struct News {
    /// What landed in another form than the session's, or was turned down, and what the session had left there.
    pub(in crate::land) settled: BTreeMap<RelPath, Option<Node>>,
    /// What became another in the owner's tree.
    pub(in crate::land) landed: Vec<RelPath>,
    /// What of it the session had made.
    pub(in crate::land) made: Vec<RelPath>,
}

/// Lets a running session see it. What it writes meanwhile, and what can't be reached, stays its own and shows in the next
/// card. Gives what it holds of the settled paths from then on.
pub(in crate::land) fn catch_up(
    session: &Session,
    layer: &LayerPolicy,
    news: &News,
) -> BTreeMap<RelPath, Base> {
    let nothing = news.settled.is_empty() && layer.backend == Backend::Kernel;
    let shown = match (nothing, is_closed(session)) {
        (true, _) => Ok(BTreeMap::new()),
        (false, true) => by_another(session, news),
        (false, false) => here(session, layer, news),
    };
    shown.unwrap_or_default()
}

/// Takes away what a command that was killed has left prepared, where only a process of one thread can go in.
pub(super) fn clear_by_another(session: &Session) -> Result<()> {
    by_another(session, &News::default()).map(drop)
}

fn here(session: &Session, layer: &LayerPolicy, news: &News) -> Result<BTreeMap<RelPath, Base>> {
    let merged = merged::open(session, layer)?;
    let project = Tree::open(layer.target.as_path())
        .context(|| format!("can't open the project {}", layer.target))?;
    let mut shown = BTreeMap::new();
    if !news.settled.is_empty() {
        let jobs = restore::jobs_of(&news.settled);
        shown = put_back(session, layer, &merged, &Source::real(&project), &jobs).done;
    }
    if layer.backend == Backend::Fuse {
        look_again(&merged, news.landed.iter(), Prepared::new(session, layer));
        // Deleted since it was shown, when there was nothing below to be marked as deleted.
        let upper =
            Tree::open(&session.upper(&layer.id)).context(|| "can't read the layer".into())?;
        let lost = |path: &&RelPath| !holds(&upper, layer.backend, path).unwrap_or(true);
        let lost: Vec<&RelPath> = news.made.iter().filter(lost).collect();
        if !lost.is_empty() {
            take_away(session, layer, lost)?;
        }
    }
    Ok(shown)
}

/// The same where only a process of one thread can go in.
fn by_another(session: &Session, news: &News) -> Result<BTreeMap<RelPath, Base>> {
    let what = || "can't reach what the session sees".to_owned();
    let mut command = Command::new("/proc/self/exe");
    command.args(["util", "catch-up", session.snapshot.id.as_str()]);
    let state = session.dir.ancestors().nth(2).ok_or_else(|| io::Error::other("no state"));
    command.env("LANDBOX_STATE_DIR", state.context(what)?).current_dir("/").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().context(what)?;
    // It reads all before it says anything.
    if let Some(mut pipe) = child.stdin.take() {
        serde_json::to_writer(&mut pipe, news).context(what)?;
        pipe.flush().context(what)?;
    }
    let out = child.wait_with_output().context(what)?;
    serde_json::from_slice(&out.stdout).context(what)
}

/// What the other process does: reads what has landed, goes in, and says what the session holds then.
pub fn catch_up_inside(session: &Session, mut from: impl Read) -> Result<Vec<u8>> {
    let what = || "can't understand what has landed".to_owned();
    let mut text = Vec::new();
    from.read_to_end(&mut text).context(what)?;
    let news: News = serde_json::from_slice(&text).context(what)?;
    merged::go_in(session)?;
    // What is left of one that was killed goes with this one.
    let _ = prepared::clear_here(session, session.is_running()?);
    let shown = match project_of(session) {
        Some(layer) => here(session, layer, &news)?,
        None => BTreeMap::new(),
    };
    serde_json::to_vec(&shown).context(what)
}
