//! How much of the machine a query may take.

use std::fs;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use tprof_facts::units::parse_size;

use crate::args::SqlArgs;
use crate::status::MISUSE;
use crate::terminal::errors::Failure;

/// Memory without which the engine cannot even merge what it sorted in parts, bytes.
const LEAST: u64 = 64 << 20;
/// Memory of a query where the machine's is not known, bytes.
const USUAL: u64 = 2 << 30;

/// Limits of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory of sorts, joins and groups, bytes; beyond it they use temporary files.
    pub memory_bytes: usize,
    /// Threads, and parts into which tables are divided.
    pub threads: usize,
}

impl Limits {
    /// The limits that the options set.
    pub fn of(args: &SqlArgs) -> Result<Limits, Failure> {
        let bytes = match &args.memory_limit {
            None => machine_bytes().map_or(USUAL, |bytes| (bytes / 4).max(LEAST)),
            Some(text) => parse_size(text).filter(|bytes| *bytes >= LEAST).ok_or_else(|| {
                Failure::new(format!("bad value `{text}` for --memory-limit"))
                    .cause("the value is not a size of 64 MiB or more")
                    .hint("--memory-limit 2G")
                    .code(MISUSE)
            })?,
        };
        let cores = || available_parallelism().map_or(1, NonZeroUsize::get);
        Ok(Limits {
            memory_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            threads: args.threads.map_or_else(cores, usize::from),
        })
    }
}

/// Memory of the machine, or of the container that this program is in.
fn machine_bytes() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total = total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10;
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
    Some(limit.map_or(total, |limit| limit.min(total)))
}
