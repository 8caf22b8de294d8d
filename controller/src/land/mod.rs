//! Landing: read a layer into a changeset, show it as a card and a patch, apply it to the real project.

pub mod card;
pub mod changeset;
pub mod kind;
pub mod patch;
