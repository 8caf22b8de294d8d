//! System calls that need `unsafe`. Nothing outside this folder may.

pub(crate) mod mount;
