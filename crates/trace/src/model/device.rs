//! The work of devices, and the devices' properties.

use super::ids::{NameId, ProcessIndex, StackId, ThreadIndex};

/// A device of one process, as it numbers them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    /// The process that numbers it so.
    pub process: ProcessIndex,
    /// Number (CUDA ordinal).
    pub device: u32,
    /// Name, e.g. `NVIDIA H200`; empty if unknown.
    pub name: NameId,
    /// UUID as text; empty if unknown.
    pub uuid: NameId,
    /// Memory of the device, bytes.
    pub memory_bytes: Option<u64>,
    /// Number of multiprocessors.
    pub processors: Option<u32>,
    /// Compute capability, major.
    pub compute_major: Option<u32>,
    /// Compute capability, minor.
    pub compute_minor: Option<u32>,
    /// Everything else, as a JSON object; 0 if nothing.
    pub properties: NameId,
}

/// A stream that has a name or a priority.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of the device.
    pub device: u32,
    /// Context; 0 if unknown.
    pub context: u32,
    /// Number of the stream.
    pub stream: u64,
    /// Name; empty if it has none.
    pub name: NameId,
    /// Priority as its library has it, offset by 2^31; `None` if unknown.
    pub priority: Option<u32>,
}

/// A kernel's run on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Time when it began.
    pub start_ns: u64,
    /// Duration on the device.
    pub duration_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of the device.
    pub device: u32,
    /// Context; 0 if unknown.
    pub context: u32,
    /// Number of the stream.
    pub stream: u64,
    /// Name, demangled where it was mangled.
    pub name: NameId,
    /// Number that its launch carries too.
    pub correlation: Option<u64>,
    /// Number that joins it to an operator (Kineto's `External id`).
    pub external: Option<u64>,
    /// Blocks in x, y, z; zeros if unknown.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z; zeros if unknown.
    pub block: [u32; 3],
    /// Registers of a thread.
    pub registers: Option<u32>,
    /// Static shared memory of a block, bytes.
    pub shared_static_bytes: Option<u32>,
    /// Dynamic shared memory of a block, bytes.
    pub shared_dynamic_bytes: Option<u32>,
    /// Graph that launched it.
    pub graph: Option<u32>,
    /// Node of that graph.
    pub graph_node: Option<u64>,
    /// Time when it was put into its queue; `None` where not measured.
    pub queued_ns: Option<u64>,
    /// Time when it was submitted to the device; `None` where not measured.
    pub submitted_ns: Option<u64>,
    /// Everything else that was known of it, as a JSON object; 0 if nothing.
    pub args: NameId,
}

/// The columns of a [`Kernel`] that most analyses need; the others are not even decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelOutline {
    /// Time when it began.
    pub start_ns: u64,
    /// Duration on the device.
    pub duration_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of the device.
    pub device: u32,
    /// Context; 0 if unknown.
    pub context: u32,
    /// Number of the stream.
    pub stream: u64,
    /// Name, demangled where it was mangled.
    pub name: NameId,
    /// Number that its launch carries too.
    pub correlation: Option<u64>,
    /// Blocks in x, y, z; zeros if unknown.
    pub grid: [u32; 3],
    /// Graph that launched it.
    pub graph: Option<u32>,
    /// Everything else that was known of it, as a JSON object; 0 if nothing.
    pub args: NameId,
}

/// The columns of a [`Kernel`] that show how many of its blocks a multiprocessor runs at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelShape {
    /// The process that launched it.
    pub process: ProcessIndex,
    /// The device that ran it, as the process numbers it.
    pub device: u32,
    /// Name, demangled where it was mangled.
    pub name: NameId,
    /// Threads of a block in x, y, z; zeros if unknown.
    pub block: [u32; 3],
    /// Registers of a thread.
    pub registers: Option<u32>,
    /// Static shared memory of a block, bytes.
    pub shared_static_bytes: Option<u32>,
    /// Dynamic shared memory of a block, bytes.
    pub shared_dynamic_bytes: Option<u32>,
}

