//! Defines the private interface between the stand-ins. It uses C layouts, because each library is
//! linked by itself.

use std::ffi::{c_char, c_void};

/// The properties of a kernel that its launch defines.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Launch {
    /// Mangled name, which outlives the process.
    pub name: *const c_char,
    /// Blocks in each direction.
    pub grid: [u32; 3],
    /// Threads in each direction.
    pub block: [u32; 3],
    /// Bytes of shared memory asked for at the launch.
    pub dynamic_shared: u32,
    /// Bytes of shared memory that the kernel declares.
    pub static_shared: u32,
    /// Registers of each thread.
    pub registers: u32,
    /// Shortest duration of the kernel, in nanoseconds.
    pub ns: u64,
    /// A function that waits for other ranks first. The stream's thread calls it.
    pub gate: Option<extern "C" fn(*mut c_void)>,
    /// The argument of `gate`.
    pub gate_data: *mut c_void,
}

/// A piece of work that is put on a stream.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum Work {
    /// A kernel that runs.
    Kernel(Launch),
    /// A copy of bytes: to, from, how many, and the `cudaMemcpyKind`, which is not
    /// `cudaMemcpyDefault`.
    Copy(*mut c_void, *const c_void, usize, u32),
    /// A fill of bytes: where, value, how many.
    Fill(*mut c_void, u8, usize),
    /// A copy between devices: destination, its device, source, its device, bytes.
    PeerCopy(*mut c_void, u32, *const c_void, u32, usize),
    /// Marks an event.
    Record(*mut c_void),
    /// Waits for the event's mark that was last requested at this point; the driver fills in its
    /// number.
    Wait(*mut c_void, u64),
    /// The end of a graph, behind its last node.
    GraphEnds,
}
// SAFETY: the stand-ins only pass these pointers between threads. The program keeps them valid
// until the work has run, as with a real stream.
unsafe impl Send for Work {}
// SAFETY: shared references to `Work` only allow reads of the pointers' values.
unsafe impl Sync for Work {}

/// Where something ran.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the device.
    pub device: u32,
    /// Number of the context.
    pub context: u32,
    /// Number of the stream.
    pub stream: u32,
    /// Correlation id of the call that requested the work.
    pub correlation: u32,
    /// The executable graph that the work was part of, or 0.
    pub graph: u32,
    /// The work's node in that graph.
    pub node: u64,
}

/// An event, as CUPTI receives it. Times are the host's CLOCK_MONOTONIC.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum Happened {
    /// A kernel ran.
    Kernel(Launch),
    /// Bytes were copied: how many, kind, kinds of memory from and to.
    Copy(u64, u32, u32, u32),
    /// Bytes were filled: how many, value, kind of memory.
    Fill(u64, u32, u32),
    /// Bytes were copied between devices: how many, from which, to which.
    PeerCopy(u64, u32, u32),
    /// A call returned: number, thread, result.
    Call(u32, u32, u32),
    /// A call of the driver's, within one of the runtime's, returned: number, thread, result.
    DriverCall(u32, u32, u32),
    /// The host waited: kind of wait, event.
    Wait(u32, u32),
    /// Device memory was allocated or freed: operation, kind of memory, address, bytes.
    Memory(u32, u32, u64, u64),
    /// Memory of a stream-ordered pool was allocated or freed: operation, address, bytes; the
    /// pool's address, the bytes that it holds, and how many of them it has handed out.
    PoolMemory(u32, u64, u64, [u64; 3]),
    /// A context was made. Its argument is the number of its null stream.
    Context(u32),
    /// A stream was made. Its argument is the priority.
    Stream(u32),
    /// A graph ran, from its first node to its last.
    Graph,
    /// A device is visible.
    Device,
}

