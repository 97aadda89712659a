//! The private interface between the stand-ins: C layouts, since each library
//! is linked by itself.

use std::ffi::{c_char, c_void};

/// Kernel, as far as a launch defines it.
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
    /// How long it runs, at least.
    pub ns: u64,
    /// Waits for other ranks first: called on the stream's thread.
    pub gate: Option<extern "C" fn(*mut c_void)>,
    /// The argument of `gate`.
    pub gate_data: *mut c_void,
}

/// What is put on a stream.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum Work {
    /// A kernel that runs.
    Kernel(Launch),
    /// A copy of bytes: to, from, how many, `cudaMemcpyKind` made definite.
    Copy(*mut c_void, *const c_void, usize, u32),
    /// A fill of bytes: where, value, how many.
    Fill(*mut c_void, u8, usize),
    /// A copy between devices: to, which device's, from, which device's, bytes.
    PeerCopy(*mut c_void, u32, *const c_void, u32, usize),
    /// Marks an event.
    Record(*mut c_void),
    /// Waits for an event's last mark that was asked for by then: the driver fills in which.
    Wait(*mut c_void, u64),
    /// All nodes of a graph are behind.
    GraphEnds,
}
// SAFETY: the pointers are the caller's business, as on a real stream.
unsafe impl Send for Work {}
// SAFETY: as above.
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
    /// Call that asked for it.
    pub correlation: u32,
    /// Executable graph that it was part of, or 0.
    pub graph: u32,
    /// Its node there.
    pub node: u64,
}

/// What happened, as CUPTI receives it. Times are the host's CLOCK_MONOTONIC.
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
    /// Device memory changed hands: operation, kind of memory, address, bytes.
    Memory(u32, u32, u64, u64),
    /// Memory of a stream-ordered pool changed hands: operation, address, bytes; the pool's
    /// address, what it holds, and what of that is given out.
    PoolMemory(u32, u64, u64, [u64; 3]),
    /// A context was made: null stream.
    Context(u32),
    /// A stream was made: priority.
    Stream(u32),
    /// A graph ran, from its first node to its last.
    Graph,
    /// A device is there.
    Device,
}

/// The engine, as the other libraries see it.
#[repr(C)]
pub struct Engine {
    /// Brings the driver up, once: `cuInit`.
    pub init: extern "C" fn(),
    /// Begins a call: its correlation id.
    pub begin: extern "C" fn() -> u32,
    /// Ends a call: number, name, correlation, when it began, result.
    pub end: extern "C" fn(u32, *const c_char, u32, u64, u32),
    /// Ends a call of the driver's within it: the same.
    pub driver_end: extern "C" fn(u32, *const c_char, u32, u64, u32),
    /// Nanoseconds by CLOCK_MONOTONIC.
    pub now: extern "C" fn() -> u64,
    /// CUPTI's clock at that time.
    pub stamp: extern "C" fn(u64) -> u64,
    /// A new stream on the thread's device: priority.
    pub stream: extern "C" fn(u32) -> *mut c_void,
    /// Puts work on a stream (null: the default one), for a call.
    pub put: extern "C" fn(*mut c_void, Work, u32),
    /// Waits until a stream is empty, for a call.
    pub drain: extern "C" fn(*mut c_void, u32),
    /// Waits until all streams of the thread's device are empty, for a call.
    pub drain_all: extern "C" fn(u32),
    /// A new event.
    pub event: extern "C" fn() -> *mut c_void,
    /// Waits for an event, for a call; true if it had to.
    pub event_wait: extern "C" fn(*mut c_void, u32),
    /// When an event was marked; 0 if it was not, or is due.
    pub event_time: extern "C" fn(*mut c_void) -> u64,
    /// Chooses the thread's device; false if there is none such.
    pub choose: extern "C" fn(u32) -> bool,
    /// The thread's device.
    pub chosen: extern "C" fn() -> u32,
    /// Number of devices.
    pub devices: extern "C" fn() -> u32,
    /// Memory for a program: kind of memory, bytes, correlation.
    pub allocate: extern "C" fn(u32, usize, u32) -> *mut c_void,
    /// Takes memory over that lies somewhere already: where, kind of memory, bytes, correlation.
    pub adopt: extern "C" fn(*mut c_void, u32, usize, u32),
    /// Memory of the default pool of a stream's device: bytes, stream, correlation.
    pub allocate_async: extern "C" fn(usize, *mut c_void, u32) -> *mut c_void,
    /// Gives memory back; false if it was not handed out.
    pub release: extern "C" fn(*mut c_void, u32) -> bool,
    /// Gives memory back in a stream; false if it was not handed out.
    pub release_async: extern "C" fn(*mut c_void, *mut c_void, u32) -> bool,
    /// Frees all blocks of the thread's device, for a call.
    pub release_all: extern "C" fn(u32),
    /// Begins to put a stream's work into a graph.
    pub capture: extern "C" fn(*mut c_void),
    /// Ends that: the graph.
    pub captured: extern "C" fn(*mut c_void) -> *mut c_void,
    /// Whether a stream's work goes into a graph.
    pub is_capturing: extern "C" fn(*mut c_void) -> bool,
    /// An executable graph.
    pub instantiate: extern "C" fn(*mut c_void) -> *mut c_void,
    /// Puts an executable graph on a stream, for a call.
    pub replay: extern "C" fn(*mut c_void, *mut c_void, u32),
    /// Sets who receives what happens; none ends that.
    pub attach_sink: extern "C" fn(Option<Sink>),
    /// Sets who is called as calls begin and return; none ends that.
    pub attach_callbacks: extern "C" fn(Option<Callback>),
    /// A call begins, or a launch of the driver's in one of the runtime's begins or returns.
    pub called: Callback,
    /// Whether another thread is in `cuInit`.
    pub is_starting: extern "C" fn() -> bool,
    /// The number of a stream (null: the default one of the thread's device).
    pub stream_id: extern "C" fn(*mut c_void) -> u32,
    /// Writes a line of JSON to the log.
    pub log: extern "C" fn(*const u8, usize),
}

/// Receives everything that happens: where, when it began and ended, what.
pub type Sink = extern "C" fn(*const Place, u64, u64, *const Happened);

/// Is called as a call of the runtime's, or else of the driver's, begins or returns: whether the
/// driver's, number, name, correlation, and the result, or none at the beginning.
pub type Callback = extern "C" fn(bool, u32, *const c_char, u32, *const u32);

/// Kinds of memory, as CUPTI numbers them; from 100 on others.
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
    /// Memory of the program's own, pinned.
    pub const REGISTERED: u32 = 102;
    /// Physical memory, known by its handle.
    pub const VIRTUAL: u32 = 103;
}

/// The engine of this process: loads `libcuda.so.1`, which must be the stand-in.
pub fn engine() -> &'static Engine {
    use std::sync::OnceLock;
    static ENGINE: OnceLock<usize> = OnceLock::new();
    let at = *ENGINE.get_or_init(|| {
        // SAFETY: loads a library by name and calls the function that it must have.
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

/// A number from the environment.
pub fn number(name: &str, otherwise: i64) -> i64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}