/// A copy or a memset on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCopy {
    /// Time when it began.
    pub start_ns: u64,
    /// Duration on the device.
    pub duration_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of the device.
    pub device: u32,
    /// Context; 0 if unknown.
    pub context: u32,
    /// Number of the stream.
    pub stream: u64,
    /// Direction of the copy.
    pub kind: CopyKind,
    /// Kind of memory read.
    pub from: MemoryKind,
    /// Kind of memory written.
    pub to: MemoryKind,
    /// Number of bytes.
    pub bytes: Option<u64>,
    /// Whether the call could return before it was done.
    pub asynchronous: Option<bool>,
    /// The other device of a peer copy.
    pub peer: Option<u32>,
    /// Name as its source wrote it, e.g. `Memcpy HtoD (Pageable -> Device)`; empty if it had none.
    pub name: NameId,
    /// Number that the call carries too.
    pub correlation: Option<u64>,
    /// Number that joins it to an operator (Kineto's `External id`).
    pub external: Option<u64>,
    /// Graph that launched it.
    pub graph: Option<u32>,
    /// Node of that graph.
    pub graph_node: Option<u64>,
    /// Everything else that was known of it, as a JSON object; 0 if nothing.
    pub args: NameId,
}

/// Directions of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CopyKind {
    /// The direction was not recorded.
    #[default]
    Unknown = 0,
    /// Host to device.
    HostToDevice = 1,
    /// Device to host.
    DeviceToHost = 2,
    /// Within a device.
    DeviceToDevice = 3,
    /// Host to host.
    HostToHost = 4,
    /// From one device to another.
    PeerToPeer = 5,
    /// Memory set to a value.
    Memset = 6,
}

/// Kinds of memory, as in CUPTI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum MemoryKind {
    /// The kind was not recorded.
    #[default]
    Unknown = 0,
    /// Host memory that may be paged out.
    Pageable = 1,
    /// Host memory that is pinned.
    Pinned = 2,
    /// Memory of a device.
    Device = 3,
    /// A CUDA array.
    Array = 4,
    /// Managed (unified) memory.
    Managed = 5,
    /// A static variable on a device.
    DeviceStatic = 6,
    /// A managed static variable.
    ManagedStatic = 7,
}

/// A wait of the host, or of a stream, for something on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Synchronization {
    /// Time when the wait began.
    pub start_ns: u64,
    /// Duration of the wait.
    pub duration_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of the device.
    pub device: Option<u32>,
    /// Context; 0 if unknown.
    pub context: u32,
    /// Stream that waits, or that is waited for.
    pub stream: Option<u64>,
    /// Kind of the wait.
    pub kind: SyncKind,
    /// Number that the call carries too.
    pub correlation: Option<u64>,
    /// Number that joins it to an operator.
    pub external: Option<u64>,
    /// Event that is waited for, as its library numbers them.
    pub event: Option<u64>,
    /// Stream on which that event was recorded.
    pub event_stream: Option<u64>,
    /// Correlation of the call that recorded that event.
    pub event_correlation: Option<u64>,
    /// Name as its source wrote it; empty if it had none.
    pub name: NameId,
    /// Everything else that was known of it, as a JSON object; 0 if nothing.
    pub args: NameId,
}

/// Kinds of synchronisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SyncKind {
    /// The kind was not recorded.
    #[default]
    Unknown = 0,
    /// The host waits for an event.
    Event = 1,
    /// A stream waits for an event.
    StreamWaitEvent = 2,
    /// The host waits for a stream.
    Stream = 3,
    /// The host waits for a context or device.
    Context = 4,
}

/// An interval on a stream that is not work itself: an annotation's image on the device, a range of
/// a range profiler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceSpan {
    /// Time when it began.
    pub start_ns: u64,
    /// Duration on the device.
    pub duration_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of the device.
    pub device: u32,
    /// Number of the stream; `None` if it covers the device.
    pub stream: Option<u64>,
    /// Kind of the span.
    pub kind: DeviceSpanKind,
    /// Name of the span.
    pub name: NameId,
    /// Category where `kind` does not imply it.
    pub category: NameId,
    /// Number that joins it to the host's span.
    pub external: Option<u64>,
    /// Correlation, where it has one.
    pub correlation: Option<u64>,
    /// Everything else that was known of it, as a JSON object; 0 if nothing.
    pub args: NameId,
}

