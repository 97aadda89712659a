//! Memory snapshots of PyTorch (`torch.cuda.memory._dump_snapshot`): what its caching allocator
//! holds, in which pieces, and what it did before.
//!
//! A snapshot is a pickle of plain values. Its segments, blocks and entries become rows of three
//! tables as they are; entries that take or give back memory are also rows of device allocations,
//! as of any other source. Keys that no column takes stay with their row as JSON.

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
