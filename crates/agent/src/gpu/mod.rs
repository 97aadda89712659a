//! The work of the CUPTI agent: it finds CUPTI, lends it buffers, and decodes its records on a
//! thread of its own.
//!
//! ```text
//! driver ─ InitializeInjection ─▶ agent::start
//! CUPTI ──── buffer, please ────▶ buffers ── full ──▶ flush thread: reader ─▶ ring
//! ```
//!
//! The agent leaves the rest of the process unchanged: it isn't a subscriber, registers no
//! timestamp callback and sets no attribute. The job's own profiler still gets its records
//! ([`client`]), and a forked child makes no CUPTI call.
//!
//! The agent uses the CUPTI library that the job has loaded, otherwise the one in `TPROF_CUPTI`,
//! otherwise the one in the CUDA wheels or the toolkit of the job's libraries. It refuses versions
//! before 12.0. From versions that are newer than it knows, it reads the known part of each record,
//! and the run reports this. It counts records that CUPTI drops, records without times, unknown
//! kinds and the unreadable rest of a buffer.
//!
//! - CUPTI returns only complete buffers. At `exit`, at `quick_exit` and in the hook of `_exit` the
//!   agent flushes the rest, and the process waits for two seconds at most. A job that is killed
//!   loses its last second of kernels, and those in one buffer with a kernel that still runs. The
//!   hook of `_exit` finds the agent's function in a word of the preloaded library, since it may
//!   run in a signal handler, where no symbol can be looked up.
//! - Kernels with a recorded launch but without a record count as lost. This covers
//!   `cudaLaunchKernel` and its relatives outside of captures, but not launches of graphs or by the
//!   driver's functions.
//! - CUPTI 13's interface for several subscribers ([`subscriber`]) is used only if the user
//!   requests it, or if a client in the job has subscribed before the driver starts and allows
//!   others. By NVIDIA's documentation it needs CUDA 13.3 and driver r610, and it and the older
//!   interface exclude each other in a process: the first caller decides. tprof is the first one,
//!   in `cuInit`. So PyTorch's profiler, which uses the older interface, would get nothing.
//! - User-defined records (CUPTI 13.3) are not used. They need that interface, and only make
//!   records smaller.
//! - Kernel times by hardware events (Blackwell) are not used. Before CUPTI 13.4 Update 1 they may
//!   crash, leak memory and lose times. If CUPTI falls back to its older method, only a
//!   subscriber's callback learns of it.
//! - Only a CUPTI callback (`GRAPHNODE_CREATED`) tells which call added a node to a graph. It needs
//!   the subscription that a profiler in the job may want. CUDA promises no order of nodes, so
//!   kernels of a replayed graph have no shape.
//! - `cudaDeviceReset` frees all live memory of the process on the thread's device. The device of
//!   pinned host memory isn't recorded. If a process used several devices, its pinned memory stays
//!   live in the records, and the run counts this.
//! - The job's own `CUDA_INJECTION64_PATH` still works, since the agent loads that library first. A
//!   client that registers with CUPTI before the driver starts and bypasses the hooks isn't served:
//!   CUPTI uses the last registration, which is tprof's.

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
pub mod stalls;
pub mod started;
pub mod streams;
pub mod subscriber;
pub mod texts;
pub mod wants;
