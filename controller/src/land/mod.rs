//! Landing: read a layer into a changeset, show it as a card and a patch, apply it to the real project.

pub mod apply;
mod base;
pub mod card;
pub mod changeset;
mod content;
mod digest;
pub mod discard;
pub mod ignore;
pub mod kind;
pub mod layer;
pub mod patch;
mod renames;
pub mod review;
mod rules;
mod scan;
pub mod select;
pub mod sync;
#[cfg(test)]
mod testing;
mod tree;

pub use layer::is_untouched;
pub use review::{counts, other_layers};

use crate::error::{Failure, Kind, Result};
use crate::session::store::Session;

/// Refuses a session whose layers were discarded.
fn check_present(session: &Session) -> Result<()> {
    let id = &session.snapshot.id;
    match &session.state.landing.discarded_at {
        None => Ok(()),
        Some(at) => Err(Failure::new(Kind::Nothing, format!("session {id} was discarded at {at}"))
            .hint("landbox ls lists the sessions that still hold changes")),
    }
}
