//! What the session may reach.

use crate::failure::Context;
use crate::sys;
use landbox_shared::event::{Failure, Stage};
use landbox_shared::policy::Network;

/// Makes the network of the calling process's namespace what the plan says.
pub(crate) fn connect(network: Network) -> Result<(), Failure> {
    match network {
        // The caller's own namespace: nothing to do, and no right to do it.
        Network::Host => Ok(()),
        Network::None => sys::net::loopback_up().stage(Stage::Network, "setting loopback up"),
    }
}
