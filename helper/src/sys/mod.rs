//! The one room with `unsafe`: the system calls for which neither the standard library nor nix has a safe form.
//! Each function here is safe to call with any argument; what it is for is decided elsewhere.

pub(crate) mod fd;
pub(crate) mod landlock;
pub(crate) mod mount;
pub(crate) mod net;
pub(crate) mod nft;
pub(crate) mod process;
pub(crate) mod socket;
