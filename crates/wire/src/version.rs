//! The version of everything that this crate defines.

/// Must be incremented whenever a layout in this crate changes. Both injected libraries are shipped
/// with the collector that they attach to, so a mismatch means a stale library. The target then is
/// not recorded, and the run reports this.
pub const WIRE_VERSION: u32 = 23;
