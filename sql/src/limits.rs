//! Limits the resources that a query may use.

use std::fs;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use tprof_facts::units::parse_size;
use tprof_ui::args::SqlArgs;
use tprof_ui::errors::Failure;

use crate::status::MISUSE;

/// Smallest memory of a query in bytes. With less, the engine cannot even merge the parts of a
/// large sort.
const LEAST: u64 = 64 << 20;
/// Memory of a query in bytes if the machine's is unknown.
const USUAL: u64 = 2 << 30;

/// Limits of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory for sorts, joins and groups in bytes. Sorts, joins and groups that need more use
    /// temporary files.
    pub memory_bytes: usize,
    /// Number of threads, and of partitions of tables.
    pub threads: usize,
}

impl Limits {
    /// Returns the limits that the options set.
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

/// Returns the memory of the machine or of this program's container.
fn machine_bytes() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total = total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10;
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
    Some(limit.map_or(total, |limit| limit.min(total)))
}
