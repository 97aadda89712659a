//! Holds the memory of the tables that the first stack and the first sampled block need. Many short
//! processes have neither. The kernel zeroes this memory in a forked child: the ids in it refer to
//! definitions in the parent's region, and the child assigns ids anew in its own.

use crate::fork_tables;
use tprof_wire::sync::AtomicPtr;

/// Memory of `recent_stacks`: one page, then 256 KiB. It is null, or the page-aligned address of a
/// zeroed mapping that is never unmapped.
pub static RECENT: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// Bytes of [`RECENT`].
pub const RECENT_BYTES: usize = (4 << 10) + (256 << 10);
/// Memory of the first table of `stacks`. It is null, or the page-aligned address of a zeroed
/// mapping that is never unmapped.
pub static STACKS: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// Bytes of [`STACKS`].
pub const STACKS_BYTES: usize = 8 << 10;
/// Memory of `sampled_blocks`. It is null, or the page-aligned address of a zeroed mapping that is
/// never unmapped.
pub static SAMPLED_BLOCKS: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// Bytes of [`SAMPLED_BLOCKS`]: the filter, one page, and 512 KiB.
pub const SAMPLED_BLOCKS_BYTES: usize = (16 << 10) + (4 << 10) + (512 << 10);

/// Maps the tables that are not mapped yet.
pub fn map() {
    let tables =
        [(&RECENT, RECENT_BYTES), (&STACKS, STACKS_BYTES), (&SAMPLED_BLOCKS, SAMPLED_BLOCKS_BYTES)];
    fork_tables::map_together(tables);
}
