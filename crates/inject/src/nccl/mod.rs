//! NCCL's profiler plugin, versions 1 to 6 (NCCL 2.23 and later).
//!
//! `NCCL_PROFILER_PLUGIN` names the agent. NCCL loads it when the first communicator is made,
//! takes the newest `ncclProfiler_vN` that both support, and from then on reports each
//! operation with its sequence number, algorithm, protocol and channels, whichever way the
//! program calls NCCL: also where it is linked statically or loaded so that no hook lies
//! between.
//!
//! ```text
//! ncclAllReduce ─▶ call (from version 5) ─▶ record
//! group's end   ─▶ task: as enqueued     ─▶ record
//! proxy, kernel ─▶ slots ── end ──────────▶ record  (only where the run asks for it)
//! ```
//!
//! An event's handle is a number, not memory: nothing lives between two callbacks but what
//! the work on channels sums up. All callbacks return success, and errors stay here: what the
//! plugin returns must never change what NCCL does. `stopEvent` of an operation means that it
//! is enqueued, so it has no record.
//!
//! A plugin of the job's own keeps its place ([`table`]).

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
