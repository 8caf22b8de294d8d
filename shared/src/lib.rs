//! The types both halves of Landbox agree on.
//!
//! The data goes one way: [`policy::Policy`] (what is allowed) is compiled to a [`plan::Plan`] (what to do), sealed
//! into an envelope ([`wire`]), carried out by the helper, and answered by [`evidence::Evidence`] (what is true now).
//! Nothing here does input or output.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod bytes;
pub mod digest;
pub mod event;
pub mod evidence;
pub mod exec;
pub mod explain;
pub mod failure;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
pub mod holds;
pub mod id;
pub mod idmap;
pub mod inner;
pub mod json;
pub mod judge;
pub mod limits;
pub mod log;
pub mod mountinfo;
pub mod netlink;
pub mod network;
pub mod overlay;
pub mod path;
pub mod plan;
pub mod policy;
pub mod procfs;
pub mod readback;
pub mod rights;
pub mod system;
pub mod tree;
pub mod trust;
pub mod wire;
