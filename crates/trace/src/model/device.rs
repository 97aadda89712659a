//! Defines rows for devices, their properties and their work.

use super::ids::{NameId, ProcessIndex, StackId, ThreadIndex};

/// A device as one process sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    /// The process that uses this number for the device.
    pub process: ProcessIndex,
    /// Number of the device (CUDA ordinal).
    pub device: u32,
    /// Name of the device, such as `NVIDIA H200`; empty if unknown.
    pub name: NameId,
    /// UUID of the device as text; empty if unknown.
    pub uuid: NameId,
    /// Memory of the device, bytes.
    pub memory_bytes: Option<u64>,
    /// Number of multiprocessors.
    pub processors: Option<u32>,
    /// Compute capability, major.
    pub compute_major: Option<u32>,
    /// Compute capability, minor.
    pub compute_minor: Option<u32>,
    /// Everything else that is known about the device, as a JSON object; 0 if nothing.
    pub properties: NameId,
}

/// A stream that has a name or a priority.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of the device.
    pub device: u32,
    /// Number of the context; 0 if unknown.
    pub context: u32,
    /// Number of the stream.
    pub stream: u64,
    /// Name of the stream; empty if it has none.
    pub name: NameId,
    /// Priority of the stream as its library numbers it, plus 2^31; `None` if unknown.
    pub priority: Option<u32>,
}

/// A kernel's run on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Time when the kernel began.
    pub start_ns: u64,
    /// Duration on the device.
    pub duration_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of the device.
    pub device: u32,
    /// Number of the context; 0 if unknown.
    pub context: u32,
    /// Number of the stream.
    pub stream: u64,
    /// Name of the kernel, demangled if it was mangled.
    pub name: NameId,
    /// Number that the kernel shares with its launch.
    pub correlation: Option<u64>,
    /// Number that joins the kernel to an operator (Kineto's `External id`).
    pub external: Option<u64>,
    /// Blocks in x, y, z; zeros if unknown.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z; zeros if unknown.
    pub block: [u32; 3],
    /// Number of registers per thread.
    pub registers: Option<u32>,
    /// Static shared memory per block, bytes.
    pub shared_static_bytes: Option<u32>,
    /// Dynamic shared memory per block, bytes.
    pub shared_dynamic_bytes: Option<u32>,
    /// Number of the graph that launched the kernel.
    pub graph: Option<u32>,
    /// Node of that graph.
    pub graph_node: Option<u64>,
    /// Time when the kernel was put into its queue; `None` if it wasn't measured.
    pub queued_ns: Option<u64>,
    /// Time when the kernel was submitted to the device; `None` if it wasn't measured.
    pub submitted_ns: Option<u64>,
    /// Everything else that is known about the kernel, as a JSON object; 0 if nothing.
    pub args: NameId,
}

/// The columns of a [`Kernel`] that most analyses need. The other columns aren't decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelOutline {
    /// Time when the kernel began.
    pub start_ns: u64,
    /// Duration on the device.
    pub duration_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of the device.
    pub device: u32,
    /// Number of the context; 0 if unknown.
    pub context: u32,
    /// Number of the stream.
    pub stream: u64,
    /// Name of the kernel, demangled if it was mangled.
    pub name: NameId,
    /// Number that the kernel shares with its launch.
    pub correlation: Option<u64>,
    /// Blocks in x, y, z; zeros if unknown.
    pub grid: [u32; 3],
    /// Number of the graph that launched the kernel.
    pub graph: Option<u32>,
    /// Everything else that is known about the kernel, as a JSON object; 0 if nothing.
    pub args: NameId,
}

/// The columns of a [`Kernel`] that determine how many of its blocks a multiprocessor runs at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelShape {
    /// The process that launched it.
    pub process: ProcessIndex,
    /// The device that ran it, as the process numbers it.
    pub device: u32,
    /// Name of the kernel, demangled if it was mangled.
    pub name: NameId,
    /// Threads of a block in x, y, z; zeros if unknown.
    pub block: [u32; 3],
    /// Number of registers per thread.
    pub registers: Option<u32>,
    /// Static shared memory per block, bytes.
    pub shared_static_bytes: Option<u32>,
    /// Dynamic shared memory per block, bytes.
    pub shared_dynamic_bytes: Option<u32>,
}

