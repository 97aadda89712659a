//! NCCL's profiler plugin, versions 1 to 6 (NCCL 2.23 and later).
//!
//! `NCCL_PROFILER_PLUGIN` names the agent. NCCL loads it when the first communicator is made, and
//! takes the newest `ncclProfiler_vN` that both support. From then on NCCL reports each operation
//! with its sequence number, algorithm, protocol and channels, however the program calls NCCL: even
//! if it is linked statically or loaded so that the hooks are bypassed.
//!
//! ```text
//! ncclAllReduce ─▶ call (from version 5) ─▶ record
//! group's end   ─▶ task: as enqueued     ─▶ record
//! proxy, kernel ─▶ slots ── end ──────────▶ record  (only where the run asks for it)
//! ```
//!
//! An event's handle is a number, not memory: between two callbacks only the sums of work on
//! channels are stored. All callbacks return success, and errors stay here, since what the plugin
//! returns must never change what NCCL does. `stopEvent` of an operation only means that the
//! operation is enqueued, so it has no record.
//!
//! If the job has a plugin of its own, NCCL gets that one ([`table`]).

mod events;
mod handle;
mod layout;
mod mask;
mod operation;
mod owner;
mod plugin;
mod slots;
mod transfers;

pub use owner::table;
