//! The network boundary, from inside sessions and from a network around them in which every address is a counting
//! listener's.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

mod clis;
mod confined;
mod egress;
mod evaluator;
mod faults;
mod flood;
mod matrix;
mod names;
mod policies;
mod reports;
mod sizes;
mod special;
