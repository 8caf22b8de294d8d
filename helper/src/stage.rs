//! What the stages hand on. Each is consumed by the next, so none runs twice or early; the ones after `Verified` lie in
//! init, the process that goes through them.

use crate::start::Caller;
use landbox_shared::digest::Digest;
use landbox_shared::exec::Exec;
use landbox_shared::plan::Plan;
use landbox_shared::wire::Binding;

/// Two frames of bounded length came in, and nothing after them. Nothing about them was believed or decoded.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) caller: Caller,
    pub(crate) binding: Binding,
    pub(crate) envelope: Vec<u8>,
    pub(crate) exec: Vec<u8>,
}

/// An enrolled key signed this plan for this very launch, and every part of it was judged.
#[derive(Debug)]
pub(crate) struct Verified {
    pub(crate) caller: Caller,
    pub(crate) plan: Plan,
    pub(crate) exec: Exec,
    pub(crate) envelope_digest: Digest,
}
