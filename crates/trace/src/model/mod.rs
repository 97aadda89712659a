//! The trace model: few tables, interned names and stacks, integer nanoseconds.
//!
//! Times are nanoseconds on the run's one clock (CLOCK_MONOTONIC of the host),
//! absolute; [`crate::run::RunInfo::start_ns`] is the run's zero for display.

mod comm;
mod device;
mod span;

pub use comm::{Collective, Communicator};
pub use device::{
    Allocator, ClockJoin, CopyKind, Device, DeviceAllocation, DeviceSpan, DeviceSpanKind,
    ExternalId, ExternalKind, Kernel, KernelOutline, MemoryCopy, MemoryKind, Stream, SyncKind,
    Synchronization,
};
pub use span::{
    EventSample, FlowEnd, FlowPoint, Sample, SampleOutline, Span, SpanKind, SpanOutline,
    ThreadCounts, ThreadState,
};

/// An interned string of one file; 0 is the empty string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

/// A process image of one file, numbered from 0 in order of appearance.
pub type ProcessIndex = u32;
/// A thread of one file, numbered from 0 in order of appearance over all processes.
pub type ThreadIndex = u32;
/// A stack of one process; 0 means that none was taken.
pub type StackId = u32;

/// One image of a process: an `exec` begins another.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// This row's index.
    pub process: ProcessIndex,
    /// Process id on the host.
    pub pid: u32,
    /// Parent's process id.
    pub parent: u32,
    /// Rank that the environment named, or that was inherited.
    pub rank: Option<u32>,
    /// Command line, joined by spaces; only the program's base name under `--redact`.
    pub command: NameId,
    /// Executable's path; empty under `--redact`.
    pub exe: NameId,
    /// When it attached.
    pub start_ns: u64,
    /// How allocations were recorded.
    pub memory: MemoryRecording,
}

/// How allocations of a process were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryRecording {
    /// Not at all (`--mem off`, or the process could not be recorded).
    Off,
    /// Exact counters, stacks sampled by bytes with this mean interval.
    Sampled {
        /// Mean bytes between samples.
        interval: u64,
    },
    /// Every event.
    Exact,
}

/// How a process image ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// Exit status.
    Exited(i32),
    /// Killed by this signal.
    Signal(i32),
    /// Replaced by another image.
    Exec,
    /// Gone; how is unknown.
    Unknown,
}

/// A thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// This row's index.
    pub thread: ThreadIndex,
    /// Its process.
    pub process: ProcessIndex,
    /// Thread id inside the target.
    pub tid: u32,
    /// When its first event was recorded.
    pub start_ns: u64,
}

/// An executable mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// Its process.
    pub process: ProcessIndex,
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Address minus the module's own (ELF) address.
    pub bias: u64,
    /// Path; only the base name under `--redact`.
    pub path: NameId,
    /// Build id in hex; empty if it has none.
    pub build_id: NameId,
    /// When the mapping was recorded.
    pub time_ns: u64,
}

/// Set in a frame that is no address: a function of an interpreter, of the
/// kernel, or of an imported call stack. The low 32 bits are a number of the
/// process's own; its row in the symbols table describes it. Addresses in
/// user space lie below on every machine.
pub const SYNTHETIC_FRAME: u64 = 1 << 56;

/// A call stack: return addresses or [`SYNTHETIC_FRAME`]s, innermost first.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// Its process.
    pub process: ProcessIndex,
    /// Its id in that process.
    pub stack: StackId,
    /// Why it ends: [`tprof_wire::record::StackEnd`] as a number; 0 is whole.
    pub end: u8,
    /// Return addresses, with the generation of their code in the high bits.
    pub frames: Vec<u64>,
}

/// What an address means: the function that holds it, and what was inlined there.
#[derive(Clone, Debug, PartialEq)]
pub struct Symbol {
    /// The process of the address.
    pub process: ProcessIndex,
    /// The return address, as in [`Stack::frames`].
    pub address: u64,
    /// 0 for the innermost inlined function, rising outwards; the function proper is last.
    pub depth: u16,
    /// Demangled name; empty if unknown.
    pub function: NameId,
    /// Source file; empty if unknown.
    pub file: NameId,
    /// Source line; 0 if unknown.
    pub line: u32,
    /// Path of the module; empty if unknown.
    pub module: NameId,
}

/// One heap event, in time order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapEvent {
    /// When.
    pub time_ns: u64,
    /// Its process.
    pub process: ProcessIndex,
    /// By which thread.
    pub thread: ThreadIndex,
    /// What.
    pub what: HeapWhat,
}

/// What happened to the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapWhat {
    /// A block. `ordinal` counts the allocations of a process in this table, from 0.
    Alloc {
        /// Number of this allocation in its process.
        ordinal: u64,
        /// Bytes asked for.
        size: u64,
        /// Where.
        stack: StackId,
        /// Result of a `realloc`; the free of its old block comes just before.
        realloc: bool,
    },
    /// A block given back.
    Free {
        /// The allocation that it ends; `None` if that was not recorded.
        ordinal: Option<u64>,
        /// First half of a successful `realloc`.
        realloc: bool,
    },
}

/// A mapping made or undone by the program itself (not by its allocator's inner calls).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapEvent {
    /// When.
    pub time_ns: u64,
    /// Its process.
    pub process: ProcessIndex,
    /// By which thread.
    pub thread: ThreadIndex,
    /// What.
    pub kind: MapKind,
    /// First address (for [`MapKind::Remap`]: of the result).
    pub address: u64,
    /// Bytes (for [`MapKind::Remap`]: of the result).
    pub length: u64,
    /// For [`MapKind::Remap`]: bytes of the mapping it replaces.
    pub old_length: u64,
    /// Where.
    pub stack: StackId,
}

