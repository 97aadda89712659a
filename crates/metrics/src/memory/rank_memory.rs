//! The memory of a rank, from one pass over its file.

use tprof_facts::Clock;
use tprof_trace::TraceFile;

use super::host_memory::HostMemory;
use super::killed::Death;
use super::pass::Pass;
use super::timeline::{Cgroup, Timeline};

/// The memory of a rank.
#[derive(Clone, Debug)]
pub struct RankMemory {
    /// Allocations and live bytes of the heap.
    pub host_memory: HostMemory,
    /// Resident, mapped and heap bytes over time.
    pub timeline: Timeline,
    /// The memory figures of the cgroup in the file.
    pub cgroup: Cgroup,
    /// Processes that a signal ended. Their causes are judged when all files have been read.
    pub deaths: Vec<Death>,
    /// Number of processes that SIGKILL ended.
    pub sigkills: u64,
    /// The last time in the file, on the file's own clock.
    pub end_ns: u64,
}

/// Reads the memory of a rank in one pass.
pub fn rank_memory(file: &TraceFile, clock: Clock) -> RankMemory {
    let pass = Pass::over(file, clock);
    RankMemory {
        host_memory: pass.host_memory(),
        timeline: pass.timeline(),
        cgroup: Cgroup::of(file),
        deaths: pass.deaths(),
        sigkills: pass.sigkills(),
        end_ns: pass.end_ns,
    }
}
