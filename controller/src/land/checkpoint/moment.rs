//! One picture of all layers that was true at one moment.

use super::folder::Folder;
use super::known::Known;
use super::model::Layers;
use super::take::{Bounds, Obstacle, look};
use crate::error::Result;
use crate::land::live::{busy, frozen};
use crate::session::store::Session;
use std::time::Duration;

/// Looks that may differ from the one before until the session is held still.
const LOOKS: usize = 3;
/// What a session is given between two looks to come to rest.
const PAUSE: Duration = Duration::from_millis(30);

/// The picture: one look at a session that has ended; of one that runs two that agree, else one while it is held still.
/// `earlier` is what earlier looks have read.
pub(super) fn picture(
    session: &Session,
    folder: &Folder,
    earlier: &[&Layers],
    live: bool,
    bounds: &Bounds,
) -> Result<Layers, Obstacle> {
    let known = Known::of(earlier.iter().copied());
    let mut seen = look(session, folder, &known, live, bounds)?;
    if !live {
        return Ok(seen);
    }
    for _ in 0..LOOKS {
        let again = look(session, folder, &known, live, bounds)?;
        if again.pictures == seen.pictures {
            return Ok(again);
        }
        seen = again;
        std::thread::sleep(PAUSE);
    }
    let still = frozen(session, || Ok(look(session, folder, &known, live, bounds)))?;
    still.ok_or_else(|| busy(session))?
}
