//! Wall time of a rank's driving thread: figures of `tprof report host`, which the caller
//! computes.

/// Wall time of a rank's driving thread in one part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostTime {
    /// Number of the rank.
    pub rank: u32,
    /// `judged`, `step` or `start_up`.
    pub section: &'static str,
    /// Number of the step, where it is one.
    pub step: Option<u64>,
    /// Key of the part, as in `report host --json`.
    pub part: String,
    /// Nanoseconds.
    pub wall_ns: u64,
    /// Half the width of its 95 % interval, nanoseconds.
    pub error_ns: Option<u64>,
    /// The function with most of it; empty if none is known.
    pub function: String,
    /// Its file; empty if unknown.
    pub file: String,
    /// Its line.
    pub line: Option<u64>,
}
