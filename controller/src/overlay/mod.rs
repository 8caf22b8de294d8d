//! The layers on disk: making their folders, reading the marks in them, removing them.

pub mod marks;
pub mod prepare;
pub mod remove;
