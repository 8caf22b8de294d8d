//! A review by hand, file by file and hunk by hunk. What is asked and answered is here, and prints nothing; asking is the
//! command's business.

mod desk;
mod edit;
mod item;
mod memory;
mod question;
#[cfg(test)]
mod tests;

pub use desk::{Desk, Done, Key};
pub use edit::edit;
pub use item::Item;
pub use memory::Memory;
pub use question::{Part, Question};