/// What happened to a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// `mmap`.
    Map,
    /// `munmap`.
    Unmap,
    /// `mremap`.
    Remap,
}

/// Exact totals of a process at one moment (every recording but `Off`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapTotals {
    /// When they were read.
    pub time_ns: u64,
    /// Its process.
    pub process: ProcessIndex,
    /// Allocations so far.
    pub allocations: u64,
    /// Frees so far.
    pub frees: u64,
    /// Bytes asked for so far.
    pub allocated_bytes: u64,
    /// Live bytes; `None` if recording did not cover the whole life.
    pub live_bytes: Option<u64>,
    /// Highest live bytes so far.
    pub peak_bytes: Option<u64>,
    /// When that was.
    pub peak_at_ns: Option<u64>,
}

/// A measured quantity at one moment: RSS, mapped bytes, cgroup memory, queue lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counter {
    /// When.
    pub time_ns: u64,
    /// Its process; `None` for the host or its cgroup.
    pub process: Option<ProcessIndex>,
    /// Of which device, if it is one's.
    pub device: Option<u32>,
    /// Name with unit last, one of [`counter`] or free.
    pub name: NameId,
    /// Value.
    pub value: f64,
}

/// What was lost, where analyses must know it by name.
pub mod loss {
    /// Heap events that are in no counter and no record, whatever is recorded.
    pub const EVENTS: &str = "events";
}

/// Names of counters that tprof itself writes.
pub mod counter {
    /// Resident set size of a process, bytes.
    pub const RSS_BYTES: &str = "rss_bytes";
    /// Proportional set size of a process, bytes: a page that several processes map counts in
    /// parts. All of a file that have one time were read together, and add up.
    pub const PSS_BYTES: &str = "pss_bytes";
    /// Virtual size of a process, bytes.
    pub const MAPPED_BYTES: &str = "mapped_bytes";
    /// Live heap bytes of a process (requested under exact, usable under sampled).
    pub const HEAP_BYTES: &str = "heap_bytes";
    /// `memory.current` of the run's cgroup, bytes.
    pub const CGROUP_BYTES: &str = "cgroup_memory_bytes";
    /// `memory.max` of the run's cgroup, bytes; absent without a limit.
    pub const CGROUP_LIMIT_BYTES: &str = "cgroup_memory_limit_bytes";
    /// `oom_kill` count of the run's cgroup since the run began.
    pub const CGROUP_OOM_KILLS: &str = "cgroup_oom_kills";
    /// Share of the driver's last sampling period in which a kernel ran on a device. This
    /// and what follows is of no process; devices are numbered as NVML numbers the host's.
    pub const GPU_UTILIZATION: &str = "gpu_utilization";
    /// Share of it in which the device's memory was read or written.
    pub const GPU_MEMORY_UTILIZATION: &str = "gpu_memory_utilization";
    /// Memory of a device in use by all processes, bytes.
    pub const GPU_MEMORY_BYTES: &str = "gpu_memory_used_bytes";
    /// Clock of the multiprocessors, Hz.
    pub const GPU_SM_CLOCK: &str = "gpu_sm_clock_hz";
    /// Clock of the memory, Hz.
    pub const GPU_MEMORY_CLOCK: &str = "gpu_memory_clock_hz";
    /// Power that the board takes, W.
    pub const GPU_POWER: &str = "gpu_power_watts";
    /// Temperature of the chip, degrees Celsius.
    pub const GPU_TEMPERATURE: &str = "gpu_temperature_celsius";
    /// Why clocks are lower than they could be: NVML's bits, as a number.
    pub const GPU_THROTTLE: &str = "gpu_throttle_reasons";
}

/// An instant with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub time_ns: u64,
    /// Its process; `None` for the whole run (`tprof ctl mark`).
    pub process: Option<ProcessIndex>,
    /// Name.
    pub name: NameId,
    /// What kind.
    pub kind: MarkKind,
}

/// Kinds of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// Set by a person or a program.
    Mark,
    /// A training step begins.
    Step,
    /// Recording was switched on.
    RecordingOn,
    /// Recording was switched off.
    RecordingOff,
}

/// A fact about the whole file that no table holds: of an import, a key of its
/// source's top level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property {
    /// Key.
    pub key: NameId,
    /// Value, as JSON.
    pub value: NameId,
}

/// Keys of properties that tprof itself writes.
pub mod property {
    /// Events that were counted: an object of names, each with why it was not, or
    /// `null` if it was.
    pub const EVENTS: &str = "tprof.events";
    /// For which share of the time each event was counted, once that is known: an
    /// object of names. Below 1 where the processor has too few counters.
    pub const EVENT_SHARES: &str = "tprof.event_shares";
    /// Why there are no proportional set sizes, or none from some moment on: a text.
    pub const NO_PSS: &str = "tprof.no_pss";
    /// Why the kernel's functions have no names, where they were sampled: a text.
    pub const KERNEL_NAMES_HIDDEN: &str = "tprof.kernel_names_hidden";
}

/// Something that was not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// When it was noticed.
    pub time_ns: u64,
    /// Its process; `None` for the run.
    pub process: Option<ProcessIndex>,
    /// What was lost, e.g. `heap events`.
    pub what: NameId,
    /// How many; 0 if that is not known.
    pub count: u64,
    /// Why.
    pub why: NameId,
}
