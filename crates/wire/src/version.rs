//! The version number of all layouts in this crate.

/// Must be incremented whenever a layout in this crate changes. The injected libraries are shipped
/// with the collector that they attach to, so a mismatch means that one of them is stale. Then the
/// target is not recorded, and the run reports this.
pub const WIRE_VERSION: u32 = 29;
