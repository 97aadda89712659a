//! The version of all that crosses.

/// Raised whenever a layout in this crate changes. Both injected libraries are
/// shipped with the collector that they attach to; a mismatch means a stale library:
/// the target then runs on unrecorded, which the run states.
pub const WIRE_VERSION: u32 = 21;
