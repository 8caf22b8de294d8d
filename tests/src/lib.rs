//! The harness of the whole-system tests: a place of its own for every test, sessions in it as either kind of user and on
//! either overlay, and ways to look at them from outside. A missing prerequisite is a failure that names it.
#![allow(clippy::unwrap_used)] // tests: what can't be done ends the test
#![warn(missing_docs)]

pub mod clis;
pub mod git;
pub mod net;
pub mod pages;
pub mod place;
pub mod probe;
pub mod procs;
pub mod run;
pub mod seat;
pub mod snapshot;
pub mod terminal;
pub mod world;

pub use place::Place;
pub use seat::Seat;
pub use world::World;
