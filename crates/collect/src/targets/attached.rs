//! The data of a process that attaches.

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
    /// CPU time that it had taken by then, ns.
    pub cpu_ns: u64,
    /// Resident bytes by then; 0 of a zombie.
    pub resident_bytes: Option<u64>,
    /// Its hello message.
    pub hello: Hello,
    /// Its shared memory.
    pub region: Arc<Region>,
    /// Its command line.
    pub command: Vec<String>,
    /// Path of its executable.
    pub exe: String,
    /// The executable, open, where its allocator matters: the process may be gone before
    /// any check.
    pub program: Option<File>,
    /// The rank that its environment names.
    pub rank: Option<Rank>,
    /// Describes the library that gets its NVTX ranges in tprof's place, where they are wanted.
    pub nvtx_owner: Option<String>,
    /// Describes the library that gets its ITT tasks in tprof's place, where they are wanted.
    pub itt_owner: Option<String>,
    /// Describes the profiler plugin that NCCL loads in tprof's place, where one is wanted.
    pub nccl_owner: Option<String>,
    /// A library gives it other times than the machine's.
    pub has_faketime: bool,
    /// Why Python's start-up hook did not run, if it did not; where it is wanted.
    pub why_not_hooked: Option<&'static str>,
    /// The kernel reports its end here.
    pub watched: bool,
    /// Time of its attach, ns.
    pub time_ns: u64,
    /// The code that was mapped then; a forked child has its parent's.
    pub begun_with: Vec<Mapping>,
    /// The modules of which it was given the tables ahead.
    pub modules: Option<Vec<LoadedModule>>,
}
