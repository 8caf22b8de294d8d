//! The unprivileged half of Landbox: configuration, policy, launch, terminal, sessions and landing.
//!
//! Stages, in the order the data takes; none imports a later one:
//! `config` → `policy` → `plan` → `seal` → `launch` → `session` → `land`. Only `cli` and `ui` print.
#![forbid(unsafe_code)]

pub mod cli;
pub mod config;
pub mod credentials;
pub mod doctor;
pub mod document;
pub mod error;
pub mod host;
pub mod land;
pub mod launch;
pub mod overlay;
pub mod plan;
pub mod policy;
pub mod pty;
pub mod seal;
pub mod session;
pub mod ui;
