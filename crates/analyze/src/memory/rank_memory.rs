//! All that one pass over a rank's file gives of memory.

use tprof_facts::Clock;
use tprof_trace::TraceFile;

use super::host_memory::HostMemory;
use super::killed::Death;
use super::pass::Pass;
use super::timeline::{Cgroup, Timeline};

/// All that one pass over a file yields about memory.
#[derive(Clone, Debug)]
pub struct RankMemory {
    /// The heap.
    pub host_memory: HostMemory,
    /// RSS, mapped and heap over time.
    pub timeline: Timeline,
    /// What the file has of the cgroup.
    pub cgroup: Cgroup,
    /// Processes that a signal ended; judged once all files are read.
    pub deaths: Vec<Death>,
    /// How many processes SIGKILL ended.
    pub sigkills: u64,
    /// Last moment in the file, on its own clock.
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