/// A copy or a memset on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCopy {
    /// Time when the copy began.
    pub start_ns: u64,
    /// Duration on the device.
    pub duration_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of the device.
    pub device: u32,
    /// Number of the context; 0 if unknown.
    pub context: u32,
    /// Number of the stream.
    pub stream: u64,
    /// Direction of the copy.
    pub kind: CopyKind,
    /// Kind of memory that was read.
    pub from: MemoryKind,
    /// Kind of memory that was written.
    pub to: MemoryKind,
    /// Number of bytes.
    pub bytes: Option<u64>,
    /// Whether the call could return before the copy was done.
    pub asynchronous: Option<bool>,
    /// The other device of a peer copy.
    pub peer: Option<u32>,
    /// Name as the source of the data wrote it, such as `Memcpy HtoD (Pageable -> Device)`; empty
    /// if it had none.
    pub name: NameId,
    /// Number that the copy shares with its call.
    pub correlation: Option<u64>,
    /// Number that joins the copy to an operator (Kineto's `External id`).
    pub external: Option<u64>,
    /// Number of the graph that launched the copy.
    pub graph: Option<u32>,
    /// Node of that graph.
    pub graph_node: Option<u64>,
    /// Everything else that is known about the copy, as a JSON object; 0 if nothing.
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
    /// Number of the context; 0 if unknown.
    pub context: u32,
    /// Stream that waits or is waited for.
    pub stream: Option<u64>,
    /// Kind of the wait.
    pub kind: SyncKind,
    /// Number that the wait shares with its call.
    pub correlation: Option<u64>,
    /// Number that joins the wait to an operator.
    pub external: Option<u64>,
    /// Event that is waited for, by its library's number.
    pub event: Option<u64>,
    /// Stream on which the event was recorded.
    pub event_stream: Option<u64>,
    /// Correlation of the call that recorded the event.
    pub event_correlation: Option<u64>,
    /// Name as the source of the data wrote it; empty if it had none.
    pub name: NameId,
    /// Everything else that is known about the wait, as a JSON object; 0 if nothing.
    pub args: NameId,
}

/// Kinds of synchronization.
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

/// An interval on a device that isn't work itself: the part of a stream that an annotation on the
/// host covers, or a range of a range profiler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceSpan {
    /// Time when the span began.
    pub start_ns: u64,
    /// Duration on the device.
    pub duration_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of the device.
    pub device: u32,
    /// Number of the stream; `None` if the span covers the whole device.
    pub stream: Option<u64>,
    /// Kind of the span.
    pub kind: DeviceSpanKind,
    /// Name of the span.
    pub name: NameId,
    /// Category of the span, if `kind` doesn't imply it.
    pub category: NameId,
    /// Number that joins the span to the host's span.
    pub external: Option<u64>,
    /// Correlation of the span, if it has one.
    pub correlation: Option<u64>,
    /// Everything else that is known about the span, as a JSON object; 0 if nothing.
    pub args: NameId,
}

/// Kinds of intervals on streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DeviceSpanKind {
    /// The part of a stream that an annotation covers, from the start of its first kernel to the
    /// end of its last.
    Annotation = 0,
    /// A range with hardware counters in `args`.
    Counters = 1,
    /// Any other span.
    #[default]
    Other = 2,
}

