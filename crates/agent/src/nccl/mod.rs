//! Records what NCCL reports to its profiler plugin, in versions 1 to 6 of the plugin interface
//! (NCCL 2.23 and later).
//!
//! `NCCL_PROFILER_PLUGIN` names the agent. NCCL loads it when the first communicator is made, and
//! uses the newest `ncclProfiler_vN` that both support. From then on NCCL reports each operation
//! with its sequence number, algorithm, protocol and channels. It does so however the program calls
//! NCCL, even if NCCL is linked statically or loaded so that calls bypass the hooks.
//!
//! ```text
//! ncclAllReduce ─▶ call (from version 5) ─▶ record
//! group's end   ─▶ task: as enqueued     ─▶ record
//! proxy, kernel ─▶ slots ── end ──────────▶ record  (only where the run asks for it)
//! ```
//!
//! An event's handle is a number and not an address. Between two callbacks, only the sums of work
//! on channels are stored. All callbacks return success, and errors are handled here, since the
//! plugin must never change what NCCL does. `stopEvent` of an operation only means that the
//! operation is enqueued, so it writes no record.
//!
//! If the job has a plugin of its own, NCCL uses that one ([`table`]).

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
