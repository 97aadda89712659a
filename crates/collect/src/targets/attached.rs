//! The data that a process sends and the collector reads when the process attaches.

use crate::modules::LoadedModule;
use crate::os::maps::Mapping;
use crate::out::ranks::Rank;
use crate::shared::Region;
use std::fs::File;
use std::sync::Arc;
use tprof_wire::handshake::Hello;

/// A process image that attached.
pub struct Attached {
    /// Number of the image in this run.
    pub image: u64,
    /// Pid in the collector's namespace.
    pub pid: u32,
    /// Pid of its parent.
    pub parent: u32,
    /// CPU time that the process used before it attached, ns.
    pub cpu_ns: u64,
    /// Resident bytes when it attached; 0 for a zombie.
    pub resident_bytes: Option<u64>,
    /// Its hello message.
    pub hello: Hello,
    /// Its shared memory.
    pub region: Arc<Region>,
    /// Its command line.
    pub command: Vec<String>,
    /// Path of its executable.
    pub exe: String,
    /// The open executable, if the collector has to check which allocator it contains. It is opened
    /// now because the process may have ended before the check.
    pub program: Option<File>,
    /// The rank that its environment names.
    pub rank: Option<Rank>,
    /// Describes the other library that receives the process's NVTX ranges instead of tprof, if
    /// tprof should record them.
    pub nvtx_owner: Option<String>,
    /// Describes the other library that receives the process's ITT tasks instead of tprof, if tprof
    /// should record them.
    pub itt_owner: Option<String>,
    /// Describes the other profiler plugin that NCCL loads instead of tprof's, if tprof should
    /// record collectives.
    pub nccl_owner: Option<String>,
    /// Whether libfaketime changes the times that the process sees.
    pub has_faketime: bool,
    /// The reason why Python's start-up hook did not run, if it should have.
    pub why_not_hooked: Option<&'static str>,
    /// Whether the kernel reports the end of this process to the collector.
    pub watched: bool,
    /// Time when it attached, ns.
    pub time_ns: u64,
    /// The code that was mapped when it attached; a forked child has its parent's mappings.
    pub begun_with: Vec<Mapping>,
    /// The modules whose unwind tables the process received when it attached.
    pub modules: Option<Vec<LoadedModule>>,
}
