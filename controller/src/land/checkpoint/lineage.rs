//! Where a session goes back to if nobody names a checkpoint.
//!
//! The newest is often no use: a turn begins with each line, so that it holds what the line before did; and after going
//! back it is what that replaced. So it is the newest that the session came by and that holds something else.

use super::folder::Folder;
use super::model::{Head, Layers, Manifest};
use super::running::without_home;
use crate::error::Result;
use crate::session::store::Session;

const BEFORE: &str = "before going back to ";

/// What the checkpoint is called that keeps what going back to another replaces.
pub(super) fn message(to: u32) -> String {
    format!("{BEFORE}{to}")
}

/// Where the session went when this one was taken: what is older than that, it came by.
fn went_to(head: &Head) -> Option<u32> {
    let to: u32 = head.message.as_deref()?.strip_prefix(BEFORE)?.parse().ok()?;
    (to < head.number).then_some(to)
}

/// The checkpoints that the session came by, newest first, without the beginning.
pub(super) fn of(heads: &[Head]) -> Vec<u32> {
    let mut line = Vec::new();
    // Up to this number; one that was gone back to counts whatever it is called.
    let (mut most, mut named) = (u32::MAX, None);
    for head in heads.iter().rev() {
        if head.number > most {
            continue;
        }
        match went_to(head) {
            Some(to) if named != Some(head.number) => (most, named) = (to, Some(to)),
            Some(_) | None => line.push(head.number),
        }
    }
    line
}

/// The newest of them that differs from the present by more than its home, or else, of a session that has ended, by its
/// home; or else the beginning.
pub(super) fn choose(
    session: &Session,
    folder: &Folder,
    present: &Layers,
    running: bool,
) -> Result<Manifest> {
    let mut by_home = None;
    let project = without_home(session, present);
    for number in of(&folder.heads()).into_iter().chain([0]) {
        let manifest = folder.find(session, Some(number))?;
        if !project.holds_same(&without_home(session, &manifest.layers)) {
            return Ok(manifest);
        }
        if by_home.is_none() && !running && !present.holds_same(&manifest.layers) {
            by_home = Some(manifest);
        }
    }
    by_home.map_or_else(|| folder.find(session, Some(0)), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::land::checkpoint::model::Reason;

    fn line(messages: &[&str]) -> Vec<u32> {
        let head = |(at, message): (usize, &&str)| {
            let reason = Reason::Asked(Some((*message).to_owned()));
            let layers = Layers { looked: (0, 0), pictures: Vec::new() };
            let mut head = Manifest::new(String::new(), reason, layers).head;
            head.number = u32::try_from(at).unwrap() + 1;
            head
        };
        of(&messages.iter().enumerate().map(head).collect::<Vec<_>>())
    }

    #[test]
    fn what_was_left_by_going_back_is_not_what_a_session_came_by() {
        assert_eq!(line(&["a", "b"]), [2, 1]);
        assert_eq!(line(&["a", "b", &message(1)]), [1]);
        assert_eq!(line(&["a", "b", &message(1), "c"]), [4, 1]);
        assert_eq!(line(&["a", "b", &message(0), "c"]), [4]);
        // Forth again to what going back had replaced: that came after 2.
        assert_eq!(line(&["a", "b", &message(1), &message(3)]), [3, 2, 1]);
        // A message of the owner's that can't be true is a message.
        assert_eq!(line(&["a", &message(2), &message(7)]), [3, 2, 1]);
    }
}
