//! The work of the CUPTI agent: it finds CUPTI, lends it buffers, and turns its
//! records into ours on a thread of its own.
//!
//! ```text
//! driver ─ InitializeInjection ─▶ agent::start
//! CUPTI ──── buffer, please ────▶ buffers ── full ──▶ flush thread: reader ─▶ ring
//! ```
//!
//! The rest of the process is left as it is: no subscriber is held, no timestamp
//! callback registered, no attribute set; the job's own profiler gets its records
//! ([`client`]), and after a fork the child makes no CUPTI call.
//!
//! CUPTI is the library that the job has loaded, else the one in `TPROF_CUPTI`, else the one in
//! the CUDA wheels or the toolkit of the job's libraries. An older one than 12.0 is refused. Of a
//! newer one the known part of each record is read, and the run notes it. Records that CUPTI
//! drops, records without times, unknown kinds and the unreadable rest of a buffer are counted.
//!
//! - CUPTI returns only complete buffers. `exit`, `quick_exit` and the hook of `_exit` have the
//!   agent flush what is left, and wait for two seconds at most. A job that is killed lacks its
//!   last second of kernels, and those in one buffer with a kernel that still runs. `_exit` calls
//!   the function that the agent left in a word of the preloaded library: it may run in a signal
//!   handler, where no symbol can be looked up.
//! - Kernels with a recorded launch but no record count as lost: `cudaLaunchKernel` and its
//!   relatives outside of captures, not launches of graphs or by the driver's functions.
//! - CUPTI 13's several subscribers ([`subscriber`]) are used only if the user asks for them, or if
//!   a client of the job's has subscribed before the driver starts and allows others. By NVIDIA's
//!   documentation they need CUDA 13.3 and driver r610, and their calls exclude the older ones in
//!   a process: the first caller decides. tprof is first, in `cuInit`, so PyTorch's profiler, which
//!   calls the older ones, would get nothing.
//! - User-defined records (CUPTI 13.3) are not used: they need that interface, and only make records
//!   smaller. Kernels' times by hardware events (Blackwell) are not used: before CUPTI 13.4 Update 1
//!   they may crash, leak memory and lose times, and that CUPTI fell back to its older way it tells
//!   only a subscriber's callback.
//! - The call that put a node into a graph is known only in a CUPTI callback
//!   (`GRAPHNODE_CREATED`), which needs the subscription that a profiler in the job may want.
//!   CUDA promises no order of nodes, so replayed kernels have no shape.
//! - `cudaDeviceReset` frees what the process has live on the thread's device. The device of
//!   pinned host memory is not recorded: where a process used several devices, that memory stays
//!   live, and is counted.
//! - `CUDA_INJECTION64_PATH` of the job is kept: the agent loads that library first. A client
//!   that registers with CUPTI before the driver starts is not served: the last registration
//!   wins, which is tprof's.

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