/// An allocation or a free of device memory, or of host memory by a framework's allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceAllocation {
    /// Time of the change.
    pub time_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Thread that made the change.
    pub thread: ThreadIndex,
    /// Allocator that owns the memory.
    pub allocator: Allocator,
    /// Whether this is a free. Otherwise it is an allocation.
    pub free: bool,
    /// Number of the device; `None` for host memory.
    pub device: Option<u32>,
    /// Address of the memory. In a free by the device's library, 0 means `cudaDeviceReset`, which
    /// frees everything that the process has allocated on this device through any call of that
    /// library. In a framework's rows, 0 means that the address isn't known ([`Self::is_placed`]).
    pub address: u64,
    /// Number of bytes. `None` for a free without a size: its size is that of the last allocation
    /// at its address before it.
    pub bytes: Option<u64>,
    /// Kind of memory.
    pub kind: MemoryKind,
    /// Live bytes after the change, by the allocator's own count.
    pub total_allocated_bytes: Option<u64>,
    /// Bytes that the allocator has reserved after the change, by its own count.
    pub total_reserved_bytes: Option<u64>,
    /// Stream of a stream-ordered allocation.
    pub stream: Option<u64>,
    /// Number that the change shares with its call.
    pub correlation: Option<u64>,
    /// Number that joins the change to an operator.
    pub external: Option<u64>,
    /// Stack of the call; 0 if no stack was recorded.
    pub stack: StackId,
}

impl DeviceAllocation {
    /// Whether the address is known. Without it, a free can't be matched to its allocation. PyTorch
    /// before 1.10 wrote no addresses.
    pub fn is_placed(&self) -> bool {
        self.address != 0 || self.allocator != Allocator::Framework
    }
}

/// Allocators of device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Allocator {
    /// The device's own library (`cudaMalloc` and similar functions).
    #[default]
    Library = 0,
    /// A framework's caching allocator (PyTorch's `[memory]` events).
    Framework = 1,
    /// A stream-ordered pool (`cudaMallocAsync`).
    Pool = 2,
    /// Physical memory from the driver's virtual memory management (`cuMemCreate`). Such memory has
    /// no address, so `address` is a number close to its handle that no other live memory uses.
    Virtual = 3,
    /// Memory that another process allocated and this process opened (`cudaIpcOpenMemHandle`). Its
    /// size isn't recorded.
    Imported = 4,
    /// Memory that the program allocated itself and pinned (`cudaHostRegister`).
    Registered = 5,
}

/// The same moment on the run's clock and on another clock, by which times are converted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockJoin {
    /// Time on the run's clock.
    pub time_ns: u64,
    /// Time on the other clock.
    pub foreign_ns: u64,
    /// The longest time that may have passed between reading the two clocks.
    pub uncertainty_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Name of the other clock, such as `cupti`.
    pub source: NameId,
}

/// Samples of one instruction of a kernel for one reason.
///
/// A device looks at the warps of each multiprocessor at regular intervals, and notes for each warp
/// that it looks at which instruction comes next, and why the warp did not issue that. Rows are sums
/// over up to a minute and over all runs of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelStall {
    /// The end of the time in which the samples were read, ns.
    pub time_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Index of the device.
    pub device: u32,
    /// Name of the kernel, or of a function that a kernel calls.
    pub kernel: NameId,
    /// Number of the module that contains the function. Modules of a process may have functions of
    /// the same name.
    pub module: u64,
    /// Distance of the instruction from the function's beginning, bytes.
    pub offset: u64,
    /// The reason, as CUPTI names it.
    pub reason: NameId,
    /// Number of samples.
    pub samples: u64,
    /// Source file of the instruction; empty if it isn't known.
    pub file: NameId,
    /// Line in the source file; 0 if it isn't known.
    pub line: u32,
}

/// An id that a thread had pushed when it called the device's library. A profiler inside the job
/// pushes such ids to join calls to its operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExternalId {
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number that the call shares with the work that it started.
    pub correlation: u64,
    /// The numbering that the id belongs to.
    pub kind: ExternalKind,
    /// The innermost id of its kind at the call. A call has at most one id of each kind.
    pub id: u64,
}

/// The numberings of external ids, as in CUPTI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ExternalKind {
    /// The kind was not recorded.
    #[default]
    Unknown = 0,
    /// Ids of OpenACC.
    OpenAcc = 1,
    /// The first of three numberings that any client may use. PyTorch uses it for operators.
    Custom0 = 2,
    /// The second of the three numberings. PyTorch uses it for annotations.
    Custom1 = 3,
    /// The third of the three numberings.
    Custom2 = 4,
}
