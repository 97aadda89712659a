//! Describes an imported file whose rank, and so its name, isn't final yet.

use std::path::PathBuf;
use tprof_trace::Recorded;
use tprof_trace::run::{LossInfo, ProcessInfo};

/// An imported file without its final name.
pub(crate) struct ImportedFile {
    pub source: PathBuf,
    pub partial: PathBuf,
    pub rank: Option<u32>,
    pub extent: Option<(u64, u64)>,
    pub processes: Vec<ProcessInfo>,
    pub rows: u64,
    pub recorded: Recorded,
    pub losses: Vec<LossInfo>,
    pub lost: u64,
    pub cut: bool,
    pub read: serde_json::Value,
    pub notes: Vec<String>,
}

/// Converts an imported time to nanoseconds since 1970. Kineto's times count from 1970. A time
/// before September 2001 must count from another moment, so the result is 0.
pub(crate) fn unix_ns(time_ns: u64, offset_ns: i64) -> u64 {
    let since_1970_ns = time_ns.saturating_add_signed(offset_ns);
    if since_1970_ns > 1_000_000_000_000_000_000 { since_1970_ns } else { 0 }
}
