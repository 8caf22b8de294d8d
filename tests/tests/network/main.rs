//! The network boundary, from inside sessions and from a network around them in which every address is a counting
//! listener's.
//!
//! | promise | held by |
//! |---|---|
//! | the schema: every field, value and line of a wrong policy is named; what normalises, what is refused, what is warned of | the controller's `config::network`, `shared`'s `network::check` and `class` |
//! | `verdict` is the reference; a compiled table is the policy's, read back whole | `shared`'s `network::verdict` and `network::ruleset`, the helper's `net::tests` |
//! | zones, modes, unions, mapped addresses, own loopback | [`matrix`], [`reports`] |
//! | the rows of [`matrix`], names, redirects, proxies and the four deaths: as an ordinary user and as root, between pipes and on a terminal | [`matrix`], [`names`], [`proxies`], [`flood`] |
//! | the kernel does what `verdict` says | [`evaluator`] (5,120 destinations for each kind of user), [`sizes`] |
//! | loopback and the link's names by every way out; neighbours | [`special`] |
//! | what comes in is an answer to what was sent, and nothing passes through | [`inward`] |
//! | the largest policies load, also with a send buffer of 212,992 | [`sizes`], the helper's `net::tests` |
//! | each step of set-up made to fail: no tunnel device, no packet filter or a part of it missing, a link that is missing, too old, ends, is never ready or lies; rules that never arrive, change before or while they are read back, or are listed in part; a foreign table | [`faults`], the helper's `net::tests` |
//! | link, monitor, init or controller dies under a flood: nothing passes, the task's last instant is within a second, the cause is named | [`flood`] |
//! | the restricted filter, line by line, and what still works under it | [`confined`], `seccomp_calls.rs` |
//! | name servers are the policy's alone, whatever the host's list is; no look-up waits; proxies by name | [`names`], [`proxies`], the controller's `policy::network` |
//! | what was reached and refused, exact totals, bounds, the line on the card, `suggest`, `explain`, `check` | [`egress`], `network_commands.rs`, the controller's `session::{egress, traffic}` and `policy::suggest` |
//! | what can't be had with a policy is refused by name; a policy wins over the switch; resuming keeps it | `network_commands.rs`, [`reports`] |
//! | the four CLIs take a turn with the model's address alone | [`clis`] |
//!
//! Of the public reports: rules for one family alone, stale or missing lists of name servers, TCP to name servers, look-ups as
//! a way out, a link that dies, overlapping and contradicting ranges; rings, foreign system calls, inherited descriptors, the
//! host's `/proc`, locking down too early; no tunnel device, nested user namespaces, no packet filter. They are in
//! [`reports`], [`names`], [`faults`], [`flood`] and [`confined`], and, where they concern every session, in
//! `public_reports` and `seccomp_calls.rs`.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

mod clis;
mod confined;
mod egress;
mod evaluator;
mod faults;
mod flood;
mod inward;
mod matrix;
mod names;
mod policies;
mod proxies;
mod reports;
mod sizes;
mod special;