/// Kinds of intervals on streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DeviceSpanKind {
    /// A user's annotation, from its first kernel's start to its last one's end.
    Annotation = 0,
    /// A range with hardware counters in `args`.
    Counters = 1,
    /// Any other span.
    #[default]
    Other = 2,
}

/// A change of memory of a device (or of the host, in a framework's allocator): taken or given
/// back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceAllocation {
    /// Time of the change.
    pub time_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Thread that made the change.
    pub thread: ThreadIndex,
    /// Allocator of the memory.
    pub allocator: Allocator,
    /// Whether it was given back rather than taken.
    pub free: bool,
    /// Number of the device; `None` for host memory.
    pub device: Option<u32>,
    /// Address of the memory. 0 in a free: everything that the process has live on this device is
    /// given back (`cudaDeviceReset`), however it was taken from the device's library. A
    /// framework's rows have 0 where the address is not known ([`Self::is_placed`]).
    pub address: u64,
    /// Number of bytes; `None` for a free without a size, whose size is that of the last allocation
    /// at its address, in the order of time.
    pub bytes: Option<u64>,
    /// Kind of memory.
    pub kind: MemoryKind,
    /// Bytes that the allocator has given out afterwards, by its own count.
    pub total_allocated_bytes: Option<u64>,
    /// Bytes that the allocator holds afterwards, by its own count.
    pub total_reserved_bytes: Option<u64>,
    /// Stream of a stream-ordered allocation.
    pub stream: Option<u64>,
    /// Number that the call carries too.
    pub correlation: Option<u64>,
    /// Number that joins it to an operator.
    pub external: Option<u64>,
    /// Stack of the call; 0 if no stack was taken.
    pub stack: StackId,
}

impl DeviceAllocation {
    /// Whether the address, by which a free finds its allocation, is known: PyTorch wrote none
    /// before 1.10.
    pub fn is_placed(&self) -> bool {
        self.address != 0 || self.allocator != Allocator::Framework
    }
}

/// The allocator of device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Allocator {
    /// The device's own library (cudaMalloc and similar).
    #[default]
    Library = 0,
    /// A framework's caching allocator (PyTorch's `[memory]` events).
    Framework = 1,
    /// A stream-ordered pool (cudaMallocAsync).
    Pool = 2,
    /// Physical memory of the driver's virtual memory management (cuMemCreate): the address is a
    /// number near its handle that no other live memory has.
    Virtual = 3,
    /// Memory that another process took, opened here (cudaIpcOpenMemHandle); without bytes.
    Imported = 4,
    /// Memory of the program's own that was pinned (cudaHostRegister).
    Registered = 5,
}

/// The same moment on the run's clock and on another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockJoin {
    /// Time on the run's clock.
    pub time_ns: u64,
    /// Time on the other clock.
    pub foreign_ns: u64,
    /// Largest possible time between the two readings.
    pub uncertainty_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// The other clock, e.g. `cupti`.
    pub source: NameId,
}

/// An id that a thread had pushed when it made a call of the device's library: a profiler inside
/// the job uses it to join calls to its operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExternalId {
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number that the call and the work it started share.
    pub correlation: u64,
    /// Owner of the numbering.
    pub kind: ExternalKind,
    /// The id: one of a kind for each call, the innermost.
    pub id: u64,
}

/// The numbering of external ids, as in CUPTI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ExternalKind {
    /// The kind was not recorded.
    #[default]
    Unknown = 0,
    /// Ids of OpenACC.
    OpenAcc = 1,
    /// The first of three that any client may take; PyTorch's operators.
    Custom0 = 2,
    /// The second; PyTorch's annotations.
    Custom1 = 3,
    /// Ids of the third custom kind.
    Custom2 = 4,
}
