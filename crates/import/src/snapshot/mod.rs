//! Imports memory snapshots of PyTorch (`torch.cuda.memory._dump_snapshot`). A snapshot contains
//! the memory that the caching allocator has reserved, its blocks, and the allocator's earlier
//! actions.
//!
//! A snapshot is a pickle of plain values. Its segments, blocks and entries become rows of three
//! tables, unchanged. Entries that allocate or free memory also become rows of device allocations,
//! so that analyses treat them like those of any other source. Keys that have no column are stored
//! with their row as JSON.

mod entries;
mod error;
mod file;
mod json;
mod segments;
mod stacks;
mod state;
mod totals;

pub(crate) use error::SnapshotError;
pub(crate) use file::read;
