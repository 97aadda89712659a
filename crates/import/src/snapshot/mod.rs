//! Memory snapshots of PyTorch (`torch.cuda.memory._dump_snapshot`): what its caching allocator
//! holds, in which pieces, and its actions before.
//!
//! A snapshot is a pickle of plain values. Its segments, blocks and entries become rows of three
//! tables, unchanged. Entries that take or give back memory also become rows of device allocations,
//! as from any other source. Keys without a column stay with their row as JSON.

mod entries;
mod error;
mod file;
mod json;
mod reading;
mod segments;
mod stacks;
mod totals;

pub(crate) use error::SnapshotError;
pub(crate) use file::read;
