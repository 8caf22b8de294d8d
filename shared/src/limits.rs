//! Every bound that both sides hold each other to.

/// Largest plan payload, in bytes.
pub const PLAN_BYTES: usize = 1 << 20;
/// Largest argv + environment payload, in bytes (the kernel's own limit is a quarter of the stack limit, 6 MiB at most).
pub const EXEC_BYTES: usize = 8 << 20;
/// Largest single event after reassembly, in bytes.
pub const EVENT_BYTES: usize = 1 << 20;
/// Largest packet on the event socket, in bytes. Well below `net.core.wmem_default` (212,992).
pub const PACKET_BYTES: usize = 48 << 10;
/// Largest packet-filter table in its canonical form, in bytes.
pub const RULESET_BYTES: usize = 64 << 20;
/// Most operations in one plan.
pub const OPS: usize = 8192;
/// Most layers in one plan.
pub const LAYERS: usize = 64;
/// Most masks inside one layer.
pub const LAYER_MASKS: usize = 8192;
/// Longest path, in bytes, as the kernel counts (PATH_MAX less the final NUL).
pub const PATH_BYTES: usize = 4095;
/// Longest path component, in bytes (NAME_MAX).
pub const NAME_BYTES: usize = 255;
