//! Sessions on disk. The session's folder is the truth; any index over it is rebuildable.

pub mod document;
pub mod egress;
mod files;
mod json;
mod locks;
pub mod model;
mod recover;
pub(crate) mod scratch;
pub mod store;
#[cfg(test)]
pub(crate) mod testing;
pub mod traffic;

use crate::error::{Context, Failure, Kind, Result};
use landbox_shared::id::SessionId;

/// The time now, RFC 3339 in UTC with a fixed number of digits, so that times sort as text.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// A fresh session id.
pub fn fresh_id() -> Result<SessionId> {
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut id = String::with_capacity(SessionId::LEN);
    while id.len() < SessionId::LEN {
        let mut random = [0; 16];
        getrandom::fill(&mut random).context(|| "can't make a session id".into())?;
        // 252 is the largest multiple of 36 in a byte: what lies above would favour some letters.
        let fair = random.iter().filter(|b| **b < 252).map(|b| usize::from(*b) % LETTERS.len());
        let room = SessionId::LEN - id.len();
        id.extend(fair.take(room).filter_map(|at| LETTERS.get(at)).map(|b| char::from(*b)));
    }
    SessionId::new(&id).ok_or_else(|| Failure::new(Kind::Failed, "a fresh session id is not valid"))
}

/// Checks a name an owner wants to give a session.
pub fn check_name(name: &str) -> Result<()> {
    let fits = !name.is_empty()
        && name.len() <= 64
        && !name.starts_with('-')
        && !name.contains('/')
        && crate::ui::text::visible(name.as_bytes()) == name;
    if fits {
        return Ok(());
    }
    Err(Failure::new(
        Kind::Usage,
        format!("{:?} can't be the name of a session", crate::ui::text::visible(name.as_bytes())),
    )
    .hint("1 to 64 visible characters without / and \\, not starting with -"))
}
