//! The work of the CUPTI agent: it finds CUPTI, lends it buffers, and decodes its records on a
//! thread of its own.
//!
//! ```text
//! driver ─ InitializeInjection ─▶ agent::start
//! CUPTI ──── buffer, please ────▶ buffers ── full ──▶ flush thread: reader ─▶ ring
//! ```
//!
//! The rest of the process stays as it is: the agent holds no subscriber, registers no timestamp
//! callback and sets no attribute. The job's own profiler gets its records ([`client`]), and after
//! a fork the child makes no CUPTI call.
//!
//! The agent uses the CUPTI library that the job has loaded, otherwise the one in `TPROF_CUPTI`,
//! otherwise the one in the CUDA wheels or the toolkit of the job's libraries. It refuses versions
//! before 12.0. From versions that are newer than it knows, it reads the known part of each record,
//! and the run notes this. Records that CUPTI drops, records without times, unknown kinds and the
//! unreadable rest of a buffer are counted.
//!
//! - CUPTI returns only complete buffers. At `exit`, at `quick_exit` and in the hook of `_exit` the
//!   agent flushes the rest, and the process waits for two seconds at most. A job that is killed
//!   loses its last second of kernels, and those in one buffer with a kernel that still runs.
//!   `_exit` finds the agent's function in a word of the preloaded library: it may run in a signal
//!   handler, where no symbol can be looked up.
//! - Kernels with a recorded launch but no record count as lost. This covers `cudaLaunchKernel` and
//!   its relatives outside of captures, but not launches of graphs or by the driver's functions.
//! - CUPTI 13's several subscribers ([`subscriber`]) are used only if the user asks for them, or if
//!   a client in the job has subscribed before the driver starts and allows others. By NVIDIA's
//!   documentation they need CUDA 13.3 and driver r610, and their calls exclude the older ones in
//!   a process: the first caller decides. tprof is first, in `cuInit`, so PyTorch's profiler, which
//!   makes the older calls, would get nothing.
//! - User-defined records (CUPTI 13.3) are not used: they need that interface, and only make
//!   records
//!   smaller. Kernel times by hardware events (Blackwell) are not used: before CUPTI 13.4 Update 1
//!   they may crash, leak memory and lose times, and if CUPTI falls back to its older method, only
//!   a subscriber's callback learns of it.
//! - Only a CUPTI callback (`GRAPHNODE_CREATED`) says which call put a node into a graph, and it
//!   needs the subscription that a profiler in the job may want. CUDA promises no order of nodes, so
//!   replayed kernels have no shape.
//! - `cudaDeviceReset` frees all live memory of the process on the thread's device. The device of
//!   pinned host memory is not recorded: if a process used several devices, that memory stays
//!   live, and is counted.
//! - The job's own `CUDA_INJECTION64_PATH` still works: the agent loads that library first. A
//!   client
//!   that registers with CUPTI before the driver starts, and bypasses the hooks, is not served: the
//!   last registration wins, which is tprof's.

pub mod agent;
pub mod buffers;
pub mod client;
pub mod client_clock;
pub mod clock;
pub mod cupti;
pub mod decode;
pub mod deliver;
pub mod detach;
pub mod devices;
pub mod guarded;
pub mod journal;
pub mod kinds;
pub mod lent;
pub mod loader;
pub mod notes;
pub mod places;
pub mod raw;
pub mod reader;
pub mod started;
pub mod streams;
pub mod subscriber;
pub mod texts;
pub mod wants;