/// The functions of the driver's stand-in that the other libraries call.
#[repr(C)]
pub struct Engine {
    /// Starts the driver, once: `cuInit`.
    pub init: extern "C" fn(),
    /// Begins a call, and returns its correlation id.
    pub begin: extern "C" fn() -> u32,
    /// Ends a call: number, name, correlation, begin, result.
    pub end: extern "C" fn(u32, *const c_char, u32, u64, u32),
    /// Ends a call of the driver that a call of the runtime made. The arguments are the same as for
    /// `end`.
    pub driver_end: extern "C" fn(u32, *const c_char, u32, u64, u32),
    /// Returns the nanoseconds of CLOCK_MONOTONIC.
    pub now: extern "C" fn() -> u64,
    /// Converts a time of CLOCK_MONOTONIC to CUPTI's clock.
    pub stamp: extern "C" fn(u64) -> u64,
    /// Makes a new stream with this priority on the thread's device.
    pub stream: extern "C" fn(u32) -> *mut c_void,
    /// Puts work on a stream (null: the default one), on behalf of a call.
    pub put: extern "C" fn(*mut c_void, Work, u32),
    /// Waits until a stream is empty, on behalf of a call.
    pub drain: extern "C" fn(*mut c_void, u32),
    /// Waits until all streams of the thread's device are empty, on behalf of a call.
    pub drain_all: extern "C" fn(u32),
    /// Makes a new event.
    pub event: extern "C" fn() -> *mut c_void,
    /// Waits for an event, on behalf of a call.
    pub event_wait: extern "C" fn(*mut c_void, u32),
    /// Returns when an event was marked; 0 if it was not marked, or if a requested mark has not
    /// been made yet.
    pub event_time: extern "C" fn(*mut c_void) -> u64,
    /// Chooses the thread's device; returns false if there is no such device.
    pub choose: extern "C" fn(u32) -> bool,
    /// Returns the thread's device.
    pub chosen: extern "C" fn() -> u32,
    /// Returns the number of devices.
    pub devices: extern "C" fn() -> u32,
    /// Allocates memory for a program: kind of memory, bytes, correlation.
    pub allocate: extern "C" fn(u32, usize, u32) -> *mut c_void,
    /// Registers memory that exists already: address, kind of memory, bytes, correlation.
    pub adopt: extern "C" fn(*mut c_void, u32, usize, u32),
    /// Allocates from the default pool of a stream's device: bytes, stream, correlation.
    pub allocate_async: extern "C" fn(usize, *mut c_void, u32) -> *mut c_void,
    /// Frees memory; returns false if it was not handed out.
    pub release: extern "C" fn(*mut c_void, u32) -> bool,
    /// Frees memory on a stream; returns false if it was not handed out.
    pub release_async: extern "C" fn(*mut c_void, *mut c_void, u32) -> bool,
    /// Frees all blocks of the thread's device, on behalf of a call.
    pub release_all: extern "C" fn(u32),
    /// Begins to put a stream's work into a graph.
    pub capture: extern "C" fn(*mut c_void),
    /// Ends the capture, and returns the graph.
    pub captured: extern "C" fn(*mut c_void) -> *mut c_void,
    /// Whether a stream's work goes into a graph.
    pub is_capturing: extern "C" fn(*mut c_void) -> bool,
    /// Makes an executable graph.
    pub instantiate: extern "C" fn(*mut c_void) -> *mut c_void,
    /// Puts an executable graph on a stream, on behalf of a call.
    pub replay: extern "C" fn(*mut c_void, *mut c_void, u32),
    /// Sets the function that receives events; `None` removes it.
    pub attach_sink: extern "C" fn(Option<Sink>),
    /// Sets the function that is called when calls begin and return; `None` removes it.
    pub attach_callbacks: extern "C" fn(Option<Callback>),
    /// Must be called when a call begins, and when a launch of the driver within one of the runtime
    /// begins or returns.
    pub called: Callback,
    /// Whether another thread is in `cuInit`.
    pub is_starting: extern "C" fn() -> bool,
    /// Returns the number of a stream (null: the default one of the thread's device).
    pub stream_id: extern "C" fn(*mut c_void) -> u32,
    /// Writes a line of JSON to the log.
    pub log: extern "C" fn(*const u8, usize),
}

/// A function that receives every event: place, begin, end, and the event.
pub type Sink = extern "C" fn(*const Place, u64, u64, *const Happened);

/// A function that is called when a call of the runtime, or else of the driver, begins or returns.
/// Its arguments: whether it is the driver's call, number, name, correlation, and the result, which
/// is null at the beginning.
pub type Callback = extern "C" fn(bool, u32, *const c_char, u32, *const u32);

/// Kinds of memory, with CUPTI's numbers; kinds from 100 on are the stand-ins' own.
pub mod memory {
    /// Ordinary memory of the host.
    pub const PAGEABLE: u32 = 1;
    /// Pinned memory of the host.
    pub const PINNED: u32 = 2;
    /// Memory of a device.
    pub const DEVICE: u32 = 3;
    /// A CUDA array.
    pub const ARRAY: u32 = 4;
    /// Managed (unified) memory.
    pub const MANAGED: u32 = 5;
    /// Device memory of a stream-ordered pool.
    pub const POOL: u32 = 100;
    /// Device memory of another process.
    pub const IMPORTED: u32 = 101;
    /// Pinned memory that the program allocated itself.
    pub const REGISTERED: u32 = 102;
    /// Physical memory that is identified by its handle.
    pub const VIRTUAL: u32 = 103;
}

/// Returns the engine of this process. Loads `libcuda.so.1`, which must be the stand-in.
pub fn engine() -> &'static Engine {
    use std::sync::OnceLock;
    static ENGINE: OnceLock<usize> = OnceLock::new();
    let at = *ENGINE.get_or_init(|| {
        // SAFETY: the names end with a zero. The library must be the stand-in, whose function has
        // this type.
        unsafe {
            let handle = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL);
            let get = if handle.is_null() {
                handle
            } else {
                libc::dlsym(handle, c"tprof_fake_engine".as_ptr())
            };
            if get.is_null() {
                eprintln!("fake CUDA: the driver's stand-in is not libcuda.so.1");
                libc::abort();
            }
            let get: extern "C" fn() -> *const Engine = std::mem::transmute(get);
            get() as usize
        }
    });
    // SAFETY: the table is a static of the driver's stand-in, which is never unloaded.
    unsafe { &*(at as *const Engine) }
}

/// Returns a number from the environment, or `otherwise`.
pub fn number(name: &str, otherwise: i64) -> i64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}
