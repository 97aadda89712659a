//! What a process brings as it attaches.

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
    /// Parent's pid.
    pub parent: u32,
    /// CPU time that it had taken by then, ns.
    pub cpu_ns: u64,
    /// Resident bytes by then; 0 of a zombie.
    pub resident_bytes: Option<u64>,
    /// Its message.
    pub hello: Hello,
    /// Shared memory.
    pub region: Arc<Region>,
    /// Command line.
    pub command: Vec<String>,
    /// Executable.
    pub exe: String,
    /// The executable, open, where its allocator matters: the process may be gone before
    /// any check.
    pub program: Option<File>,
    /// The rank that its environment names.
    pub rank: Option<Rank>,
    /// Who gets its NVTX ranges in tprof's place, in words, where they are wanted.
    pub nvtx_owner: Option<String>,
    /// Who gets its ITT tasks in tprof's place, in words, where they are wanted.
    pub itt_owner: Option<String>,
    /// Which profiler plugin NCCL loads in tprof's place, in words, where one is wanted.
    pub nccl_owner: Option<String>,
    /// A library gives it other times than the machine's.
    pub is_bent: bool,
    /// Why Python's start-up hook did not run, if it did not; where it is wanted.
    pub why_not_hooked: Option<&'static str>,
    /// The kernel reports its end here.
    pub watched: bool,
    /// When, ns.
    pub time_ns: u64,
    /// The code that was mapped then; a forked child has its parent's.
    pub begun_with: Vec<Mapping>,
    /// The modules of which it was given the tables ahead.
    pub modules: Option<Vec<LoadedModule>>,
}
