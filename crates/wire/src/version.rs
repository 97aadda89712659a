//! The version of all that crosses.

/// Must be raised whenever a layout in this crate changes. Both injected libraries are shipped with
/// the collector that they attach to, so a mismatch means a stale library: the target then runs
/// unrecorded, and the run states that.
pub const WIRE_VERSION: u32 = 22;
