//! The task's descriptors 0 to 2: a terminal of its own where the caller has one, else pipes; and what carries bytes,
//! sizes and signals between them and the caller.

mod copy;
mod feed;
mod pace;
mod relay;
pub mod signals;
mod stdio;
mod terminal;

pub use pace::Pace;
pub use relay::{Beside, End, Relayed, relay};
pub use stdio::{Made, Stdio};
pub use terminal::Terminal;
