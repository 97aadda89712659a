//! What the collector learns about a process when the process attaches: its hello message, and what
//! `/proc` shows of it.

use crate::output::ranks::Rank;
use crate::shared::Region;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use tprof_os::maps::Mapping;
use tprof_unwind::modules::LoadedModule;
use tprof_wire::handshake::Hello;

/// The log that NCCL writes itself, in a process.
#[derive(Clone, Debug, Default)]
pub struct NcclLog {
    /// Path of the log; `None` if the process's NCCL writes none that tells connections.
    pub path: Option<PathBuf>,
    /// Whether the run should have the log (`--nccl log`).
    pub is_wanted: bool,
}

/// A program image that attached.
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
    /// The hello message that it sent.
    pub hello: Hello,
    /// The memory that it shares with the collector.
    pub region: Arc<Region>,
    /// Its command line.
    pub command: Vec<String>,
    /// Path of its executable.
    pub exe: String,
    /// Its working directory, if calls on files are recorded. It is read when the process attaches,
    /// because the process may end before its first file is named.
    pub working_directory: Option<PathBuf>,
    /// The open executable, if the collector must check which allocator it contains. It is opened
    /// when the process attaches, because the process may end before the check.
    pub program: Option<File>,
    /// The rank that its environment names.
    pub rank: Option<Rank>,
    /// Names the library that receives the process's NVTX ranges instead of tprof; `None` if tprof
    /// receives them or should not record them.
    pub nvtx_owner: Option<String>,
    /// Names the library that receives the process's ITT tasks instead of tprof; `None` if tprof
    /// receives them or should not record them.
    pub itt_owner: Option<String>,
    /// Names the profiler plugin that NCCL loads instead of tprof's; `None` if NCCL loads tprof's
    /// or tprof should not record collectives.
    pub nccl_owner: Option<String>,
    /// Where its NCCL writes its log.
    pub nccl_log: NcclLog,
    /// Whether libfaketime changes the times that the process sees.
    pub has_faketime: bool,
    /// The reason why Python's start-up hook did not run; `None` if it ran or was not needed.
    pub why_not_hooked: Option<&'static str>,
    /// Whether the kernel reports the end of this process to the collector.
    pub watched: bool,
    /// Time when it attached, ns.
    pub time_ns: u64,
    /// The code that was mapped when the image attached. A forked child has its parent's mappings.
    pub begun_with: Vec<Mapping>,
    /// The modules whose unwind tables the process received when it attached; `None` if it must
    /// ask.
    pub modules: Option<Vec<LoadedModule>>,
}
