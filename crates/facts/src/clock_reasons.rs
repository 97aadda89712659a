//! The reasons for low clocks of a device.

/// The reasons, by NVML's bit. The second value says whether the reason slows work down. The reasons
/// that don't slow work down mean that the device has nothing to do, or that a setting limits the
/// clocks.
pub const REASONS: [(&str, bool); 9] = [
    ("idle", false),
    ("application clocks", false),
    ("power cap", true),
    ("hardware slowdown", true),
    ("sync boost", false),
    ("heat, by software", true),
    ("heat, by hardware", true),
    ("power brake", true),
    ("display clocks", false),
];

/// Returns the bits of the reasons that slow work down.
pub fn slowing() -> u64 {
    let bits = REASONS.iter().enumerate().filter(|(_, (_, slows))| *slows);
    bits.fold(0, |all, (at, _)| all | 1 << at)
}
